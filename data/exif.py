"""Reads the EXIF orientation of image files with Pillow, and turns images by it (CIPA DC-008, 4.6)."""

import io
import warnings

import numpy as np
import PIL.Image

# The pixels are stored as they shall be seen.
UPRIGHT = 1
_TAG = 0x0112


def orientation(encoded: bytes) -> int:
    """The EXIF orientation of a JPEG, PNG or WebP file, 1 to 8; 1 if it has none, or none that can be read."""
    block = PIL.Image.Exif()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            with PIL.Image.open(io.BytesIO(encoded), formats=['JPEG', 'PNG', 'WEBP']) as image:
                # Not `getexif`, which decodes a PNG file.
                block.load(image.info.get('exif', b''))
            found = block.get(_TAG, UPRIGHT)
    except Exception:  # Pillow raises errors of many kinds for damaged files.
        return UPRIGHT
    return found if isinstance(found, int) and UPRIGHT <= found <= 8 else UPRIGHT


def upright(pixels: np.ndarray, value: int) -> np.ndarray:
    """Turns an image [height, width, channels] that is stored with an EXIF orientation of 1 to 8."""
    if value >= 5:
        pixels = pixels.transpose(1, 0, 2)
    # The row 0 of the pixels (5 to 8: of the transposed pixels) is at the bottom, the column 0 at the right.
    if value in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if value in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)
