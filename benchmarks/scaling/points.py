"""Measures one point of an axis, in a process of its own.

The process runs this module, `python -m benchmarks.scaling.points`, which reads a `Point` as JSON from standard input
and prints the measured quantities as JSON.
"""

import json
import os
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import numpy as np

from benchmarks import photographs
from benchmarks.measurement import TRANSFER, Run, answer, cpu_seconds, peak_bytes, perform
from console.tensorflow_versions import tf
from data import records, tf_example
from data.sources import source_of
from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from inception_v3.hooks.step import Step, StepHook, Watcher
from inception_v3.input_pipeline import InputPipeline
from inception_v3.memory.estimate import sizes_for

# The work of an axis that another axis varies, and the images to read at most: an epoch of all hosts.
IMAGES, FILES = 16_384, 64
# With 64 hosts, one image for each.
_BATCH = 64
_SIDE = 75
# Steps of a network; the first, which builds its kernels, does not count.
_STEPS = 4


class Point(NamedTuple):
    """A measurement.

    Attributes:
      axis: one of `AXES`.
      value: the work.
      variant: one of the variants of the axis.
      folder: of the generated photographs, for the axis `pixels`.
    """

    axis: str
    value: int
    variant: str
    folder: str


def write_records(folder: str, images: int, files: int) -> int:
    """Writes training files of one tiny JPEG image, and returns the size of a record in bytes.

    Files with the same number of records are links to one file, so that a million images take little space.
    """
    pixels = np.random.RandomState(0).randint(0, 256, [8, 8, 3], np.uint8)
    with tf.Graph().as_default(), tf.Session() as session:
        encoded = session.run(tf.io.encode_jpeg(pixels))
    serialized = tf_example.make_example(encoded, 'JPEG', 1, 'noise', 8, 8, 'noise.jpg').SerializeToString()
    written: Dict[int, str] = {}
    for file in range(files):
        path = records.shard_path(folder, records.TRAIN, file, files)
        count = images * (file + 1) // files - images * file // files
        if count in written:
            os.symlink(written[count], path)
            continue
        with tf.io.TFRecordWriter(path) as writer:
            for _ in range(count):
                writer.write(serialized)
        written[count] = path
    # Length, two checksums, and the record.
    return 8 + 4 + 4 + len(serialized)


class _Host:
    """The part of TPUEstimator's context that tells an input pipeline the number of hosts. This is the first one."""

    def __init__(self, hosts: int):
        self._hosts = hosts

    def current_input_fn_deployment(self) -> Tuple[str, int, int, int]:
        return '', 0, self._hosts, 1


def _bytes_read() -> int:
    """The bytes that this process has read from files, those in the page cache included."""
    with open('/proc/self/io') as file:
        return int(dict(line.split(': ') for line in file.read().splitlines())['rchar'])


