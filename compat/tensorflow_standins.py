"""Estimator on TensorFlow 2.16 and later, which contain none. To use it elsewhere, copy this file; it stands alone.

    import tensorflow_standins
    import tensorflow.compat.v1 as tf

    tensorflow_standins.add_estimator()

Afterwards, `tf.estimator` is the package tensorflow-estimator 2.15.0, on Keras 2, the package tf_keras. It needs four
modules and a decorator that TensorFlow no longer has. This module stands in for them, as far as training, evaluation
and export need them. What is not available through the stand-ins is refused with one sentence.
"""

import importlib
import importlib.util
import os
import sys
import types
from typing import Any, Callable, Dict, NoReturn

# TensorFlow reads this when it is loaded, so that this module must be imported first.
if importlib.util.find_spec('tf_keras') is not None:
    os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')

# The newest TensorFlow that this module was tried with.
NEWEST = '2.21'
_ESTIMATOR = 'tensorflow_estimator.python.estimator'


def add_estimator() -> None:
    """Sets `estimator` in `tensorflow` and `tensorflow.compat.v1`; does nothing if TensorFlow contains it.

    Raises:
      ImportError: a package is missing. The message is the command that installs it.
    """
    import tensorflow
    import tensorflow.compat.v1

    if hasattr(tensorflow.compat.v1, 'estimator'):
        return
    missing = [
        requirement
        for name, requirement in (
            ('tensorflow_estimator', 'tensorflow-estimator==2.15.0'),
            ('tf_keras', f'tf_keras~={".".join(tensorflow.__version__.split(".")[:2])}.0'),
        )
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise ImportError(
            f'TensorFlow {tensorflow.__version__} contains no Estimator, and packages that bring it are missing: '
            f'pip install {" ".join(missing)}'
        )
    for name, content in _modules(tensorflow.compat.v1).items():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(content)
    for owner, version in ((tensorflow.compat.v1, 'v1'), (tensorflow, 'v2')):
        owner.estimator = importlib.import_module(f'tensorflow_estimator._api.{version}.estimator')
    importlib.import_module(f'{_ESTIMATOR}.tpu._tpu_estimator_embedding').EmbeddingConfigSpec.__new__ = _refusal(
        'embeddings and feature columns on a TPU (EmbeddingConfigSpec)'
    )


def _refusal(subject: str) -> Callable[..., NoReturn]:
    def refuse(*unused: Any, **also_unused: Any) -> NoReturn:
        raise RuntimeError(f'{subject}: not available on this TensorFlow, which contains no Estimator; use 2.15')

    return refuse


def _modules(tf: Any) -> Dict[str, Dict[str, Any]]:
    """The names that tensorflow-estimator reads, by the modules that it reads them from."""
    coordinators = _refusal('distribution strategies of RunConfig, other than TPUStrategy')
    shutdown = _refusal('shutting down the workers of a TPU (TF_TPU_GRACEFUL_SHUTDOWN_MODE)')

    class GracefulShutdownHook(tf.train.SessionRunHook):
        """Does nothing. Before a TPU's worker ends, it saves no checkpoint; the run resumes from the last one."""

        def __init__(self, **unused: Any):
            pass

    optimizers = ('Adagrad', 'Adam', 'Ftrl', 'Momentum', 'ProximalAdagrad', 'RMSProp', 'StochasticGradientDescent')
    return {
        f'{_ESTIMATOR}.estimator_export': {'estimator_export': lambda *names, **unused: lambda symbol: symbol},
        'tensorflow.python.distribute.estimator_training': {
            'init_run_config': coordinators,
            # Without `init_run_config`, no configuration has a coordinator.
            'should_run_distribute_coordinator': lambda config: False,
        },
        'tensorflow.python.tpu.session_support': {
            'GracefulShutdownHook': GracefulShutdownHook,
            'ResetComputation': object,
            'ShutdownAllWorkers': shutdown,
            'ShutdownLameWorkers': shutdown,
            'start_worker_watchdog': _refusal('the watchdog of the workers of a TPU (TF_TPU_WATCHDOG_TIMEOUT)'),
        },
        # Types of arguments alone: `EmbeddingConfigSpec` is refused.
        'tensorflow.python.tpu.tpu_embedding': {f'{name}Parameters': object for name in optimizers},
        'tensorflow.python.tpu.tpu_embedding_gradient': {},
    }
