"""ImageNet-2012 as it is distributed: images in archives or folders, and what says their classes, boxes and names."""

import csv
import io
import math
import os
import re
import tarfile
import xml.etree.ElementTree
from typing import BinaryIO, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from console.messages import shown
from data import archives, remote
from data.records import DataError
from data.tf_example import Box

_SYNSET = re.compile(r'n\d{8}')
_CLASS_ARCHIVE = re.compile(r'(n\d{8})\.tar')
_VALIDATION_NAME = re.compile(r'ILSVRC2012_val_(\d{8})\.jpe?g', re.IGNORECASE)
_IMAGE_ENDINGS = ('.jpeg', '.jpg')
_ARCHIVE_ENDINGS = ('.tar', '.tar.gz', '.tgz')
_ANNOTATION_ENDING = '.xml'
# In the development kit.
_GROUND_TRUTH = 'data/ILSVRC2012_validation_ground_truth.txt'
_META = 'data/meta.mat'
_CSV_COLUMNS = ['filename', *Box._fields]
_CSV_LINE = ','.join(_CSV_COLUMNS)
# How far from the image a corner in a CSV file may be, in images, before it is taken for pixels.
_FARTHEST_CORNER = 1.0


class Image(NamedTuple):
    """Where an image lies, and what it shows.

    Attributes:
      path: its file, or the archive that it is in.
      offset: its first byte in the archive; 0 for a file.
      size: its bytes in the archive; None for a file, which is read whole.
      filename: its name, without a folder.
      synset: WordNet's identifier of its class; '' where the place does not tell.
    """

    path: str
    offset: int
    size: Optional[int]
    filename: str
    synset: str


class AnnotatedBox(NamedTuple):
    """A bounding box as somebody drew it: it may reach beyond the image, or be empty or upside down.

    Attributes:
      corners: xmin, ymin, xmax, ymax, in fractions of the image.
      name: what it is said to show, a synset or a word; '' where nothing is said.
    """

    corners: Tuple[float, float, float, float]
    name: str


def find_images(path: str, foreign: List[str]) -> Iterator[Image]:
    """The images of a split, in the order in which they lie.

    Args:
      path: a folder, local or remote, or a tar archive, which is read in place. Images lie in it as they are, or in
        a folder per class (`n01440764/`), or in an archive per class (`n01440764.tar`).
      foreign: is given the names of all other files.

    Raises:
      DataError: it does not exist, or an archive is damaged, cut short, compressed or remote.
      RemoteError: it is refused, or cannot be reached.
    """
    if path.endswith(_ARCHIVE_ENDINGS) or os.path.isfile(path):
        yield from _in_archive(path, '', foreign)
        return
    for parent, name in _files_in(path, _SYNSET):
        synset = os.path.basename(parent) if _SYNSET.fullmatch(os.path.basename(parent)) else ''
        class_archive = _CLASS_ARCHIVE.fullmatch(name)
        if name.lower().endswith(_IMAGE_ENDINGS):
            yield Image(os.path.join(parent, name), 0, None, name, synset)
        elif class_archive:
            yield from _in_archive(os.path.join(parent, name), class_archive.group(1), foreign)
        else:
            foreign.append(os.path.join(parent, name))


def _in_archive(path: str, synset: str, foreign: List[str]) -> Iterator[Image]:
    if remote.is_remote(path):
        raise DataError(
            f'{path}: images are read from all over an archive, which takes too long from afar. Name a folder with the '
            'images of the archive, or an archive on this machine.'
        )
    try:
        with open(path, 'rb') as file:
            yield from _members(path, file, 0, os.fstat(file.fileno()).st_size, synset, foreign)
    except OSError as error:
        raise DataError(f'{path}: cannot be read: {error.strerror}.')


