"""The kinds of preprocessing by name. To add one, write its object in a module, and add it here."""

from typing import Any, Dict, Type

from preprocessing.cifar_preprocessing import CifarPreprocessing
from preprocessing.inception_preprocessing import InceptionPreprocessing
from preprocessing.steps import Preprocessing, Settings
from preprocessing.vgg_preprocessing import VggPreprocessing

# By the values of --preprocessing.
PREPROCESSINGS: Dict[str, Type[Preprocessing]] = {
    'inception': InceptionPreprocessing,
    'vgg': VggPreprocessing,
    'cifar': CifarPreprocessing,
}


def preprocessing_for(flags: Any) -> Preprocessing:
    """The preprocessing that flags name, with its settings; `flags` has them as attributes, such as the `Config`."""
    return PREPROCESSINGS[flags.preprocessing](Settings(*(getattr(flags, name) for name in Settings._fields)))
