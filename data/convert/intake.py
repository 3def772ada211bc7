"""Accepts image files of users: the one judgement of what can be used, for conversion and for prediction.

An accepted file is decoded whole once. It is stored as it is, unless training would not show it as a viewer does: it is
turned upright, laid on white where it is transparent, and converted from formats that training does not read.
"""

import importlib
import io
import re
import warnings
from typing import NamedTuple, Optional, Tuple

import numpy as np

from console import extras, native_messages
from console.messages import shown
from console.tensorflow_versions import tf
from data import exif
from data.image_files import CONVERSION, UnreadableError, check_size, why_undecodable
from data.image_header import ImageHeader, read_header
from preprocessing.decoding import decode_image, image_shape

# The quality of re-encoded photographs. Above it, files grow and pixels do not get closer: the decoder's integer cosine
# transform is the limit.
_QUALITY = 95
_OPAQUE, _WHITE = 255, 255
# Formats that TensorFlow does not decode, or not in all variants, with Pillow's names; a package adds HEIF to Pillow.
_BY_PILLOW = {'WebP': 'WEBP', 'BMP': 'BMP', 'TIFF': 'TIFF', 'HEIC': 'HEIF'}
# Tags of TIFF files: bit 0 of the first is set for a preview (TIFF 6.0), and the second makes it a camera's raw file.
_SUBFILE_TYPE, _DNG_VERSION = 254, 50706
# Values of 16 bits below 2 to this power are dark when only their upper 8 bits are used.
_DARK_BITS = 14
# Messages of libjpeg that mean that pixels are missing or wrong; it continues after each.
_DAMAGE = re.compile(r'^(Corrupt JPEG data: .*|Inconsistent progression sequence.*|Premature end of JPEG.*)$', re.M)

TURNED = 'turned upright, as the EXIF orientation says'
LAID_ON_WHITE = 'with transparency, laid on white'
REDUCED = 'of 16 bits per channel, of which training uses the upper 8'
_DARK = 'whose 16 bits hold only values of 0 to {:,} of 65,535: training sees them {}. Scale their values up first'
ONE_PIXEL = 'of 1 x 1 pixel'
# Of images that a conversion keeps as they are.
DAMAGED = 'with damaged pixels, kept as they are'
ROTATED = 'with an EXIF orientation, which training ignores'


class Accepted(NamedTuple):
    """A JPEG or PNG file, its size in pixels, and what was changed or is unusual, to follow the word `images`."""

    encoded: bytes
    height: int
    width: int
    notes: Tuple[str, ...]


def damage_in(messages: str) -> Optional[str]:
    """The first message about damage among the native messages of a decoding; None if there is none."""
    match = _DAMAGE.search(messages)
    return match.group().strip() if match else None


