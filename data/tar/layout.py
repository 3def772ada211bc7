"""The layout of tar shards, as in the webdataset package.

The files of a sample are adjacent and share a key: their path up to the first dot of the file name, as in `000123.jpg`
and `000123.cls`. The image is jpg, jpeg, png or ppm, and `cls` is its label in ASCII, 0 for the background. Other files
with the same key are ignored. A link, a device or a file without a key is a sample that cannot be used.

`data.tar.shard` reads shards in Python, for checks and conversions; `data.tar.reader` in the input pipeline.
"""

import enum
from typing import List, NamedTuple, Optional

from console.messages import shown

BLOCK = 512
IMAGE_EXTENSIONS = ('jpg', 'jpeg', 'png', 'ppm')
LABEL_EXTENSION = 'cls'
# The longest label with its white space, in bytes.
LABEL_BYTES = 18
# The longest name, in bytes; longer names are cut off.
NAME_BYTES = 4096
# The longest content of an extension header.
EXTENSION_BYTES = 1 << 20

# Types of members: regular files; members without content, whatever size their header claims; and extension headers,
# which belong to the following member.
REGULAR = b'\x0007'
DIRECTORY = b'5'
WITHOUT_DATA = b'123456'
LONG_NAME = b'L'
PAX = b'x'
EXTENSIONS = b'LKxg'
# GNU's sparse files. If the header's byte at `SPARSE_EXTENDED` is not zero, a block with the positions of more pieces
# follows, and another one if that block's byte at `SPARSE_BLOCK_EXTENDED` is not zero. The content comes after them.
SPARSE = b'S'
SPARSE_EXTENDED = 482
SPARSE_BLOCK_EXTENDED = 504

# The byte of a header where the second part of a long name begins, in POSIX archives.
PREFIX = 345
POSIX_MAGIC = b'ustar\0'
# Byte 257 of a header: the first one of the magic of POSIX and GNU, or zero in the oldest archives.
MAGIC_BEGINS = b'u\0'
# Allowed before and after a number.
BLANKS = b'\0\t\n\r '


class Problem(enum.IntEnum):
    """The reason why a sample cannot be used. Of several reasons, the lowest number other than 0 is reported."""

    NONE = 0
    TRUNCATED = 1
    FOREIGN = 2
    NO_IMAGE = 3
    IMAGES = 4
    NO_LABEL = 5
    LABELS = 6
    BAD_LABEL = 7
    # Problems of a shard, reported as one more sample after the last readable one.
    DAMAGED = 8
    NO_END = 9
    AFTER_END = 10

    def __str__(self) -> str:
        return _DESCRIPTIONS[self]

    @property
    def is_last(self) -> bool:
        """Whether nothing after this problem can be read."""
        return self in (Problem.TRUNCATED, Problem.DAMAGED, Problem.NO_END, Problem.AFTER_END)


_DESCRIPTIONS = {
    Problem.NONE: '',
    Problem.TRUNCATED: 'the shard is truncated within this sample.',
    Problem.FOREIGN: 'belongs to no sample: it is not a file, or its name has no extension such as .jpg or .cls.',
    Problem.NO_IMAGE: f'no image: there must be one file, not empty, with the extension {", ".join(IMAGE_EXTENSIONS)}.',
    Problem.IMAGES: 'several images.',
    Problem.NO_LABEL: f'no label: there must be a file with the extension {LABEL_EXTENSION}.',
    Problem.LABELS: 'several labels.',
    Problem.BAD_LABEL: f'no label: the file {LABEL_EXTENSION} must hold one whole number in ASCII.',
    Problem.DAMAGED: 'the shard is damaged: there is no valid header of a file here. The rest cannot be used.',
    Problem.NO_END: 'the shard is truncated: the zeros that end a tar file are missing.',
    Problem.AFTER_END: 'there is data after the zeros that end a tar file. It cannot be used.',
}


class Member(NamedTuple):
    """A file in a shard.

    Attributes:
      name: its path in the shard.
      key: the path up to the first dot of the file name; None if there is no key, or this is not a file.
      start: the position of its content in the shard, in bytes.
      size: the size of its content, in bytes.
    """

    name: bytes
    key: Optional[bytes]
    start: int
    size: int

    @property
    def extension(self) -> str:
        """The part of the name after the key and a dot, in lower case; empty if there is no key."""
        return '' if self.key is None else self.name[len(self.key) + 1 :].decode(errors='replace').lower()


class Sample(NamedTuple):
    """A sample of a shard, or a problem in the place of one.

    Attributes:
      members: its files.
      problem: the reason why it cannot be used. The content of its image is not checked.
      label: the class; 0 if there is a problem.
      image: the image file; None if there is a problem.
    """

    members: List[Member]
    problem: Problem
    label: int = 0
    image: Optional[Member] = None

    @property
    def key(self) -> str:
        """The key, or the name of a file without one, for messages."""
        first = self.members[0]
        return shown(first.name if first.key is None else first.key)

    @property
    def prefix(self) -> str:
        """The beginning of messages about the sample: its key, if it has one."""
        return f'{self.key}: ' if self.key else ''
