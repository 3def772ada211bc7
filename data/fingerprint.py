"""The fingerprint of a data set: a hash of its images and labels, independent of order, files and format."""

import hashlib
from typing import NamedTuple

_MODULUS = 1 << 256


class SplitFingerprint(NamedTuple):
    """The fingerprint of a split, or a part of one. The sum over parts, in any order, is that of the whole."""

    images: int = 0  # The number of images.
    total: int = 0  # The sum of the images' SHA-256 digests, modulo 2**256.

    def with_image(self, label: int, encoded: bytes) -> 'SplitFingerprint':
        """The fingerprint after adding an image, given its label and the bytes of its file."""
        digest = hashlib.sha256(b'%d %s' % (label, encoded)).digest()
        return self + SplitFingerprint(1, int.from_bytes(digest, 'big'))

    def __add__(self, other: tuple) -> 'SplitFingerprint':
        images, total = other
        return SplitFingerprint(self.images + images, (self.total + total) % _MODULUS)


def fingerprint(train: SplitFingerprint, validation: SplitFingerprint) -> str:
    """The fingerprint of a data set, as in `dataset.json`: 64 hexadecimal digits."""
    text = ' '.join(f'{split.images} {split.total:064x}' for split in (train, validation))
    return hashlib.sha256(text.encode()).hexdigest()
