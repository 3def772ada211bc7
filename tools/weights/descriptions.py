"""Reads the description of a model: the range and size of its images, and the names of its classes.

It is in `config.json` and `preprocessor_config.json` beside the weights, as timm and Hugging Face write them, and in
the settings that training scripts of PyTorch save in the file itself.
"""

import os
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from compat.messages import shown
from console import inputs
from console.json_content import from_json
from data import remote
from inception_v3.weights import sources
from inception_v3.weights.sources import WeightsError
from tools.weights import class_names
from tools.weights.changes import Images

# The files; earlier ones have more information. Each may describe images.
FILES = ('config.json', 'preprocessor_config.json')
# A `config.json` without any of these belongs to another program, for example to a run of this one.
_MARKS = (
    *('architecture', 'architectures', 'pretrained_cfg', 'model_type', 'mean', 'image_mean', 'image_std', 'input_size'),
    *('do_normalize', 'image_processor_type', 'feature_extractor_type'),
    *class_names.KEYS,
)
_SIZES = ('input_size', 'crop_size', 'size', 'image_size', 'img_size')
_MEANS = ('mean', 'image_mean'), ('std', 'image_std')
# Names in timm, torchvision and Hugging Face of networks that compute the same as this program's.
_NETWORKS = re.compile(
    r'(tf_|adv_|gluon_|tv_|ssl_|swsl_|a1_)?(inception_?v3|resnet-?50)([._].*)?|resnetforimageclassification|resnetmodel',
    re.IGNORECASE,
)
_HARMLESS_ARGUMENTS = ('num_classes', 'aux_logits', 'drop_rate', 'global_pool', 'pretrained', 'in_chans')
# The settings of a ResNet of Hugging Face, and their values in ResNet-50.
_RESNET_50 = {
    **{'depths': [3, 4, 6, 3], 'layer_type': 'bottleneck', 'hidden_act': 'relu', 'embedding_size': 64},
    **{'downsample_in_bottleneck': False, 'downsample_in_first_stage': False, 'hidden_sizes': [256, 512, 1024, 2048]},
}
# The central part of the images in evaluation, and its resizing, in this program's default preprocessing.
_CROP, _BILINEAR = 0.875, (2, 'bilinear')
_METHODS = {0: 'nearest', 1: 'lanczos', 3: 'bicubic', 4: 'box', 5: 'hamming'}


class Description(NamedTuple):
    """The description of a model: the range and the size (height, width) of its images, and the names of its classes.

    None, 0 and empty stand for missing information. `origin` names the file; notes name differences in evaluation.
    """

    origin: str
    images: Optional[Images] = None
    size: Optional[Tuple[int, int]] = None
    names: Sequence[str] = ()
    num_classes: int = 0
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        size = f'images of {self.size[0]} x {self.size[1]}' if self.size else ''
        names = f'{len(self.names):,} names of classes' if self.names else ''
        return '; '.join(filter(None, [str(self.images or ''), size, names]))


def beside(path: str) -> List[Description]:
    """The descriptions in the folder of a file of weights.

    Raises:
      WeightsError: a file is damaged, has no sensible values, or describes another network.
      RemoteError: access is denied, or the store cannot be reached.
    """
    found = []
    for name in FILES:
        own = os.path.join(os.path.dirname(path), name)
        if remote.exists(own):
            try:
                settings = from_json(sources.content_of(own, own, inputs.TEXT_BYTES), lambda value: value)
            except ValueError as error:
                raise WeightsError(
                    f'{own}: is not JSON ({shown(error)}). Mend the file, or move the weights away from it.'
                )
            if isinstance(settings, dict) and any(mark in settings for mark in _MARKS):
                _check_network(settings, own)
                found.append(of_settings(settings, own))
    return found


def of_settings(settings: Mapping[str, Any], origin: str) -> Description:
    """The description in settings, including timm's `pretrained_cfg`; other settings are ignored.

    Raises WeightsError, with the origin, if a known setting has no sensible value.
    """
    inner = settings.get('pretrained_cfg')
    own = {**(inner if isinstance(inner, dict) else {}), **{k: v for k, v in settings.items() if v is not None}}
    classes = next((own[key] for key in ('num_classes', 'num_labels') if type(own.get(key)) is int), 0)
    names = class_names.in_settings(own, origin) or ()
    # Hugging Face leaves these names out, as defaults.
    is_default = 'id2label' in own and [*names] == [f'LABEL_{number}' for number in range(len(names))]
    return Description(
        origin,
        _images_in(own, origin),
        _size_in(own, origin),
        () if is_default else names,
        max(classes, 0),
        [*_notes_of(own, origin)],
    )


