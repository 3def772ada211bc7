"""Prepares images for an exported network with only NumPy: carries out the steps of `preprocessing.json`.

A copy of this file stands beside each export:

    photo = PIL.ImageOps.exif_transpose(PIL.Image.open('photo.jpg')).convert('RGBA')
    white = PIL.Image.new('RGBA', photo.size, 'white')
    pixels = numpy.asarray(PIL.Image.alpha_composite(white, photo).convert('RGB'))
    image = prepare(pixels, json.load(open('preprocessing.json'))['steps'])
"""

import numpy as np


def prepare(pixels: np.ndarray, steps: list) -> np.ndarray:
    """Carries out the steps.

    Args:
      pixels: uint8 [any height, any width, 3], a decoded image, turned by its EXIF orientation, and laid on white where
        it is transparent.
      steps: the list in `preprocessing.json`, of dicts with one key each.

    Returns:
      float32 [height, width, 3], the input of the network; with the step `transpose` [3, height, width]; with the step
      `quantize` int8.
    """
    image = pixels
    for step in steps:
        ((name, value),) = step.items()
        if name == 'central_crop':
            top, left = (int((side - side * value) / 2) for side in image.shape[:2])
            image = image[top : image.shape[0] - top, left : image.shape[1] - left]
        elif name == 'resize_smaller_side':
            # The larger side is truncated to whole pixels.
            sides = np.float32(image.shape[:2])
            larger = (sides * (np.float32(value) / sides.min())).astype(int)
            image = _resize(image, *np.where(sides == sides.min(), value, larger))
        elif name == 'crop':
            top, left = (np.array(image.shape[:2]) - value) // 2
            image = image[top : top + value[0], left : left + value[1]]
        elif name == 'resize':
            image = _resize(image, *value)
        elif name == 'round':
            image = np.floor(image + np.float32(0.5))
        elif name == 'transpose':
            image = image.transpose(value)
        elif name == 'quantize':
            image = quantize(image, **value)
        else:
            image = image * np.float32(value['scale']) + np.float32(value['offset'])
    return image


def quantize(values: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    """The int8 numbers for float values: n represents scale · (n - zero_point)."""
    numbers = np.round(values / np.float32(scale)) + np.float32(zero_point)
    return np.clip(numbers, -128, 127).astype(np.int8)


def dequantize(numbers: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    """The float32 values of int8 numbers from `quantize`."""
    return (numbers.astype(np.float32) - np.float32(zero_point)) * np.float32(scale)


def _resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resizes bilinearly. Pixel i of a side is from the position i * old / new: no corners or centres align."""
    image = image.astype(np.float32)
    for axis, new in ((1, width), (0, height)):
        old = image.shape[axis]
        place = np.arange(new, dtype=np.float32) * (np.float32(old) / np.float32(new))
        low = np.floor(place).astype(int)
        one, other = image.take(low, axis), image.take(np.minimum(low + 1, old - 1), axis)
        share = (place - low.astype(np.float32)).reshape([-1, 1] if axis else [-1, 1, 1])
        image = one + (other - one) * share
    return image
