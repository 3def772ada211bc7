"""The devices of a run without a TPU: GPUs of this machine, or its CPU."""

import contextlib
import dataclasses
from typing import Any, ContextManager

from compat import tf
from compat.messages import counted
from inception_v3.config import ALL_GPUS, Config, ConfigError
from inception_v3.networks import layers

GPU = '/device:GPU:0'


def visible_gpus() -> int:
    """The number of GPUs that TensorFlow sees on this machine."""
    return len(tf.config.experimental.list_physical_devices('GPU'))


def on_gpu(config: Config) -> bool:
    """Whether a run's network is on GPUs of this machine: if one is visible, unless `--accelerator=cpu`."""
    if config.use_tpu or config.accelerator == 'cpu':
        return False
    return config.accelerator == 'gpu' or visible_gpus() > 0


def settled(config: Config) -> Config:
    """The configuration with `--num_gpus=-1` replaced by the number of visible GPUs, or by 1 (the CPU) without one."""
    if config.num_gpus != ALL_GPUS:
        return config
    return dataclasses.replace(config, num_gpus=max(1, visible_gpus()))


def check(config: Config) -> None:
    """Checks that the GPUs that a run needs are visible.

    Raises:
      ConfigError: a GPU is not visible; the message says what the installed TensorFlow needs.
    """
    if config.use_tpu:
        return
    several = config.num_gpus > 1 and config.accelerator != 'cpu'
    flags = (
        ('--accelerator=gpu', config.accelerator == 'gpu'),
        ('--layout=NCHW', config.layout == 'NCHW'),
        (f'--num_gpus={config.num_gpus}', several),
    )
    needs = next((flag for flag, is_set in flags if is_set), '')
    if needs and not visible_gpus():
        raise ConfigError(
            f'{needs}: TensorFlow {tf.__version__} sees no GPU on this machine. It needs an NVIDIA GPU with its driver '
            '(nvidia-smi lists it), a TensorFlow that is built for GPUs with its CUDA (pip install '
            "'inception-v3-tpu[gpu]'; in a checkout, docs/on-a-gpu.md has the commands), and no CUDA_VISIBLE_DEVICES "
            'that hides the GPU. Or run on the CPU with --accelerator=cpu and without --layout; with --num_gpus, on '
            'virtual devices of it.'
        )
    if several and config.num_gpus > visible_gpus():
        raise ConfigError(
            f'--num_gpus={config.num_gpus}: TensorFlow sees {visible_gpus()} on this machine. Give at most that many, '
            f'or {ALL_GPUS} for all of them; CUDA_VISIBLE_DEVICES may hide others.'
        )


def placement(config: Config, is_exported: bool) -> ContextManager[Any]:
    """Context manager that requests the run's GPU for the operations in its body.

    An exported graph requests no device, because it runs on any device. With several replicas, `tf.distribute` places
    each. Operations without a kernel for GPUs run on the CPU.
    """
    is_placed = on_gpu(config) and config.replicas == 1 and not is_exported
    return tf.device(GPU) if is_placed else contextlib.nullcontext()


def layout_for(config: Config, is_exported: bool) -> layers.Layout:
    """The layout in which the network is built. An exported graph has the layout that every device supports."""
    return layers.NCHW if config.layout == 'NCHW' and not is_exported else layers.NHWC


def description(config: Config) -> str:
    """The devices of a run without a TPU, in words."""
    used, visible = config.num_gpus, visible_gpus()
    if not on_gpu(config):
        return 'the CPU of this machine' if used == 1 else f'{used} virtual devices of the CPU of this machine'
    if visible == 1:
        return 'the GPU of this machine'
    if used == visible:
        return f'the {used} GPUs of this machine'
    idle = 'the others are' if visible - used > 1 else 'the other is'
    return f'{used} of the {visible} GPUs of this machine; {idle} idle: --num_gpus={ALL_GPUS} uses all'


def notice(config: Config) -> str:
    """The notice of a run whose replicas are on this machine's CPU."""
    return f"""THE GPUS ARE VIRTUAL: {counted(config.num_gpus, 'replica')} on devices of this CPU.
  as on GPUs: tf.distribute's program, a copy of the variables for each replica, sums over replicas, checkpoints
  not as on GPUs: speed, memory, and the arithmetic of cuDNN and NCCL"""


def set_devices(session: tf.ConfigProto, config: Config) -> None:
    """Adds the devices and the layout of a run to the configuration of its sessions."""
    # TensorFlow takes all memory of each GPU that it may use, so GPUs that the run does not use are left out.
    session.device_count['GPU'] = config.num_gpus if on_gpu(config) else 0
    if not config.use_tpu and config.num_gpus > 1 and not on_gpu(config):
        session.device_count['CPU'] = config.num_gpus
    if config.layout != 'auto':
        rewriting = session.graph_options.rewrite_options
        rewriting.layout_optimizer = rewriting.OFF
