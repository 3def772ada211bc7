"""Reading a tar shard in Python, with the standard library's `tarfile`."""

import functools
import re
import tarfile
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from console.log import logger
from console.messages import counted, shown
from console.tensorflow_versions import tf
from data import ppm, remote
from data.record_checker import RecordChecker, advice_on, label_problem
from data.records import DataError
from data.tar.layout import (
    BLANKS,
    BLOCK,
    DOCUMENTED_LABEL,
    EXTENSION_BYTES,
    EXTENSIONS,
    IMAGE_EXTENSIONS,
    LABEL_BYTES,
    LABEL_FOUND,
    MAGIC_BEGINS,
    NAME_BYTES,
    PARTS,
    PAX_RECORDS,
    POSIX_MAGIC,
    REGULAR,
    SPARSE,
    Label,
    Problem,
    label_of,
)
from data.tar.reader import is_read_whole
from data.tf_example import DOCUMENTED_FIELDS, Fields

# The largest file that TensorFlow can read as a whole, in bytes.
_LARGEST_SHARD = (1 << 31) - 1
# Files that one line of the log names.
_NAMED_AT_MOST = 3
# The read-ahead buffer, in bytes; the input pipeline has a flag for its own.
_READ_AHEAD = 1 << 20
# Keeps all bytes of a name in Python's str, whatever the encoding of the name.
_CODEC = ('utf-8', 'surrogateescape')
_EXTENSION_TYPES = [bytes([kind]) for kind in EXTENSIONS]
_REGULAR_TYPES = [bytes([kind]) for kind in REGULAR]
_PAX_RECORD = re.compile(rb'(\d{1,7}) [^=]+=')
_OCTAL = re.compile(rb'[%b]*[0-7]*[%b]*' % (BLANKS, BLANKS))


class Member(NamedTuple):
    """A file in a shard.

    Attributes:
      name: its path in the shard.
      key: the path up to the first dot of the file name; None if there is no key, or this is not a file.
      start: the position of its content in the shard, in bytes.
      size: the size of its content, in bytes.
      linked: for a hard link, the extension of the file that has the content.
    """

    name: bytes
    key: Optional[bytes]
    start: int
    size: int
    linked: Optional[str] = None

    @property
    def extension(self) -> str:
        """The part of the name after the key and a dot, in lower case; empty if there is no key."""
        return '' if self.key is None else self.name[len(self.key) + 1 :].decode(errors='replace').lower()

    @property
    def is_part(self) -> bool:
        """Whether its name ends like that of an image or a label, even after more than one dot."""
        return bool(re.fullmatch(PARTS, self.extension))


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

    @property
    def reason(self) -> str:
        """The problem with its likely cause, after the key; empty without a problem."""
        extensions = [member.extension for member in self.members]
        dotted = next((each for each in extensions if each.rpartition('.')[2] in IMAGE_EXTENSIONS and '.' in each), '')
        cause = ''
        if self.problem is Problem.NO_IMAGE and dotted:
            cause = (
                f' The key ends at the first dot of a name, so that the extension of a file is {shown(dotted)}. Rename '
                'the files of the sample.'
            )
        elif self.problem is Problem.NO_LABEL and {'txt', 'json'} & {*extensions}:
            cause = ' --label_key=txt reads it from the file txt, --label_key=json:KEY from a key of the file json.'
        elif self.problem in (Problem.NO_IMAGE, Problem.NO_LABEL) and len(self.members) == 1:
            cause = ' The files of a sample must follow each other: pack them with tar --sort=name --dereference.'
        return f'{self.prefix}{self.problem!s}{cause}' if self.problem else ''


class _ShardEndError(Exception):
    """Raised at the end of a shard's members.

    Attributes:
      place: in bytes.
      problem: the reason why no more can be read; `Problem.NONE` at the zeros that end a tar file.
    """

    def __init__(self, place: int, problem: Problem):
        super().__init__(place, problem)
        self.place, self.problem = place, problem


