"""Does jobs of the comparison in the environment of one version: python -m studies.versions.part FILE.

FILE holds a list of jobs as JSON. Each is replaced by its result.
"""

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import pathlib
import sys
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np

from benchmarks import measurement, repeatability
from console import program
from console.screen import Screen, set_up_logging
from console.tensorflow_versions import tf
from data import records, tfrecord
from inception_v3.config import Config
from inception_v3.cycles import Run
from inception_v3.input_pipeline import InputPipeline
from inception_v3.predict.classifier import SavedModelClassifier

Job = Dict[str, Any]


def batches(config: Config, is_training: bool, count: int, path: str) -> None:
    """Saves the first batches of the input pipeline, and digests of the records in the order in which they are read.

    Args:
      config: of the run; the seed determines the order and the distortions.
      is_training: whether to read the training records.
      count: the number of batches.
      path: of the NumPy archive: an array `records`, an array for each part of the features, and `labels`.
    """
    size = config.train_batch_size if is_training else config.eval_batch_size
    pipeline = InputPipeline(is_training, config)
    with tf.Graph().as_default(), tf.Session() as session:
        features, labels = tf.data.make_one_shot_iterator(pipeline({'batch_size': size})).get_next()
        features = features if isinstance(features, dict) else {'images': features}
        parts = [session.run({**features, 'labels': labels}) for _ in range(count)]
        record = tf.nest.flatten(tf.data.make_one_shot_iterator(pipeline.storage()).get_next())[0]
        order: List[str] = []
        # The last batch of evaluation may be padded.
        with contextlib.suppress(tf.errors.OutOfRangeError):
            while len(order) < count * size:
                order.append(hashlib.sha256(session.run(record)).hexdigest())
    arrays = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    np.savez(path, records=np.array(order), **arrays)


def train(config: Config) -> None:
    """Executes a run, which resumes if its model_dir has a checkpoint."""
    Run(config, Screen(io.StringIO())).execute()


def serve(saved_model: str, data_dir: str, count: int, path: str) -> None:
    """Saves the probabilities that a SavedModel returns for the first validation images."""
    paths = records.find_shards(data_dir, records.VALIDATION)
    serialized = itertools.islice(itertools.chain.from_iterable(map(tfrecord.serialized_in, paths)), count)
    features = [tf.train.Example.FromString(record).features.feature for record in serialized]
    classifier = SavedModelClassifier(saved_model)
    try:
        encoded = [feature['image/encoded'].bytes_list.value[0] for feature in features]
        np.save(path, np.stack([*classifier.classify(encoded)]))
    finally:
        classifier.close()


def input_cost(config: Config, is_training: bool, images: int) -> float:
    """The CPU time of the input pipeline per image, in milliseconds."""
    return measurement.perform(measurement.Run(False, is_training, measurement.TRANSFER, config, images)).cpu_ms


def step_cost(config: Config) -> float:
    """The CPU time of a training step, in seconds."""
    return repeatability.measure_here(config).cpu_ms * config.train_batch_size / 1000


_FUNCTIONS: Tuple[Callable[..., Any], ...] = (batches, train, serve, input_cost, step_cost)
_JOBS = {function.__name__: function for function in _FUNCTIONS}


def job(function: Callable[..., Any], **arguments: Any) -> Job:
    """Describes a call of one of the functions above."""
    values = {name: dataclasses.asdict(value) if name == 'config' else value for name, value in arguments.items()}
    return {'job': function.__name__, **values}


def main(argv: Sequence[str]) -> int:
    """Does the jobs, and returns the exit code."""

    def command(screen: Screen) -> None:
        set_up_logging(screen, False)
        file = pathlib.Path(argv[1])
        results: List[Any] = []
        for described in json.loads(file.read_text()):
            if 'config' in described:
                described['config'] = Config(**described['config'])
            results.append(_JOBS[described.pop('job')](**described))
        file.write_text(json.dumps(results))

    return program.run(command)


if __name__ == '__main__':
    sys.exit(main(sys.argv))
