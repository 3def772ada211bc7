"""Fingerprints of the images and labels of a data set, for its description, `dataset.json`."""

import hashlib
from typing import Dict, List, NamedTuple, Sequence

from data.dataset_info import BACKGROUND, DatasetInfo
from data.labels import labelled_in
from data.records import TRAIN, VALIDATION
from data.sources import Source

_MODULUS = 1 << 256


class SplitFingerprint(NamedTuple):
    """The fingerprint of a split, or a part of one. The sum over parts, in any order, is the whole's fingerprint."""

    images: int = 0  # The number of images.
    total: int = 0  # The sum of the images' SHA-256 digests, modulo 2**256.
    images_by_label: Dict[int, int] = {}  # noqa: RUF012  The number of images of each label; never changed in place.

    def with_image(self, label: int, encoded: bytes) -> 'SplitFingerprint':
        """The fingerprint after adding an image, given its label and the bytes of its file."""
        digest = hashlib.sha256(b'%d %s' % (label, encoded)).digest()
        return self + SplitFingerprint(1, int.from_bytes(digest, 'big'), {label: 1})

    def __add__(self, other: tuple) -> 'SplitFingerprint':
        images, total, by_label = other
        counts = {**self.images_by_label, **{n: self.images_by_label.get(n, 0) + more for n, more in by_label.items()}}
        return SplitFingerprint(self.images + images, (self.total + total) % _MODULUS, counts)

    def images_of(self, num_classes: int) -> List[int]:
        """The number of images of each class, by label; empty if some labels are unknown, or are not of a class."""
        counts = [self.images_by_label.get(label, 0) for label in range(num_classes)]
        return counts if sum(counts) == self.images else []


def fingerprint(train: SplitFingerprint, validation: SplitFingerprint) -> str:
    """The fingerprint of a data set, as in `dataset.json`: 64 hexadecimal digits."""
    text = ' '.join(f'{split.images} {split.total:064x}' for split in (train, validation))
    return hashlib.sha256(text.encode()).hexdigest()


def described(
    name: str, source: str, classes: Sequence[str], train: SplitFingerprint, validation: SplitFingerprint
) -> DatasetInfo:
    """The description of two splits of images with the labels of these classes, from 1 on."""
    names = [BACKGROUND, *classes]
    sizes = train.images, validation.images, len(names)
    of_class = train.images_of(len(names))
    return DatasetInfo(name, source, *sizes, names, fingerprint(train, validation), train_images_per_class=of_class)


def fingerprint_of(source: Source, info: DatasetInfo) -> str:
    """The fingerprint of the images and labels in described files; raises the errors of `labelled_in`.

    All files are read. The labels are those in the records, without the addition of an offset.
    """
    stored = source._replace(fields=source.fields._replace(label_offset=0))
    taken = {split: SplitFingerprint() for split in (TRAIN, VALIDATION)}
    for split, images in ((TRAIN, info.train_images), (VALIDATION, info.validation_images)):
        for path in stored.find(split) if images else ():
            for each in labelled_in(stored, path):
                taken[split] = taken[split].with_image(each.label, each.encoded)
    return fingerprint(taken[TRAIN], taken[VALIDATION])
