"""Accepts image files of users: the one judgement of what can be used, for conversion and for prediction.

An accepted file is decoded whole once. It is stored as it is, unless training would not show it as a viewer does: it is
turned upright, laid on white where it is transparent, and converted from formats that training does not read.
"""

import contextlib
import io
import re
import warnings
from typing import NamedTuple, Optional, Tuple

import numpy as np

from compat import native_messages, tf
from compat.messages import shown
from preprocessing.decoding import decode_image, image_shape
from tools import extras
from tools.image_files import UnreadableError, size_problem, why_undecodable
from tools.image_header import UPRIGHT, ImageHeader, orientation, read_header

# The quality of re-encoded photographs. Above it, files grow and pixels do not get closer: the decoder's integer cosine
# transform is the limit.
_QUALITY = 95
_OPAQUE, _WHITE = 255, 255
# Formats that TensorFlow does not decode, or not in all variants, by Pillow's names.
_BY_PILLOW = {'WEBP': 'WebP', 'BMP': 'BMP', 'TIFF': 'TIFF'}
# Tags of TIFF files: bit 0 of the first is set for a preview (TIFF 6.0), and the second makes it a camera's raw file.
_SUBFILE_TYPE, _DNG_VERSION = 254, 50706
# Messages of libjpeg that mean that pixels are missing or wrong; it continues after each.
_DAMAGE = re.compile(r'^(Corrupt JPEG data: .*|Inconsistent progression sequence.*|Premature end of JPEG.*)$', re.M)

TURNED = 'turned upright, as the EXIF orientation says'
LAID_ON_WHITE = 'with transparency, laid on white'
REDUCED = 'of 16 bits per channel, of which training uses the upper 8'
# The formats of images that a conversion keeps as they are.
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
            shape = image_shape(self._encoded)
            self._decoded = decode_image(self._encoded, shape)
            with tf.control_dependencies([shape]):
                self._with_alpha = tf.image.decode_png(tf.identity(self._encoded), channels=4)
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
        if header is None or header.format == 'PPM':
            name, pixels = _by_pillow(encoded)
        else:
            name, pixels = header.format, self._decode(encoded, header)
        notes = [f'converted from {name}'] if name not in ('JPEG', 'PNG') else []
        is_deep = pixels.dtype == np.uint16
        if is_deep:
            pixels = np.repeat((pixels >> 8).astype(np.uint8)[..., np.newaxis], 3, axis=2)
        if pixels.shape[2] == 4:
            if pixels[..., -1].min() < _OPAQUE:
                notes.append(LAID_ON_WHITE)
            pixels = _on_white(pixels)
        stored = orientation(encoded)
        if stored != UPRIGHT:
            pixels = _upright(pixels, stored)
            notes.append(TURNED)
        if notes:
            encode = self._jpeg if name in ('JPEG', 'WebP') else self._png
            encoded = self._session.run(encode, {self._pixels: pixels})
        if is_deep or (header and '16 bits' in header.variants):
            notes.append(REDUCED)
        height, width = pixels.shape[:2]
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


def _by_pillow(encoded: bytes) -> Tuple[str, np.ndarray]:
    """The format of a file that TensorFlow does not decode, and its pixels: RGB or RGBA, or grey of 16 bits.

    They are uint8 [height, width, channels], or uint16 [height, width], turned upright.
    """
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError:
        hint = f'WebP, BMP and TIFF need Pillow: {extras.command("images")}'
        raise UnreadableError(f'{why_undecodable(encoded, "")}. {hint}')
    try:
        with warnings.catch_warnings():
            # Pillow warns about large images; the limit is checked here.
            warnings.simplefilter('ignore')
            with PIL.Image.open(io.BytesIO(encoded), formats=[*_BY_PILLOW]) as image:
                problem = size_problem(image.width, image.height)
                if getattr(image, 'n_frames', 1) > 1:
                    problem = 'has several pages or frames; files of one picture are supported'
                if image.mode in ('I', 'F'):
                    problem = 'has 32 bits per channel; convert it to 8 or 16'
                tags = getattr(image, 'tag_v2', {})
                if tags.get(_DNG_VERSION) or tags.get(_SUBFILE_TYPE, 0) & 1:
                    problem = 'is a raw file of a camera, of which only a preview can be read; develop it'
                if problem:
                    raise UnreadableError(problem)
                name = _BY_PILLOW[str(image.format)]
                # Pillow turns TIFF images by itself.
                upright = image
                # EXIF data that cannot be read is ignored, as that of a JPEG file.
                with contextlib.suppress(Exception):
                    upright = PIL.ImageOps.exif_transpose(image) if name == 'WebP' else image
                if upright.mode.startswith('I;16'):
                    return name, np.asarray(upright).astype(np.uint16)
                has_alpha = upright.mode in ('RGBA', 'LA', 'PA')
                return name, np.array(upright.convert('RGBA' if has_alpha else 'RGB'))
    except PIL.Image.UnidentifiedImageError:
        raise UnreadableError(why_undecodable(encoded, ''))
    except UnreadableError:
        raise
    except Exception as error:  # Pillow raises errors of many kinds for damaged files.
        raise UnreadableError(f'is damaged, or of a kind that Pillow cannot read ({shown(error)})')


def _on_white(pixels: np.ndarray) -> np.ndarray:
    alpha = pixels[..., 3:].astype(np.uint16)
    colours = pixels[..., :3] * alpha + _WHITE * (_OPAQUE - alpha)
    return ((colours + _OPAQUE // 2) // _OPAQUE).astype(np.uint8)


def _upright(pixels: np.ndarray, value: int) -> np.ndarray:
    """Turns an image [height, width, channels] that is stored with an EXIF orientation of 1 to 8."""
    if value >= 5:
        pixels = pixels.transpose(1, 0, 2)
    # The row 0 of the pixels (5 to 8: of the transposed pixels) is at the bottom, the column 0 at the right.
    if value in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if value in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)
