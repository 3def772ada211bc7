"""TensorFlow 1.15 and each later version agree for a seed, and continue and serve each other's runs.

`python -m tests.test_tensorflow_versions FILE` makes the calls in FILE with one version: a JSON list of the names of
functions below, each with its arguments. Runs have a network of one layer, so that they take seconds.
"""

import dataclasses
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
from typing import Any, Dict, List

import numpy as np
import pytest

from compat import tf
from data import records, tfrecord_files
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline
from inception_v3.networks.registry import NETWORKS
from inception_v3.run.starts import read_first_steps
from tests.support.project import ROOT
from tests.support.runs import ONE_LAYER, execute, make_small_config
from tests.support.shared import once
from tools.predict.classifier import of_saved_model

pytestmark = pytest.mark.program
# The compared batches: whether they are for training, and their settings.
BATCHES: Dict[str, Any] = {
    'train, full colour': {'use_fast_color_distort': False, 'fast_mode': False},
    'train, vgg': {'preprocessing': 'vgg'},
    'train, uint8': {'transfer': 'uint8'},
    'eval': {},
}


def batches(path: str, is_training: bool, config: Dict[str, Any]) -> None:
    """Saves the first two batches of the input pipeline: an array for each part of the features, and `labels`."""
    pipeline = InputPipeline(is_training, Config(**config))
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = pipeline({'batch_size': config['train_batch_size']})
        features, labels = tf.data.make_one_shot_iterator(dataset).get_next()
        features = features if isinstance(features, dict) else {'images': features}
        parts = [session.run({**features, 'labels': labels}) for _ in range(2)]
    np.savez(path, **{name: np.stack([part[name] for part in parts]) for name in parts[0]})


def train(config: Dict[str, Any]) -> None:
    """Executes a run, which resumes if its model_dir has a checkpoint."""
    execute(Config(**config))


def serve(path: str, export_dir: str, data_dir: str) -> None:
    """Saves the probabilities that the SavedModel in `export_dir` returns for 16 validation images."""
    (saved_model,) = pathlib.Path(export_dir).glob('[0-9]*')
    shards = records.find_shards(data_dir, records.VALIDATION)
    serialized = itertools.islice(itertools.chain.from_iterable(map(tfrecord_files.serialized_in, shards)), 16)
    features = [tf.train.Example.FromString(record).features.feature for record in serialized]
    classifier = of_saved_model(str(saved_model))
    encoded = [feature['image/encoded'].bytes_list.value[0] for feature in features]
    np.save(path, np.stack([*classifier.classify(encoded)]))
    classifier.close()


def perform(version: str, folder: pathlib.Path, *calls: Any) -> None:
    path = folder / 'calls.json'
    path.write_text(json.dumps(calls))
    command = [str(ROOT / 'run'), f'--tf={version}', 'python', '-m', 'tests.test_tensorflow_versions', str(path)]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope='module')
def versions() -> List[str]:
    """TensorFlow 1.15 and the later versions that are installed."""
    folders = {'1.15': '.venv', '2.15': '.venv-2.15', '2.21': '.venv-2.21'}
    found = [version for version, folder in folders.items() if (ROOT / folder / 'installed.lock').exists()]
    if len(found) < 2 or found[0] != '1.15':
        pytest.skip('needs .venv, and .venv-2.15 or .venv-2.21: ./run true and ./run --tf=2.15 true make them')
    return found


def training(config: Config, folder: pathlib.Path, name: str, **changes: Any) -> Any:
    """The call that trains a run, in the folder `name`."""
    changed = dataclasses.replace(config, mode='train', model_dir=str(folder / name), **changes)
    return 'train', {'config': dataclasses.asdict(changed)}


@pytest.fixture(scope='module')
def seeded(digits_dir: str) -> Config:
    return make_small_config(digits_dir, seed=1, intra_op_threads=2, learning_rate=0.3)


