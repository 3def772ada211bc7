"""Estimator on TensorFlow 2.16 and later, which contain none. To use it elsewhere, copy this file; it stands alone.

    import tensorflow_standins
    import tensorflow.compat.v1 as tf

Import it before any module of TensorFlow. It adds `tf.estimator`: the package tensorflow-estimator 2.15.0, on Keras 2,
the package tf_keras. Estimator needs five modules and a decorator that TensorFlow no longer has. This module stands in
for them, as far as training, evaluation and export need them. Parts of Estimator that need more raise an error of one
sentence.
"""

import functools
import importlib
import importlib.util
import os
import sys
import types
from typing import Any, Callable, Dict, NoReturn

# TensorFlow reads this when it is loaded, so this module must be imported first.
if importlib.util.find_spec('tf_keras') is not None:
    os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')

# The newest TensorFlow on which this module was tried.
NEWEST = '2.21'
_ESTIMATOR = 'tensorflow_estimator.python.estimator'
# The names that TensorFlow 2.15 gives to each module of the package and its submodules.
_NAMES = {
    'tensorflow_estimator._api.v1.estimator': [
        'tensorflow.compat.v1.estimator',
        'tensorflow._api.v2.compat.v1.estimator',
    ],
    'tensorflow_estimator._api.v2.estimator': [
        'tensorflow.estimator',
        'tensorflow.compat.v2.estimator',
        'tensorflow._api.v2.compat.v2.estimator',
    ],
    _ESTIMATOR: ['tensorflow.python.estimator'],
    f'{_ESTIMATOR}.keras_lib': ['tensorflow.python.estimator.keras'],
    f'{_ESTIMATOR}.estimator_lib': ['tensorflow.python.estimator.estimator_lib'],
    **{
        f'{_ESTIMATOR}.tpu.{name}': [f'tensorflow.python.tpu.{name}']
        for name in ('error_handling', 'tpu_config', 'tpu_context', 'tpu_estimator', 'util')
    },
}
# Environment variables that TensorFlow 2 searches for a TPU if no name is given.
_TPU_VARIABLES = ('TPU_NAME', 'KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS', 'TPU_CONFIG')


def add_estimator() -> None:
    """Adds Estimator to TensorFlow, as importing this module does; does nothing if TensorFlow contains it.

    `estimator` becomes an attribute of `tensorflow`, `tensorflow.compat.v1` and `tensorflow.compat.v2`, and its modules
    can be imported by the names that they had, such as `tensorflow.estimator` and `tensorflow.python.estimator`. On
    TensorFlow 2, `TPUClusterResolver('')` stands for a machine without a TPU, as on TensorFlow 1.

    Raises:
      ImportError: a package is missing; the message is the command that installs it; or Keras 3 is in use.
    """
    import tensorflow
    import tensorflow.compat.v1

    if not tensorflow.__version__.startswith('1.'):
        _accept_no_tpu(tensorflow.distribute.cluster_resolver.TPUClusterResolver)
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
    if not tensorflow.keras.layers.Layer.__module__.startswith('tf_keras'):
        raise ImportError(
            'Estimator needs Keras 2, and Keras 3 is in use: import tensorflow_standins before any module that '
            'imports TensorFlow, without TF_USE_LEGACY_KERAS=0'
        )
    for name, content in _modules(tensorflow.compat.v1).items():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(content)
    for module in _NAMES:
        importlib.import_module(module)
    for module, names in _NAMES.items():
        below = [name for name in sys.modules if name == module or name.startswith(f'{module}.')]
        for name in names:
            sys.modules.update({name + each[len(module) :]: sys.modules[each] for each in below})
            owner, _, last = name.rpartition('.')
            setattr(importlib.import_module(owner), last, sys.modules[module])
    importlib.import_module(f'{_ESTIMATOR}.tpu._tpu_estimator_embedding').EmbeddingConfigSpec.__new__ = _refusal(
        'embeddings and feature columns on a TPU (EmbeddingConfigSpec)'
    )


def _accept_no_tpu(resolver: Any) -> None:
    """Makes TPUClusterResolver accept the empty name, which TensorFlow 2 refuses, for a machine without a TPU."""
    initialize = resolver.__init__
    if hasattr(initialize, '__wrapped__'):
        return

    @functools.wraps(initialize)
    def initialize_or_local(self: Any, tpu: Any = None, *arguments: Any, **named: Any) -> None:
        if tpu == '' and not any(name in os.environ for name in _TPU_VARIABLES):
            tpu = 'local'
        initialize(self, tpu, *arguments, **named)

    resolver.__init__ = initialize_or_local


def _refusal(subject: str) -> Callable[..., NoReturn]:
    def refuse(*unused: Any, **also_unused: Any) -> NoReturn:
        raise RuntimeError(f'{subject}: not available on this TensorFlow, which contains no Estimator; use 2.15')

    return refuse


def _modules(tf: Any) -> Dict[str, Dict[str, Any]]:
    """The stand-ins that tensorflow-estimator imports, by module."""
    coordinators = _refusal('distribution strategies of RunConfig, other than TPUStrategy')
    shutdown = _refusal('shutting down the workers of a TPU (TF_TPU_GRACEFUL_SHUTDOWN_MODE)')

    class GracefulShutdownHook(tf.train.SessionRunHook):
        """Does nothing: no checkpoint is saved before a TPU's worker ends, so a run resumes from the last one."""

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
        'tensorflow.python.tpu.async_checkpoint': {
            'AsyncCheckpointSaverHook': _refusal('saving checkpoints in the background (AsyncCheckpointSaverHook)')
        },
        # Used only as types of arguments: `EmbeddingConfigSpec` is refused.
        'tensorflow.python.tpu.tpu_embedding': {f'{name}Parameters': object for name in optimizers},
        'tensorflow.python.tpu.tpu_embedding_gradient': {},
    }


add_estimator()
