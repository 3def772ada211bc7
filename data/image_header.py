"""Reads the header of an encoded image: format, size and colours, in microseconds, without decoding.

JPEG: ITU-T T.81, annex B, and Adobe's technical note 5116 for the colours of APP14. PNG: W3C, "Portable Network
Graphics", second edition, 5 and 11.2.2. GIF: CompuServe, GIF89a, 18. PPM: see `data.ppm`.
"""

import re
import struct
import zlib
from typing import Iterator, List, NamedTuple, Optional, Tuple

from data import ppm
from preprocessing.decoding import MAX_PIXELS

PNG_SIGNATURE = b'\x89PNG\r\n\x1a\n'
SIGNATURES = (b'\xff\xd8\xff', PNG_SIGNATURE, b'GIF8')
_PNG_PALETTE = 3
_PNG_COLOURS = {0: ('grey',), 2: (), _PNG_PALETTE: ('palette',), 4: ('grey', 'transparency'), 6: ('transparency',)}

# Markers of JPEG. Other kinds of frames are rare, and not supported by all decoders.
_BASELINE, _EXTENDED, _PROGRESSIVE = 0xC0, 0xC1, 0xC2
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # tables and a reserved marker
_STANDALONE = {0x01, *range(0xD0, 0xD9)}
_START_OF_SCAN, _ADOBE = 0xDA, 0xEE
_END_OF_IMAGE = b'\xff\xd9'


class ImageHeader(NamedTuple):
    """The header of an image."""

    format: str  # 'JPEG', 'PNG', 'GIF' or 'PPM'.
    variants: Tuple[str, ...]  # Special properties, such as 'grey', 'CMYK' or 'progressive'.
    width: int  # In pixels.
    height: int  # In pixels.
    # Whether the end of the image is present, the header is of a common kind, and a PNG's checksums are correct. If
    # not, decoding shows whether the image can be used. Only decoding finds other damage.
    sound: bool

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
            # Only GIFs with one frame can be used; only decoding counts the frames.
            width, height = struct.unpack_from('<HH', encoded, 6)
            return ImageHeader('GIF', (), width, height, False)
        match = re.match(ppm.HEADER.encode(), encoded[: ppm.HEADER_BYTES])
        if match:
            # PPM images can be used only in tar shards; decoding fails elsewhere.
            return ImageHeader('PPM', (), int(match.group(1)), int(match.group(2)), False)
    except (IndexError, struct.error):
        pass
    return None


def jpeg_segments(encoded: bytes) -> Iterator[Tuple[int, int, int]]:
    """Yields the marker, the start and the end of the segments of a JPEG file, up to the first scan, without its end.

    A truncated file is an IndexError or a struct.error.
    """
    position = 2
    while encoded[position] == 0xFF:
        while encoded[position] == 0xFF:
            position += 1
        marker = encoded[position]
        position += 1
        if marker == _START_OF_SCAN:
            yield marker, position, position
            return
        if marker not in _STANDALONE:
            (length,) = struct.unpack_from('>H', encoded, position)
            yield marker, position + 2, position + length
            position += length


def _jpeg(encoded: bytes) -> Optional[ImageHeader]:
    frame = adobe_colours = None
    components = b''
    kind = marker = start = 0
    for marker, start, end in jpeg_segments(encoded):
        if marker in _FRAMES:
            kind, frame = marker, struct.unpack_from('>BHHB', encoded, start)
            components = encoded[start + 6 : end : 3]
        elif marker == _ADOBE and encoded[start : start + 5] == b'Adobe':
            adobe_colours = encoded[start + 11]
    if frame is None or marker != _START_OF_SCAN:
        return None
    precision, height, width, channels = frame
    variants = []
    if channels == 1:
        variants.append('grey')
    elif channels == 4:
        variants.append('CMYK')
    elif adobe_colours == 0 or components == b'RGB':
        variants.append('RGB')
    if kind == _PROGRESSIVE:
        variants.append('progressive')
    usual = kind in (_BASELINE, _EXTENDED, _PROGRESSIVE) and precision == 8 and channels in (1, 3, 4)
    # The data of a scan never contains this marker. Segments before the scan, such as a thumbnail, may contain it.
    whole = encoded.rfind(_END_OF_IMAGE, start) >= 0
    return ImageHeader('JPEG', tuple(variants), width, height, usual and whole and _is_usual(width, height))


def _png(encoded: bytes) -> ImageHeader:
    name, width, height, depth, colour = struct.unpack_from('>4sIIBB', encoded, 12)
    variants = [*_PNG_COLOURS.get(colour, ('unknown colours',))]
    if depth == 16:
        variants.append('16 bits')
    sound = name == b'IHDR' and colour in _PNG_COLOURS and _is_usual(width, height)
    return ImageHeader('PNG', tuple(variants), width, height, sound and _has_chunks(encoded, colour == _PNG_PALETTE))


def _has_chunks(encoded: bytes, needs_palette: bool) -> bool:
    """Whether a PNG has all chunks up to its end, of the claimed lengths and with correct checksums."""
    kinds: List[bytes] = []
    view = memoryview(encoded)
    position = len(PNG_SIGNATURE)
    while kinds[-1:] != [b'IEND']:
        end = position + 8 + int.from_bytes(encoded[position : position + 4], 'big')
        if zlib.crc32(view[position + 4 : end]).to_bytes(4, 'big') != encoded[end : end + 4]:
            return False
        kinds.append(encoded[position + 4 : position + 8])
        position = end + 4
    before_pixels = kinds[: kinds.index(b'IDAT')] if b'IDAT' in kinds else []
    return (b'PLTE' if needs_palette else b'IHDR') in before_pixels


def _is_usual(width: int, height: int) -> bool:
    return 0 < width * height <= MAX_PIXELS