def _members(path: str, file: BinaryIO, start: int, end: int, synset: str, foreign: List[str]) -> Iterator[Image]:
    """The images in bytes `start` to `end` of a file, which are a tar archive; of a class, if there is a synset."""
    file.seek(start)
    try:
        for member in archives.members(archives.opened(file, 'r:')):
            if member.offset_data + member.size > end:
                raise DataError(f'{path}: is cut short in {member.name}. Download it again.')
            parent, name = os.path.split(member.name)
            class_archive = _CLASS_ARCHIVE.fullmatch(name)
            if member.isfile() and name.lower().endswith(_IMAGE_ENDINGS):
                folder = os.path.basename(parent)
                yield Image(
                    path, member.offset_data, member.size, name, synset or folder * bool(_SYNSET.fullmatch(folder))
                )
            elif member.isfile() and class_archive and not synset:
                first = member.offset_data
                yield from _members(path, file, first, first + member.size, class_archive.group(1), foreign)
            elif not member.isdir():
                foreign.append(f'{path}: {member.name}')
    except (DataError, OSError):
        raise
    except Exception as error:  # What is damaged fails in any way.
        reason = shown(error) or type(error).__name__
        raise DataError(f'{path}: damaged, or no uncompressed tar archive ({reason}). Download it again.')


def _files_in(folder: str, subfolder: 're.Pattern[str]') -> Iterator[Tuple[str, str]]:
    """The files in a folder and in those folders in it that have such a name: their folders and names, in order."""
    for name in _names_in(folder):
        if subfolder.fullmatch(name):
            for inside in _names_in(os.path.join(folder, name)):
                yield os.path.join(folder, name), inside
        else:
            yield folder, name


def _names_in(folder: str) -> List[str]:
    try:
        names = remote.names_in(folder)
    except tf.errors.OpError as error:
        raise DataError(f'{folder}: cannot be listed: {error.message}')
    if names is None:
        raise DataError(f'{folder}: no such file or folder.')
    # Remote folders have a slash.
    return [name.rstrip('/') for name in names]


def read(image: Image) -> bytes:
    """The bytes of an image.

    Raises:
      DataError: they are not there any more.
      RemoteError: they are refused, or cannot be reached.
    """
    if image.size is None:
        return read_file(image.path)
    try:
        with open(image.path, 'rb') as file:
            file.seek(image.offset)
            encoded = file.read(image.size)
    except OSError as error:
        raise DataError(f'{image.path}: cannot be read: {error.strerror}.')
    if len(encoded) < image.size:
        raise DataError(f'{image.path}: is shorter than it was: {image.filename} is missing.')
    return encoded


def read_file(path: str) -> bytes:
    """The content of a file, local or remote.

    Raises:
      DataError: it is not there, or cannot be read.
      RemoteError: it is refused, or cannot be reached.
    """
    try:
        with remote.explained(path, remote.READ), tf.io.gfile.GFile(path, 'rb') as file:
            content = file.read()
    except tf.errors.OpError as error:
        raise DataError(f'{path}: cannot be read: {error.message}')
    if not content:
        # On s3://, what is refused looks empty.
        remote.check_readable(path)
    return content


