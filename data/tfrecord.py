"""Reading TFRecord files in the graph: records of any length, each framed by its length and checksums.

Files that are compressed with gzip or zlib are recognized by their first bytes, and read like others.
"""

import concurrent.futures
from typing import Callable, Sequence, Tuple

from console.tensorflow_versions import tf
from data import compression, remote

# The bytes of a frame: the record's length, the length's checksum, and the record's checksum.
LENGTH_BYTES = 8
FRAME_BYTES = LENGTH_BYTES + 4 + 4
OTHER_END = (
    'its compressed content ends elsewhere: the file is truncated, or more data follows, such as another stream. Write '
    'it anew without compression'
)
_THREADS = 32


def compression_of(path: str) -> str:
    """The compression of a record file, as `compression.kind_of`; a record's length may look like one."""
    head = compression.head_of(path)
    return '' if has_length(head) else compression.kind_of(head)


def has_length(head: bytes) -> bool:
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
        fault = remote.ENDED_EARLY if remote.hides_refusals(any_path) else OTHER_END
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
