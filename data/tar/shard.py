"""Reading a tar shard in Python.

The standard library's `tarfile` is not used: it ends an archive silently at a damaged header, and accepts other headers
than the input pipeline does.
"""

import collections
import contextlib
import re
import shlex
from typing import Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Tuple

from compat import tf
from compat.log import logger
from compat.messages import FEW, counted, shown
from data import ppm, remote
from data.record_checker import RecordChecker, label_problem
from data.records import DataError
from data.tar import layout
from data.tar.layout import BLOCK, DOCUMENTED_LABEL, Label, Problem, label_of
from data.tar.reader import is_read_whole
from data.tf_example import Fields
from preprocessing.decoding import decode_image

# The largest file that TensorFlow can read as a whole, in bytes.
_LARGEST_SHARD = (1 << 31) - 1
# The read-ahead buffer, in bytes; the input pipeline has a flag for its own.
_READ_AHEAD = 1 << 20
_REGULAR, _EXTENSIONS, _WITHOUT_DATA = (
    frozenset(bytes([kind]) for kind in kinds) for kinds in (layout.REGULAR, layout.EXTENSIONS, layout.WITHOUT_DATA)
)
_DIRECTORY, _HARD_LINK = b'5', b'1'
# The problems of a sample that lacks a part.
_MISSING_PARTS = (Problem.NO_IMAGE, Problem.NO_LABEL, Problem.BAD_LABEL)
_PAX_RECORD = re.compile(rb'(\d{1,7}) ([^=]+)=')
_OCTAL = re.compile(rb'[%b]*[0-7]*[%b]*' % (layout.BLANKS, layout.BLANKS))


class Member(NamedTuple):
    """A file in a shard."""

    name: bytes  # Its path in the shard.
    # The path up to the first dot of the file name; None if there is no key, or this is not a file.
    key: Optional[bytes]
    start: int  # The position of its content in the shard, in bytes.
    size: int  # The size of its content, in bytes.
    is_link: bool = False  # Whether it is a hard link, which has no content here.

    @property
    def extension(self) -> str:
        """The part of the name after the key and a dot, in lower case; empty if there is no key."""
        return '' if self.key is None else self.name[len(self.key) + 1 :].decode(errors='replace').lower()

    @property
    def is_part(self) -> bool:
        """Whether its name ends like an image's or a label's, even after more than one dot."""
        return bool(re.fullmatch(layout.PARTS, self.extension))


class Sample(NamedTuple):
    """A sample of a shard, or a problem in the place of one."""

    members: List[Member]  # Its files.
    problem: Problem  # The reason why it cannot be used. The content of its image is not checked.
    label: int = 0  # The class; 0 if there is a problem.
    image: Optional[Member] = None  # The image file; None if there is a problem.
    cause: str = ''  # The mistake in packing the shard that caused the problem, if known, and the remedy.

    @property
    def key(self) -> str:
        """The key, or the name of a file without one, for messages."""
        first = self.members[0]
        return shown(first.name if first.key is None else first.key)

    @property
    def prefix(self) -> str:
        """The beginning of messages about the sample: its key, if it has one."""
        return f'{self.key}: ' if self.key else ''

    @property
    def description(self) -> str:
        """The problem and its cause; empty without a problem."""
        return f'{self.problem!s} {self.cause}'.rstrip()

    @property
    def reason(self) -> str:
        """The problem and its cause, after the key; empty without a problem."""
        return f'{self.prefix}{self.description}' if self.problem else ''


def _octal(field: bytes) -> Optional[int]:
    """The number in a field of a header, 0 if it is blank; None if it holds anything else."""
    return int(field.strip(layout.BLANKS) or b'0', 8) if _OCTAL.fullmatch(field) else None


def _size_in(block: bytes) -> Optional[int]:
    """The size of the content after a header; None if the header is invalid, or its member is not supported."""
    field, checksum, kind = block[124:136], block[148:156], block[156:157]
    in_blanks = sum(block) - sum(checksum) + len(checksum) * ord(' ')
    is_binary = field[0] == 0x80 and not any(field[1:5])
    size = int.from_bytes(field[5:], 'big') if is_binary else _octal(field)
    if block[257] not in layout.MAGIC_BEGINS or _octal(checksum) != in_blanks or size is None or kind == layout.SPARSE:
        return None
    if kind in _EXTENSIONS and size > layout.EXTENSION_BYTES:
        return None
    return 0 if kind in _WITHOUT_DATA else size


def _pax_values(content: bytes) -> Dict[bytes, bytes]:
    """The values in a pax header by keyword: records `LENGTH KEYWORD=VALUE` and a line feed, up to an invalid one."""
    values = {}
    for _ in range(layout.PAX_RECORDS):
        match = _PAX_RECORD.match(content)
        length = int(match.group(1)) if match else 0
        if not match or not match.end() < length <= len(content) or content[length - 1 : length] != b'\n':
            break
        values[match.group(2)] = content[match.end() : length - 1]
        content = content[length:]
    return values


