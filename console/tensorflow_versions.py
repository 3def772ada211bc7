"""Differences between TensorFlow 1.15, the reference, and 2.15, the last version that has Estimator.

Every module takes TensorFlow from here: as `tf` the interface of version 1, which both versions have, and as `tf2` what
only the interface of version 2 has: summaries with descriptions, and the class of all variables. The functions below
are for names that the two versions keep in different places.
"""

import contextlib
import os
import sys
from typing import Any, Callable, ContextManager, Iterator

from console import log, tensorflow_settings  # noqa: F401  Before TensorFlow is loaded.

import tensorflow.compat.v1 as tf  # isort: skip
import tensorflow.compat.v2 as tf2  # isort: skip  # noqa: F401

# 2.15 executes eagerly by default, and its graphs have other variables, control flow and shapes.
tf.disable_v2_behavior()
log.settle_tensorflow()

# Whether integers are converted to floats with vector instructions: 300 x 320 x 3 bytes in 40 µs instead of 409.
CASTS_IN_VECTORS = not tf.__version__.startswith('1.')


def tpu_system_metadata_type() -> Any:
    """Returns the class that describes a TPU system, whose name became public in 2.15."""
    from tensorflow.python.tpu import tpu_system_metadata

    public = getattr(tpu_system_metadata, 'TPUSystemMetadata', None)
    return public or tpu_system_metadata._TPUSystemMetadata


def knows_tpu_vms() -> bool:
    """Whether TPUClusterResolver takes `local`, the TPU of this machine.

    For 1.15, a TPU is always in another machine, and `local` is an address that no session can connect to.
    """
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    return hasattr(sys.modules[resolver.__module__], '_LocalCloudTpuClient')


def cuda_version() -> str:
    """Returns the CUDA and cuDNN that TensorFlow needs on a GPU, in words; empty if it is built without GPU support.

    1.15 does not record them: https://www.tensorflow.org/install/source#gpu lists them.
    """
    if not tf.test.is_built_with_cuda():
        return ''
    build_info = getattr(tf.sysconfig, 'get_build_info', lambda: {'cuda_version': '10.0', 'cudnn_version': '7'})()
    return f'CUDA {build_info["cuda_version"]} and cuDNN {build_info["cudnn_version"]}'


def stop_recording() -> ContextManager[None]:
    """Returns a context manager in which an eager gradient tape records nothing."""
    from tensorflow.python.eager import tape

    try:
        from tensorflow.python.eager import record
    except ImportError:
        return tape.stop_recording()
    return record.stop_recording()


def mapped_by_the_requesting_thread(dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
    """Returns `dataset.map(function)` outside the inter-op threads, which `map` itself does not offer.

    2.15 has the class in another module, under a private name.
    """
    try:
        from tensorflow.python.data.ops.map_op import _MapDataset as MapDataset
    except ImportError:
        from tensorflow.python.data.ops.dataset_ops import MapDataset
    return MapDataset(dataset, function, use_inter_op_parallelism=False)


def either(condition: tf.Tensor, yes: Callable[..., Any], no: Callable[..., Any], *arguments: tf.Tensor) -> Any:
    """Returns the results of `yes` if a condition holds, else those of `no`.

    Unlike `tf.cond`, it spends no time on the operations of the other function, which `tf.cond` marks one by one.

    Args:
      condition: bool scalar.
      yes: a function of the arguments that returns a structure of tensors, and uses no other tensors.
      no: a function with results of the same structure, types and ranks.
      arguments: tensors.
    """
    signature = [tf.TensorSpec(each.shape, each.dtype) for each in arguments]
    branches = [tf.function(each, signature, autograph=False).get_concrete_function() for each in (yes, no)]
    # A function that nothing refers to takes its graph apart, which the checks of a run's graph read.
    tf.add_to_collection('branches', branches)
    outputs = branches[0].structured_outputs
    flat = tf.nest.flatten(outputs)
    results = tf.raw_ops.StatelessIf(
        cond=condition,
        input=arguments,
        Tout=[each.dtype for each in flat],
        then_branch=branches[0],
        else_branch=branches[1],
    )
    for result, each in zip(results, flat):
        result.set_shape([None] * each.shape.ndims)
    return tf.nest.pack_sequence_as(outputs, results)


def threads_of(options: tf.data.Options) -> Any:
    """Returns the options of a data set's threads, which 2.15 renamed; the former name warns at each use."""
    return options.threading if hasattr(options, 'threading') else options.experimental_threading


def switch_autotuning_off(options: tf.data.Options) -> None:
    """Switches off tf.data's choice of parallelism and buffers for a data set that leaves it none.

    Without a choice, it still records the time of every element. In 2.15 its thread sleeps longer and longer, up to a
    minute, and the end of an iterator sometimes waits for it.
    """
    if hasattr(options, 'autotune'):
        options.autotune.enabled = False
    else:
        options.experimental_optimization.autotune = False


def make_servable_by_both(saved_model: str) -> None:
    """Removes from a SavedModel the one attribute that 1.15 does not know; without it, both versions load the model.

    2.15 copies the name of each variable into `debug_name` of its operation. Attributes with their default values are
    not exported, so that those that later versions have added do not matter.

    Args:
      saved_model: the folder of the SavedModel, at any storage that TensorFlow writes to.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    path = os.path.join(saved_model, tf.saved_model.constants.SAVED_MODEL_FILENAME_PB)
    with tf.io.gfile.GFile(path, 'rb') as file:
        model = saved_model_pb2.SavedModel.FromString(file.read())
    named = [
        node for meta_graph in model.meta_graphs for node in meta_graph.graph_def.node if 'debug_name' in node.attr
    ]
    for node in named:
        del node.attr['debug_name']
    if named:
        with tf.io.gfile.GFile(path, 'wb') as file:
            file.write(model.SerializeToString(deterministic=True))


@contextlib.contextmanager
def checkpoint_errors() -> Iterator[None]:
    """Context manager in which reading a damaged checkpoint raises the errors of 1.15.

    The reader of 2.15 is bound to Python by another tool, which has other types for them.

    Raises:
      tf.errors.OutOfRangeError: a file is too short.
      tf.errors.DataLossError: a file is damaged otherwise.
    """
    try:
        yield
    except IndexError as error:
        raise tf.errors.OutOfRangeError(None, None, str(error))
    except tf.errors.OpError as error:
        if type(error) is not tf.errors.OpError:
            raise
        raise tf.errors.DataLossError(None, None, error.message)