def _input(folder: str, images: int, files: int, hosts: int, variant: str) -> Dict[str, float]:
    """The start and the reading of a host's pipeline: plain, with a seed, or with a seed from half an epoch on."""
    size = write_records(folder, images, files)
    config = Config(
        use_tpu=False,
        data_dir=folder,
        num_train_images=images,
        num_eval_images=1,
        train_batch_size=_BATCH,
        height=_SIDE,
        width=_SIDE,
        seed=None if variant == 'no seed' else 1,
    )
    if config.seed is not None:
        source_of(config).contents(source_of(config).find(records.TRAIN))
    own = _BATCH // hosts
    before, cpu, clock = _bytes_read(), cpu_seconds(), time.perf_counter()
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.train.create_global_step()
        dataset = InputPipeline(True, config)({'batch_size': own, 'context': _Host(hosts)})
        iterator = tf.data.make_initializable_iterator(dataset)
        batch = iterator.get_next()
        session.run(tf.assign(step, images // 2 // _BATCH if variant == 'resumed' else 0))
        session.run(iterator.initializer)
        session.run(batch)
        started = {'start s': time.perf_counter() - clock, 'start CPU-s': cpu_seconds() - cpu}
        begun, cpu = _bytes_read(), cpu_seconds()
        batches = min(IMAGES, images) // _BATCH
        for _ in range(batches):
            session.run(batch)
        cpu = cpu_seconds() - cpu
    if variant == 'resumed':
        # What is read in vain comes before the first batch.
        return {**started, 'MB read at the start': (begun - before) / 1e6}
    return {
        **started,
        'CPU-ms / image': 1000 * cpu / (batches * own),
        'peak MB': peak_bytes() / 1e6,
        'read / used': (_bytes_read() - before) / size / ((batches + 1) * own),
    }


def _counting(folder: str, images: int, files: int) -> Dict[str, float]:
    """The count of the records, which is made once and kept beside the data."""
    write_records(folder, images, files)
    source = source_of(Config(use_tpu=False, data_dir=folder))
    clock = time.perf_counter()
    source.contents(source.find(records.TRAIN))
    return {'counting s': time.perf_counter() - clock}


class _Meter(Watcher):
    """Records the CPU time at the end of the graph's construction and after each step."""

    def __init__(self) -> None:
        self.built = 0.0
        self.steps: List[float] = []

    def graph_built(self) -> None:
        self.built = cpu_seconds()

    def step_done(self, session: Any, done: Step) -> None:
        self.steps.append(cpu_seconds())


def _network(folder: str, **settings: Any) -> Dict[str, float]:
    """The construction of a network and a training step of random pixels."""
    config = Config(
        use_tpu=False,
        use_data='fake',
        num_train_images=1000,
        num_eval_images=1,
        auxiliary_head=False,
        mode='train',
        model_dir=folder,
        **settings,
    )
    meter, cpu = _Meter(), cpu_seconds()
    pipeline = InputPipeline(True, config)

    def one_batch(params: Dict[str, Any]) -> tf.data.Dataset:
        return pipeline(params).take(1).cache().repeat()

    make_estimator(config, writes=False).train(one_batch, hooks=[StepHook([meter])], max_steps=_STEPS)
    return {
        'parameters': sizes_for(config).parameters,
        'graph CPU-s': meter.built - cpu,
        'step CPU-s': (meter.steps[-1] - meter.steps[0]) / (_STEPS - 1),
        'peak MB': peak_bytes() / 1e6,
    }


def _pixels(folder: str, side: int, variant: str, photographs_folder: str) -> Dict[str, float]:
    if variant == 'step':
        return _network(folder, height=side, width=side, train_batch_size=1)
    photographs.make(photographs_folder)
    config = Config(
        use_tpu=False, data_dir=photographs_folder, num_classes=8, height=side, width=side, train_batch_size=16
    )
    found = perform(Run(is_naive=False, is_training=True, until=TRANSFER, config=config, images=256))
    return {'CPU-ms / image': found.cpu_ms, 'peak MB': found.peak_mb}


def measure(point: Point) -> Dict[str, float]:
    """Measures a point in this process.

    Returns:
      The quantities by name; those of inputs end with their variant in the command's table.
    """
    measured: Dict[str, Callable[[str], Dict[str, float]]] = {
        'images': lambda folder: (
            _counting(folder, point.value, FILES)
            if point.variant == 'counting'
            else _input(folder, point.value, FILES, 1, point.variant)
        ),
        'files': lambda folder: _input(folder, IMAGES, point.value, 1, point.variant),
        'hosts': lambda folder: _input(folder, IMAGES, FILES, point.value, point.variant),
        'classes': lambda folder: _network(
            folder, height=_SIDE, width=_SIDE, train_batch_size=2, num_classes=point.value
        ),
        'pixels': lambda folder: _pixels(folder, point.value, point.variant, point.folder),
    }
    with tempfile.TemporaryDirectory() as folder:
        return measured[point.axis](folder)


if __name__ == '__main__':
    sys.exit(answer(lambda text: measure(Point(**json.loads(text)))))
