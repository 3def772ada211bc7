"""Tar shards in the layout of the webdataset package: `train-00000.tar …` and `validation-00000.tar …`.

The files of a sample stand one after the other and share a key, their name up to the first dot of its last part:
`000123.jpg`, `000123.cls`. The image is jpg, jpeg, png or ppm, and `cls` is its label in ASCII, 0 for the background.
Other files with the same key are left out. A file without a key, a link or a device is a sample that cannot be used.

What is here finds and reads them in Python, for checks and conversions; `data.tar_reader` is the input pipeline's.
"""

import enum
import functools
import itertools
import os
import re
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from console.messages import shown
from data import record_checker, records, remote

BLOCK = 512
IMAGE_EXTENSIONS = ('jpg', 'jpeg', 'png', 'ppm')
LABEL_EXTENSION = 'cls'
# The longest label with its white space, and the longest name, of which the rest is not looked at; in bytes.
LABEL_BYTES = 18
NAME_BYTES = 4096
# What a header that extends another has at the most.
EXTENSION_BYTES = 1 << 20
# What TensorFlow can count of a file that it has read as a whole.
_LARGEST_SHARD = (1 << 31) - 1
# Bytes that are read ahead here; the input pipeline has a flag for its own.
_READ_AHEAD = 1 << 20

# Types of members: files; what has no data, whatever size its header says; and headers that extend the next one.
REGULAR = b'\x0007'
DIRECTORY = b'5'
WITHOUT_DATA = b'123456'
LONG_NAME = b'L'
PAX = b'x'
# GNU's files with holes. If the header's byte says so, and as long as those of the blocks after it do, another block
# with places of the file's pieces follows, before its content.
SPARSE = b'S'
HEADER_GOES_ON = 482
BLOCK_GOES_ON = 504
EXTENSIONS = b'LKxg'

POSIX_MAGIC = b'ustar\0'
# What a header has at byte 257: the magic of POSIX or GNU, or, in the first archives, nothing.
MAGIC_BEGINS = b'u\0'
# What may stand around a number.
BLANKS = b'\0\t\n\r '


class Problem(enum.IntEnum):
    """Why a sample cannot be used; in a sample with several problems, that which comes first here."""

    NONE = 0
    TRUNCATED = 1
    FOREIGN = 2
    NO_IMAGE = 3
    IMAGES = 4
    NO_LABEL = 5
    LABELS = 6
    BAD_LABEL = 7
    # Not of a sample, but of the place after the last that can be read.
    DAMAGED = 8
    NO_END = 9
    AFTER_END = 10

    def __str__(self) -> str:
        return _WORDS[self]


_WORDS = {
    Problem.NONE: '',
    Problem.TRUNCATED: 'the shard is cut short within it.',
    Problem.FOREIGN: 'belongs to no sample: no file, or a name that does not end in .jpg, .cls or the like.',
    Problem.NO_IMAGE: f'no image: there must be one file, not empty, of {", ".join(IMAGE_EXTENSIONS)}.',
    Problem.IMAGES: 'several images.',
    Problem.NO_LABEL: f'no label: there must be a file {LABEL_EXTENSION}.',
    Problem.LABELS: 'several labels.',
    Problem.BAD_LABEL: f'no label: the file {LABEL_EXTENSION} must hold one whole number in ASCII.',
    Problem.DAMAGED: 'the shard is damaged: here should be the header of a file. What follows cannot be used.',
    Problem.NO_END: 'the shard is cut short: the zeros that end a tar file are missing.',
    Problem.AFTER_END: 'the shard goes on after the zeros that end a tar file. What follows cannot be used.',
}


# After these, nothing more is read.
_LAST = (Problem.TRUNCATED, Problem.DAMAGED, Problem.NO_END, Problem.AFTER_END)


def shard_path(data_dir: str, split: str, shard: int, shards: int) -> str:
    """The path of a shard, such as `DIR/train-00000-of-00016.tar`."""
    return f'{records.shard_path(data_dir, split, shard, shards)}.tar'


