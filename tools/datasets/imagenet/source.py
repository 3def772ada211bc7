"""Reads ImageNet-2012 as distributed: images in archives or folders, with classes, bounding boxes and class names.

A part that is missing, damaged or not as expected raises DataError. If access to a remote file is denied, or the store
cannot be reached, the error is a RemoteError.
"""

import io
import math
import os
import re
import xml.etree.ElementTree
from typing import BinaryIO, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from compat import tf
from compat.messages import shown
from console import inputs
from data import remote
from data.records import DataError
from tools import extras
from tools.datasets import archives
from tools.datasets.archives import read_file
from tools.datasets.image_example import Box

_SYNSET = re.compile(r'n\d{8}')
_CLASS_ARCHIVE = re.compile(r'(n\d{8})\.tar')
_VALIDATION_NAME = re.compile(r'ILSVRC2012_val_(\d{8})\.jpe?g', re.IGNORECASE)
_IMAGE_ENDINGS = ('.jpeg', '.jpg')
_ARCHIVE_ENDINGS = ('.tar', '.tar.gz', '.tgz')
_ANNOTATION_ENDING = '.xml'
# Files of the development kit.
_GROUND_TRUTH = 'data/ILSVRC2012_validation_ground_truth.txt'
_META = 'data/meta.mat'


class Image(NamedTuple):
    """The location and the class of an image."""

    path: str  # Its file, or its archive.
    offset: int  # Its position in the archive, in bytes; 0 for a file.
    size: Optional[int]  # Its size in the archive, in bytes; None for a file, which is read whole.
    filename: str
    synset: str  # WordNet's identifier of its class; '' if the path does not show it.


# A box as annotated, in fractions of the image, and the annotated class: a synset or a word, '' if there is none. A box
# may extend beyond the image, be empty, or have swapped corners.
AnnotatedBox = Tuple[Box, str]


def find_images(path: str, foreign: List[str]) -> Iterator[Image]:
    """Yields the images of a split, in the order of their locations; the names of other files are added to `foreign`.

    The path is a local or remote folder, or a local tar archive, which is read in place. It has the images themselves,
    a folder of images per class (`n01440764/`), or an archive per class (`n01440764.tar`).
    """
    if path.endswith(_ARCHIVE_ENDINGS) or os.path.isfile(path):
        yield from _in_archive(path, '', foreign)
        return
    for file in _files_in(path, _SYNSET):
        parent, name = os.path.split(file)
        class_archive = _CLASS_ARCHIVE.fullmatch(name)
        if name.lower().endswith(_IMAGE_ENDINGS):
            yield Image(file, 0, None, name, _synset_of(parent))
        elif class_archive:
            yield from _in_archive(file, class_archive.group(1), foreign)
        else:
            foreign.append(file)


def _synset_of(folder: str) -> str:
    name = os.path.basename(folder)
    return name if _SYNSET.fullmatch(name) else ''


def _in_archive(path: str, synset: str, foreign: List[str]) -> Iterator[Image]:
    if remote.is_remote(path):
        raise DataError(
            f'{path}: remote archives are not supported. Name a folder with its images, or a local archive.'
        )
    with archives.explained(path, 'an uncompressed tar archive'):
        inputs.check(path)
    with archives.explained(path, 'an uncompressed tar archive'), open(path, 'rb') as file:
        yield from _members(path, file, 0, os.fstat(file.fileno()).st_size, synset, foreign)


def _members(path: str, file: BinaryIO, start: int, end: int, synset: str, foreign: List[str]) -> Iterator[Image]:
    """Yields the images in a tar archive at bytes `start` to `end` of a file; `synset` is their class, if not empty."""
    file.seek(start)
    for _, member in archives.members(file, 'r:'):
        first, (parent, name) = member.offset_data, os.path.split(member.name)
        if first + member.size > end:
            raise DataError(f'{path}: is truncated in {member.name}. Download it again.')
        class_archive = _CLASS_ARCHIVE.fullmatch(name)
        if member.isfile() and name.lower().endswith(_IMAGE_ENDINGS):
            yield Image(path, first, member.size, name, synset or _synset_of(parent))
        elif member.isfile() and class_archive and not synset:
            yield from _members(path, file, first, first + member.size, class_archive.group(1), foreign)
        elif not member.isdir():
            foreign.append(f'{path}: {member.name}')


def _files_in(folder: str, subfolder: 're.Pattern[str]') -> Iterator[str]:
    """Yields the paths of the files in a folder and in its subfolders with a matching name, in order."""
    for name in _names_in(folder):
        path = os.path.join(folder, name)
        yield from (os.path.join(path, inside) for inside in _names_in(path)) if subfolder.fullmatch(name) else [path]


def _names_in(folder: str) -> List[str]:
    try:
        names = remote.names_in(folder)
    except tf.errors.OpError as error:
        raise DataError(f'{folder}: cannot be listed: {error.message}')
    if names is None:
        raise DataError(f'{folder}: no such file or folder.')
    # The names of remote folders end in a slash.
    return [name.rstrip('/') for name in names]


def read(image: Image) -> bytes:
    """The bytes of an image file."""
    if image.size is None:
        return read_file(image.path)
    with archives.explained(image.path), open(image.path, 'rb') as file:
        file.seek(image.offset)
        encoded = file.read(image.size)
        if len(encoded) < image.size:
            raise DataError(f'{image.path}: became shorter during the conversion: {image.filename} is missing.')
        return encoded


