"""Reading TFRecord files in Python, record by record: counting, checking and converting them."""

import io
import itertools
import os
from typing import BinaryIO, Iterable, Iterator, List, Sequence

from console.tensorflow_versions import tf
from data import remote
from data.records import DataError, count_each
from data.tfrecord import FRAME_BYTES, LENGTH_BYTES

# The size limit of protocol buffers: every Example is shorter.
_TOO_LONG = 2**31


def _has_length(head: bytes) -> bool:
    """Whether the first bytes of a frame are a length with its checksum."""
    return _masked_crc32c(head[:LENGTH_BYTES]) == int.from_bytes(head[LENGTH_BYTES:], 'little')


def _masked_crc32c(content: bytes) -> int:
    """The checksum of a few bytes in TFRecord files: CRC-32C (RFC 3720, appendix B.4), rotated and shifted."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _lengths(file: BinaryIO, size: int) -> Iterator[int]:
    """Yields the lengths of the records in a file of a size in bytes; they may be wrong, and lead beyond its end.

    A truncated length, which TensorFlow takes for the end of the file, is a `tf.errors.DataLossError`; so is a valid,
    impossible one: TensorFlow allocates the memory that it claims, and the process ends if that fails.
    """
    place = 0
    while place < size:
        file.seek(place)
        head = file.read(LENGTH_BYTES + 4)
        if len(head) < LENGTH_BYTES + 4:
            raise tf.errors.DataLossError(None, None, f'the length of a record is truncated at byte {place:,}')
        length = int.from_bytes(head[:LENGTH_BYTES], 'little')
        # TensorFlow reports a length whose checksum is wrong.
        if length >= _TOO_LONG and _has_length(head):
            raise tf.errors.DataLossError(None, None, f'the record claims a length of {length:,} bytes')
        yield length
        place += FRAME_BYTES + length


def serialized_in(path: str) -> Iterator[bytes]:
    """Yields the serialized records of a file.

    Raises:
      tf.errors.OpError: the file cannot be read. tf.errors.DataLossError: it is damaged from the next record on.
    """
    place = 0
    # Lengths are checked only in local files: a request per length would take longer than reading the records.
    lengths: Iterable[int] = itertools.repeat(0)
    if os.path.isfile(path):
        lengths = _lengths(io.FileIO(path), os.path.getsize(path))
    serialized = tf.io.tf_record_iterator(path)
    for _ in lengths:
        record = next(serialized, None)
        if record is None:
            break
        place += FRAME_BYTES + len(record)
        yield record
    size = remote.size(path)
    if place != size:
        raise tf.errors.DataLossError(None, None, f'{remote.ENDED_EARLY} {place:,} of {size:,}')


def count_records(paths: Sequence[str]) -> List[int]:
    """The number of records in each file. Only the lengths of the records are read."""
    return count_each(paths, _count)


def _count(path: str) -> int:
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
