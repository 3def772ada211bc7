"""The networks, one file per paper, and the layers that they share. A module is loaded at its first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inception_v3.networks import inception_v3 as inception_v3
    from inception_v3.networks import keras_revnet as keras_revnet
    from inception_v3.networks import layers as layers
    from inception_v3.networks import resnet as resnet
    from inception_v3.networks import revnet as revnet


def __getattr__(name: str) -> Any:
    """Loads a module of this package; Python calls this for a name that the package does not have yet (PEP 562)."""
    if name not in ('inception_v3', 'keras_revnet', 'layers', 'resnet', 'revnet'):
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return importlib.import_module(f'{__name__}.{name}')