class Intake:
    """Judges image files, and makes those usable that can be. Any thread may call it."""

    def __init__(self) -> None:
        with tf.Graph().as_default() as graph:
            self._encoded = tf.placeholder(tf.string, [])
            self._decoded = decode_image(self._encoded)
            with tf.control_dependencies([image_shape(self._encoded)]):
                self._with_alpha = tf.image.decode_png(tf.identity(self._encoded), channels=4)
            self._of_16_bits = tf.image.decode_png(self._encoded, channels=3, dtype=tf.uint16)
            self._pixels = tf.placeholder(tf.uint8, [None, None, 3])
            self._jpeg = tf.image.encode_jpeg(self._pixels, 'rgb', _QUALITY, chroma_downsampling=False)
            self._png = tf.image.encode_png(self._pixels)
        self._session = tf.Session(graph=graph)

    def close(self) -> None:
        """Closes the TensorFlow session."""
        self._session.close()

    def accept(self, encoded: bytes) -> Accepted:
        """Judges an image file by its content; raises UnreadableError if it cannot be used, or is damaged."""
        return self._accept(encoded)[0]

    def accept_and_decode(self, encoded: bytes) -> Tuple[Accepted, np.ndarray]:
        """As `accept`; also returns the pixels, uint8 [height, width, 3], that `decode_image` gives for the result."""
        accepted, pixels = self._accept(encoded)
        if accepted.encoded is not encoded:
            pixels = self._session.run(self._decoded, {self._encoded: accepted.encoded})
        return accepted, pixels

    def _accept(self, encoded: bytes) -> Tuple[Accepted, np.ndarray]:
        """The accepted image, and its pixels before it was encoded again, if it was."""
        header = read_header(encoded)
        if header is None:
            raise UnreadableError(why_undecodable(encoded, ''))
        is_foreign = header.format in _BY_PILLOW
        pixels = _by_pillow(encoded, header) if is_foreign else self._decode(encoded, header)
        deep = None
        if pixels.dtype == np.uint16:
            deep, pixels = pixels, np.repeat((pixels >> 8).astype(np.uint8)[..., np.newaxis], 3, axis=2)
        elif '16 bits' in header.variants:
            deep = self._session.run(self._of_16_bits, {self._encoded: encoded})
        notes = [f'converted from {header.format}'] if is_foreign or header.format == 'GIF' else []
        if pixels.shape[2] == 4:
            if pixels[..., -1].min() < _OPAQUE:
                notes.append(LAID_ON_WHITE)
            pixels = _on_white(pixels)
        orientation = exif.orientation(encoded)
        if orientation != exif.UPRIGHT:
            pixels = exif.upright(pixels, orientation)
            notes.append(TURNED)
        if notes:
            encode = self._jpeg if header.format in ('JPEG', 'WebP', 'HEIC') else self._png
            encoded = self._session.run(encode, {self._pixels: pixels})
        height, width = pixels.shape[:2]
        if deep is not None:
            notes.append(REDUCED)
            bits = int(deep.max()).bit_length()
            if 0 < bits <= _DARK_BITS:
                notes.append(_DARK.format((1 << bits) - 1, 'black' if bits <= np.iinfo(np.uint8).bits else 'dark'))
        if height * width == 1:
            notes.append(ONE_PIXEL)
        return Accepted(encoded, height, width, (*notes,)), pixels

    def _decode(self, encoded: bytes, header: ImageHeader) -> np.ndarray:
        """The pixels of a file that TensorFlow decodes: RGB, with alpha if it is a PNG file with transparency."""
        may_be_transparent = header.format == 'PNG' and (
            'transparency' in header.variants or b'tRNS' in encoded[: max(encoded.find(b'IDAT'), 0)]
        )
        operation = self._with_alpha if may_be_transparent else self._decoded
        try:
            pixels, messages = native_messages.during(lambda: self._session.run(operation, {self._encoded: encoded}))
        except tf.errors.InvalidArgumentError as error:
            raise UnreadableError(why_undecodable(encoded, error.message.partition('\n')[0]))
        damage = damage_in(messages)
        if damage:
            raise UnreadableError(f'is a damaged {header.kind} image ({damage})')
        return pixels


def _by_pillow(encoded: bytes, header: ImageHeader) -> np.ndarray:
    """The pixels of a file that TensorFlow does not decode: RGB or RGBA, or grey of 16 bits [height, width]."""
    name = header.format
    try:
        import PIL.Image
    except ImportError:
        raise UnreadableError(f'is a {name} image; to convert it, install Pillow: {extras.command("images")}')
    if name == 'HEIC':
        try:
            importlib.import_module('pillow_heif').register_heif_opener()
        except ImportError:
            raise UnreadableError(f'is a HEIC image; to read it, pip install pillow-heif; or {CONVERSION}')
    check_size(header)
    try:
        with warnings.catch_warnings():
            # Pillow warns about large images; the limit is checked here.
            warnings.simplefilter('ignore')
            with PIL.Image.open(io.BytesIO(encoded), formats=[_BY_PILLOW[name]]) as image:
                check_size(header._replace(width=image.width, height=image.height))
                tags = getattr(image, 'tag_v2', {})
                if tags.get(_DNG_VERSION) or tags.get(_SUBFILE_TYPE, 0) & 1:
                    raise UnreadableError('is a raw file of a camera, of which only a preview can be read; develop it')
                if getattr(image, 'n_frames', 1) > 1:
                    what = 'a TIFF image of several pages' if name == 'TIFF' else f'an animated {name} image'
                    raise UnreadableError(f'is {what}; files of one picture are supported')
                if image.mode.startswith('I;16'):
                    return np.asarray(image).astype(np.uint16)
                if image.mode in ('I', 'F'):
                    raise UnreadableError(f'is a {name} image of 32 bits per channel; convert it to 8 or 16')
                has_alpha = image.mode in ('RGBA', 'LA', 'PA') or 'transparency' in image.info
                return np.array(image.convert('RGBA' if has_alpha else 'RGB'))
    except UnreadableError:
        raise
    except Exception as error:  # Pillow raises errors of many kinds for damaged files.
        raise UnreadableError(f'is a damaged {name} image, or of a kind that Pillow cannot read ({shown(error)})')


def _on_white(pixels: np.ndarray) -> np.ndarray:
    alpha = pixels[..., 3:].astype(np.uint16)
    colours = pixels[..., :3] * alpha + _WHITE * (_OPAQUE - alpha)
    return ((colours + _OPAQUE // 2) // _OPAQUE).astype(np.uint8)
