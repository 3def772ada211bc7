"""Reads the content and the problems of each record of a file, in any format, for the audit."""

import contextlib
import types
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple, Union

import numpy as np

from console.messages import shown
from console.tensorflow_versions import tf
from data import record_checker, remote, tfrecord_files
from data.records import DataError, irregular_kind
from data.tar.layout import IMAGE_EXTENSIONS, Problem, label_of
from data.tar.shard import Sample, Shard, size_problem
from data.tf_example import CORNERS, DOCUMENTED_FIELDS, Fields

_NO_BOXES = np.zeros([0, 4], np.float32)
# The field name of a tar shard's images, whatever their extension.
_IMAGE = 'image'


class Entry(NamedTuple):
    """A record of a file."""

    position: int  # Its position in the file, from 0.
    encoded: Optional[bytes] = None  # The image file's bytes; None if there are none.
    label: Optional[int] = None  # The label with its offset, valid or not; None if there is none.
    # float32 [boxes, 4], each ymin, xmin, ymax, xmax, not clipped; empty if they are invalid.
    boxes: np.ndarray = _NO_BOXES
    fields: Tuple[str, ...] = ()  # The names of its fields.
    # The `format`, `height` and `width` that it claims for its image.
    claimed: Mapping[str, Union[int, str]] = types.MappingProxyType({})
    # The reason why it cannot be used, apart from the image and the boxes; None if there is none.
    problem: Optional[str] = None
    # The reason why its boxes cannot be used; None if they can, or if `problem` is set.
    box_problem: Optional[str] = None
    prefix: str = ''  # The beginning of messages about it.
    # The name of a file that belongs to no record, in the place of one; None for a record.
    left_out: Optional[str] = None

    def bad_record(self, path: str, problem: str) -> record_checker.BadRecord:
        """This record of a file, with a problem."""
        return record_checker.BadRecord(path, self.position, f'{self.prefix}{problem}')


@contextlib.contextmanager
def _readable(path: str) -> Iterator[None]:
    """Raises DataError for a path that is no file, or whose file cannot be read."""
    kind = irregular_kind(path)
    if kind:
        raise DataError(f'cannot be read: it is {kind}.')
    try:
        yield
    except (tf.errors.OpError, remote.RemoteError) as error:
        raise DataError(f'cannot be read: {getattr(error, "message", error)}')


def of_records(path: str, num_classes: int, fields: Fields = DOCUMENTED_FIELDS) -> Iterator[Entry]:
    """Yields the records of a TFRecord file, whose images and labels have these keys, and verifies their checksums."""
    position = -1
    with _readable(path):
        # On s3://, TensorFlow treats a file as empty if access to it is denied.
        remote.check_readable(path)
        try:
            with remote.explained(path, remote.READ):
                for position, serialized in enumerate(tfrecord_files.serialized_in(path)):
                    yield _of_record(position, serialized, num_classes, fields)
        except tf.errors.DataLossError as error:
            begin = 'the file is' if position >= 0 else 'not a record file, or'
            place = 'or truncated from here on' if position >= 0 else 'at its beginning'
            raise DataError(f'{begin} damaged {place}: {error.message}.')


def _of_record(position: int, serialized: bytes, num_classes: int, fields: Fields) -> Entry:
    example = record_checker.parse_example(serialized)
    # Listed first: reading a missing field adds an empty one.
    keys = tuple(example.features.feature) if example else ()
    entry = Entry(position, fields=keys, problem=record_checker.field_problem(example, num_classes, fields))
    if example is None:
        return entry
    feature = example.features.feature
    encoded = feature[fields.image].bytes_list.value
    label = feature[fields.label].int64_list.value
    entry = entry._replace(
        encoded=encoded[0] if len(encoded) == 1 and encoded[0] else None,
        label=label[0] + fields.label_offset if len(label) == 1 else None,
        claimed=_claimed(feature),
        box_problem=None if entry.problem else record_checker.box_problem(example),
    )
    if entry.problem or entry.box_problem or 'image/object/bbox/ymin' not in keys:
        return entry
    corners = [feature[f'image/object/bbox/{corner}'].float_list.value for corner in CORNERS]
    return entry._replace(boxes=np.array(corners, np.float32).T)


def _claimed(feature: Any) -> Dict[str, Union[int, str]]:
    numbers = {name: feature[f'image/{name}'].int64_list.value for name in ('height', 'width')}
    claimed: Dict[str, Union[int, str]] = {name: values[0] for name, values in numbers.items() if len(values) == 1}
    formats = feature['image/format'].bytes_list.value
    return {**claimed, 'format': formats[0].decode(errors='replace')} if len(formats) == 1 else claimed


def of_tar(path: str, num_classes: int, fields: Fields = DOCUMENTED_FIELDS) -> Iterator[Entry]:
    """Yields the samples of a tar shard, whose labels have the place and the offset of `fields`."""
    with _readable(path), Shard(path) as shard:
        problem = size_problem(path, shard.size)
        if problem:
            raise DataError(problem)
        position = 0
        for sample in shard.everything(label_of(fields.label)):
            if sample.problem is Problem.LEFT_OUT:
                yield from (Entry(position, left_out=shown(member.name)) for member in sample.members)
                continue
            if sample.problem.is_last:
                raise DataError(sample.reason)
            yield _of_sample(position, shard, sample, num_classes, fields.label_offset)
            position += 1


def _of_sample(position: int, shard: Shard, sample: Sample, num_classes: int, offset: int) -> Entry:
    extensions = [member.extension for member in sample.members if member.key is not None]
    keys = tuple({_IMAGE if each in IMAGE_EXTENSIONS else shown(each) for each in extensions})
    problem = sample.reason[len(sample.prefix) :] or None
    entry = Entry(position, fields=keys, problem=problem, prefix=sample.prefix)
    if not sample.image:
        return entry
    return entry._replace(
        encoded=shard.read(sample.image.start, sample.image.size),
        label=sample.label + offset,
        claimed={'format': sample.image.extension},
        problem=record_checker.label_problem(sample.label + offset, num_classes, offset),
    )


# By the values of --data_format.
ENTRIES: Dict[str, Callable[[str, int, Fields], Iterator[Entry]]] = {'tfrecord': of_records, 'tar': of_tar}
