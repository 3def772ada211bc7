"""What tells a data set from every other: its images and labels, whatever their order, their files and the format."""

import hashlib
from typing import NamedTuple

_MODULUS = 1 << 256


class SplitFingerprint(NamedTuple):
    """The images and labels of a split, or of part of one: those of the parts, summed in any order, are the whole's.

    Attributes:
      images: how many there are.
      total: the sum of their SHA-256 digests, modulo 2**256.
    """

    images: int = 0
    total: int = 0

    def with_image(self, label: int, encoded: bytes) -> 'SplitFingerprint':
        """This and one more image: its label, and the bytes of its file."""
        digest = hashlib.sha256(b'%d %s' % (label, encoded)).digest()
        return self + SplitFingerprint(1, int.from_bytes(digest, 'big'))

    def __add__(self, other: tuple) -> 'SplitFingerprint':
        images, total = other
        return SplitFingerprint(self.images + images, (self.total + total) % _MODULUS)


def fingerprint(train: SplitFingerprint, validation: SplitFingerprint) -> str:
    """The fingerprint of a data set: 64 hexadecimal digits, which `dataset.json` holds."""
    text = ' '.join(f'{split.images} {split.total:064x}' for split in (train, validation))
    return hashlib.sha256(text.encode()).hexdigest()
