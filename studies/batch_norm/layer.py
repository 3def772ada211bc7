"""A batch normalization layer of the program, on one device or on emulated cores."""

import contextlib
import dataclasses
import itertools
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Tuple

import numpy as np

from console.tensorflow_versions import tf
from inception_v3.batch_norm import batch_norm_for
from inception_v3.config import Config
from inception_v3.tpu import topology
from inception_v3.tpu.emulation.cores import EmulatedCores

# The published experiment. Its layer is Keras' with the defaults: momentum (the decay) 0.99 and epsilon 1e-3.
REPLICAS = 8
ROWS = 256
CHANNELS = 64
DECAY = 0.99

ONE_DEVICE = Config(use_tpu=False, train_batch_size=ROWS, eval_batch_size=ROWS, batch_norm_decay=DECAY)
EIGHT_CORES = dataclasses.replace(ONE_DEVICE, use_tpu=True, tpu=f'emulated:{REPLICAS}', num_shards=REPLICAS)
LOCAL = 'local'
AVERAGED = 'averaged'
SYNCHRONIZED = 'synchronized'
GROUPS = {f'groups of {size}': size for size in (2, 4)}
MODES: Dict[str, Config] = {
    LOCAL: dataclasses.replace(EIGHT_CORES, batch_norm='local'),
    AVERAGED: dataclasses.replace(EIGHT_CORES, batch_norm='averaged'),
    SYNCHRONIZED: dataclasses.replace(EIGHT_CORES, batch_norm='synchronized'),
    **{
        name: dataclasses.replace(EIGHT_CORES, batch_norm='synchronized', batch_norm_group_size=size)
        for name, size in GROUPS.items()
    },
}


class Statistics(NamedTuple):
    """Moving statistics, or the moments of a batch: one value per channel each."""

    mean: np.ndarray
    variance: np.ndarray


def train(config: Config, batches: Iterable[np.ndarray]) -> Iterator[Tuple[np.ndarray, Statistics]]:
    """Trains a batch normalization layer alone.

    Args:
      config: the kind of batch normalization, and the cores.
      batches: float32 [rows, channels], all of the same shape; the cores share the rows, in order.

    Yields:
      The outputs of a step, [rows, channels], and the moving statistics after it.
    """
    batches = iter(batches)
    first = next(batches)
    with tf.Graph().as_default() as graph:
        rows = tf.placeholder(tf.float32, first.shape)
        outputs = _on_all_replicas(config, rows, batch_norm_for(config, is_training=True))
        statistics = _moving_statistics()
    with _new_session(config, graph) as session:
        for batch in itertools.chain([first], batches):
            trained = np.concatenate(session.run(outputs, {rows: batch}))
            yield trained[:, 0, 0], Statistics(*session.run(statistics))


def infer(config: Config, batch: np.ndarray, statistics: Statistics) -> np.ndarray:
    """Normalizes a batch with given moving statistics, as evaluation does with those of a checkpoint.

    Args:
      config: the cores.
      batch: float32 [rows, channels].
      statistics: the moving statistics.

    Returns:
      The outputs, [rows, channels].
    """
    with tf.Graph().as_default() as graph:
        rows = tf.placeholder(tf.float32, batch.shape)
        outputs = _on_all_replicas(config, rows, batch_norm_for(config, is_training=False))
        variables = _moving_statistics()
    with _new_session(config, graph) as session:
        for variable, value in zip(variables, statistics):
            variable.load(value, session)
        return np.concatenate(session.run(outputs, {rows: batch}))[:, 0, 0]


def moments_of(batch: np.ndarray) -> Statistics:
    """The mean and the unbiased variance of a batch, [rows, channels], in float64, as the layer computes them."""
    # With a decay of 0, the moving statistics are the moments of the last rows.
    ((_, statistics),) = train(dataclasses.replace(ONE_DEVICE, batch_norm_decay=0.0), [batch])
    return Statistics(*(values.astype(np.float64) for values in statistics))


def _on_all_replicas(config: Config, rows: tf.Tensor, computation: Callable[[tf.Tensor], Any]) -> List[Any]:
    """Builds a computation on each replica's share of the rows, [batch, 1, 1, channels]."""
    shares = tf.split(rows[:, tf.newaxis, tf.newaxis], config.replicas)
    if not config.is_emulated:
        return [computation(*shares)]
    cores = EmulatedCores(topology.emulated(str(config.tpu)))
    with cores.in_place_of_a_tpu():
        return cores.replicate(lambda core: computation(shares[core]))


def _moving_statistics() -> List[tf.Variable]:
    """The moving mean and variance: those of the current emulated core; outside of all cores, those of the first."""
    return [variable for variable in tf.global_variables() if not variable.trainable]


@contextlib.contextmanager
def _new_session(config: Config, graph: tf.Graph) -> Iterator[tf.Session]:
    """A session with initialized variables; one intra-op thread makes its sums repeatable."""
    devices = topology.emulated(str(config.tpu)).devices if config.is_emulated else 1
    options = tf.ConfigProto(device_count={'CPU': devices}, intra_op_parallelism_threads=1)
    with graph.as_default():
        initial = [tf.global_variables_initializer(), tf.local_variables_initializer()]
    with contextlib.closing(tf.Session(graph=graph, config=options)) as session:
        session.run(initial)
        yield session
