"""Reads the EXIF orientation of JPEG, PNG and WebP files, and turns images by it.

EXIF: CIPA DC-008, 4.6. Its place: APP1 in JPEG (4.7.2), the chunk eXIf in PNG (W3C, 11.3.2.5), EXIF in WebP.
"""

import struct
from typing import Iterator, Optional, Tuple

import numpy as np

# The pixels are stored as they shall be seen.
UPRIGHT = 1
_ORIENTATIONS = range(1, 9)
_TAG, _SHORT, _ENTRY_BYTES = 0x0112, 3, 12
_EXIF = b'Exif\0'
_STANDALONE = {0x01, *range(0xD0, 0xD9)}
_START_OF_SCAN, _END_OF_IMAGE, _APP1 = 0xDA, 0xD9, 0xE1
_PNG_SIGNATURE = b'\x89PNG\r\n\x1a\n'


def orientation(encoded: bytes) -> int:
    """The EXIF orientation of an image file, 1 to 8; 1 if it has none, or none that can be read."""
    try:
        block = _block(encoded)
        found = _in_block(block) if block else UPRIGHT
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


def _block(encoded: bytes) -> Optional[bytes]:
    """The TIFF structure of a file's EXIF data; None if there is none."""
    if encoded.startswith(b'\xff\xd8'):
        content = next((c for c in _app1(encoded) if c.startswith(_EXIF)), None)
        return content[len(_EXIF) + 1 :] if content else None
    if encoded.startswith(_PNG_SIGNATURE):
        chunks = _chunks(encoded, len(_PNG_SIGNATURE), '>I4s', 4, 1)
        return next((content for name, content in chunks if name == b'eXIf'), None)
    if encoded.startswith(b'RIFF') and encoded[8:12] == b'WEBP':
        chunks = _chunks(encoded, 12, '<4sI', 0, 2)
        content = next((content for name, content in chunks if name == b'EXIF'), None)
        return content[len(_EXIF) + 1 :] if content and content.startswith(_EXIF) else content
    return None


def _app1(encoded: bytes) -> Iterator[bytes]:
    position = 2
    while encoded[position] == 0xFF:
        while encoded[position] == 0xFF:
            position += 1
        marker = encoded[position]
        position += 1
        if marker in _STANDALONE:
            continue
        if marker in (_START_OF_SCAN, _END_OF_IMAGE):
            return
        (length,) = struct.unpack_from('>H', encoded, position)
        if marker == _APP1:
            yield encoded[position + 2 : position + length]
        position += length


def _chunks(encoded: bytes, position: int, layout: str, after: int, even: int) -> Iterator[Tuple[bytes, bytes]]:
    """Yields names and contents of chunks; `after`: bytes behind a content padded to a multiple of `even`."""
    while position + struct.calcsize(layout) <= len(encoded):
        first, second = struct.unpack_from(layout, encoded, position)
        name, size = (first, second) if isinstance(first, bytes) else (second, first)
        position += struct.calcsize(layout)
        yield name, encoded[position : position + size]
        position += size + size % even + after


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
