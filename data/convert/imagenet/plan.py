"""The plan of a conversion of ImageNet: the record file, label and boxes of each image."""

import collections
import dataclasses
import hashlib
import os
import sys
from typing import Callable, Counter, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np

from console.json_content import from_json, record
from console.messages import shown
from console.tensorflow_versions import tf
from data import records, remote
from data.convert.conversion import Progress
from data.convert.imagenet import shards as imagenet_shards
from data.convert.imagenet import source as imagenet_source
from data.convert.imagenet.shards import PlannedImage
from data.convert.imagenet.source import AnnotatedBox, Image
from data.encoding import Box
from data.records import DataError

_FILE_NAME = 'plan.json'
_SYNSET_LENGTH = len('n01440764')
# Items between two updates of the progress.
_PROGRESS_EVERY = 1000


class Source(NamedTuple):
    """The paths of ImageNet's parts; `data.convert.imagenet.source` describes their forms.

    Attributes:
      train: training images.
      validation: validation images.
      validation_labels: the classes of the validation images, if they are not in a folder per class.
      bounding_boxes: bounding boxes of images of either split.
      synset_names: the names of classes. None: from the development kit if that is `validation_labels`, otherwise the
        synsets themselves.
    """

    train: str
    validation: str
    validation_labels: Optional[str] = None
    bounding_boxes: Sequence[str] = ()
    synset_names: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of a conversion. The images of each shard are in a separate file, for `shards.convert`.

    Attributes:
      settings: the inputs and options of the conversion, by flag.
      shards: the number of images, by the name of the record file.
      class_names: the names by label; the first is the background's.
      boxes: the numbers of bounding boxes that are written, changed and left out.
      foreign: files among the images that are not images.
      bad_annotations: invalid annotations.
    """

    settings: Dict[str, str]
    shards: Dict[str, int]
    class_names: List[str]
    boxes: Dict[str, int]
    foreign: List[str]
    bad_annotations: List[str]

    def of_split(self, split: str) -> Dict[str, int]:
        """The shards of a split."""
        return {shard: images for shard, images in self.shards.items() if shard.startswith(f'{split}-')}

    def write(self, work_dir: str) -> None:
        """Stores the plan in a work folder."""
        imagenet_shards.write_json(os.path.join(work_dir, _FILE_NAME), dataclasses.asdict(self))


def read(work_dir: str) -> Optional[Plan]:
    """The plan that is stored in a work folder; None if there is none."""
    content = remote.read(os.path.join(work_dir, _FILE_NAME))
    try:
        return from_json(content, lambda values: record(Plan, values)) if content else None
    except ValueError as error:
        raise DataError(f'{os.path.join(work_dir, _FILE_NAME)}: is damaged: {shown(error)}. Name a new folder.')


def settings_of(source: Source, shards: Dict[str, int]) -> Dict[str, str]:
    """Identifies all inputs and options of a plan, by flag. A conversion resumes only if these values are the same.

    Raises:
      DataError: a file does not exist, or cannot be read.
      RemoteError: access to a remote file is denied, or the store cannot be reached.
    """
    settings = {'--train': _place(source.train), '--validation': _place(source.validation)}
    for flag, path in (('validation_labels', source.validation_labels), ('synset_names', source.synset_names)):
        settings[f'--{flag}'] = _content(path) if path else 'none'
    settings['--bounding_boxes'] = ' and '.join(map(_content, source.bounding_boxes)) or 'none'
    settings.update({f'--{split}_shards': str(count) for split, count in shards.items()})
    return settings


def _place(path: str) -> str:
    """The identity of images: their path, and the size of their archive."""
    if remote.is_remote(path):
        return path
    path = os.path.abspath(path)
    return f'{path} ({os.path.getsize(path):,} bytes)' if os.path.isfile(path) else path


def _content(path: str) -> str:
    """The identity of a file: its path and its content."""
    if tf.io.gfile.isdir(path):
        return _place(path)
    return f'{_place(path)} SHA-256 {hashlib.sha256(imagenet_source.read_file(path)).hexdigest()[:16]}'


def make(
    source: Source, shards: Dict[str, int], expected: Dict[str, int], work_dir: str, progress: Callable[[str], Progress]
) -> Plan:
    """Finds all images, labels and boxes, and assigns them to record files.

    Args:
      source: the paths of ImageNet's parts.
      shards: the number of record files of each split, reduced to the number of images if that is lower.
      expected: the number of images of each split.
      work_dir: the folder for the plans of the shards.
      progress: called with a kind of items; returns a function to call with the number found so far.

    Raises:
      DataError: a part is missing, damaged or not as expected.
      RemoteError: access to a remote file is denied, or the store cannot be reached.
    """
    settings = settings_of(source, shards)
    foreign: List[str] = []
    images = _find_images(source, expected, foreign, progress)
    synsets = sorted({image.synset for image in images[records.TRAIN]})
    labels = {synset: label for label, synset in enumerate(synsets, 1)}
    unseen = sorted({image.synset for image in images[records.VALIDATION]} - set(labels))
    if unseen:
        raise DataError(f'{len(unseen)} classes of validation images have no training images: {", ".join(unseen[:5])}.')
    names = _class_names(synsets, source)

    bad_annotations: List[str] = []
    boxes: Dict[str, List[AnnotatedBox]] = collections.defaultdict(list)
    box_progress = progress('bounding boxes')
    for path in source.bounding_boxes:
        for stem, box in _counted(imagenet_source.read_boxes(path, bad_annotations), box_progress):
            boxes[sys.intern(stem)].append(box)

    counts: Counter[str] = collections.Counter()
    sizes: Dict[str, int] = {}
    for split, found in images.items():
        found.sort(key=_random_order)
        files = min(shards[split], len(found))
        for shard in range(files):
            name = os.path.basename(records.shard_path('', split, shard, files))
            part = found[len(found) * shard // files : len(found) * (shard + 1) // files]
            planned = [
                PlannedImage(
                    image,
                    labels[image.synset],
                    names[image.synset],
                    clean(boxes.pop(os.path.splitext(image.filename)[0], ()), image.synset, counts),
                )
                for image in part
            ]
            imagenet_shards.write_plan(work_dir, name, planned)
            sizes[name] = len(planned)
    # Boxes of other images. The key is part of `conversion.json`.
    counts['of no image here'] = sum(map(len, boxes.values()))
    class_names = ['background', *(names[synset] for synset in synsets)]
    return Plan(settings, sizes, class_names, dict(counts), foreign, bad_annotations)


def _find_images(
    source: Source, expected: Dict[str, int], foreign: List[str], progress: Callable[[str], Progress]
) -> Dict[str, List[Image]]:
    """The images of each split, with their classes; other files are added to `foreign`.

    Raises:
      DataError, RemoteError: as `make`.
    """
    paths = {records.TRAIN: source.train, records.VALIDATION: source.validation}
    images = {
        split: list(_counted(imagenet_source.find_images(path, foreign), progress(f'{split} images')))
        for split, path in paths.items()
    }
    for split, found in images.items():
        _check_once(found, f'--{split}={paths[split]}')
        if len(found) != expected[split]:
            raise DataError(
                f'--{split}={paths[split]}: has {len(found):,} images; {expected[split]:,} are expected. '
                f'If this number is right, pass --{split}_images={len(found)}.'
            )
    unlabelled = next((image for image in images[records.TRAIN] if not image.synset), None)
    if unlabelled:
        raise DataError(
            f'--train={source.train}: {unlabelled.filename} is in no folder or archive of a class, such as n01440764.'
        )
    images[records.VALIDATION] = _labelled(images[records.VALIDATION], source)
    return images


def _check_once(images: Iterable[Image], where: str) -> None:
    """Checks that each image of a class exists once: a bounding box names its image by the file name alone.

    Raises:
      DataError: an image exists more than once.
    """
    by_name = sorted(images, key=lambda image: (image.filename, image.synset))
    for image, following in zip(by_name, by_name[1:]):
        if (image.filename, image.synset) == (following.filename, following.synset):
            paths = ' and '.join(sorted({image.path, following.path}))
            among = f' among the images of {image.synset}' if image.synset else ''
            raise DataError(f'{where}: {image.filename} exists more than once{among}: in {paths}. Keep only one.')


def clean(boxes: Iterable[AnnotatedBox], synset: str, counts: Counter[str]) -> List[Box]:
    """The boxes of an image's class, with ordered corners, clipped to the image; empty boxes are left out.

    Args:
      boxes: the annotated boxes.
      synset: the image's class.
      counts: incremented for the boxes that are 'written', 'ordered' (the corners were swapped), 'clipped', 'empty' or
        'of another class'; the last two kinds are left out.
    """
    cleaned = []
    for corners, name in boxes:
        # Some annotations name the class in words. As in the published conversion, only synsets are compared.
        if len(name) == _SYNSET_LENGTH and name[1:].isdigit() and name != synset:
            counts['of another class'] += 1
            continue
        drawn = np.float32(corners)
        ordered = np.float32([*np.minimum(drawn[:2], drawn[2:]), *np.maximum(drawn[:2], drawn[2:])])
        clipped = np.clip(ordered, 0.0, 1.0)
        box = Box(*clipped.tolist())
        if box.xmin == box.xmax or box.ymin == box.ymax:
            counts['empty'] += 1
            continue
        counts['written'] += 1
        counts['ordered'] += int((ordered != drawn).any())
        counts['clipped'] += int((clipped != ordered).any())
        cleaned.append(box)
    return cleaned


def _labelled(images: List[Image], source: Source) -> List[Image]:
    """The validation images with their classes."""
    in_folders = [image for image in images if image.synset]
    if len(in_folders) == len(images):
        if source.validation_labels:
            raise DataError(
                f'--validation_labels={source.validation_labels}: the images of --validation={source.validation} '
                'are already in a folder per class. Omit --validation_labels.'
            )
        return images
    if in_folders:
        raise DataError(f'--validation={source.validation}: some images are in a folder per class, and some are not.')
    if not source.validation_labels:
        raise DataError('--validation_labels: is required: the validation images are not in a folder per class.')
    return imagenet_source.label_validation(images, source.validation_labels)


def _class_names(synsets: Sequence[str], source: Source) -> Dict[str, str]:
    """The names of classes by synset."""
    path = source.synset_names
    if path is None:
        if not source.validation_labels or not imagenet_source.is_devkit(source.validation_labels):
            return dict(zip(synsets, synsets))
        path = source.validation_labels
    names = imagenet_source.read_class_names(path)
    missing = [synset for synset in synsets if synset not in names]
    if missing:
        raise DataError(f'{path}: has no name for {len(missing)} classes: {", ".join(missing[:5])}.')
    return names


def _random_order(image: Image) -> bytes:
    """A deterministic sort key that mixes the classes."""
    return hashlib.sha256(f'{image.synset}/{image.filename}'.encode(errors='surrogateescape')).digest()


def _counted(items: Iterable, progress: Progress) -> Iterator:
    """Yields the items, and calls `progress` with the number so far."""
    count = 0
    for count, item in enumerate(items, 1):
        if count % _PROGRESS_EVERY == 0:
            progress(count)
        yield item
    progress(count)
