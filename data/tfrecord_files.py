"""Reading TFRecord files in Python, record by record: counting, checking and converting them."""

import contextlib
import functools
import io
import os
from typing import BinaryIO, Iterator, List, Optional, Sequence

from console.tensorflow_versions import tf
from data import compression, remote
from data.records import DataError, count_each
from data.tfrecord import FRAME_BYTES, LENGTH_BYTES, OTHER_END, compression_of, has_length

# The size limit of protocol buffers: every Example is shorter.
_TOO_LONG = 2**31
_TRUNCATED_LENGTH = 'the length of a record is truncated at byte {:,}'


def from_here_on(position: int, fault: str) -> str:
    """A message about the fault of a record after which nothing can be read."""
    return f'record {position}: the file is damaged or truncated from here on: {fault}.'


def length_fault_at(file: BinaryIO, place: int) -> Optional[str]:
    """The fault of the record length at a byte of a file; None if there is none, or TensorFlow detects it."""
    file.seek(place)
    head = file.read(LENGTH_BYTES + 4)
    length = int.from_bytes(head[:LENGTH_BYTES], 'little')
    if 0 < len(head) < LENGTH_BYTES + 4:
        return _TRUNCATED_LENGTH.format(place)
    # TensorFlow reports a length whose checksum is wrong.
    if length >= _TOO_LONG and has_length(head):
        return f'the record claims a length of {length:,} bytes'
    return None


def serialized_in(path: str) -> Iterator[bytes]:
    """Yields the serialized records of a file.

    Raises:
      tf.errors.OpError: the file cannot be read. tf.errors.DataLossError: it is damaged from the next record on.
    """
    place, kind = 0, compression_of(path)
    with contextlib.ExitStack() as stack:
        # Lengths are checked only in local files: a request per length would take longer than reading the records.
        frames = stack.enter_context(open(path, 'rb', buffering=0)) if os.path.isfile(path) and not kind else None
        serialized = tf.io.tf_record_iterator(path, tf.io.TFRecordOptions(kind))
        while True:
            fault = length_fault_at(frames, place) if frames else None
            if fault:
                raise tf.errors.DataLossError(None, None, fault)
            record = next(serialized, None)
            if record is None:
                break
            place += FRAME_BYTES + len(record)
            yield record
    size = compression.content_bytes(path, kind)
    if place % compression.SIZE_MODULUS != size:
        raise tf.errors.DataLossError(None, None, OTHER_END if kind else f'{remote.ENDED_EARLY} {place:,} of {size:,}')


def count_records(paths: Sequence[str]) -> List[int]:
    """The number of records in each file. Only the lengths of the records are read, except in compressed files.

    Raises DataError, too, for a file that ends within the length of a record, which TensorFlow takes for its end.
    """
    return count_each(paths, _count)


def _count(path: str) -> int:
    if compression_of(path):
        return sum(1 for _ in serialized_in(path))
    size, place, count = remote.size(path), 0, 0
    # Reading with Python takes a tenth of the time of TensorFlow.
    opener = functools.partial(tf.io.gfile.GFile if remote.is_remote(path) else io.FileIO, path, 'rb')
    with remote.explained(path, remote.READ), opener() as file:
        # A truncated record is counted, too; reading it raises an error that names it.
        while place < size:
            if size - place < LENGTH_BYTES + 4:
                raise DataError(f'{path}, {from_here_on(count, _TRUNCATED_LENGTH.format(place))}')
            place = place_after(file, place)
            count += 1
    return count


def place_after(file: BinaryIO, place: int) -> int:
    """The position of the next record's frame after that at a position, by the length that its frame claims."""
    file.seek(place)
    return place + FRAME_BYTES + int.from_bytes(file.read(LENGTH_BYTES), 'little')