def find_shards(data_dir: str, split: str) -> List[str]:
    """The shards of a split, in order.

    Raises:
      DataError, RemoteError: as `data.records.find_shards`.
    """
    paths = records.list_shards(data_dir, split, f'{records.TAR_NAMES}$', f'{split}-00000.tar')
    if len({len(path) for path in paths}) > 1:
        kinds = ' and '.join(os.path.basename(path) for path in (min(paths, key=len), max(paths, key=len)))
        raise records.DataError(
            f'--data_dir={data_dir}: the {split} files are of several data sets, of numbers as long as in {kinds}. '
            'Keep one.'
        )
    return paths


def missing_shards(data_dir: str, split: str, paths: Sequence[str]) -> List[str]:
    """The names of the shards that should stand beside those that were found, going by their names."""
    names = {os.path.basename(path) for path in paths}
    first = os.path.basename(paths[0])
    _, number, *count = re.findall(r'\d+', f'0{first[len(split) :]}')
    shards = int(count[0]) if count else max(int(name[len(split) + 1 : -len('.tar')]) for name in names) + 1
    of = f'-of-{count[0]}' if count else ''
    return sorted({f'{split}-{shard:0{len(number)}d}{of}.tar' for shard in range(shards)} - names)


def size_problem(size: int) -> Optional[str]:
    """Why the input pipeline cannot read a shard of so many bytes; None if it can."""
    if size <= _LARGEST_SHARD:
        return None
    return (
        f'{size:,} bytes, and the input pipeline reads shards of up to {_LARGEST_SHARD:,}. Put its samples into '
        'several, or make a TFRecord file of it, with python -m data.tar_shards write.'
    )


def check_not_empty(paths: Sequence[str], skipped: int = 0) -> None:
    """Makes sure that shards can be read, and have more samples than may be skipped.

    Raises:
      DataError, RemoteError: as `data.records.check_not_empty`; or one is too large.
    """

    def begin(path: str, at_most: int) -> int:
        with Shard(path) as shard:
            first = [*itertools.islice(shard.samples(), at_most)]
        if first and first[0].problem is Problem.DAMAGED:
            raise records.DataError(f'{path}: not a tar file, or compressed, or damaged at its very beginning.')
        return sum(sample.problem not in _LAST for sample in first)

    records.check_more_than(skipped, paths, begin)
    for path, size in zip(paths, records.sizes_of(paths)):
        problem = size_problem(size)
        if problem:
            raise records.DataError(f'{path}: {problem}')


def count_samples(paths: Sequence[str]) -> List[int]:
    """The number of samples in each shard, those that cannot be used among them; as `data.records.count_records`."""
    return records.count_each(paths, _count)


def _count(path: str) -> int:
    with Shard(path) as shard:
        return sum(1 for _ in shard.samples())


class SampleChecker(record_checker.RecordChecker):
    """Tells what is wrong with a sample: the same demands as the input pipeline's, in words."""

    def problems(self, path: str) -> Iterator[Callable[[], Optional[str]]]:
        """For each sample of a shard, in order, what tells its problem."""
        with Shard(path) as shard:
            for sample in shard.samples():
                yield functools.partial(self.problem_of, shard, sample)

    def problem_of(self, shard: 'Shard', sample: 'Sample') -> Optional[str]:
        """Why a sample cannot be used, beginning with its key; None if it can."""
        problem = str(sample.problem)
        if sample.image:
            encoded = shard.read(sample.image.start, sample.image.size)
            problem = record_checker.label_problem(sample.label, self.num_classes) or self.image_problem(encoded) or ''
        return f'{sample.prefix}{problem}' if problem else None


class Member(NamedTuple):
    """A file in a shard.

    Attributes:
      name: with its folders.
      key: the name up to the first dot of its last part; None if it has none, or this is no file.
      start: where its content begins, in bytes.
      size: of its content, in bytes.
    """

    name: bytes
    key: Optional[bytes]
    start: int
    size: int

    @property
    def extension(self) -> str:
        """What follows the key and a dot, in small letters; nothing if there is no key."""
        return '' if self.key is None else self.name[len(self.key) + 1 :].decode(errors='replace').lower()


