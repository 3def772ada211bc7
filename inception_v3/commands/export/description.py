"""The preprocessing of an exported network, as data; `prepare` carries it out."""

from typing import Any, Dict, List, Sequence

from inception_v3.config import Config
from preprocessing import finishing, inception_preprocessing, vgg_preprocessing

FILE = 'preprocessing.json'
# For readers of descriptions and of model cards.
DECODING = (
    'turn the image by its EXIF orientation, lay it on white where it is transparent, and convert it to RGB of 8 bits'
)
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
    means = [-mean for mean in finishing.CHANNEL_MEANS]
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
            'decoding': f'{DECODING}; whole pixels, as libjpeg decodes; grey images have three equal channels',
        },
        'steps': steps_of(config),
        'outputs': {LOGITS: ['batch', config.num_classes], PROBABILITIES: ['batch', config.num_classes]},
        'labels': names,
    }
