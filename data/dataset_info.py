"""The description of a data set: `dataset.json`, beside its record files, with the fingerprint of its images.

The fingerprint is a hash of images and labels, independent of order, files and format.
"""

import contextlib
import dataclasses
import json
import os
from typing import List, Optional

from compat import tf
from compat.messages import shown
from console.json_content import fits, from_json
from data import remote
from data.files import write_whole
from data.formats import FORMATS
from data.records import VALIDATION, DataError

FILE_NAME = 'dataset.json'
# The name of label 0 in the data sets that this program makes.
BACKGROUND = 'background'
# The largest number of images that a run's configuration allows.
_IMAGES_AT_MOST = 2**31 - 1
# The longest reason in a message, in characters.
_LONGEST_REASON = 200
# Digits of a SHA-256 that messages show: enough to distinguish one user's data sets.
DIGITS_SHOWN = 12


def is_background(name_of_label_0: str) -> bool:
    """Whether label 0 is the background, which has no images and is not shown: by its name, or because it has none."""
    return name_of_label_0 in ('', BACKGROUND)


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """A data set's description."""

    name: str
    source: str  # The origin of its images.
    train_images: int  # Number of training images.
    validation_images: int  # Number of validation images; 0 if there is no validation split.
    num_classes: int  # Number of classes, the background (label 0) included.
    class_names: List[str]  # The names by label; the first is the background's.
    fingerprint: str = ''  # The fingerprint of the images, 64 hexadecimal digits; empty if unknown.
    # The number of records in each validation file, in order; empty if unknown.
    validation_records_per_file: List[int] = dataclasses.field(default_factory=list)
    # The number of training images of each class, by label as in `class_names`; empty if unknown.
    train_images_per_class: List[int] = dataclasses.field(default_factory=list)

    def problem(self) -> Optional[str]:
        """The reason why `read` rejects the description; None if it is valid."""
        for field in dataclasses.fields(self):
            if not fits(getattr(self, field.name), field.type):
                return f'{field.name} is {shown(repr(getattr(self, field.name)))}'
        try:
            # In file names, Python represents bytes that are not UTF-8 by surrogates.
            ''.join((self.name, self.source, *self.class_names)).encode('utf-8', 'surrogateescape')
        except UnicodeEncodeError as error:
            return shown(error, _LONGEST_REASON)
        if max(self.train_images, self.validation_images) > _IMAGES_AT_MOST:
            return f'a split has more than {_IMAGES_AT_MOST:,} images'
        if min(self.train_images, self.validation_images + 1, self.num_classes - 1) < 1:
            return 'there must be training images, and a class besides the background'
        counts = self.validation_records_per_file
        if min(counts, default=0) < 0 or (counts and sum(counts) != self.validation_images):
            return (
                f'validation_records_per_file is not for {self.validation_images:,} images; leave it out if it is '
                'unknown'
            )
        of_class = self.train_images_per_class
        if of_class and (min(of_class) < 0 or len(of_class) != self.num_classes or sum(of_class) != self.train_images):
            return (
                f'train_images_per_class is not for {self.train_images:,} images of {self.num_classes:,} classes; '
                'leave it out if it is unknown'
            )
        if len(self.class_names) != self.num_classes:
            return f'{len(self.class_names)} names for {self.num_classes} classes'
        return None

    def write(self, data_dir: str) -> 'DatasetInfo':
        """Writes the description into the folder of the record files, and returns what was written.

        The numbers of records in local validation files are added. Raises DataError if it cannot be written.
        """
        info = self if self.validation_records_per_file else self._counted(data_dir)
        path = os.path.join(data_dir, FILE_NAME)
        try:
            write_whole(path, json.dumps(dataclasses.asdict(info), indent=2) + '\n')
        except tf.errors.OpError as error:
            raise DataError(f'{path}: cannot be written: {error.message}')
        return info

    def _counted(self, data_dir: str) -> 'DatasetInfo':
        """The description with the numbers of records in local validation files."""
        for files in FORMATS.values():
            with contextlib.suppress(DataError):
                if not remote.is_remote(data_dir):
                    counts = files.count_records(files.find_shards(data_dir, VALIDATION))
                    is_whole = sum(counts) == self.validation_images
                    return dataclasses.replace(self, validation_records_per_file=counts) if is_whole else self
        return self


def read(data_dir: str) -> Optional[DatasetInfo]:
    """Reads the description of the data set in a folder; None if there is none."""
    path = os.path.join(data_dir, FILE_NAME)
    try:
        content = remote.read(path)
        if content is None:
            return None
        info = from_json(content, lambda values: DatasetInfo(**values))
        problem = info.problem()
        if problem:
            raise ValueError(problem)
        return info
    except tf.errors.OpError as error:
        raise DataError(f'{path}: cannot be read: {error.message}')
    except ValueError as error:
        fields = ', '.join(field.name for field in dataclasses.fields(DatasetInfo))
        reason = shown(error, _LONGEST_REASON)
        raise DataError(f'{path}: not a valid description of a data set ({reason}). Its fields are {fields}.')