class _Header(tarfile.TarInfo):
    """A header of a shard, with the checks of `data.tar.reader`.

    `tarfile` silently ends an archive at a damaged header, and accepts headers that the input pipeline rejects.
    """

    @classmethod
    def fromtarfile(cls, archive: Any) -> '_Header':
        place = archive.fileobj.tell()
        block = archive.fileobj.read(BLOCK)
        if len(block) < BLOCK:
            raise _ShardEndError(place, Problem.NO_END)
        if not any(block):
            raise _ShardEndError(place, Problem.NONE)
        try:
            header: Any = cls.frombuf(block, *_CODEC)
        except tarfile.HeaderError:
            raise _ShardEndError(place, Problem.DAMAGED)
        is_extension = header.type in _EXTENSION_TYPES
        is_long = is_extension and header.size > EXTENSION_BYTES
        if not _is_strict(block) or is_long or header.type == SPARSE:
            raise _ShardEndError(place, Problem.DAMAGED)
        if is_extension and place + BLOCK + header.size > archive.fileobj.size:
            raise _ShardEndError(place, Problem.TRUNCATED)
        if header.type == tarfile.XHDTYPE:
            content = archive.fileobj.read(header.size)
            archive.fileobj.seek(place + BLOCK)
            if not _has_whole_records(content):
                raise _ShardEndError(place, Problem.DAMAGED)
        header.offset = place
        if block[257:263] != POSIX_MAGIC:
            # GNU's headers have times where POSIX's have the beginning of a long name.
            header.name = tarfile.nts(block[:100], *_CODEC)  # type: ignore[attr-defined]
        # The pax headers of Solaris are unknown to the input pipeline.
        is_solaris = header.type == tarfile.SOLARIS_XHDTYPE
        return header._proc_builtin(archive) if is_solaris else header._proc_member(archive)

    def _apply_pax_info(self, pax_headers: Any, encoding: str, errors: str) -> None:
        # The size is that of the header.
        pax_headers.pop('size', None)
        super()._apply_pax_info(pax_headers, encoding, errors)  # type: ignore[misc]

    def stored(self) -> int:
        """The bytes of its content in the shard; none for a link or device."""
        return self.size if self.isreg() or self.type not in tarfile.SUPPORTED_TYPES else 0


def _is_strict(block: bytes) -> bool:
    """Whether a header has a known magic, an unsigned checksum, and a size in octal or in positive binary."""
    size, checksum = block[124:136], block[148:156]
    is_binary = size[0] == 0x80 and not any(size[1:5])
    return (
        block[257] in MAGIC_BEGINS
        and (is_binary or bool(_OCTAL.fullmatch(size)))
        and bool(_OCTAL.fullmatch(checksum))
        and int(checksum.strip(BLANKS) or b'0', 8) == sum(block) - sum(checksum) + len(checksum) * ord(' ')
    )


def _has_whole_records(content: bytes) -> bool:
    """Whether a pax header consists of records `LENGTH KEYWORD=VALUE` and a line feed.

    `tarfile` also accepts a record that ends elsewhere, and may then name a file differently than the input pipeline.
    """
    for _ in range(PAX_RECORDS):
        match = _PAX_RECORD.match(content)
        length = int(match.group(1)) if match else 0
        if not match or not match.end() < length <= len(content) or content[length - 1 : length] != b'\n':
            return False
        content = content[length:]
        if not content:
            return True
    return False


