"""Trains a RevNet of any depth on generated images, and stops at marks so that another process can measure it.

Run as `python -m studies.revnet_memory.training`. The first line of standard input is JSON: a `Training`, and a folder.
At a mark the process prints `mark` and waits for a line: the number of steps to the next mark, and optionally the word
`keep`, which makes the C library keep freed memory from then on.
"""

import ctypes
import functools
import json
import sys
from typing import Any, NamedTuple

from benchmarks.measurement import be_killed_first, reason_of
from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from inception_v3.input_pipeline import InputPipeline
from inception_v3.networks import revnet
from inception_v3.networks.registry import NETWORKS

MARK = b'mark\n'
KEEP = 'keep'
# Parameters of mallopt(3), with values that keep freed memory. Without them, each large tensor gets new pages from the
# system, which adds half the CPU time.
_M_MMAP_MAX, _M_TRIM_THRESHOLD = (-4, 0), (-1, 2**31 - 1)


class Published(NamedTuple):
    """A network of the paper.

    Attributes:
      architecture: its table.
      size: height and width of its images, in pixels.
      num_classes: number of classes, including background.
    """

    architecture: revnet.Architecture
    size: int
    num_classes: int


PUBLISHED = {
    'revnet38': Published(revnet.REVNET_38, 32, 11),
    'revnet110': Published(revnet.REVNET_110, 32, 11),
    'revnet56': Published(revnet.REVNET_56, 224, 1001),
    'revnet104': Published(revnet.REVNET_104, 224, 1001),
}


AS_PUBLISHED = 0


class Training(NamedTuple):
    """A training to measure.

    Attributes:
      network: name of a RevNet.
      units: blocks in each stage; `AS_PUBLISHED`: as many as in the paper's network.
      batch_size: images in a step.
      size: height and width of the images, in pixels.
      is_reversible: whether activations are rebuilt in the backward pass (reversible) or kept (plain).
    """

    network: str
    units: int
    batch_size: int
    size: int
    is_reversible: bool

    def __str__(self) -> str:
        way = 'reversible' if self.is_reversible else 'plain'
        units = f'{self.units} blocks a stage' if self.units else f'{self.network} as published'
        return f'{way}, {units}, batches of {self.batch_size}'


def config_of(training: Training, model_dir: str) -> Config:
    """The program's configuration for a training.

    Raises:
      ConfigError: the program does not allow it, such as images that are too small.
    """
    return Config(
        use_tpu=False,
        use_data='fake',
        network=training.network,
        rebuild_activations=training.is_reversible,
        train_batch_size=training.batch_size,
        height=training.size,
        width=training.size,
        num_classes=PUBLISHED[training.network].num_classes,
        # The paper's optimizer.
        optimizer='momentum',
        moving_average=False,
        mode='train',
        model_dir=model_dir,
    )


def train(training: Training, model_dir: str) -> None:
    """Trains until standard input ends; see `_Marks`."""
    if training.units != AS_PUBLISHED:
        architecture = PUBLISHED[training.network].architecture
        architecture = architecture._replace(units=(training.units,) * len(architecture.units))
        build = functools.partial(revnet.revnet, architecture)
        NETWORKS[training.network] = NETWORKS[training.network]._replace(build=build)
    config = config_of(training, model_dir)
    # Checkpoints would add memory and time that belong to no step.
    estimator = make_estimator(config, writes=False)
    estimator.train(InputPipeline(True, config), hooks=[_Marks()], max_steps=config.train_steps)


class _Marks(tf.estimator.SessionRunHook):
    """Stops at a mark before the first step, and after each number of steps that it receives there."""

    def after_create_session(self, session: tf.Session, coord: Any) -> None:
        self._steps_left = _stop()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._steps_left -= 1
        if not self._steps_left:
            self._steps_left = _stop()


def _stop() -> int:
    """Waits at a mark and returns the number of steps to the next; ends the process if standard input has ended."""
    sys.stdout.buffer.write(MARK)
    sys.stdout.flush()
    words = sys.stdin.readline().split()
    if not words:
        sys.exit()
    if KEEP in words:
        for parameter in (_M_MMAP_MAX, _M_TRIM_THRESHOLD):
            ctypes.CDLL(None).mallopt(*parameter)
    return int(words[0])


def main() -> None:
    """Trains what the first line of standard input describes."""
    be_killed_first()
    training, model_dir = json.loads(sys.stdin.readline())
    try:
        train(Training(*training), model_dir)
    except tf.errors.OpError as error:
        sys.exit(reason_of(error))


if __name__ == '__main__':
    main()
