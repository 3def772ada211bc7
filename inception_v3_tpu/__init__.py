"""The program `inception-v3`, and its parts for your own programs: `from inception_v3_tpu import InputPipeline`.

Each part is loaded at its first use. When installed, this package contains all others, so that site-packages has no
package named `data` or `console`, and your own `data.py` stays importable.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, Dict, List

if TYPE_CHECKING:
    from compat import tensorflow_standins as tensorflow_standins
    from compat import tf as tf
    from inception_v3 import __version__ as __version__
    from inception_v3 import networks as networks
    from inception_v3.batch_norm import BatchNorm as BatchNorm
    from inception_v3.config import Config as Config
    from inception_v3.config import ConfigError as ConfigError
    from inception_v3.input_pipeline import InputPipeline as InputPipeline
    from inception_v3.learning_rate import learning_rate as learning_rate
    from inception_v3.metrics import evaluation_metrics as evaluation_metrics
    from inception_v3.model_fn import inception_model_fn as inception_model_fn
    from inception_v3.model_fn import total_loss as total_loss
    from inception_v3.moving_average import LoadEMAHook as LoadEMAHook
    from inception_v3.moving_average import update_averages as update_averages
    from inception_v3.optimizers import make_optimizer as make_optimizer
    from inception_v3.run.batch_norm_advice import decay_for as decay_for
    from preprocessing import inception_preprocessing as inception_preprocessing
    from preprocessing import vgg_preprocessing as vgg_preprocessing
    from tools.datasets import digits as digits
    from tools.studies.study import Axis as Axis
    from tools.studies.study import Small as Small
    from tools.studies.study import Study as Study
    from tools.studies.study import cases as cases
    from tools.studies.study import grid as grid

# The package or module that has each name. Some names, such as `networks`, are themselves modules.
_OWNERS: Dict[str, str] = {
    'Axis': 'tools.studies.study',
    'BatchNorm': 'inception_v3.batch_norm',
    'Config': 'inception_v3.config',
    'ConfigError': 'inception_v3.config',
    'InputPipeline': 'inception_v3.input_pipeline',
    'LoadEMAHook': 'inception_v3.moving_average',
    'Small': 'tools.studies.study',
    'Study': 'tools.studies.study',
    '__version__': 'inception_v3',
    'cases': 'tools.studies.study',
    'decay_for': 'inception_v3.run.batch_norm_advice',
    'digits': 'tools.datasets',
    'evaluation_metrics': 'inception_v3.metrics',
    'grid': 'tools.studies.study',
    'inception_model_fn': 'inception_v3.model_fn',
    'inception_preprocessing': 'preprocessing',
    'learning_rate': 'inception_v3.learning_rate',
    'make_optimizer': 'inception_v3.optimizers',
    'networks': 'inception_v3',
    'tensorflow_standins': 'compat',
    'tf': 'compat',
    'total_loss': 'inception_v3.model_fn',
    'update_averages': 'inception_v3.moving_average',
    'vgg_preprocessing': 'preprocessing',
}
_HERE = os.path.dirname(os.path.abspath(__file__))
if os.path.isdir(os.path.join(_HERE, 'compat')):
    _PREFIX = f'{__name__}.'
else:
    # In a checkout, the packages lie beside this one. They take precedence over files in the working directory.
    _PREFIX = ''
    sys.path.insert(0, os.path.dirname(_HERE))


def __getattr__(name: str) -> Any:
    """Loads a part; Python calls this for a name that the module does not have yet (PEP 562)."""
    if name not in _OWNERS:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    owner = importlib.import_module(_PREFIX + _OWNERS[name])
    if not hasattr(owner, name):
        importlib.import_module(f'{owner.__name__}.{name}')
    globals()[name] = getattr(owner, name)
    return globals()[name]


def __dir__() -> List[str]:
    return sorted({*globals(), *_OWNERS})
