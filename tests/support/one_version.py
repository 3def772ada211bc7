"""Prepares batches, trains and serves with one version of TensorFlow: python -m tests.support.one_version FILE.

FILE holds a list of calls of the functions below as JSON, each a name and its arguments. Runs have a network of one
layer, so that they take seconds.
"""

import itertools
import json
import pathlib
import sys
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np

from console.tensorflow_versions import tf
from data import records, tfrecord_files
from inception_v3.commands.predict.classifier import of_saved_model
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline
from inception_v3.networks.registry import NETWORKS
from tests.support.runs import ONE_LAYER, execute

_ROOT = pathlib.Path(__file__).resolve().parents[2]


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


def command(version: str, file: pathlib.Path, calls: Sequence[Tuple[str, Dict[str, Any]]]) -> List[str]:
    """Writes calls to a file, and returns the command that makes them with a version of TensorFlow."""
    file.write_text(json.dumps(calls))
    return [str(_ROOT / 'run'), f'--tf={version}', 'python', '-m', 'tests.support.one_version', str(file)]


if __name__ == '__main__':
    NETWORKS['inception_v3'] = ONE_LAYER
    _FUNCTIONS: Dict[str, Callable[..., None]] = {'batches': batches, 'train': train, 'serve': serve}
    for _name, _arguments in json.loads(pathlib.Path(sys.argv[1]).read_text()):
        _FUNCTIONS[_name](**_arguments)
