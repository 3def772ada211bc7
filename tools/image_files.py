"""Finds image files by path or folder, and explains why a file cannot be decoded."""

import os
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

from compat.messages import FEW, first_few, full, shown
from console import inputs
from data import remote
from preprocessing.decoding import MAX_PIXELS
from tools.image_header import SIGNATURES, read_header

# Files with these extensions count as images, whatever they contain; other files, if they begin like an image.
EXTENSIONS = (
    *('.jpg', '.jpeg', '.jpe', '.jfif', '.png', '.gif', '.bmp', '.webp', '.tif', '.tiff', '.heic', '.heif', '.avif'),
    *('.jxl', '.jp2', '.dcm', '.psd', '.ppm', '.pgm', '.dng', '.cr2', '.nef', '.arw'),
)
# Folders that systems add for copies and for deleted files; compared without regard to case.
_SYSTEM_NAMES = {
    *('__macosx', '@eadir', '#recycle', '@recycle', '$recycle.bin', 'recycler', 'system volume information'),
    *('#snapshot', '~snapshot', '@recently-snapshot', '@tmp', 'network trash folder', 'temporary items', 'lost+found'),
}
# No image file with at most MAX_PIXELS pixels is larger.
_MAX_BYTES = 1 << 30
# `magick` is ImageMagick's command.
_NO_IMAGE = (
    'is not a JPEG, PNG, GIF, WebP, BMP or TIFF image, or its beginning is damaged; other formats must be converted: '
    'magick FILE FILE.jpg'
)


class UnreadableError(ValueError):
    """An image file cannot be used; the message gives the reason."""


class ImageFiles(NamedTuple):
    """The files named by a user's arguments.

    Attributes:
      paths: image files without duplicates, in the order of the arguments and sorted by name within a folder; including
        the paths in `problems`.
      problems: the reason why a path cannot be used, by path.
      skipped: files in folders that are not images.
    """

    paths: List[str]
    problems: Dict[str, str]
    skipped: List[str]


def find(names: Sequence[str]) -> ImageFiles:
    """Finds image files, given by the paths of files and of folders that contain them.

    Hidden files and folders are skipped. A file that is named directly is used, whatever it contains.
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
    else:
        yield name, 'no such file or folder'


def _in_folder(folder: str, skipped: List[str]) -> Iterator[Tuple[str, str]]:
    errors: List[OSError] = []
    has_images = False
    for parent, folders, names in os.walk(folder, onerror=errors.append):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        for path in (os.path.join(parent, name) for name in sorted(names) if not is_hidden(name)):
            if is_image(path):
                has_images = True
                yield path, ''
            else:
                skipped.append(path)
    yield from ((error.filename, f'cannot be listed: {error.strerror}') for error in errors)
    if not has_images:
        yield folder, 'no images in this folder'


def is_hidden(name: str) -> bool:
    """Whether a file or folder is hidden, or belongs to the system."""
    return name.startswith('.') or name.casefold() in _SYSTEM_NAMES


def is_image(path: str) -> bool:
    """Whether a file has an image's extension, or begins like a JPEG, PNG, GIF, WebP or TIFF file."""
    if path.lower().endswith(EXTENSIONS):
        return True
    if not os.path.isfile(path):
        return False
    try:
        with open(path, 'rb') as file:
            head = file.read(12)
            return head.startswith((*SIGNATURES, b'II*\0', b'MM\0*')) or head[8:] == b'WEBP'
    except OSError:
        return False


def read(path: str) -> bytes:
    """Reads an image file; raises UnreadableError if it cannot be read, or is not a regular file."""
    try:
        fault = inputs.fault_of(path, _MAX_BYTES)
        if fault:
            raise UnreadableError(fault)
        return inputs.read(path, _MAX_BYTES)
    except OSError as error:
        raise UnreadableError(f'cannot be read: {error.strerror}')


def why_undecodable(encoded: bytes, reason: str) -> str:
    """The reason why an image cannot be decoded: a problem in its header, or TensorFlow's `reason`."""
    header = read_header(encoded)
    if header is None or header.format == 'PPM':
        return _NO_IMAGE if encoded else 'is empty'
    damaged = 'a damaged or animated' if header.format == 'GIF' else 'a truncated or damaged'
    return size_problem(header.width, header.height) or f'is {damaged} {header.kind} image ({shown(reason)})'


def size_problem(width: int, height: int) -> str:
    """A message if an image has too many pixels; else empty."""
    if width * height <= MAX_PIXELS:
        return ''
    return f'has {width:,} x {height:,} pixels; at most {MAX_PIXELS:,} are allowed'


def listed(names: Sequence[str], all_in: str = '') -> str:
    """Lists the first few names, the number of the others, and the path of the file that has all."""
    text = first_few([*map(full, names)])
    return f'{text} (all in {full(all_in)})' if all_in and len(names) > FEW else text