@pytest.fixture(scope='module')
def begun(versions: List[str], seeded: Config, photo_dir: str, tmp_path_factory: Any) -> pathlib.Path:
    """A folder where each version has saved batches, trained and exported the first step, and been copied."""
    changes = {'data_dir': photo_dir, 'num_train_images': 5, 'num_eval_images': 5, 'num_classes': 6}
    config = dataclasses.replace(seeded, eval_batch_size=3, train_batch_size=3, **changes)

    def make(of_session: str) -> None:
        folder = pathlib.Path(of_session)
        for version in versions:
            calls = [training(seeded, folder, version, train_steps=1, export_dir=str(folder / f'export-{version}'))]
            for name, settings in BATCHES.items():
                changed = dataclasses.asdict(dataclasses.replace(config, **settings))
                path = str(folder / f'{version} {name}.npz')
                calls.append(('batches', {'path': path, 'is_training': name != 'eval', 'config': changed}))
            perform(version, folder, *calls)

    return pathlib.Path(once(tmp_path_factory, 'versions', make))


def test_versions__prepare_the_same_bits(versions: List[str], begun: pathlib.Path) -> None:
    for name in BATCHES:
        one, *others = (np.load(str(begun / f'{version} {name}.npz')) for version in versions)
        assert one['images'].shape[:2] == (2, 3)
        for other in others:
            assert {*one.files} == {*other.files} >= {'images', 'labels'}
            for array in one.files:
                assert one[array].dtype == other[array].dtype and one[array].tobytes() == other[array].tobytes()


def values_of(model_dir: pathlib.Path, step: int) -> Dict[str, np.ndarray]:
    """The trained variables and moving statistics after a step, without averages and the optimizer's slots."""
    reader = tf.train.load_checkpoint(str(model_dir / f'model.ckpt-{step}'))
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith(('Layer/', 'Logits/'))]
    slots = ('ExponentialMovingAverage', 'RMSProp', 'RMSProp_1')
    return {name: reader.get_tensor(name) for name in sorted(names) if not name.endswith(slots)}


def distance(one: Dict[str, np.ndarray], other: Dict[str, np.ndarray]) -> float:
    """The norm of the differences of all variables."""
    assert one.keys() == other.keys() and len(one) >= 6
    return float(np.sqrt(sum(np.square(one[name].astype(np.float64) - other[name]).sum() for name in one)))


def test_versions__train_alike_and_take_over_from_each_other(
    versions: List[str], begun: pathlib.Path, seeded: Config
) -> None:
    first, *later = versions
    # The runs that each version takes over, and the SavedModels that it serves.
    others = {first: later, **{version: [first] for version in later}}
    for version in versions:
        serving = []
        for of in (version, *others[version]):
            paths = {'path': str(begun / f'{of}-in-{version}.npy'), 'export_dir': str(begun / f'export-{of}')}
            serving.append(('serve', {**paths, 'data_dir': seeded.data_dir}))
        names = [f'{of}-in-{version}' for of in (version, *others[version])]
        for name in names:
            shutil.copytree(str(begun / name.partition('-')[0]), str(begun / name))
        perform(version, begun, *(training(seeded, begun, name, train_steps=2) for name in names), *serving)
    losses = [read_first_steps(str(begun / version))[0].loss for version in versions]
    assert losses == pytest.approx([losses[0]] * len(losses), rel=2e-6)
    initial = values_of(begun / first, 0)
    last = {version: values_of(begun / f'{version}-in-{version}', 2) for version in versions}
    change = distance(last[first], initial)
    for version in versions:
        assert distance(values_of(begun / version, 0), initial) == 0
        assert distance(last[version], last[first]) < 1e-4 * change
        for of in others[version]:
            resumed = values_of(begun / f'{of}-in-{version}', 2)
            assert distance(resumed, last[of]) < 1e-4 * change
            # The step of the resuming version has changed the weights.
            assert distance(resumed, values_of(begun / of, 1)) > 0.1 * change
            own, other = (np.load(str(begun / f'{of}-in-{each}.npy')) for each in (of, version))
            assert len(own) == 16 and (own.argmax(-1) == other.argmax(-1)).all()
            np.testing.assert_allclose(own, other, rtol=0, atol=1e-5)


if __name__ == '__main__':
    NETWORKS['inception_v3'] = ONE_LAYER
    for _name, _arguments in json.loads(pathlib.Path(sys.argv[1]).read_text()):
        globals()[_name](**_arguments)