def label_validation(images: List[Image], path: str) -> List[Image]:
    """Validation images, sorted by name, with their classes.

    Args:
      images: the images, `ILSVRC2012_val_00000001.JPEG` and so on.
      path: the development kit, as an archive or a folder, or a text file of synsets, one per image and in order.

    Raises:
      DataError: it is neither, or its images are not these.
      RemoteError: it is refused, or cannot be reached.
    """
    if is_devkit(path):
        wordnet_ids = {number: synset for number, synset, _ in _devkit_synsets(path)}
        try:
            numbers = _devkit_file(path, _GROUND_TRUTH).decode().split()
        except UnicodeDecodeError:
            raise DataError(f'{path}: {_GROUND_TRUTH} in it is no text, a number per image. Download it again.')
        unknown = sorted({number for number in numbers if number not in wordnet_ids})
        if unknown:
            raise DataError(
                f'{path}: {_META} has no synset of the numbers {", ".join(unknown[:5])} in {_GROUND_TRUTH}.'
            )
        synsets = [wordnet_ids[number] for number in numbers]
    else:
        synsets = _text(path).split()
        for line, synset in enumerate(synsets, 1):
            if not _SYNSET.fullmatch(synset):
                raise DataError(
                    f'{path}, line {line}: {synset!r} is no synset, such as n01440764. '
                    + ('Numbers mean nothing without the development kit: name its archive.' * synset.isdigit())
                )
    images = sorted(images, key=lambda image: image.filename)
    for number, image in enumerate(images, 1):
        match = _VALIDATION_NAME.fullmatch(image.filename)
        if not match or int(match.group(1)) != number:
            raise DataError(
                f'{image.path}: {image.filename} is where ILSVRC2012_val_{number:08d}.JPEG should be. The labels are '
                'those of images 1, 2, 3 …, so that none may be missing or have another name.'
            )
    if len(images) != len(synsets):
        raise DataError(f'{path}: labels of {len(synsets):,} images, and there are {len(images):,}.')
    return [image._replace(synset=synset) for image, synset in zip(images, synsets)]


def read_class_names(path: str) -> Dict[str, str]:
    """The names of classes by synset.

    Args:
      path: the development kit, or a text file with a synset, white space and its name in each line.

    Raises:
      DataError: it is neither.
      RemoteError: it is refused, or cannot be reached.
    """
    if is_devkit(path):
        return {synset: words for _, synset, words in _devkit_synsets(path)}
    names = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        synset, _, name = line.strip().replace('\t', ' ', 1).partition(' ')
        if not _SYNSET.fullmatch(synset) or not name.strip():
            raise DataError(f'{path}, line {number}: {line[:80]!r} is no synset with its name, as n01440764 tench.')
        names[synset] = name.strip()
    return names


def is_devkit(path: str) -> bool:
    """Whether a path is to be taken for the development kit, by its name or for being a folder."""
    return path.endswith(_ARCHIVE_ENDINGS) or tf.io.gfile.isdir(path)


def _text(path: str) -> str:
    try:
        # Some editors begin a text with a mark of its encoding.
        return read_file(path).decode('utf-8-sig')
    except UnicodeDecodeError:
        raise DataError(f'{path}: no text. An archive ends in {", ".join(_ARCHIVE_ENDINGS)}.')


def _devkit_file(path: str, name: str) -> bytes:
    if not path.endswith(_ARCHIVE_ENDINGS):
        return read_file(os.path.join(path, name))
    found = [*_archived_files(path, name)]
    if not found:
        raise DataError(f'{path}: not the development kit of ImageNet-2012: {name} is not in it.')
    return found[0][1]


def _archived_files(path: str, ending: str) -> Iterator[Tuple[str, bytes]]:
    """The names and contents of the files in a small archive whose names have an ending, of all but its case."""
    try:
        yield from archives.files_in(read_file(path), lambda name: name.lower().endswith(ending.lower()))
    except tarfile.ReadError as error:
        raise DataError(f'{path}: damaged, or no tar archive ({error}). Download it again.')


def _devkit_synsets(path: str) -> List[Tuple[str, str, str]]:
    """The number, the synset and the words of each class of the development kit."""
    try:
        import scipy.io
    except ImportError:
        raise DataError(f"{path}: {_META} in it takes SciPy to read: pip install 'scipy<1.8', or name a text file.")
    content = _devkit_file(path, _META)
    try:
        synsets = scipy.io.loadmat(io.BytesIO(content), squeeze_me=True)['synsets']
        return [(str(row['ILSVRC2012_ID']), str(row['WNID']), str(row['words'])) for row in np.atleast_1d(synsets)]
    except Exception as error:  # What is damaged fails in any way.
        reason = shown(error) or type(error).__name__
        raise DataError(
            f'{path}: {_META} in it is damaged, or not that of ImageNet-2012 ({reason}). Download it again.'
        )


