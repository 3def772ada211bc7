"""Finds image files by path, folder or pattern, and explains why a file cannot be decoded."""

import glob
import os
import re
import stat
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

from console.messages import FEW, first_few, shown
from data import remote
from data.image_header import ImageHeader, is_image, read_header
from preprocessing.decoding import MAX_PIXELS

# Files of these endings are images, whatever they hold; others are if their first bytes say so.
EXTENSIONS = ('.jpg', '.jpeg', '.jpe', '.jfif', '.png', '.gif', '.bmp', '.webp', '.tif', '.tiff', '.heic', '.heif')
# Names of folders and files that systems add, without regard to upper and lower case.
_MACOS_NAMES = {'__macosx', 'network trash folder', 'temporary items', 'icon\r'}
_WINDOWS_NAMES = {'thumbs.db', 'ehthumbs.db', 'desktop.ini', '$recycle.bin', 'recycler', 'system volume information'}
_DRIVE_NAMES = {'@eadir', '@recycle', '@recently-snapshot', '#recycle', '#snapshot', '@tmp', '~snapshot', 'lost+found'}
_SYSTEM_NAMES = {*_MACOS_NAMES, *_WINDOWS_NAMES, *_DRIVE_NAMES, '__pycache__'}
NOT_AN_IMAGE, UNRECOGNIZED = 'not an image', 'in no format that is known as one of images'
# Larger than any file of an image with at most MAX_PIXELS pixels.
_MAX_BYTES = 1 << 30
_LONGEST_PATH = 4096
_SUPPORTED = 'JPEG, PNG, GIF, WebP, BMP and TIFF'
_DECODED, _CONVERTED = ('JPEG', 'PNG', 'GIF'), ('WebP', 'BMP', 'TIFF')
# ImageMagick's command.
CONVERSION = 'convert it: magick FILE FILE.jpg'
_TEXT_SEARCH_BYTES = 4096
# Characters of a text; other control characters are not.
_TEXT = re.compile(rb'[\t\n\f\r\x20-\x7e\x80-\xff]+')


class UnreadableError(ValueError):
    """An image file cannot be used; the message gives the reason."""


class ImageFiles(NamedTuple):
    """The files that a user's arguments name.

    `paths` are image files without duplicates, in the order of the arguments, sorted by name within a folder; and, in
    their places, the paths of `problems`, which has the reasons why they cannot be used. `skipped` are files in folders
    that are no images.
    """

    paths: List[str]
    problems: Dict[str, str]
    skipped: List[str]


def find(names: Sequence[str]) -> ImageFiles:
    """Finds the image files that paths of files and folders, and patterns with `*`, `?`, `[…]` or `**` name.

    A folder stands for all image files below it; hidden files and folders are skipped. A file that is named directly,
    or matches a pattern, is used whatever it holds.
    """
    skipped: List[str] = []
    found = [each for name in names for each in _named(name, skipped)]
    paths = list(dict.fromkeys(path for path, _ in found))
    return ImageFiles(paths, {path: problem for path, problem in found if problem}, skipped)


def _named(name: str, skipped: List[str]) -> Iterator[Tuple[str, str]]:
    if remote.is_remote(name):
        yield name, 'remote images are not supported; copy it to this machine first'
    elif os.path.isdir(name):
        yield from _in_folder(name, skipped)
    elif os.path.lexists(name):
        yield name, ''
    elif glob.has_magic(name):
        matches = sorted(glob.glob(name, recursive=True))
        if not matches:
            yield name, 'no file matches this pattern'
        for path in matches:
            if not os.path.isdir(path):
                yield path, ''
            elif '**' not in name:  # `**` matches the folder's files as well.
                yield from _in_folder(path, skipped)
    else:
        yield name, 'no such file or folder'


