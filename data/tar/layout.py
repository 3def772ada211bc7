"""The layout of tar shards, as in the webdataset package.

The files of a sample are adjacent and share a key: their path up to the first dot of the file name, as in `000123.jpg`
and `000123.cls`. The image is jpg, jpeg, png or ppm, and `cls` is its label in ASCII, 0 for the background;
`--label_key` names another file for the label, or a key of a JSON file. Other files with the same key are ignored.
Links, devices, files without a key, and keys without a file name that ends like an image or in `.cls` are left out, and
not counted as samples. Sparse files are not supported, nor sizes in pax headers, which files of 8 GiB and more have.

`data.tar.shard` reads shards in Python, for checks and conversions; `data.tar.reader` in the input pipeline.
"""

import enum
import re
from typing import List, NamedTuple, Tuple

BLOCK = 512
IMAGE_EXTENSIONS = ('jpg', 'jpeg', 'png', 'ppm')
LABEL_EXTENSION = 'cls'
# Extensions of images; and the ends of the extensions that make files a sample, even an unusable one.
IMAGES = '|'.join(IMAGE_EXTENSIONS)
PARTS = rf'(?s:.*\.)?(?:{IMAGES}|{LABEL_EXTENSION})'
# Values of `--label_key` that name a place, and the levels of lists and objects in a JSON file that holds a label.
_LABEL_KEY = re.compile(r'[a-z0-9_-]{1,6}|json:[^"\\\x00-\x1f]+')
_JSON_LEVELS = 16
# The longest label with its white space, in bytes.
LABEL_BYTES = 18
# The longest name, in bytes; longer names are cut off.
NAME_BYTES = 4096
# The longest content of an extension header, and the most records of a pax header.
EXTENSION_BYTES = 1 << 20
PAX_RECORDS = 100

# Types of members: regular files and hard links; members without content, whatever size their header claims; and
# extension headers, which belong to the following member. A hard link is thus an empty file: its sample is unusable.
REGULAR = b'\x00017'
WITHOUT_DATA = b'123456'
LONG_NAME = b'L'
PAX = b'x'
EXTENSIONS = b'LKxg'
# GNU's sparse files, whose content has no fixed place.
SPARSE = b'S'

# The byte of a header at which the field with the first part of a long name begins, in POSIX archives.
PREFIX = 345
POSIX_MAGIC = b'ustar\0'
# Byte 257 of a header: the first one of the magic of POSIX and GNU, or zero in the oldest archives.
MAGIC_BEGINS = b'u\0'
# Allowed before and after a number.
BLANKS = b'\0\t\n\r '


class Problem(enum.IntEnum):
    """The reason why a sample cannot be used. If there are several, the one with the lowest number is reported."""

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
    Problem.NO_IMAGE: (
        f'no image: there must be one file, not empty, with the extension {", ".join(IMAGE_EXTENSIONS)}, which begins '
        'at the first dot of its name.'
    ),
    Problem.IMAGES: 'several images.',
    Problem.NO_LABEL: (
        f'no label: beside the image, there must be a file with the extension {LABEL_EXTENSION}, or that of '
        '--label_key.'
    ),
    Problem.LABELS: 'several labels.',
    Problem.BAD_LABEL: f'no label: the file {LABEL_EXTENSION}, or --label_key, must hold one whole number in ASCII.',
    Problem.DAMAGED: (
        'the shard is damaged or compressed, or has sparse files, or sizes in pax headers alone, as files of 8 GiB '
        'have: no valid header is here. The rest cannot be used.'
    ),
    Problem.NO_END: 'the shard is truncated: the zeros that end a tar file are missing.',
    Problem.AFTER_END: 'there is data after the zeros that end a tar file. It cannot be used.',
}


class Label(NamedTuple):
    """The place of a sample's label: the extension of its file and, if that is a JSON object, its key."""

    extension: str = LABEL_EXTENSION
    key: str = ''

    def replacements(self) -> List[Tuple[str, str]]:
        """Expressions and replacements that turn the text of a file into `=` and the digits of its whole number.

        They mean the same to TensorFlow and Python; the text has a character for each byte. Without a label, the result
        does not match `LABEL_FOUND`: in JSON, if the top level lacks the key, or its value has more than 18 digits.
        """
        if not self.key:
            return [(r'^[\x00\t\n\r ]*([0-9]+)[\x00\t\n\r ]*$|^(?s:.*)$', r'=\1')]
        key = re.escape(self.key.encode().decode('latin-1'))
        blank, flat = r'[ \t\n\r]*', r'[^\[\]{}]*'
        return [
            (r'\\.', '?'),
            (f'"{key}"{blank}:', '\x01'),
            (r'"[^"]*"', ''),
            (rf'^{blank}\{{', '{'),
            (rf'\}}{blank}$', '}'),
            # A text that is not an object leaves nothing.
            (r'^[^{](?s:.*)$', ''),
            (r'^\{((?s:.*))\}$', r'\1'),
            *[(r'[\[{][^\[\]{}]*[\]}]', '')] * _JSON_LEVELS,
            (rf'^(?:{flat},)?{blank}\x01{blank}([0-9]{{1,{LABEL_BYTES}}}){blank}(?:,{flat})?$', r'=\1'),
        ]


# The documented place of labels.
DOCUMENTED_LABEL = Label()
# The result of `Label.replacements` for a text with a label.
LABEL_FOUND = rf'=[0-9]{{1,{LABEL_BYTES}}}'


def label_of(label_key: str) -> Label:
    """The place that `--label_key` names, `EXTENSION` or `json:KEY`; for other texts, such as its default, `cls`."""
    extension, _, key = label_key.partition(':')
    is_place = _LABEL_KEY.fullmatch(label_key) and extension not in IMAGE_EXTENSIONS
    return Label(extension, key) if is_place else DOCUMENTED_LABEL
