"""The preprocessing of an exported network, as data, and a NumPy program that carries it out."""

from typing import Any, Dict, List, Sequence

import numpy as np

from inception_v3.config import Config
from preprocessing import inception_preprocessing, vgg_preprocessing

FILE = 'preprocessing.json'
INPUT, LOGITS, PROBABILITIES = 'images', 'logits', 'probabilities'


def steps_of(config: Config) -> List[Dict[str, Any]]:
    """The steps from decoded pixels to the input of a run's network, for `prepare`; each is a dict with one key."""
    height, width = config.height, config.width
    size = [height, width]
    by_kind: Dict[str, List[Dict[str, Any]]] = {
        'inception': [{'central_crop': inception_preprocessing.CENTRAL_FRACTION}, {'resize': size}],
        'vgg': [
            {'resize_smaller_side': vgg_preprocessing.resize_range(height, width)[0]},
            {'crop': size},
        ],
        'cifar': [{'resize': size}],
    }
    means = [-mean for mean in vgg_preprocessing.CHANNEL_MEANS]
    is_vgg = config.preprocessing == 'vgg'
    scaled = {'scale': 1.0, 'offset': means} if is_vgg else {'scale': 2 / 255, 'offset': [-1.0] * 3}
    # With bytes sent to the device, the network was trained on whole numbers.
    rounded: List[Dict[str, Any]] = [{'round': 'half up'}] if config.transfer == 'uint8' else []
    return [*by_kind[config.preprocessing], *rounded, {'finish': scaled}]


def describe(config: Config, class_names: Sequence[str]) -> Dict[str, Any]:
    """The content of `preprocessing.json`: the input, the outputs, the steps and the classes."""
    names = [*class_names] or [''] * config.num_classes
    return {
        'input': {
            'name': INPUT,
            'type': 'float32',
            'shape': ['batch', config.height, config.width, 3],
            'channels': 'RGB',
            'decoding': 'whole pixels of 8 bits, as libjpeg decodes; grey images have three equal channels',
        },
        'steps': steps_of(config),
        'outputs': {LOGITS: ['batch', config.num_classes], PROBABILITIES: ['batch', config.num_classes]},
        'labels': names,
    }


def prepare(pixels: np.ndarray, steps: Sequence[Dict[str, Any]]) -> np.ndarray:
    """Carries out the steps of `preprocessing.json` with NumPy alone.

    Args:
      pixels: uint8 [any height, any width, 3], a decoded image.
      steps: as of `steps_of`.

    Returns:
      float32 [height, width, 3], the input of the network.
    """
    image = pixels
    for step in steps:
        ((name, value),) = step.items()
        if name == 'central_crop':
            top, left = (int((side - side * value) / 2) for side in image.shape[:2])
            image = image[top : image.shape[0] - top, left : image.shape[1] - left]
        elif name == 'resize_smaller_side':
            sides = np.float32(image.shape[:2])
            image = _resize(image, *np.rint(sides * (np.float32(value) / sides.min())).astype(int))
        elif name == 'crop':
            top, left = (np.array(image.shape[:2]) - value) // 2
            image = image[top : top + value[0], left : left + value[1]]
        elif name == 'resize':
            image = _resize(image, *value)
        elif name == 'round':
            image = np.floor(image + np.float32(0.5))
        else:
            image = image * np.float32(value['scale']) + np.float32(value['offset'])
    return image


def _resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resizes bilinearly. Pixel i of a side comes from the position i * old / new: corners and centres do not align."""
    image = image.astype(np.float32)
    for axis, new in ((1, width), (0, height)):
        old = image.shape[axis]
        place = np.arange(new, dtype=np.float32) * (np.float32(old) / np.float32(new))
        low = np.floor(place).astype(int)
        one, other = image.take(low, axis), image.take(np.minimum(low + 1, old - 1), axis)
        share = (place - low.astype(np.float32)).reshape([-1, 1] if axis else [-1, 1, 1])
        image = one + (other - one) * share
    return image
