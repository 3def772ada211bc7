"""Finds the images in a folder per class."""

import os
from typing import List, NamedTuple, NoReturn, Optional, Set

from data import records
from data.image_files import EXTENSIONS

# The folders of images that are already split; the validation folder may have either name.
_TRAIN = 'train'
_VALIDATION_FOLDERS = ('validation', 'val')


class ImageFile(NamedTuple):
    """An image file and its class."""

    path: str
    class_name: str


class Found(NamedTuple):
    """The contents of a folder of class folders, in order.

    Attributes:
      images: the images.
      unused: other files and folders.
      empty: class folders without images, except those in `unused`.
    """

    images: List[ImageFile]
    unused: List[str]
    empty: List[str]


def find_images(folder: str) -> Found:
    """Lists a folder of class folders. Hidden files and folders are skipped.

    Raises:
      records.DataError: the folder does not exist, or has no class folder with an image; or a folder cannot be listed.
    """
    if not os.path.isdir(folder):
        raise records.DataError(f'{folder}: no such folder.')
    images, unused = [], []
    classes: List[str] = []
    visited: Set[str] = set()
    for parent, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith('.'))
        if os.path.realpath(parent) in visited:
            # A link to a visited folder, possibly a cycle.
            folders[:] = []
            unused.append(parent)
            continue
        visited.add(os.path.realpath(parent))
        inside = os.path.relpath(parent, folder)
        if inside == os.curdir:
            classes = folders[:]
        for name in sorted(names):
            path = os.path.join(parent, name)
            if name.startswith('.'):
                continue
            if inside != os.curdir and name.lower().endswith(EXTENSIONS):
                images.append(ImageFile(path, inside.split(os.sep)[0]))
            else:
                unused.append(path)
    if not images:
        raise records.DataError(
            f'{folder}: no images. It must hold a folder per class with files that end in {", ".join(EXTENSIONS)}.'
        )
    empty = {os.path.join(folder, name) for name in {*classes} - {image.class_name for image in images}}
    return Found(images, unused, sorted(empty - {*unused}))


def refuse(error: OSError) -> NoReturn:
    """Refuses a folder that cannot be listed."""
    raise records.DataError(
        f'{error.filename}: cannot be listed: {error.strerror}. Make it readable, or remove it: its images would be '
        'missing otherwise.'
    )


def divided(folder: str) -> Optional[List[str]]:
    """The training and the validation folder; None if the images are not split."""
    train = os.path.join(folder, _TRAIN)
    for name in _VALIDATION_FOLDERS:
        if os.path.isdir(train) and os.path.isdir(os.path.join(folder, name)):
            return [train, os.path.join(folder, name)]
    return None
