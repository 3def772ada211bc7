"""Reading TFRecord files in Python, record by record: counting, checking and converting them."""

import io
import itertools
import os
from typing import BinaryIO, Iterable, Iterator, List, Sequence

from compat import tf
from data import remote
from data.records import DataError, count_each
from data.tfrecord import FRAME_BYTES, LENGTH_BYTES, OTHER_END, SIZE_MODULUS, compression_of, content_bytes, has_length

# The size limit of protocol buffers: every Example is shorter.
_TOO_LONG = 2**31


def _lengths(file: BinaryIO, size: int) -> Iterator[int]:
    """Yields the lengths of the records in a file of `size` bytes; they may be wrong, and lead beyond its end.

    Raises `tf.errors.DataLossError` for a truncated length, which TensorFlow takes for the end of the file, and for an
    impossible length with a valid checksum: TensorFlow would allocate that much memory, or crash.
    """
    place = 0
    while place < size:
        file.seek(place)
        head = file.read(LENGTH_BYTES + 4)
        if len(head) < LENGTH_BYTES + 4:
            raise tf.errors.DataLossError(None, None, f'the length of a record is truncated at byte {place:,}')
        length = int.from_bytes(head[:LENGTH_BYTES], 'little')
        # TensorFlow itself reports a length with a wrong checksum.
        if length >= _TOO_LONG and has_length(head):
            raise tf.errors.DataLossError(None, None, f'the record claims a length of {length:,} bytes')
        yield length
        place += FRAME_BYTES + length


def serialized_in(path: str) -> Iterator[bytes]:
    """Yields the serialized records of a file.

    Raises:
      tf.errors.OpError: the file cannot be read. tf.errors.DataLossError: it is damaged from the next record on.
    """
    place, kind = 0, compression_of(path)
    # Lengths are checked only in local files: a request per length would take longer than reading the records.
    lengths: Iterable[int] = itertools.repeat(0)
    if os.path.isfile(path) and not kind:
        lengths = _lengths(io.FileIO(path), os.path.getsize(path))
    serialized = tf.io.tf_record_iterator(path, tf.io.TFRecordOptions(kind))
    for _ in lengths:
        record = next(serialized, None)
        if record is None:
            break
        place += FRAME_BYTES + len(record)
        yield record
    size = content_bytes(path, kind)
    if place % SIZE_MODULUS != size:
        raise tf.errors.DataLossError(None, None, OTHER_END if kind else f'{remote.ENDED_EARLY} {place:,} of {size:,}')


def count_records(paths: Sequence[str]) -> List[int]:
    """The number of records in each file. Only the lengths of the records are read, except in compressed files."""
    return count_each(paths, _count)


def _count(path: str) -> int:
    if compression_of(path):
        return sum(1 for _ in serialized_in(path))
    count = 0
    # Reading with Python takes a tenth of the time of TensorFlow.
    file = tf.io.gfile.GFile(path, 'rb') if remote.is_remote(path) else io.FileIO(path)
    with remote.explained(path, remote.READ), file:
        try:
            for _ in _lengths(file, remote.size(path)):
                count += 1
        except tf.errors.DataLossError as error:
            where = f'record {count}: the file is damaged or truncated from here on'
            raise DataError(f'{path}, {where}: {error.message}.')
    return count