class Sample(NamedTuple):
    """A sample of a shard, or what is in the place of one.

    Attributes:
      members: its files.
      problem: why it cannot be used, but for its image, which was not looked at.
      label: the class; 0 if there is a problem.
      image: the file of the image; None if there is a problem.
    """

    members: List[Member]
    problem: Problem
    label: int = 0
    image: Optional[Member] = None

    @property
    def key(self) -> str:
        """What its files share, for messages; the name of a file that has no key."""
        first = self.members[0]
        return shown(first.name if first.key is None else first.key)

    @property
    def prefix(self) -> str:
        """What messages begin with: the key, if there is one."""
        return f'{self.key}: ' if self.key else ''

    @property
    def is_last(self) -> bool:
        """Whether the shard is cut short or damaged here, and nothing more can be read."""
        return self.problem in _LAST


class Shard:
    """A shard that is read from its beginning to its end: a context manager.

    Args:
      path: of the shard.

    Attributes:
      size: its bytes.

    Raises:
      RemoteError: now or later, it is refused, or cannot be reached.
      tf.errors.OpError: the same of a local one.
    """

    def __init__(self, path: str):
        self._path = path
        self.size = remote.size(path)
        self._file = tf.io.gfile.GFile(path, 'rb')
        self._content, self._start = b'', 0

    def __enter__(self) -> 'Shard':
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, start: int, size: int) -> bytes:
        """The bytes at a place; fewer where the shard ends. They are read ahead."""
        size = max(0, min(size, self.size - start))
        # To seek the end itself is an error.
        if size and not self._start <= start <= start + size <= self._start + len(self._content):
            ahead = min(max(size, _READ_AHEAD), self.size - start)
            with remote.explained(self._path, remote.READ):
                self._file.seek(start)
                self._content, self._start = self._file.read(ahead), start
            if len(self._content) < ahead:
                # Where a refusal looks like the end of the file, this says who is refused.
                remote.check_readable(self._path)
                until = start + len(self._content)
                raise remote.RemoteError(f'{self._path}: {remote.ENDED_EARLY} {until} of {self.size}.')
        return self._content[start - self._start : start - self._start + size] if size else b''

    def samples(self) -> Iterator[Sample]:
        """The samples, in order; after the last that can be read, why no more can."""
        members: List[Member] = []
        for member, problem in self._members():
            if members and (member.key is None or member.key != members[-1].key):
                yield self._sample(members)
                members = []
            members.append(member)
            if problem:
                yield Sample(members, problem)
                members = []
            if problem in _LAST:
                return
        if members:
            yield self._sample(members)

    def _sample(self, members: List[Member]) -> Sample:
        images = [member for member in members if member.extension in IMAGE_EXTENSIONS]
        labels = [member for member in members if member.extension == LABEL_EXTENSION]
        content = self.read(labels[0].start, LABEL_BYTES + 1)[: labels[0].size] if labels else b''
        for holds, problem in (
            (not sum(image.size for image in images), Problem.NO_IMAGE),
            (len(images) > 1, Problem.IMAGES),
            (not labels, Problem.NO_LABEL),
            (len(labels) > 1, Problem.LABELS),
            (not content.strip(BLANKS).isdigit() or len(content) > LABEL_BYTES, Problem.BAD_LABEL),
        ):
            if holds:
                return Sample(members, problem)
        return Sample(members, Problem.NONE, int(content.strip(BLANKS)), images[0])

    def _members(self) -> Iterator[Tuple[Member, Problem]]:
        """The files, and what is there instead, in order, each with its problem."""
        place = 0
        name: Optional[bytes] = None
        own_size: Optional[int] = None
        while True:
            header = self.read(place, BLOCK)
            here = Member(b'', None, place, 0)
            if len(header) < BLOCK:
                yield here, Problem.NO_END
                return
            if not any(header):
                if self._has_more(place):
                    yield here, Problem.AFTER_END
                return
            field = _size_field(header[124:136])
            size, own_size = (field if own_size is None else own_size), None
            kind = header[156:157]
            is_extension = kind in _each(EXTENSIONS)
            sound = header[257] in MAGIC_BEGINS and _is_checked(header)
            if size is None or not sound or (is_extension and size > EXTENSION_BYTES):
                yield here, Problem.DAMAGED
                return
            size = 0 if kind in _each(WITHOUT_DATA) else size
            start = self._content_start(place, header)
            place = start + -(-size // BLOCK) * BLOCK
            if start + size > self.size:
                full_name = _name(header) if name is None else name
                key = _key(full_name) if kind in _each(REGULAR) else None
                yield Member(full_name, key, start, size), Problem.TRUNCATED
                return
            if is_extension:
                if kind == LONG_NAME and size:
                    name = self.read(start, size)
                elif kind == PAX:
                    said = _pax_records(self.read(start, size))
                    name = said.get(b'path') or name
                    own_size = _decimal(said.get(b'size'))
                continue
            full_name = (_name(header) if name is None else name)[:NAME_BYTES].partition(b'\0')[0]
            name = None
            if kind == DIRECTORY or (kind == b'\0' and full_name.endswith(b'/')):
                continue
            key = _key(full_name) if kind in _each(REGULAR) else None
            yield Member(full_name, key, start, size), Problem.FOREIGN if key is None else Problem.NONE

    def _content_start(self, place: int, header: bytes) -> int:
        """Where the content of a member begins that has its header at a place."""
        start = place + BLOCK
        goes_on = header[156:157] == SPARSE and header[HEADER_GOES_ON]
        while goes_on and start + BLOCK <= self.size:
            goes_on = self.read(start, BLOCK)[BLOCK_GOES_ON]
            start += BLOCK
        return start

    def _has_more(self, place: int) -> bool:
        """Whether anything but zeros follows."""
        return any(any(self.read(start, _READ_AHEAD)) for start in range(place, self.size, _READ_AHEAD))


def _each(kinds: bytes) -> Tuple[bytes, ...]:
    return tuple(kinds[i : i + 1] for i in range(len(kinds)))


def _is_checked(header: bytes) -> bool:
    """Whether a block has the checksum of a header: the sum of its bytes, as if the checksum itself were blank."""
    return _octal(header[148:156]) == sum(header) - sum(header[148:156]) + 8 * ord(' ')


def _octal(field: bytes) -> Optional[int]:
    digits = field.strip(BLANKS)
    return int(digits or b'0', 8) if re.fullmatch(rb'[0-7]*', digits) else None


def _decimal(text: Optional[bytes]) -> Optional[int]:
    digits = (text or b'').strip(BLANKS)
    return int(digits) if digits.isdigit() and len(text or b'') <= LABEL_BYTES else None


def _size_field(field: bytes) -> Optional[int]:
    """The size that a header says, in octal, or in binary if the first bit is set."""
    if field[0] < 0x80:
        return _octal(field)
    size = int.from_bytes(field[1:], 'big')
    return size if field[0] == 0x80 and size < 1 << 56 else None


def _name(header: bytes) -> bytes:
    """The name in a header. POSIX has a long one in two fields; others use the second for other things."""
    name, prefix = header[:100].partition(b'\0')[0], header[345:500].partition(b'\0')[0]
    return prefix + b'/' + name if prefix and header[257:263] == POSIX_MAGIC else name


def _key(name: bytes) -> Optional[bytes]:
    folder, slash, last = name.rpartition(b'/')
    stem, dot, _ = last.partition(b'.')
    return folder + slash + stem if stem and dot else None


def _pax_records(content: bytes) -> Dict[bytes, bytes]:
    """The records of a pax header, each `LENGTH KEYWORD=VALUE` and a line feed; up to one that is none."""
    said: Dict[bytes, bytes] = {}
    while True:
        match = re.match(rb'(\d{1,7}) ([^=]*)=', content)
        length = int(match.group(1)) if match else 0
        if not match or not match.end() < length <= len(content) or content[length - 1 : length] != b'\n':
            return said
        said[match.group(2)] = content[match.end() : length - 1]
        content = content[length:]
