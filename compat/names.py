"""Names that TensorFlow 1.15 and 2.15 keep in different places: TPU systems, GPUs, tapes, SavedModels, checkpoints."""

import contextlib
import os
import sys
from typing import Any, Callable, ContextManager, Iterator, Sequence

from compat import tf


def tpu_system_metadata_type() -> Any:
    """Returns the class that describes a TPU system, whose name became public in 2.15."""
    from tensorflow.python.tpu import tpu_system_metadata

    public = getattr(tpu_system_metadata, 'TPUSystemMetadata', None)
    return public or tpu_system_metadata._TPUSystemMetadata


def knows_tpu_vms() -> bool:
    """Whether TPUClusterResolver accepts `local`, the TPU of this machine.

    For 1.15, a TPU is always in another machine, and `local` is an address that no session can connect to.
    """
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    return hasattr(sys.modules[resolver.__module__], '_LocalCloudTpuClient')


def stop_recording() -> ContextManager[None]:
    """Returns a context manager in which a gradient tape records nothing."""
    return _recording().stop_recording()


def record_operation(
    name: str, outputs: Sequence[Any], inputs: Sequence[Any], gradient: Callable[..., Sequence[Any]]
) -> None:
    """Records an operation on all gradient tapes: its outputs, its inputs and the function of its gradients."""
    _recording().record_operation(name, outputs, inputs, gradient)


def _recording() -> Any:
    from tensorflow.python.eager import tape

    try:
        from tensorflow.python.eager import record
    except ImportError:
        return tape
    return record


def make_servable_by_both(saved_model: str) -> None:
    """Removes from a SavedModel the one attribute that 1.15 does not know; without it, both versions load the model.

    2.15 copies the name of each variable into `debug_name` of its operation. Other attributes that later versions have
    added do not matter: they have their default values, which are not exported.
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
    """Context manager in which reading a damaged checkpoint raises OutOfRangeError or DataLossError, as in 1.15.

    In 2.15, the Python bindings of the reader raise other types.
    """
    try:
        yield
    except IndexError as error:
        raise tf.errors.OutOfRangeError(None, None, str(error))
    except tf.errors.OpError as error:
        if type(error) is not tf.errors.OpError:
            raise
        raise tf.errors.DataLossError(None, None, error.message)
