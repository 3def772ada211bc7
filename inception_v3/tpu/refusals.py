"""Explanations of what TPUEstimator refuses: the TPU that it finds, and the environment variable TF_CONFIG."""

import contextlib
import os
from typing import Iterator

from console.messages import shown
from inception_v3.config import ConfigError

# The beginnings of TPUEstimator's messages about the TPU that a session finds.
_ABOUT_TPU = (
    'Cannot find any TPU cores in the system',
    'TPUConfig.num_shards is not set correctly',
    'train batch size',
    'eval batch size',
    'TPUEstimator.evaluate is only supported',
)


@contextlib.contextmanager
def refusals_explained() -> Iterator[None]:
    """Raises a ConfigError instead of TPUEstimator's error about a TPU that does not fit the run."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        text = str(error).partition(' Available devices')[0]
        if not text.startswith(_ABOUT_TPU):
            raise
        raise ConfigError(f'TPUEstimator refuses the settings of this run: {text}')


@contextlib.contextmanager
def tf_config_explained() -> Iterator[None]:
    """Raises a ConfigError that names the environment variable TF_CONFIG if TensorFlow cannot use it."""
    try:
        yield
    except Exception as error:
        if 'TF_CONFIG' not in os.environ:
            raise
        reason = 'it is nested too deeply' if isinstance(error, RecursionError) else str(error).partition('\n')[0]
        raise ConfigError(
            f'TF_CONFIG={shown(os.environ["TF_CONFIG"])}: TensorFlow cannot use this environment variable: '
            f'{shown(reason)}. This program does not need it: unset it.'
        )
