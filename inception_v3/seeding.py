"""Effects of `--seed` other than on the data: initial weights, dropout, and repeatable arithmetic."""

import zlib
from typing import Any, Callable

from compat import tf  # isort: skip  Before TensorFlow is loaded.
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from inception_v3 import replicas
from inception_v3.config import Config
from inception_v3.networks import layers
from inception_v3.networks.threefry import uniform_rows
from inception_v3.tpu import accelerator


def session_config(config: Config) -> tf.ConfigProto:
    """The configuration of a run's TensorFlow sessions."""
    session = tf.ConfigProto(
        allow_soft_placement=True,
        log_device_placement=config.log_device_placement,
        intra_op_parallelism_threads=config.intra_op_threads,
    )
    accelerator.set_devices(session, config)
    rewriting = session.graph_options.rewrite_options
    # On a CPU, TensorFlow's graph optimizer makes no training step faster (docs/measurements.md). It processes the
    # whole graph for each kind of request to a session: to initialize, save, train, …
    rewriting.disable_meta_optimizer = not (config.use_tpu or accelerator.on_gpu(config))
    if config.seed is not None:
        # This optimization merges additions into one AddN, whose order of additions varies.
        rewriting.arithmetic_optimization = rewriting.OFF
    return session


def aggregation_method(config: Config) -> int:
    """The method that sums the gradients of one variable: with a seed, one that adds in a fixed order, unlike AddN."""
    methods = tf.AggregationMethod
    return methods.ADD_N if config.seed is None else methods.EXPERIMENTAL_TREE


def _number_for(name: str, config: Config) -> int:
    """A number below 2 ** 31 that follows from the seed and a name."""
    return zlib.crc32(f'{config.seed} {name}'.encode()) >> 1


def variable_getter(config: Config) -> Callable:
    """A getter for `tf.variable_scope`: initial values follow from the seed and the variable's name.

    TensorFlow's own initial values also depend on the rest of the graph.
    """

    def get(getter: Callable, name: str, *arguments: Any, initializer: Any = None, **options: Any) -> tf.Variable:
        if config.seed is not None and hasattr(initializer, 'seed'):
            settings = {**initializer.get_config(), 'seed': _number_for(name, config)}
            initializer = type(initializer).from_config(settings)
        return getter(name, *arguments, initializer=initializer, **options)

    return get


def dropout_for(config: Config) -> layers.Dropout:
    """The dropout of a run; with a seed, it depends on seed, step and the image's position in the global batch."""
    if config.seed is None:
        return layers.dropout

    def dropout(inputs: tf.Tensor, keep: float, is_training: bool) -> tf.Tensor:
        if not is_training:
            return inputs
        images = inputs.shape.as_list()[0]
        number = tf.constant(_number_for(tf.get_variable_scope().name, config))
        step = tf.cast(tf.train.get_or_create_global_step(), tf.int32)
        replica = gen_xla_ops.xla_replica_id() if config.use_tpu else replicas.number()
        # A core draws numbers for its own images only; the numbers for a global batch may exceed its memory.
        draws = uniform_rows((number, step), replica * images + tf.range(images), inputs.shape[1:].num_elements())
        kept = tf.reshape(draws < keep, inputs.shape)
        return inputs * tf.cast(kept, inputs.dtype) * (1 / keep)

    return dropout