def _in_folder(folder: str, skipped: List[str]) -> Iterator[Tuple[str, str]]:
    errors: List[OSError] = []
    has_images = False
    for parent, folders, names in os.walk(folder, onerror=errors.append):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        for path in (os.path.join(parent, name) for name in sorted(names) if not is_hidden(name)):
            if why_no_image(path):
                skipped.append(path)
            else:
                has_images = True
                yield path, ''
    yield from ((error.filename, f'cannot be listed: {error.strerror}') for error in errors)
    if not has_images:
        yield folder, 'no images in this folder'


def is_hidden(name: str) -> bool:
    """Whether a file or folder is hidden, or belongs to the system."""
    return name.startswith('.') or name.casefold() in _SYSTEM_NAMES


def why_no_image(path: str) -> str:
    """The reason why a file is no image, by its ending and its first bytes: NOT_AN_IMAGE or UNRECOGNIZED, or empty."""
    if path.lower().endswith(EXTENSIONS):
        return ''
    try:
        if not os.path.isfile(path):
            return NOT_AN_IMAGE
        with open(path, 'rb') as file:
            head = file.read(_TEXT_SEARCH_BYTES)
    except OSError:
        return UNRECOGNIZED
    if not head or _is_text(head):
        return NOT_AN_IMAGE
    return '' if is_image(head) else UNRECOGNIZED


def read(path: str) -> bytes:
    """Reads an image file; raises UnreadableError if it is not a regular file, or too large for an image."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError('is not a regular file')
        if status.st_size > _MAX_BYTES:
            raise UnreadableError(f'has {status.st_size:,} bytes; at most {_MAX_BYTES:,} are allowed')
        with open(path, 'rb') as file:
            return file.read()
    except OSError as error:
        if os.path.islink(path) and not os.path.exists(path):
            raise UnreadableError('is a link to a file that does not exist')
        raise UnreadableError(f'cannot be read: {error.strerror}')


def why_undecodable(encoded: bytes, reason: str) -> str:
    """The reason why an image cannot be decoded; TensorFlow's `reason` if its header shows no problem."""
    header = read_header(encoded)
    if not encoded:
        return 'is empty'
    if header is None:
        if not encoded.strip(b'\0'):
            return 'has only zero bytes'
        if _is_text(encoded):
            return 'is a text, not an image'
        return f'is not a {_SUPPORTED.replace("and", "or")} image, or its beginning is damaged'
    if header.format not in (*_DECODED, *_CONVERTED):
        return f'has the format {header.format}; supported are {_SUPPORTED}; {CONVERSION}'
    try:
        check_size(header)
    except UnreadableError as error:
        return str(error)
    if header.format == 'GIF':
        return 'is an animated GIF, or damaged; GIFs of one frame are supported'
    if header.format in _CONVERTED:
        return f'is a {header.format} image that is damaged, or cannot be decoded as it is; {CONVERSION}'
    if not header.sound:
        return f'is a {header.kind} image that is truncated or damaged'
    return f'is a damaged {header.kind} image ({shown(reason)})'


def check_size(header: ImageHeader) -> None:
    """Raises UnreadableError if an image has too many pixels."""
    if header.width * header.height > MAX_PIXELS:
        size = f'{header.width:,} x {header.height:,}'
        raise UnreadableError(f'has {size} pixels; at most {MAX_PIXELS:,} are allowed')


def _is_text(encoded: bytes) -> bool:
    try:
        # Text that is cut inside a character is text.
        encoded[:_TEXT_SEARCH_BYTES].decode('utf-8')
    except UnicodeDecodeError as error:
        if error.reason != 'unexpected end of data':
            return False
    return _TEXT.fullmatch(encoded[:_TEXT_SEARCH_BYTES]) is not None


def show(path: str) -> str:
    """Returns a path in printable characters, for messages."""
    return shown(path, _LONGEST_PATH)


def listed(names: Sequence[str], all_in: str = '') -> str:
    """The first few of some names, the number of the others, and the path of the file that lists all of them."""
    text = first_few([*map(show, names)])
    return f'{text} (all in {show(all_in)})' if all_in and len(names) > FEW else text
