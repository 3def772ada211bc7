"""The kinds of preprocessing that `--preprocessing` names. To add one, write its class in a module, and add it here.

This module needs no TensorFlow: the flag's choices, and the rules about the flags of a kind, follow from it.
"""

from typing import TYPE_CHECKING, Any, Callable, Dict, FrozenSet, NamedTuple

from compat.deferred import deferred

if TYPE_CHECKING:
    from preprocessing.steps import Preprocessing


class Kind(NamedTuple):
    """A kind of preprocessing.

    Attributes:
      make: makes its object, a `steps.Preprocessing`, from settings.
      settings: the names of the settings in `steps.Settings` that it takes, besides size and flip.
      bytes_need: a setting that must be set if images are sent to the device as bytes; empty if none must.
    """

    make: Callable[[Any], 'Preprocessing']
    settings: FrozenSet[str] = frozenset()
    bytes_need: str = ''


PREPROCESSINGS: Dict[str, Kind] = {
    'inception': Kind(
        deferred('preprocessing.inception_preprocessing:InceptionPreprocessing'),
        frozenset(
            {
                *('use_annotated_bbox', 'crop_area_min', 'crop_aspect_ratio_max', 'fast_mode'),
                *('use_fast_color_distort', 'cb_distortion_range', 'cr_distortion_range'),
                'brightness_distortion_range',
            }
        ),
        # Bytes cannot hold the values below black and above white of bicubic resizing.
        bytes_need='fast_mode',
    ),
    'vgg': Kind(deferred('preprocessing.vgg_preprocessing:VggPreprocessing')),
    'cifar': Kind(deferred('preprocessing.cifar_preprocessing:CifarPreprocessing'), frozenset({'crop_padding'})),
}


def preprocessing_for(flags: Any) -> 'Preprocessing':
    """The preprocessing that flags name, with its settings; `flags` has them as attributes, such as the `Config`."""
    return PREPROCESSINGS[flags.preprocessing].make(flags)
