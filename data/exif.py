"""Reads the EXIF orientation of JPEG files, and turns images by it.

By hand, since Pillow reads truncated blocks unlike an exported graph. EXIF: CIPA DC-008, 4.6 and 4.7.2.
"""

import struct

import numpy as np

from data.image_header import jpeg_segments

# The pixels are stored as they shall be seen.
UPRIGHT = 1
_ORIENTATIONS = range(1, 9)
_TAG, _SHORT, _ENTRY_BYTES = 0x0112, 3, 12
_EXIF, _APP1 = b'Exif\0', 0xE1


def orientation(encoded: bytes) -> int:
    """The EXIF orientation of a JPEG file, 1 to 8; 1 if it has none, or none that can be read, and for other files."""
    if not encoded.startswith(b'\xff\xd8'):
        return UPRIGHT
    try:
        app1 = (encoded[start:end] for marker, start, end in jpeg_segments(encoded) if marker == _APP1)
        found = _in_block(next((each[len(_EXIF) + 1 :] for each in app1 if each.startswith(_EXIF)), b''))
    except (IndexError, struct.error):
        return UPRIGHT
    return found if found in _ORIENTATIONS else UPRIGHT


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


def _in_block(block: bytes) -> int:
    order = {b'II*\0': '<', b'MM\0*': '>'}.get(block[:4])
    if order is None:
        return UPRIGHT
    (offset,) = struct.unpack_from(f'{order}I', block, 4)
    (entries,) = struct.unpack_from(f'{order}H', block, offset)
    for entry in range(offset + 2, offset + 2 + _ENTRY_BYTES * entries, _ENTRY_BYTES):
        tag, kind, count, value = struct.unpack_from(f'{order}HHIH', block, entry)
        if tag == _TAG:
            return value if kind == _SHORT and count == 1 else UPRIGHT
    return UPRIGHT
