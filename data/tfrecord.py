"""Reading TFRecord files: records of any length, each framed by its length and checksums.

Files that are compressed with gzip or zlib are recognized by their first bytes, and read like others.
"""

import concurrent.futures
import contextlib
import functools
import io
import os
from typing import BinaryIO, Callable, Iterator, List, Optional, Sequence, Tuple

from console.tensorflow_versions import tf
from data import compression, remote
from data.records import DataError, count_each

# The bytes of a frame: the record's length, the length's checksum, and the record's checksum.
_LENGTH_BYTES = 8
FRAME_BYTES = _LENGTH_BYTES + 4 + 4
# The size limit of protocol buffers: every Example is shorter.
_TOO_LONG = 2**31
_OTHER_END = (
    'its compressed content ends elsewhere: the file is truncated, or more data follows, such as another stream. Write '
    'it anew without compression'
)
_TRUNCATED_LENGTH = 'the length of a record is truncated at byte {:,}'
_THREADS = 32


def compression_of(path: str) -> str:
    """The compression of a record file; see `compression.kind_of`."""
    head = compression.head_of(path)
    # The length of a record may look like a compressed file, but has a checksum.
    return '' if _has_length(head) else compression.kind_of(head)


def _has_length(head: bytes) -> bool:
    """Whether the first bytes of a frame are a length with its checksum."""
    return _masked_crc32c(head[:_LENGTH_BYTES]) == int.from_bytes(head[_LENGTH_BYTES:], 'little')


def from_here_on(position: int, fault: str) -> str:
    """A message about the fault of a record after which nothing can be read."""
    return f'record {position}: the file is damaged or truncated from here on: {fault}.'


def length_fault_at(file: BinaryIO, place: int) -> Optional[str]:
    """The fault of the record length at a byte of a file; None if there is none, or TensorFlow detects it."""
    file.seek(place)
    head = file.read(_LENGTH_BYTES + 4)
    length = int.from_bytes(head[:_LENGTH_BYTES], 'little')
    if 0 < len(head) < _LENGTH_BYTES + 4:
        return _TRUNCATED_LENGTH.format(place)
    # TensorFlow reports a length whose checksum is wrong.
    if length >= _TOO_LONG and _has_length(head):
        return f'the record claims a length of {length:,} bytes'
    return None


def _masked_crc32c(content: bytes) -> int:
    """The checksum of a few bytes in TFRecord files: CRC-32C (RFC 3720, appendix B.4), rotated and shifted."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


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
        raise tf.errors.DataLossError(None, None, _OTHER_END if kind else f'{remote.ENDED_EARLY} {place:,} of {size:,}')


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
            if size - place < _LENGTH_BYTES + 4:
                raise DataError(f'{path}, {from_here_on(count, _TRUNCATED_LENGTH.format(place))}')
            place = place_after(file, place)
            count += 1
    return count


def place_after(file: BinaryIO, place: int) -> int:
    """The position of the next record's frame after that at a position, by the length that its frame claims."""
    file.seek(place)
    return place + FRAME_BYTES + int.from_bytes(file.read(_LENGTH_BYTES), 'little')


def reader(
    any_path: str, buffer_size: int, paths: Sequence[str] = ()
) -> Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]:
    """A function from a path and its size, of `records.expected_sizes`, to a data set of serialized records.

    Args:
      any_path: one of the files, or their folder.
      buffer_size: the read-ahead buffer, in bytes.
      paths: all files, if some may be compressed.
    """
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        kinds = [*pool.map(compression_of, paths)]
        sizes = [*pool.map(compression.claimed_bytes, paths, kinds)] if any(kinds) else []

    def read(path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
        # TensorFlow clears the whole buffer before each read, which may take longer than reading a small file.
        size = tf.cast(size, tf.int64)
        buffer = tf.where(size > 0, tf.minimum(size, buffer_size), buffer_size)
        if not sizes:
            serialized = tf.data.TFRecordDataset(path, buffer_size=buffer)
            return read_to_the_end(serialized, path, size) if remote.hides_refusals(any_path) else serialized
        number = tf.argmax(tf.cast(tf.equal(tf.constant([*paths]), path), tf.int32))
        serialized = tf.data.TFRecordDataset(path, tf.gather(tf.constant(kinds), number), buffer)
        # On 1.15, TensorFlow reads the first of several gzip streams, and takes other data after it for the end.
        fault = remote.ENDED_EARLY if remote.hides_refusals(any_path) else _OTHER_END
        return read_to_the_end(serialized, path, tf.gather(tf.constant(sizes, tf.int64), number), fault)

    return read


def read_to_the_end(
    serialized: tf.data.Dataset, path: tf.Tensor, size: tf.Tensor, fault: str = remote.ENDED_EARLY
) -> tf.data.Dataset:
    """The same records, with an error at the end if they have fewer bytes than their file, or than its content.

    On s3://, TensorFlow treats a read that is denied half-way as the end of the file, and an unreadable file as empty.
    The size is that of the content in bytes, modulo `compression.SIZE_MODULUS`; `fault` is the message of the error.
    """
    end = tf.data.Dataset.from_tensors((True, ''))
    marked = serialized.map(lambda record: (False, record)).concatenate(end)

    def count(read: tf.Tensor, element: Tuple[tf.Tensor, tf.Tensor]) -> Tuple[tf.Tensor, Tuple[tf.Tensor, tf.Tensor]]:
        is_end, record = element
        differs = tf.not_equal((read - tf.cast(size, tf.int64)) % compression.SIZE_MODULUS, 0)
        whole = tf.logical_not(tf.logical_and(is_end, differs))
        with tf.control_dependencies([tf.Assert(whole, [path, fault, read, 'of', size])]):
            read += FRAME_BYTES + tf.cast(tf.strings.length(record), tf.int64)
        return read, (is_end, record)

    counted = marked.apply(tf.data.experimental.scan(tf.constant(0, tf.int64), count))
    return counted.filter(lambda is_end, record: tf.logical_not(is_end)).map(lambda is_end, record: record)