def label_validation(images: Sequence[Image], path: str) -> List[Image]:
    """The images `ILSVRC2012_val_00000001.JPEG` and so on with their classes, sorted by name.

    The classes are in the development kit, an archive or a folder, or in a text file of synsets, one per image and in
    order.
    """
    synsets = _kit_labels(path) if _is_kit(path) else read_file(path).decode(errors='replace').split()
    wrong = next((each for each in synsets if not _SYNSET.fullmatch(each)), None)
    if wrong is not None:
        raise DataError(f'{path}: {shown(wrong)} is not a synset, such as n01440764. Numbers need the development kit.')
    images = sorted(images, key=lambda image: image.filename)
    for number, image in enumerate(images, 1):
        match = _VALIDATION_NAME.fullmatch(image.filename)
        if not match or int(match.group(1)) != number:
            raise DataError(
                f'{image.path}: {image.filename} was found instead of ILSVRC2012_val_{number:08d}.JPEG. The labels are '
                'in the order of images 1, 2, 3 …: none may be missing or renamed.'
            )
    if len(images) != len(synsets):
        raise DataError(f'{path}: has labels for {len(synsets):,} images; there are {len(images):,}.')
    return [image._replace(synset=synset) for image, synset in zip(images, synsets)]


def read_class_names(path: str) -> Dict[str, str]:
    """The names of classes by synset, from the development kit; none from a text file of synsets."""
    return {synset: words for _, synset, words in _kit_classes(path)} if _is_kit(path) else {}


def _is_kit(path: str) -> bool:
    return path.endswith(_ARCHIVE_ENDINGS) or tf.io.gfile.isdir(path)


def _kit_labels(path: str) -> List[str]:
    classes = {number: synset for number, synset, _ in _kit_classes(path)}
    numbers = _kit_file(path, _GROUND_TRUTH).decode(errors='replace').split()
    unknown = sorted({*numbers} - {*classes})
    if unknown:
        raise DataError(f'{path}: {_META} has no synset for the numbers {", ".join(unknown[:5])} in {_GROUND_TRUTH}.')
    return [classes[number] for number in numbers]


def _kit_classes(path: str) -> List[Tuple[str, str, str]]:
    """The number, the synset and the words of each class of the development kit."""
    try:
        import scipy.io
    except ImportError:
        raise DataError(f'{path}: reading {_META} in it needs SciPy: {extras.command("data")}.')
    content = _kit_file(path, _META)
    with archives.explained(f'{path}: {_META} in it', 'that of ImageNet-2012'):
        rows = np.atleast_1d(scipy.io.loadmat(io.BytesIO(content), squeeze_me=True)['synsets'])
        return [(str(row['ILSVRC2012_ID']), str(row['WNID']), str(row['words'])) for row in rows]


def _kit_file(path: str, name: str) -> bytes:
    if not path.endswith(_ARCHIVE_ENDINGS):
        return read_file(os.path.join(path, name))
    # The whole archive, to verify its checksum.
    found = [content for _, content in archives.files_in(path, lambda each: each.endswith(name))]
    if not found:
        raise DataError(f'{path}: not the development kit of ImageNet-2012: {name} is not in it.')
    return found[0]


def read_boxes(path: str, bad: List[str]) -> Iterator[Tuple[str, AnnotatedBox]]:
    """Yields bounding boxes, each with the name of its image without the ending.

    The path is an archive with XML annotations at any depth; or a folder with annotations, or with a folder of them per
    class. The names of invalid annotations are added to `bad`, with the reasons.
    """
    found = False
    for name, content in _annotations(path):
        found = True
        try:
            boxes = _xml_boxes(content)
        except (xml.etree.ElementTree.ParseError, ValueError, AttributeError, TypeError, LookupError) as error:
            # LookupError: of an unknown encoding.
            bad.append(f'{name} ({error})')
            continue
        # From the name of the annotation's file: some annotations contain '%s' as the name of their image.
        stem = os.path.splitext(os.path.basename(name))[0]
        yield from ((stem, box) for box in boxes)
    if not found:
        raise DataError(f'{path}: no annotations. It must hold .xml files, or a folder of them per class.')


def _annotations(path: str) -> Iterator[Tuple[str, bytes]]:
    """Yields the names and contents of the XML files in an archive or a folder."""

    def is_wanted(name: str) -> bool:
        return name.lower().endswith(_ANNOTATION_ENDING)

    if path.endswith(_ARCHIVE_ENDINGS):
        return archives.files_in(path, is_wanted)
    files = _files_in(path, re.compile(rf'{_SYNSET.pattern}|val'))
    return ((file, read_file(file)) for file in files if is_wanted(file))


def _xml_boxes(content: bytes) -> List[AnnotatedBox]:
    """The boxes of an annotation in PASCAL VOC's layout. Its corners are in pixels of the annotated image size."""
    root = xml.etree.ElementTree.fromstring(content)
    width, height = (float(root.findtext(f'size/{side}')) for side in ('width', 'height'))  # type: ignore[arg-type]
    if not (width > 0 and height > 0):
        raise ValueError(f'of an image of {width:g} x {height:g} pixels')
    boxes = []
    for item in root.iter('object'):
        box = Box(*(float(item.findtext(f'bndbox/{corner}')) for corner in Box._fields))  # type: ignore[arg-type]
        if not all(map(math.isfinite, box)):
            raise ValueError('corners that are not finite')
        fractions = Box(box.xmin / width, box.ymin / height, box.xmax / width, box.ymax / height)
        boxes.append((fractions, item.findtext('name') or ''))
    return boxes
