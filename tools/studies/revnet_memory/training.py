"""Trains a RevNet of any depth on generated images, and stops at marks so that another process can measure it.

Run as `python -m tools.studies.revnet_memory.training`. The argument is JSON: a `Training`, and a folder.
`tools.studies.revnet_memory.measurement` describes the marks and the answers to them.
"""

import ctypes
import functools
import json
import sys
from typing import Any

from compat import tf
from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from inception_v3.input_pipeline import InputPipeline
from inception_v3.networks import revnet
from inception_v3.networks.registry import NETWORKS
from tools.benchmarks.measurement import be_killed_first, reason_of
from tools.studies.revnet_memory.measurement import AS_PUBLISHED, KEEP, MARK, PUBLISHED, Training

# Parameters of mallopt(3), with values that keep freed memory. Without them, each large tensor gets new pages from the
# system, which adds half the CPU time.
_M_MMAP_MAX, _M_TRIM_THRESHOLD = (-4, 0), (-1, 2**31 - 1)


def train(training: Training, model_dir: str) -> None:
    """Trains until standard input ends; see `_Marks`."""
    if training.units != AS_PUBLISHED:
        # The builder of a RevNet is a partial function of its architecture.
        (architecture,) = getattr(revnet, training.network).args
        build = functools.partial(
            revnet.revnet, architecture._replace(units=(training.units,) * len(architecture.units))
        )
        NETWORKS[training.network] = NETWORKS[training.network]._replace(build=build)
    size, num_classes = PUBLISHED[training.network]
    # With the paper's optimizer.
    config = Config(
        use_tpu=False,
        use_data='fake',
        network=training.network,
        rebuild_activations=training.is_reversible,
        train_batch_size=training.batch_size,
        height=size,
        width=size,
        num_classes=num_classes,
        optimizer='momentum',
        moving_average=False,
        mode='train',
        model_dir=model_dir,
    )
    # The estimator alone writes no checkpoints, whose memory and time belong to no step.
    estimator = make_estimator(config)
    estimator.train(InputPipeline(is_training=True, config=config), hooks=[_Marks()], max_steps=config.train_steps)


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
    """Runs the training that the argument describes."""
    be_killed_first()
    training, model_dir = json.loads(sys.argv[1])
    try:
        train(Training(*training), model_dir)
    except tf.errors.OpError as error:
        sys.exit(reason_of(error))


if __name__ == '__main__':
    main()