class Shard:
    """A context manager for a shard that is read from its beginning to its end.

    Args:
      path: of the shard.

    Attributes:
      size: its size in bytes.

    Raises:
      RemoteError: in any method: access to it is denied, or the store cannot be reached.
      tf.errors.OpError: in any method: a local shard cannot be read.
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
        """Yields what `samples` does, and with the problem `LEFT_OUT` all other files, each before the next sample."""
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

    def reason(self, sample: Sample) -> str:
        """`Sample.reason`, and for a compressed shard the command that unpacks it."""
        is_whole = sample.problem is Problem.DAMAGED and not sample.members[0].start
        advice = advice_on(self.read(0, BLOCK)) if is_whole else ''
        return f'{sample.reason} {advice}'.rstrip()

    def _sample(self, members: List[Member], label: Label) -> Sample:
        if not any(member.is_part for member in members):
            return Sample(members, Problem.LEFT_OUT)
        images = [member for member in members if member.extension in IMAGE_EXTENSIONS]
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
                return Sample(members, problem)
        return Sample(members, Problem.NONE, number or 0, images[0])

    def _number(self, member: Member, label: Label) -> Optional[int]:
        """The label in a file; None if there is none. A link is a label if the file with its content may be one."""
        if member.linked not in (None, label.extension):
            return None
        if not label.key and member.size > LABEL_BYTES:
            return None
        text = self.read(member.start, member.size).decode('latin-1')
        for expression, replacement in label.replacements():
            text = re.sub(expression, replacement, text)
        return int(text[1:]) if re.fullmatch(LABEL_FOUND, text) else None

    def _members(self) -> Iterator[Tuple[Member, Problem]]:
        """Yields the files, in order, each with its problem; finally, the problem of the rest, if there is one."""
        file: Any = _File(self)
        try:
            with tarfile.open(
                fileobj=file, mode='r:', tarinfo=_Header, encoding=_CODEC[0], errors=_CODEC[1]
            ) as archive:
                yield from self._members_of(archive)
        except _ShardEndError as end:
            problem = end.problem
            if problem is Problem.NONE and self._has_data_from(end.place):
                problem = Problem.AFTER_END
            if problem:
                yield Member(b'', None, end.place, 0), problem
        except (remote.RemoteError, tf.errors.OpError):
            raise
        except Exception:  # `tarfile` raises errors of any type for a damaged archive.
            is_at_end = file.tell() + BLOCK > self.size
            yield Member(b'', None, file.tell(), 0), Problem.TRUNCATED if is_at_end else Problem.DAMAGED

    def _members_of(self, archive: Any) -> Iterator[Tuple[Member, Problem]]:
        header: Any
        files: Dict[bytes, Member] = {}
        for header in iter(archive.next, None):
            archive.members.clear()  # Otherwise, `tarfile` keeps all members in memory.
            member = _member(header, files)
            if header.offset_data + header.stored() > self.size:
                yield member, Problem.TRUNCATED
                return
            if not header.isdir():
                yield member, Problem.NONE
            if archive.offset > self.size:
                # The content is complete, but not the zeros after it.
                raise _ShardEndError(self.size, Problem.NO_END)

    def _has_data_from(self, place: int) -> bool:
        """Whether any byte from a position on is not zero."""
        return any(any(self.read(start, _READ_AHEAD)) for start in range(place, self.size, _READ_AHEAD))


class _File:
    """A shard as a file for `tarfile`.

    Attributes:
      size: its size in bytes.
    """

    def __init__(self, shard: Shard):
        self.size = shard.size
        self._shard, self._place = shard, 0

    def tell(self) -> int:
        return self._place

    def seek(self, place: int) -> None:
        self._place = place

    def read(self, size: int) -> bytes:
        content = self._shard.read(self._place, size)
        self._place += len(content)
        return content


def _member(header: tarfile.TarInfo, files: Dict[bytes, Member]) -> Member:
    """The member of a header; `files`: the regular files before it by name, to which it is added if it is one."""
    name, target = (each.encode(*_CODEC)[:NAME_BYTES].partition(b'\0')[0] for each in (header.name, header.linkname))
    is_file = header.type in _REGULAR_TYPES
    if header.islnk() and target in files:
        linked = files[target]
        return Member(name, _key(name), linked.start, linked.size, linked.extension)
    member = Member(name, _key(name) if is_file else None, header.offset_data, header.size)
    if is_file:
        files[name] = member
    return member


def _key(name: bytes) -> Optional[bytes]:
    folder, slash, last = name.rpartition(b'/')
    stem, dot, _ = last.partition(b'.')
    return folder + slash + stem if stem and dot else None


class SampleChecker(RecordChecker):
    """Describes why the input pipeline cannot use a sample; the arguments are those of `RecordChecker`."""

    def __init__(
        self,
        num_classes: int,
        decode: Callable[[tf.Tensor], tf.Tensor],
        with_boxes: bool = True,
        fields: Fields = DOCUMENTED_FIELDS,
    ):
        super().__init__(num_classes, lambda image: decode(ppm.as_png(image)), with_boxes, fields)

    def problems(self, path: str) -> Iterator[Callable[[], Optional[str]]]:
        """Yields a function per sample of a shard, in order, that returns the sample's problem."""
        with Shard(path) as shard:
            for sample in shard.samples(label_of(self.fields.label)):
                yield functools.partial(self.problem_of, shard, sample)

    def problem_of(self, shard: Shard, sample: Sample) -> Optional[str]:
        """The reason why a sample cannot be used, after its key; None if it can be used."""
        if not sample.image:
            return shard.reason(sample)
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
    """Yields the samples among everything in a shard; finally, logs what was left out."""
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
            logger.info('%s: left out %s of no sample, such as %s', path, what, ', '.join(names[:_NAMED_AT_MOST]))


def check_keys(path: str, fields: Fields) -> None:
    """Checks that the first sample of a shard has one image and one label.

    Raises:
      DataError: it has not.
      RemoteError: access to the shard is denied, or the store cannot be reached.
    """
    with Shard(path) as shard:
        first = next(shard.samples(label_of(fields.label)), None)
    if first and first.reason:
        raise DataError(f'{path}, record 0: {first.reason}')


def count(path: str) -> int:
    """The number of samples in a shard, including unusable ones."""
    with Shard(path) as shard:
        return sum(1 for _ in with_note(path, shard.everything()))
