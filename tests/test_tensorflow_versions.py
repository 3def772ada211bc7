"""TensorFlow 1.15 and each later one do the same with one seed, and continue and serve each other's runs."""

import dataclasses
import pathlib
import shutil
import subprocess
from typing import Any, Dict, Tuple

import numpy as np
import pytest

from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.run import history
from tests.support.one_version import command
from tests.support.runs import make_small_config

ROOT = pathlib.Path(__file__).resolve().parents[1]
Versions = Tuple[str, str]
pytestmark = pytest.mark.program


@pytest.fixture(params=['2.15', '2.21'])
def versions(request: Any) -> Versions:
    if not all((ROOT / folder / 'installed.lock').exists() for folder in ('.venv', f'.venv-{request.param}')):
        pytest.skip(f'needs .venv and .venv-{request.param}: ./run true and ./run --tf={request.param} true make them')
    return '1.15', request.param


@pytest.fixture
def seeded(digits_dir: str) -> Config:
    return make_small_config(digits_dir, seed=1, intra_op_threads=2, learning_rate=0.3)


def perform(version: str, folder: pathlib.Path, *calls: Any) -> None:
    done = subprocess.run(command(version, folder / 'calls.json', calls), cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


def test_versions__prepare_the_same_bits(
    versions: Versions, photo_dir: str, seeded: Config, tmp_path: pathlib.Path
) -> None:
    changes = {'data_dir': photo_dir, 'num_train_images': 5, 'num_eval_images': 5, 'num_classes': 6}
    config = dataclasses.replace(seeded, eval_batch_size=3, train_batch_size=3, **changes)
    variants: Dict[str, Any] = {
        'train, full colour': {'use_fast_color_distort': False, 'fast_mode': False},
        'train, vgg': {'preprocessing': 'vgg'},
        'train, uint8': {'transfer': 'uint8'},
        'eval': {},
    }
    for version in versions:
        calls = []
        for name, settings in variants.items():
            changed = dataclasses.asdict(dataclasses.replace(config, **settings))
            path = str(tmp_path / f'{version} {name}.npz')
            calls.append(('batches', {'path': path, 'is_training': name != 'eval', 'config': changed}))
        perform(version, tmp_path, *calls)
    for name in variants:
        one, other = (np.load(str(tmp_path / f'{version} {name}.npz')) for version in versions)
        assert one['images'].shape[:2] == (2, 3) and {*one.files} == {*other.files} >= {'images', 'labels'}
        for array in one.files:
            assert one[array].dtype == other[array].dtype and one[array].tobytes() == other[array].tobytes()


def values_of(model_dir: pathlib.Path, step: int) -> Dict[str, np.ndarray]:
    """The trained variables and moving statistics after a step, without averages and the sums of the optimizer."""
    reader = tf.train.load_checkpoint(str(model_dir / f'model.ckpt-{step}'))
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith(('Layer/', 'Logits/'))]
    slots = ('ExponentialMovingAverage', 'RMSProp', 'RMSProp_1')
    return {name: reader.get_tensor(name) for name in sorted(names) if not name.endswith(slots)}


def distance(one: Dict[str, np.ndarray], other: Dict[str, np.ndarray]) -> float:
    """The norm of the differences of all variables."""
    assert one.keys() == other.keys() and len(one) >= 6
    return float(np.sqrt(sum(np.square(one[name].astype(np.float64) - other[name]).sum() for name in one)))


def test_versions__train_alike_and_take_over_from_each_other(
    versions: Versions, seeded: Config, tmp_path: pathlib.Path
) -> None:
    def train(name: str, **changes: Any) -> Any:
        changed = dataclasses.replace(seeded, mode='train', model_dir=str(tmp_path / name), **changes)
        return 'train', {'config': dataclasses.asdict(changed)}

    def served(version: str, of: str) -> str:
        return str(tmp_path / f'{of}-in-{version}.npy')

    for version in versions:
        perform(version, tmp_path, train(version, train_steps=1, export_dir=str(tmp_path / f'export-{version}')))
        shutil.copytree(str(tmp_path / version), str(tmp_path / f'{version}-resumed'))
    for version, other in (versions, versions[::-1]):
        serving = []
        for of in versions:
            paths = {'path': served(version, of), 'export_dir': str(tmp_path / f'export-{of}')}
            serving.append(('serve', {**paths, 'data_dir': seeded.data_dir}))
        # The second step: of its own run, and of the other version's.
        perform(version, tmp_path, *(train(name, train_steps=2) for name in (version, f'{other}-resumed')), *serving)
    losses = [history.read_first_steps(str(tmp_path / version))[0].loss for version in versions]
    assert losses[1] == pytest.approx(losses[0], rel=2e-6)
    initial = [values_of(tmp_path / version, 0) for version in versions]
    assert distance(*initial) == 0
    names = (*versions, *(f'{version}-resumed' for version in versions))
    last = {name: values_of(tmp_path / name, 2) for name in names}
    change = distance(last['1.15'], initial[0])
    for pair in (versions, *((version, f'{version}-resumed') for version in versions)):
        assert distance(*(last[name] for name in pair)) < 1e-4 * change
    # The step of the resuming version has changed the weights.
    assert distance(last['1.15-resumed'], values_of(tmp_path / '1.15', 1)) > 0.1 * change
    for of in versions:
        first, second = (np.load(served(version, of)) for version in versions)
        assert len(first) == 16 and (first.argmax(-1) == second.argmax(-1)).all()
        np.testing.assert_allclose(first, second, rtol=0, atol=1e-5)
