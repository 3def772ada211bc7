"""The records of a file for the audit, in each format: what is there, and what is wrong with that."""

from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple, Union

import numpy as np
import tensorflow as tf

from console.messages import shown
from data import record_checker, records, remote
from data.tar import layout as tar_layout

_NO_BOXES = np.zeros([0, 4], np.float32)
# The name of a tar shard's images among the fields, whatever their extension.
_IMAGE = 'image'


class Entry(NamedTuple):
    """A record as its format has it: what is there, and what is wrong with that.

    Attributes:
      position: its place in the file, from 0.
      encoded: the image file's bytes, if there are any.
      label: if there is one, whether it is allowed or not.
      boxes: float32 [boxes, 4], each ymin, xmin, ymax, xmax, not clipped; none if they are bad.
      fields: the names of what it holds.
      said: what it says of its image, of `format`, `height` and `width`.
      problem: why it cannot be used, whatever the image and the boxes are like; None if it can.
      box_problem: else, why its boxes cannot be used; None if they can.
      prefix: what messages about it begin with.
    """

    position: int
    encoded: Optional[bytes]
    label: Optional[int]
    boxes: np.ndarray
    fields: Tuple[str, ...]
    said: Dict[str, Union[int, str]]
    problem: Optional[str]
    box_problem: Optional[str] = None
    prefix: str = ''

    def bad_record(self, path: str, problem: str) -> record_checker.BadRecord:
        """This as a record of a file that has a problem."""
        return record_checker.BadRecord(path, self.position, f'{self.prefix}{problem}')


def _check_is_file(path: str) -> None:
    what = records.no_file(path)
    if what:
        raise records.DataError(f'cannot be read: {what}.')


def of_records(path: str, num_classes: int) -> Iterator[Entry]:
    """The records of a TFRecord file, their checksums verified.

    Raises:
      DataError: the file cannot be read to its end.
    """
    reached = 0
    _check_is_file(path)
    try:
        # On s3://, TensorFlow takes a file that is refused for an empty one; this asks why.
        remote.check_readable(path)
        size = remote.size(path)
        with remote.explained(path, remote.READ):
            for position, serialized in enumerate(records.serialized_in(path)):
                reached += records.FRAME_BYTES + len(serialized)
                example = record_checker.parse_example(serialized)
                # Taken first: whoever looks for a field that is not there makes an empty one.
                fields = tuple(example.features.feature) if example else ()
                problem = record_checker.field_problem(example, num_classes)
                if example is None:
                    yield Entry(position, None, None, _NO_BOXES, (), {}, problem)
                    continue
                feature = example.features.feature
                encoded = feature['image/encoded'].bytes_list.value
                label = feature['image/class/label'].int64_list.value
                box_problem = None if problem else record_checker.box_problem(example)
                boxes = _NO_BOXES
                if problem is None and box_problem is None and 'image/object/bbox/ymin' in fields:
                    corners = [feature[f'image/object/bbox/{corner}'].float_list.value for corner in records.CORNERS]
                    boxes = np.array(corners, np.float32).T
                yield Entry(
                    position,
                    encoded[0] if len(encoded) == 1 and encoded[0] else None,
                    label[0] if len(label) == 1 else None,
                    boxes,
                    fields,
                    _said(feature),
                    problem,
                    box_problem,
                )
        if reached != size:
            raise records.DataError(f'{remote.ENDED_EARLY} {reached:,} of {size:,}.')
    except tf.errors.DataLossError as error:
        if not reached:
            raise records.DataError(f'not a record file, or damaged at its very beginning: {error.message}.')
        raise records.DataError(f'the file is damaged or cut short from here on: {error.message}.')
    except (tf.errors.OpError, remote.RemoteError) as error:
        raise records.DataError(f'cannot be read: {getattr(error, "message", error)}')


def _said(feature: Any) -> Dict[str, Union[int, str]]:
    said: Dict[str, Union[int, str]] = {}
    for name in ('height', 'width'):
        numbers = feature[f'image/{name}'].int64_list.value
        if len(numbers) == 1:
            said[name] = numbers[0]
    formats = feature['image/format'].bytes_list.value
    if len(formats) == 1:
        said['format'] = formats[0].decode(errors='replace')
    return said


def of_tar(path: str, num_classes: int) -> Iterator[Entry]:
    """The samples of a tar shard, which have no boxes. Their fields are the extensions; all images have the same.

    Raises:
      DataError: the shard cannot be read to its end, or is too large for the input pipeline.
    """
    _check_is_file(path)
    try:
        with tar_layout.Shard(path) as shard:
            problem = tar_layout.size_problem(shard.size)
            if problem:
                raise records.DataError(problem)
            for position, sample in enumerate(shard.samples()):
                if sample.is_last:
                    raise records.DataError(f'{sample.prefix}{sample.problem!s}')
                extensions = [member.extension for member in sample.members if member.key is not None]
                entry = Entry(
                    position,
                    None,
                    None,
                    _NO_BOXES,
                    tuple({_IMAGE if each in tar_layout.IMAGE_EXTENSIONS else shown(each) for each in extensions}),
                    {},
                    str(sample.problem) or None,
                    prefix=sample.prefix,
                )
                if sample.image:
                    entry = entry._replace(
                        encoded=shard.read(sample.image.start, sample.image.size),
                        label=sample.label,
                        said={'format': sample.image.extension},
                        problem=record_checker.label_problem(sample.label, num_classes),
                    )
                yield entry
    except (tf.errors.OpError, remote.RemoteError) as error:
        raise records.DataError(f'cannot be read: {getattr(error, "message", error)}')
