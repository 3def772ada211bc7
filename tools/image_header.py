"""Reads the format, size, colours and EXIF orientation of an image from its header, in microseconds.

JPEG: ITU-T T.81, annex B. PNG: W3C, "Portable Network Graphics", second edition, 5 and 11.2.2. GIF: CompuServe, GIF89a,
18. PPM: see `data.ppm`. EXIF: CIPA DC-008, 4.6 and 4.7.2; not read with Pillow, which treats truncated blocks
differently from an exported graph.
"""

import re
import struct
from typing import Iterator, NamedTuple, Optional, Tuple

from data import ppm

PNG_SIGNATURE = b'\x89PNG\r\n\x1a\n'
SIGNATURES = (b'\xff\xd8\xff', PNG_SIGNATURE, b'GIF8')
_PNG_COLOURS = {0: ('grey',), 2: (), 3: ('palette',), 4: ('grey', 'transparency'), 6: ('transparency',)}

# Markers of JPEG.
_PROGRESSIVE = 0xC2
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # without tables and a reserved marker
_STANDALONE = {0x01, *range(0xD0, 0xD9)}
_START_OF_SCAN = 0xDA

# The pixels are stored as they are meant to be seen.
UPRIGHT = 1
_ORIENTATIONS = range(1, 9)
_ORIENTATION_TAG, _SHORT, _ENTRY_BYTES = 0x0112, 3, 12
_EXIF, _APP1 = b'Exif\0', 0xE1


class ImageHeader(NamedTuple):
    """The header of an image."""

    format: str  # 'JPEG', 'PNG', 'GIF' or 'PPM'.
    variants: Tuple[str, ...]  # Special properties, such as 'grey', 'CMYK' or 'progressive'.
    width: int  # In pixels.
    height: int  # In pixels.

    @property
    def kind(self) -> str:
        """The format and its variants, in words."""
        return ', '.join([self.format, *self.variants])


def read_header(encoded: bytes) -> Optional[ImageHeader]:
    """The header of an image file; None if it has none of these formats, or no readable header."""
    try:
        if encoded.startswith(b'\xff\xd8'):
            return _jpeg(encoded)
        if encoded.startswith(PNG_SIGNATURE):
            return _png(encoded)
        if encoded.startswith(b'GIF8'):
            width, height = struct.unpack_from('<HH', encoded, 6)
            return ImageHeader('GIF', (), width, height)
        match = re.match(ppm.HEADER.encode(), encoded[: ppm.HEADER_BYTES])
        if match:
            # PPM images can be used only in tar shards; decoding fails elsewhere.
            return ImageHeader('PPM', (), int(match.group(1)), int(match.group(2)))
    except (IndexError, struct.error):
        pass
    return None


def _jpeg_segments(encoded: bytes) -> Iterator[Tuple[int, int, int]]:
    """Yields marker, start and end of each segment of a JPEG file, up to the start of the first scan.

    A truncated file raises IndexError or struct.error.
    """
    position = 2
    while encoded[position] == 0xFF:
        while encoded[position] == 0xFF:
            position += 1
        marker = encoded[position]
        position += 1
        if marker == _START_OF_SCAN:
            return
        if marker not in _STANDALONE:
            (length,) = struct.unpack_from('>H', encoded, position)
            yield marker, position + 2, position + length
            position += length


def _jpeg(encoded: bytes) -> Optional[ImageHeader]:
    frames = ((marker, start) for marker, start, _ in _jpeg_segments(encoded) if marker in _FRAMES)
    marker, start = next(frames, (0, 0))
    if not marker:
        return None
    height, width, channels = struct.unpack_from('>HHB', encoded, start + 1)
    variants = {1: ['grey'], 4: ['CMYK']}.get(channels, [])
    return ImageHeader('JPEG', (*variants, *['progressive'] * (marker == _PROGRESSIVE)), width, height)


def _png(encoded: bytes) -> ImageHeader:
    width, height, depth, colour = struct.unpack_from('>IIBB', encoded, 16)
    variants = [*_PNG_COLOURS.get(colour, ('unknown colours',))]
    if depth == 16:
        variants.append('16 bits')
    return ImageHeader('PNG', tuple(variants), width, height)


def orientation(encoded: bytes) -> int:
    """The EXIF orientation of a JPEG file, 1 to 8; 1 if it is missing or unreadable, and for other formats."""
    if not encoded.startswith(b'\xff\xd8'):
        return UPRIGHT
    try:
        app1 = (encoded[start:end] for marker, start, end in _jpeg_segments(encoded) if marker == _APP1)
        found = _orientation_in(next((each[len(_EXIF) + 1 :] for each in app1 if each.startswith(_EXIF)), b''))
    except (IndexError, struct.error):
        return UPRIGHT
    return found if found in _ORIENTATIONS else UPRIGHT


def _orientation_in(block: bytes) -> int:
    order = {b'II*\0': '<', b'MM\0*': '>'}.get(block[:4])
    if order is None:
        return UPRIGHT
    (offset,) = struct.unpack_from(f'{order}I', block, 4)
    (entries,) = struct.unpack_from(f'{order}H', block, offset)
    for entry in range(offset + 2, offset + 2 + _ENTRY_BYTES * entries, _ENTRY_BYTES):
        tag, kind, count, value = struct.unpack_from(f'{order}HHIH', block, entry)
        if tag == _ORIENTATION_TAG:
            return value if kind == _SHORT and count == 1 else UPRIGHT
    return UPRIGHT
