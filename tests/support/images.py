"""Real images and their files, bounding boxes, and bilinear resizing in NumPy as a reference for TensorFlow."""

import io
from typing import Any

import numpy as np
import PIL.Image
import skimage.data

CAT = np.ascontiguousarray(skimage.data.chelsea())  # uint8, 300 x 451
# Bounding boxes, float32 [1, boxes, 4]: ymin, xmin, ymax, xmax as fractions of the image.
NO_BOXES = np.zeros([1, 0, 4], np.float32)
WHOLE = np.array([[[0, 0, 1, 1]]], np.float32)
BOXES = np.array([[[0.05, 0.1, 0.25, 0.3], [0.7, 0.6, 1.0, 0.9]]], np.float32)
# The documented ranges of random crops.
DOCUMENTED_CROP = {'min_object_covered': 0.1, 'aspect_ratio_range': (3 / 4, 4 / 3), 'area_range': (0.05, 1.0)}

ORIENTATION_TAG = 0x0112


def saved(image: Any, kind: str, orientation: int = 0, **options: Any) -> bytes:
    """The file of a Pillow image or of pixels, in one of Pillow's formats, with an EXIF orientation if it is not 0."""
    file = io.BytesIO()
    if orientation:
        block = PIL.Image.Exif()
        block[ORIENTATION_TAG] = orientation
        options['exif'] = block.tobytes()
    (PIL.Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(file, kind, **options)
    return file.getvalue()


def with_segment(jpeg: bytes, marker: int, content: bytes) -> bytes:
    """A JPEG file with an additional segment before all others."""
    return jpeg[:2] + bytes([0xFF, marker]) + (2 + len(content)).to_bytes(2, 'big') + content + jpeg[2:]


def with_bytes(file: bytes, at: int, content: bytes) -> bytes:
    """A file with other bytes at a position."""
    return file[:at] + content + file[at + len(content) :]


def with_orientation(jpeg: bytes, value: int) -> bytes:
    """The same JPEG file with an EXIF orientation."""
    entry = b'\1\x12\0\3\0\0\0\1' + bytes([0, value, 0, 0])
    return with_segment(jpeg, 0xE1, b'Exif\0\0MM\0*\0\0\0\x08\0\1' + entry)


def resize_bilinear(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resizes bilinearly with align_corners=False: output pixel i lies at i * input size / output size."""
    for axis, size in enumerate([height, width]):
        length = image.shape[axis]
        places = np.arange(size, dtype=np.float32) * (np.float32(length) / np.float32(size))
        before = np.floor(places).astype(int)
        after = np.minimum(before + 1, length - 1)
        weight = (places - before).reshape([-1, 1, 1] if axis == 0 else [1, -1, 1])
        image = np.take(image, before, axis) * (1 - weight) + np.take(image, after, axis) * weight
    return image


def coordinates(height: int, width: int) -> np.ndarray:
    """Returns an int32 image whose pixels contain their coordinates: (row, column, 0)."""
    return np.stack([*np.indices([height, width]), np.zeros([height, width], int)], -1).astype(np.int32)
