"""The layout of tar shards, as in the webdataset package.

The files of a sample are adjacent and share a key: their path up to the first dot of the file name, as in `000123.jpg`
and `000123.cls`. The image is jpg, jpeg, png or ppm, and `cls` is its label in ASCII, 0 for the background;
`--label_key` names another file for the label, or a key of a JSON file. Other files with the same key are ignored. A
hard link has the content of the last file of that name before it. Left out, and not counted as samples, are other
links, devices, files without a key, and keys without a file that ends like an image or `.cls`.

`data.tar.shard` reads shards in Python, for checks and conversions; `data.tar.reader` in the input pipeline.
"""

import enum
import re
from typing import List, NamedTuple, Tuple

BLOCK = 512
IMAGE_EXTENSIONS = ('jpg', 'jpeg', 'png', 'ppm')
LABEL_EXTENSION = 'cls'
# Letters of an extension that are compared: one more than the longest label's has, to recognize longer ones.
EXTENSION_LETTERS = 7
# Names that can hold a label, and levels of lists and objects within a JSON file that holds one.
_LABEL_KEY = re.compile(rf'[a-z0-9_-]{{1,{EXTENSION_LETTERS - 1}}}|json:[^"\\\x00-\x1f]+')
_JSON_LEVELS = 16
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
HARD_LINK = b'1'
LONG_NAME, LONG_LINK = b'L', b'K'
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
    LEFT_OUT = 2
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
    Problem.LEFT_OUT: 'belongs to no sample: it is left out.',
    Problem.NO_IMAGE: f'no image: there must be one file, not empty, with the extension {", ".join(IMAGE_EXTENSIONS)}.',
    Problem.IMAGES: 'several images.',
    Problem.NO_LABEL: f'no label: there must be a file with the extension {LABEL_EXTENSION}, or that of --label_key.',
    Problem.LABELS: 'several labels.',
    Problem.BAD_LABEL: f'no label: the file {LABEL_EXTENSION}, or --label_key, must hold one whole number in ASCII.',
    Problem.DAMAGED: 'the shard is damaged: there is no valid header of a file here. The rest cannot be used.',
    Problem.NO_END: 'the shard is truncated: the zeros that end a tar file are missing.',
    Problem.AFTER_END: 'there is data after the zeros that end a tar file. It cannot be used.',
}


class Label(NamedTuple):
    """The place of a sample's label: the extension of its file and, if that is a JSON object, its key."""

    extension: str = LABEL_EXTENSION
    key: str = ''

    def replacements(self) -> List[Tuple[str, str]]:
        """Expressions and replacements that turn a JSON text into `=` and the digits of the key's whole number.

        They mean the same to TensorFlow and Python. In texts that `LABEL_FOUND` does not match afterwards, the key is
        missing at the top level, or its value is no whole number of up to 18 digits.
        """
        blank, flat = r'[ \t\n\r]*', r'[^\[\]{}]*'
        return [
            (r'\\.', '?'),
            (f'"{re.escape(self.key)}"{blank}:', '\x01'),
            (r'"[^"]*"', ''),
            (rf'^{blank}\{{', '{'),
            (rf'\}}{blank}$', '}'),
            # Of a text that is no object, nothing is left.
            (r'^[^{](?s:.*)$', ''),
            (r'^\{((?s:.*))\}$', r'\1'),
            *[(r'[\[{][^\[\]{}]*[\]}]', '')] * _JSON_LEVELS,
            (rf'^(?:{flat},)?{blank}\x01{blank}([0-9]{{1,{LABEL_BYTES}}}){blank}(?:,{flat})?$', r'=\1'),
        ]


# The documented place of labels.
DOCUMENTED_LABEL = Label()
# What `Label.replacements` leaves of a text with a label.
LABEL_FOUND = rf'=[0-9]{{1,{LABEL_BYTES}}}'


def label_of(label_key: str) -> Label:
    """The place that `--label_key` names, `EXTENSION` or `json:KEY`; for other texts, such as its default, `cls`."""
    extension, _, key = label_key.partition(':')
    is_place = _LABEL_KEY.fullmatch(label_key) and extension not in IMAGE_EXTENSIONS
    return Label(extension, key) if is_place else DOCUMENTED_LABEL
