"""Image files that a user names one by one, by their folder or by a pattern; and what is wrong with one."""

import glob
import os
import stat
from typing import List, NamedTuple, Sequence

from console.messages import shown
from data import remote
from data.image_header import read_header
from preprocessing.decoding import MAX_PIXELS

EXTENSIONS = ('.jpg', '.jpeg', '.png', '.gif')
# More than the largest image that is decoded can take.
_MOST_BYTES = 1 << 30
_LONGEST_PATH = 4096
_DECODED = ('JPEG', 'PNG', 'GIF')


class UnreadableError(ValueError):
    """Why an image file cannot be used."""


class Found(NamedTuple):
    """What some names stand for.

    Attributes:
      paths: of image files, in the order of the names, and in that of their own names in a folder; each once.
      problems: why a name stands for nothing, a line each.
      others: files in folders that are no images by their extensions.
    """

    paths: List[str]
    problems: List[str]
    others: List[str]


def find(names: Sequence[str]) -> Found:
    """The image files of some names: files, folders with all that is in them, and patterns with `*`, `?`, `[…]`, `**`.

    A file that is named, or matches a pattern, is taken for an image whatever its extension; in folders the extension
    tells. Hidden files in folders are passed over.
    """
    found = Found([], [], [])
    for name in names:
        if remote.is_remote(name):
            found.problems.append(f'{show(name)}: images have to be on this machine; copy it here first.')
        elif os.path.isdir(name):
            _add_folder(name, found)
        elif os.path.lexists(name):
            found.paths.append(name)
        elif glob.has_magic(name):
            _add_matches(name, found)
        else:
            found.problems.append(f'{show(name)}: no such file or folder.')
    return found._replace(paths=list(dict.fromkeys(found.paths)))


def _add_matches(pattern: str, found: Found) -> None:
    matches = sorted(glob.glob(pattern, recursive=True))
    if not matches:
        found.problems.append(f'{show(pattern)}: no file has such a name.')
    for path in matches:
        if not os.path.isdir(path):
            found.paths.append(path)
        elif '**' not in pattern:  # which matches what is in the folder, too
            _add_folder(path, found)


def _add_folder(folder: str, found: Found) -> None:
    images = 0

    def refuse(error: OSError) -> None:
        found.problems.append(f'{show(error.filename)}: cannot be listed: {error.strerror}.')

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith('.'))
        for name in sorted(name for name in names if not name.startswith('.')):
            is_image = name.lower().endswith(EXTENSIONS)
            images += is_image
            (found.paths if is_image else found.others).append(os.path.join(parent, name))
    if not images:
        found.problems.append(f'{show(folder)}: a folder without images: they end in {", ".join(EXTENSIONS)}.')


def read(path: str) -> bytes:
    """The content of an image file.

    Raises:
      UnreadableError: it cannot be read, or is no file that an image can be in.
    """
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError('is no file')
        if status.st_size > _MOST_BYTES:
            raise UnreadableError(f'has {status.st_size:,} bytes; there may be {_MOST_BYTES:,}')
        with open(path, 'rb') as file:
            return file.read()
    except OSError as error:
        raise UnreadableError(f'cannot be read: {error.strerror}')


def why_undecodable(encoded: bytes, reason: str) -> str:
    """Why an image file cannot be decoded, in words.

    Args:
      encoded: its content.
      reason: what TensorFlow says, where there is nothing better to say.
    """
    header = read_header(encoded)
    if not encoded:
        return 'is empty'
    if header is None:
        return 'is no image, or damaged at its beginning: neither JPEG, PNG nor GIF'
    if header.format not in _DECODED:
        return f'is a {header.format} image; JPEG, PNG and GIF are taken'
    if header.width * header.height > MAX_PIXELS:
        return f'has {header.width:,} x {header.height:,} pixels; there may be {MAX_PIXELS:,}'
    if header.format == 'GIF':
        return 'is a GIF of several pictures, or damaged; those of one picture are taken'
    if not header.sound:
        return f'is a {header.kind} image that is cut short or damaged'
    return f'is a damaged {header.kind} image ({shown(reason)})'


def show(path: str) -> str:
    """A path as messages have it, in characters that print."""
    return shown(path, _LONGEST_PATH)