def read_boxes(path: str, bad: List[str]) -> Iterator[Tuple[str, AnnotatedBox]]:
    """Bounding boxes, each with the name of its image, without an ending.

    Args:
      path: an archive or a folder of XML annotations, at any depth or in folders per class, or a CSV file with a line
        `filename,xmin,ymin,xmax,ymax` per box, in fractions of the image.
      bad: is given the names of annotations that cannot be used, and why.

    Raises:
      DataError: it is neither, or has no annotation.
      RemoteError: it is refused, or cannot be reached.
    """
    if path.lower().endswith('.csv'):
        yield from _csv_boxes(path)
        return
    files = _archived_files(path, _ANNOTATION_ENDING) if path.endswith(_ARCHIVE_ENDINGS) else _xml_files(path)
    found = False
    for name, content in files:
        found = True
        try:
            boxes = _xml_boxes(content)
        except (xml.etree.ElementTree.ParseError, ValueError, AttributeError, TypeError, LookupError) as error:
            # LookupError: it says that it is in an encoding that nobody knows.
            bad.append(f'{name} ({error})')
            continue
        # The name of the file: some annotations say that they are of '%s'.
        stem = os.path.splitext(os.path.basename(name))[0]
        yield from ((stem, box) for box in boxes)
    if not found:
        raise DataError(f'{path}: no annotations, which are .xml files in it or in a folder per class; or name a .csv.')


def _xml_files(folder: str) -> Iterator[Tuple[str, bytes]]:
    for parent, name in _files_in(folder, re.compile(rf'{_SYNSET.pattern}|val')):
        if name.lower().endswith(_ANNOTATION_ENDING):
            path = os.path.join(parent, name)
            yield path, read_file(path)


def _xml_boxes(content: bytes) -> List[AnnotatedBox]:
    """The boxes of an annotation in PASCAL VOC's layout, whose corners are pixels of the size it says."""
    root = xml.etree.ElementTree.fromstring(content)
    width, height = (float(root.findtext(f'size/{side}')) for side in ('width', 'height'))  # type: ignore[arg-type]
    if not (width > 0 and height > 0):
        raise ValueError(f'of an image of {width:g} x {height:g} pixels')
    boxes = []
    for item in root.iter('object'):
        corners = [float(item.findtext(f'bndbox/{corner}')) for corner in Box._fields]  # type: ignore[arg-type]
        if not all(map(math.isfinite, corners)):
            raise ValueError('corners that are no numbers')
        xmin, ymin, xmax, ymax = corners
        fractions = xmin / width, ymin / height, xmax / width, ymax / height
        boxes.append(AnnotatedBox(fractions, item.findtext('name') or ''))
    return boxes


def _csv_boxes(path: str) -> Iterator[Tuple[str, AnnotatedBox]]:
    rows = csv.reader(io.StringIO(_text(path)))
    found = False
    try:
        for row in rows:
            if not row or row == _CSV_COLUMNS:
                continue
            found = True
            yield _csv_box(row, f'{path}, line {rows.line_num}')
    except csv.Error as error:
        raise DataError(
            f'{path}, line {rows.line_num}: no CSV ({error}). It must be text in UTF-8, and a line of it {_CSV_LINE}.'
        )
    if not found:
        raise DataError(f'{path}: no bounding boxes, which are lines {_CSV_LINE} in it.')


def _csv_box(row: List[str], where: str) -> Tuple[str, AnnotatedBox]:
    try:
        filename, *values = row
        xmin, ymin, xmax, ymax = map(float, values)
    except ValueError:
        raise DataError(f'{where}: {",".join(row)[:80]!r} is not {_CSV_LINE}.')
    corners = xmin, ymin, xmax, ymax
    if not all(-_FARTHEST_CORNER <= corner <= 1 + _FARTHEST_CORNER for corner in corners):
        raise DataError(
            f'{where}: {",".join(row)[:80]!r} is far from the image. Corners are fractions of its width and height, '
            'not pixels.'
        )
    return os.path.splitext(filename)[0], AnnotatedBox(corners, '')
