"""The batch normalization of a run in words, and its documented decay, for notes, plans and checks."""

from typing import Optional

from inception_v3.batch_norm import groups_of
from inception_v3.config import Config

# The documented decay per step on one device.
ONE_DEVICE_DECAY = 0.9997
# Decays agree if their memories, 1 / (1 - decay) steps, differ by at most this fraction: 0.9976 is rounded from
# 0.9997 ** 8.
_ROUNDING = 0.02


def description(config: Config) -> str:
    """The batch normalization of a run in words, with the number of images and cores of its moments."""
    images, replica = config.train_batch_size // config.replicas, 'core' if config.use_tpu else 'replica'
    if config.replicas == 1:
        return f'{config.batch_norm}: over the {images} images of a batch; there is one replica'
    if config.batch_norm == 'local':
        return f"local: over each {replica}'s own {images} images; the first {replica}'s moving statistics are kept"
    if config.batch_norm == 'averaged':
        return (
            f"averaged: over each {replica}'s own {images} images; moving statistics are means over {config.replicas} "
            f'{replica}s'
        )
    groups = groups_of(config)
    over = f'synchronized: over the {len(groups[0]) * images} images of {len(groups[0])} {replica}s'
    return over if len(groups) == 1 else f"{over}, {len(groups)} groups; the first group's moving statistics are kept"


def decay_for(cores: int) -> float:
    """The documented decay of the moving statistics on a number of cores: beta = alpha ** cores, alpha = 0.9997.

    One step on N cores is like N steps on one device: with this decay, the statistics cover as many images as on one
    device. At 8 cores this is 0.9976, the default of `--batch_norm_decay`.
    """
    return ONE_DEVICE_DECAY**cores


def decay_warning(config: Config) -> Optional[str]:
    """A sentence if Inception v3's decay is not the documented one for this number of cores; else None."""
    decay, fitting = config.batch_norm_decay, decay_for(config.replicas)
    agrees = abs(fitting - decay) <= _ROUNDING * (1 - fitting)
    if config.network != 'inception_v3' or agrees:
        return None
    return (
        f'--batch_norm_decay={decay:g} is not alpha ** {config.replicas} = {fitting:.4g}, the documented decay for '
        f'this number of {"cores" if config.use_tpu else "replicas"}, where alpha = {ONE_DEVICE_DECAY} is that of one '
        'device'
    )
