"""The device of a run without a TPU: one GPU of this machine, or its CPU."""

import contextlib
from typing import Any, ContextManager

from console.tensorflow_versions import tf
from inception_v3.config import Config, ConfigError
from inception_v3.networks import layers

GPU = '/device:GPU:0'


def visible_gpus() -> int:
    """The number of GPUs that TensorFlow sees on this machine."""
    return len(tf.config.experimental.list_physical_devices('GPU'))


def on_gpu(config: Config) -> bool:
    """Whether a run's network is on a GPU of this machine: if one is visible, unless `--accelerator=cpu`."""
    if config.use_tpu or config.accelerator == 'cpu':
        return False
    return config.accelerator == 'gpu' or visible_gpus() > 0


def check(config: Config) -> None:
    """Checks that the GPU that a run needs is visible.

    Raises:
      ConfigError: it is not; the message says what the installed TensorFlow needs.
    """
    needs = '--accelerator=gpu' if config.accelerator == 'gpu' else '--layout=NCHW' if config.layout == 'NCHW' else ''
    if needs and not config.use_tpu and not visible_gpus():
        raise ConfigError(
            f'{needs}: TensorFlow {tf.__version__} sees no GPU on this machine. It needs an NVIDIA GPU with its driver '
            '(nvidia-smi lists it), a TensorFlow that is built for GPUs (./run --tf=2.15), its CUDA, and no '
            'CUDA_VISIBLE_DEVICES that hides the GPU; docs/on-a-gpu.md has the commands. Or run on the CPU with '
            '--accelerator=cpu and without --layout.'
        )


def placement(config: Config, is_exported: bool) -> ContextManager[Any]:
    """Context manager that requests the run's GPU for the operations in its body.

    An exported graph requests no device, because it runs on any. Of several replicas, `tf.distribute` places each.
    Operations without a kernel for GPUs run on the CPU.
    """
    is_placed = on_gpu(config) and config.replicas == 1 and not is_exported
    return tf.device(GPU) if is_placed else contextlib.nullcontext()


def layout_for(config: Config, is_exported: bool) -> layers.Layout:
    """The layout in which the network is built. An exported graph has the one that every device supports."""
    return layers.NCHW if config.layout == 'NCHW' and not is_exported else layers.NHWC


def description(config: Config) -> str:
    """The device of a run without a TPU, in words."""
    if not on_gpu(config):
        return 'the CPU of this machine'
    others = visible_gpus() - 1
    if others > 0:
        return f'GPU 0 of the {others + 1} GPUs of this machine; a run uses one'
    return 'the GPU of this machine'


def set_devices(session: tf.ConfigProto, config: Config) -> None:
    """Adds the devices and the layout of a run to the configuration of its sessions."""
    # TensorFlow takes all memory of each GPU that it may use, so that others than the run's are left out.
    session.device_count['GPU'] = config.num_gpus if on_gpu(config) else 0
    if not config.use_tpu and config.num_gpus > 1 and not on_gpu(config):
        session.device_count['CPU'] = config.num_gpus
    if config.layout != 'auto':
        rewriting = session.graph_options.rewrite_options
        rewriting.layout_optimizer = rewriting.OFF