def _until_zero(field: bytes) -> bytes:
    return field[: layout.NAME_BYTES].partition(b'\0')[0]


class Shard:
    """A context manager for a shard of `size` bytes that is read from its beginning to its end.

    Any method may raise RemoteError, or `tf.errors.OpError` for a local shard that cannot be read.
    """

    def __init__(self, path: str):
        self._path = path
        self.size = remote.size(path)
        self._closing = contextlib.ExitStack()
        self._file = self._closing.enter_context(remote.opened(path))
        self._content, self._start = b'', 0
        self._divided_keys: Optional[FrozenSet[bytes]] = None

    def __enter__(self) -> 'Shard':
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def read(self, start: int, size: int) -> bytes:
        """The bytes at a position, through the read-ahead buffer; fewer at the end of the shard."""
        size = max(0, min(size, self.size - start))
        # GFile cannot seek to the end of a file.
        if size and not self._start <= start <= start + size <= self._start + len(self._content):
            ahead = min(max(size, _READ_AHEAD), self.size - start)
            with remote.explained(self._path, remote.READ):
                self._file.seek(start)
                self._content, self._start = self._file.read(ahead), start
            if len(self._content) < ahead:
                # s3:// shows a denied read as the end of the file: this check names the access key.
                remote.check_readable(self._path)
                until = start + len(self._content)
                raise remote.RemoteError(f'{self._path}: {remote.ENDED_EARLY} {until} of {self.size}.')
        return self._content[start - self._start : start - self._start + size] if size else b''

    def samples(self, label: Label = DOCUMENTED_LABEL) -> Iterator[Sample]:
        """Yields the samples, in order; after the last readable one, the problem of the rest, if there is one."""
        return (sample for sample in self.everything(label) if sample.problem is not Problem.LEFT_OUT)

    def everything(self, label: Label = DOCUMENTED_LABEL) -> Iterator[Sample]:
        """Yields the samples, and all other files with the problem `LEFT_OUT`, each before the next sample."""
        members: List[Member] = []
        for member, problem in self._members():
            if member.key is None and not problem:
                yield Sample([member], Problem.LEFT_OUT)
                continue
            if members and (member.key is None or member.key != members[-1].key):
                yield self._sample(members, label)
                members = []
            members.append(member)
            if problem:
                yield Sample(members, problem)
                members = []
        if members:
            yield self._sample(members, label)

    def _sample(self, members: List[Member], label: Label) -> Sample:
        if not any(member.is_part for member in members):
            return Sample(members, Problem.LEFT_OUT)
        images = [member for member in members if member.extension in layout.IMAGE_EXTENSIONS]
        labels = [member for member in members if member.extension == label.extension]
        number = self._number(labels[0], label) if labels else None
        for holds, problem in (
            (not sum(image.size for image in images), Problem.NO_IMAGE),
            (len(images) > 1, Problem.IMAGES),
            (not labels, Problem.NO_LABEL),
            (len(labels) > 1, Problem.LABELS),
            (number is None, Problem.BAD_LABEL),
        ):
            if holds:
                return Sample(members, problem, cause=self._cause(members, problem, label))
        return Sample(members, Problem.NONE, number or 0, images[0])

    def _cause(self, members: List[Member], problem: Problem, label: Label) -> str:
        """The mistake in packing the shard that caused a problem, and the commands that pack it correctly."""
        parts = (*layout.IMAGE_EXTENSIONS, label.extension)
        links = [shown(member.name) for member in members if member.is_link and member.extension in parts]
        if problem not in _MISSING_PARTS or not (links or members[0].key in self._divided()):
            return ''
        what = (
            f'{links[0]} is a hard link, whose content is not here' if links else 'its files do not follow each other'
        )
        unpack = f'mkdir unpacked && tar -xf {shlex.quote(self._path)} -C unpacked'
        pack = 'tar --sort=name --hard-dereference -cf NEW.tar -C unpacked .'
        return f'Cause: {what}. Pack the shard again, with GNU tar: {unpack} && {pack}'

    def _divided(self) -> FrozenSet[bytes]:
        """The keys whose files are not adjacent: files with other keys lie between them."""
        if self._divided_keys is None:
            keys = [member.key for member, _ in self._members() if member.key is not None]
            runs = collections.Counter(key for key, before in zip(keys, [None, *keys]) if key != before)
            self._divided_keys = frozenset(key for key, count in runs.items() if count > 1)
        return self._divided_keys

    def _number(self, member: Member, label: Label) -> Optional[int]:
        """The label in a file; None if there is none."""
        if not label.key and member.size > layout.LABEL_BYTES:
            return None
        text = self.read(member.start, member.size).decode('latin-1')
        for expression, replacement in label.replacements():
            text = re.sub(expression, replacement, text)
        return int(text[1:]) if re.fullmatch(layout.LABEL_FOUND, text) else None

    def _members(self) -> Iterator[Tuple[Member, Problem]]:
        """Yields the files, in order, each with its problem; finally, the problem of the rest, if there is one."""
        place, path = 0, None
        while True:
            block = self.read(place, BLOCK)
            size = _size_in(block) if len(block) == BLOCK and any(block) else None
            if size is None:
                problem = Problem.NO_END if len(block) < BLOCK else Problem.DAMAGED
                if len(block) == BLOCK and not any(block):
                    pieces = (self.read(at, _READ_AHEAD) for at in range(place, self.size, _READ_AHEAD))
                    problem = Problem.AFTER_END if any(map(any, pieces)) else Problem.NONE
                if problem:
                    yield Member(b'', None, place, 0), problem
                return
            kind, start = block[156:157], place + BLOCK
            is_truncated = start + size > self.size
            place = start + -(-size // BLOCK) * BLOCK
            if kind in _EXTENSIONS and not is_truncated:
                content = self.read(start, size)
                if kind == layout.LONG_NAME:
                    path = content
                elif kind == layout.PAX:
                    path = _pax_values(content).get(b'path', path)
                continue
            name = _until_zero(_name_in(block) if path is None else path)
            member = Member(name, _key(name) if kind in _REGULAR else None, start, size, kind == _HARD_LINK)
            path = None
            if is_truncated:
                yield member if kind not in _EXTENSIONS else Member(b'', None, start, 0), Problem.TRUNCATED
                return
            # In the oldest archives, only a slash at the end of its name marks a folder.
            if kind != _DIRECTORY and not (kind == b'\0' and member.name.endswith(b'/')):
                yield member, Problem.NONE


def _name_in(block: bytes) -> bytes:
    """The name in the fields of a header."""
    # Other archives have other values where POSIX has the beginning of a long name.
    prefix = _until_zero(block[layout.PREFIX : 500]) if block[257:263] == layout.POSIX_MAGIC else b''
    return prefix + b'/' * bool(prefix) + _until_zero(block[:100])


def _key(name: bytes) -> Optional[bytes]:
    folder, slash, last = name.rpartition(b'/')
    stem, dot, _ = last.partition(b'.')
    return folder + slash + stem if stem and dot else None


class SampleChecker(RecordChecker):
    """Describes why the input pipeline cannot use a sample; the arguments are those of `RecordChecker`."""

    @staticmethod
    def decode(encoded: tf.Tensor) -> tf.Tensor:
        """Decodes an image, a string scalar, which may be a PPM image."""
        return decode_image(ppm.as_png(encoded))

    def records(self, path: str) -> Iterator[Tuple[Shard, Sample]]:
        """Yields a shard with each of its samples, in order, for `problem`."""
        with Shard(path) as shard:
            yield from ((shard, sample) for sample in shard.samples(label_of(self.fields.label)))

    def problem(self, record: Tuple[Shard, Sample]) -> Optional[str]:
        """The reason why a sample of a shard cannot be used, after its key; None if it can be used."""
        shard, sample = record
        if not sample.image:
            return sample.reason
        encoded = shard.read(sample.image.start, sample.image.size)
        offset = self.fields.label_offset
        problem = label_problem(sample.label + offset, self.num_classes, offset) or self.image_problem(encoded)
        return f'{sample.prefix}{problem}' if problem else None


def size_problem(path: str, size: int) -> Optional[str]:
    """The reason why the input pipeline cannot read a shard of a size in bytes; None if it can."""
    if size <= _LARGEST_SHARD or not is_read_whole(path):
        return None
    return (
        f'{size:,} bytes; from s3:// the input pipeline reads shards of up to {_LARGEST_SHARD:,}. Divide it into '
        'several shards, or convert it to a TFRecord file with inception-v3 tar-shards write.'
    )


def with_note(path: str, everything: Iterator[Sample]) -> Iterator[Sample]:
    """Yields the samples among everything in a shard, then logs the files that were left out."""
    names: List[str] = []
    try:
        for sample in everything:
            if sample.problem is Problem.LEFT_OUT:
                names += [shown(member.name) for member in sample.members]
            else:
                yield sample
    finally:
        if names:
            what = counted(len(names), 'file')
            logger.info('%s: left out %s of no sample, such as %s', path, what, ', '.join(names[:FEW]))


def check_keys(path: str, fields: Fields) -> None:
    """Raises DataError unless the first sample of a shard has one image and one label."""
    with Shard(path) as shard:
        first = next(shard.samples(label_of(fields.label)), None)
    if first and first.reason:
        raise DataError(f'{path}, record 0: {first.reason}')


def count(path: str) -> int:
    """The number of samples in a shard, including unusable ones."""
    with Shard(path) as shard:
        return sum(1 for _ in with_note(path, shard.everything()))