def _images_in(own: Mapping[str, Any], origin: str) -> Optional[Images]:
    mean, deviation = (_numbers(own, keys, origin) for keys in _MEANS)
    if own.get('input_space', 'RGB') != 'RGB':
        raise WeightsError(
            f'{origin}: input_space is {shown(own["input_space"])}; only images in the order red, green, blue are read.'
        )
    if own.get('do_normalize') is False:
        mean, deviation = np.zeros(3), np.ones(3)
    elif mean is None and deviation is None:
        return None
    elif mean is None or deviation is None:
        raise WeightsError(f'{origin}: has a mean or a standard deviation of pixels, and not both.')
    if (deviation <= 0).any():
        raise WeightsError(f'{origin}: its standard deviation of pixels is {shown(deviation.tolist())}, not above 0.')
    # The factor from pixels in [0, 255] to the pixels that are normalized. Means above 1 are for pixels in [0, 255].
    factor = own.get('rescale_factor', 1 / 255) if own.get('do_rescale', True) else 1.0
    if own.get('input_range') == [0, 255] or ('do_rescale' not in own and mean.max() > 1):
        factor = 1.0
    if type(factor) not in (int, float) or not 0 < factor < np.inf:
        raise WeightsError(f'{origin}: rescale_factor is {shown(repr(factor))}, not a number above 0.')
    return Images(255 * factor / deviation, -mean / deviation)


def _numbers(own: Mapping[str, Any], keys: Sequence[str], origin: str) -> Optional[np.ndarray]:
    for key in keys:
        if key in own:
            value = own[key] if isinstance(own[key], (list, tuple)) else [own[key]]
            are_numbers = all(type(each) in (int, float) and abs(each) < 1e6 for each in value)
            if len(value) not in (1, 3) or not are_numbers:
                raise WeightsError(
                    f'{origin}: {key} is {shown(repr(own[key]))}, not a number for each of three colours.'
                )
            return np.broadcast_to(np.array(value, np.float64), 3)
    return None


def _size_in(own: Mapping[str, Any], origin: str) -> Optional[Tuple[int, int]]:
    keys = [key for key in _SIZES if key in own and (key != 'crop_size' or own.get('do_center_crop', True))]
    for key in keys:
        value = own[key]
        if isinstance(value, dict):
            value = [value.get('height', value.get('shortest_edge')), value.get('width', value.get('shortest_edge'))]
        value = [*value] if isinstance(value, (list, tuple)) else [value, value]
        # timm has the channels first, others last.
        if len(value) == 3:
            value = value[1:] if value[0] in (1, 3) else value[:2]
        if len(value) != 2 or not all(type(each) is int and 0 < each < 1 << 16 for each in value):
            raise WeightsError(f'{origin}: {key} is {shown(repr(own[key]))}, not a height and a width in pixels.')
        return value[0], value[1]
    return None


def _notes_of(own: Mapping[str, Any], origin: str) -> List[str]:
    notes = []
    crop, method = own.get('crop_pct'), own.get('resample', own.get('interpolation'))
    if isinstance(crop, (int, float)) and abs(float(crop) - _CROP) > 1e-3:
        notes.append(f'crop_pct={crop}, where evaluation crops the central {_CROP:.1%}')
    if method not in (None, '', 'random', *_BILINEAR):
        notes.append(f'{_METHODS.get(method, method)} resizing, where evaluation resizes bilinearly')
    return [f'  not the same here: {"; ".join(map(shown, notes))} ({origin})'] if notes else []


def _check_network(settings: Mapping[str, Any], origin: str) -> None:
    """Raises WeightsError if a configuration is of another kind of network."""
    arguments = settings.get('model_args')
    given = arguments if isinstance(arguments, dict) else {}
    problems = [f'model_args: {key}={value!r}' for key, value in given.items() if key not in _HARMLESS_ARGUMENTS]
    names = settings.get('architectures')
    names = [settings.get('architecture'), *(names if isinstance(names, list) else [])]
    problems += [str(name) for name in names if isinstance(name, str) and not _NETWORKS.fullmatch(name)]
    pool = settings.get('global_pool', given.get('global_pool'))
    problems += [f'global_pool={pool}'] if pool not in (None, '', 'avg', 'fast', 'fastavg') else []
    if settings.get('model_type') == 'resnet':
        own = {key: settings[key] for key in _RESNET_50 if key in settings}
        problems += [f'{key}={value}' for key, value in own.items() if value != _RESNET_50[key]]
    if problems:
        raise WeightsError(
            f'{origin}: describes another network than Inception v3 or ResNet-50, whose names are inception_v3 and '
            f'resnet50: {shown("; ".join(problems), 300)}. If it is not about these weights, move them to a folder of '
            'their own.'
        )


def joined(found: Sequence[Description]) -> Optional[Description]:
    """Joins several descriptions, which must not contradict each other; None if there is none.

    Raises WeightsError if two of them differ about the images or the number of classes.
    """
    said = [each for each in found if str(each) or each.num_classes or each.notes]
    values: Dict[str, Any] = {}
    for field in ('images', 'size', 'names', 'num_classes'):
        own = [(getattr(each, field), each.origin) for each in said if getattr(each, field)]
        texts = {str([*value] if field == 'names' else value) for value, _ in own}
        if len(texts) > 1 and field != 'names':
            both = ' and '.join(f'{origin} has {value}' for value, origin in own)
            raise WeightsError(f'{both}. Mend one of the files, or move the weights to a folder of their own.')
        values.update({field: own[0][0]} if own else {})
    origins = ', '.join(dict.fromkeys(each.origin for each in said))
    return Description(origins, **values, notes=[note for each in said for note in each.notes]) if said else None
