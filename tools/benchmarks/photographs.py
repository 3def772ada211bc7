"""Generates a data set for benchmarks: photographs like ImageNet's, in ImageNet's layout.

ImageNet's images have about 500 x 400 pixels and 100 kB. The generated ones are random parts of photographs in
scikit-image, resized, mirrored and rotated at random, with a little noise, as JPEG with a quality of 90 to 95 and 4:2:0
chroma subsampling. No two images are equal, and the same call always generates the same files.
"""

import dataclasses
import functools
import io
import os
from typing import List, Tuple

import numpy as np

from compat import tf
from data.dataset_info import FILE_NAME
from inception_v3.config import Config
from tools import extras
from tools.datasets import image_example, writing

DATA_DIR = os.path.join('runs', 'benchmarks', 'photographs')
TRAIN_IMAGES = 1024
VALIDATION_IMAGES = 512

_SHARDS = 16
_LONG_SIDE = (460, 580)
_SHORT_SIDE = (360, 460)
_QUALITY = (90, 95)
# Standard deviation, in levels of 255, of noise that compensates for the smoothing of enlarged photographs.
_NOISE = 6.0
# The smallest crop of a photograph, relative to the largest of the same shape; the share of images wider than high.
_LEAST_PART = 0.6
_LANDSCAPE = 0.75


def make(data_dir: str, train: int = TRAIN_IMAGES, validation: int = VALIDATION_IMAGES, shards: int = _SHARDS) -> None:
    """Writes a data set of `train` and `validation` images, in at most `shards` files of each kind, unless it exists.

    Raises DataError if scikit-image is not installed, or the folder holds other files or cannot be created.
    """
    if os.path.exists(os.path.join(data_dir, FILE_NAME)):
        return
    sources = _sources()
    origin = 'random parts of the photographs in scikit-image, made by tools.benchmarks.photographs'
    classes = [f'photograph {number}' for number in range(1, len(sources) + 1)]
    every = [functools.partial(_example, sources, index) for index in range(train + validation)]
    examples = every[:train], every[train:]
    writing.write_data_set(data_dir, 'generated photographs', origin, classes, examples, (shards, shards))


def made(config: Config) -> Config:
    """The configuration with the generated photographs as its data set; they are made unless they exist."""
    make(DATA_DIR)
    return dataclasses.replace(config, data_dir=DATA_DIR)


def _sources() -> List[np.ndarray]:
    extras.require('benchmarks', 'skimage')
    import skimage.data

    return [
        skimage.data.astronaut(),
        skimage.data.chelsea(),
        skimage.data.coffee(),
        skimage.data.hubble_deep_field(),
        skimage.data.immunohistochemistry(),
        skimage.data.rocket(),
        skimage.data.stereo_motorcycle()[0],
    ]


def _example(sources: List[np.ndarray], index: int) -> tf.train.Example:
    random = np.random.RandomState(index)
    label = 1 + random.randint(len(sources))
    encoded, height, width = _photograph(sources[label - 1], random)
    text, name = f'photograph {label}', f'generated-{index:05d}.jpg'
    return image_example.make_example(encoded, 'JPEG', label, text, height, width, name)


def _photograph(source: np.ndarray, random: np.random.RandomState) -> Tuple[bytes, int, int]:
    """A random part of a photograph: a JPEG file, its height and its width."""
    from PIL import Image

    sides = random.randint(*_SHORT_SIDE), random.randint(*_LONG_SIDE)
    height, width = sides if random.uniform() < _LANDSCAPE else sides[::-1]
    if random.uniform() < 0.5:
        source = source[:, ::-1]
    source = np.rot90(source, random.randint(4))
    part = random.uniform(_LEAST_PART, 1) * min(source.shape[0] / height, source.shape[1] / width)
    rows, columns = int(part * height), int(part * width)
    top, left = random.randint(source.shape[0] - rows + 1), random.randint(source.shape[1] - columns + 1)
    pixels = np.ascontiguousarray(source[top : top + rows, left : left + columns])
    resized = np.asarray(Image.fromarray(pixels).resize((width, height), Image.BICUBIC))
    noisy = resized + random.normal(scale=_NOISE, size=[height, width, 1])
    image = Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))
    file = io.BytesIO()
    image.save(file, 'JPEG', quality=random.randint(_QUALITY[0], _QUALITY[1] + 1), subsampling='4:2:0')
    return file.getvalue(), height, width
