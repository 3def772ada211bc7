"""Images and resizing computed with NumPy, to compare TensorFlow with."""

import numpy as np


def resize_bilinear(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear with align_corners=False: output pixel i lies at i * input size / output size."""
    for axis, size in enumerate([height, width]):
        length = image.shape[axis]
        places = np.arange(size, dtype=np.float32) * (np.float32(length) / np.float32(size))
        before = np.floor(places).astype(int)
        after = np.minimum(before + 1, length - 1)
        weight = (places - before).reshape([-1, 1, 1] if axis == 0 else [1, -1, 1])
        image = np.take(image, before, axis) * (1 - weight) + np.take(image, after, axis) * weight
    return image


def coordinates(height: int, width: int) -> np.ndarray:
    """An image whose pixels say where they are: (row, column, 0)."""
    return np.stack([*np.indices([height, width]), np.zeros([height, width], int)], -1).astype(np.int32)
