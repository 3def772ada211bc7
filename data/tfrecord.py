"""Reading TFRecord files in the graph: records of any length, each framed by its length and checksums.

Files that are compressed with gzip or zlib are recognized by their first bytes, and read like others.
"""

import concurrent.futures
import functools
import zlib
from typing import Callable, Sequence, Tuple

from compat import tf
from compat.graph_checks import require
from data import remote

# The bytes of a frame: the record's length, the length's checksum, and the record's checksum.
LENGTH_BYTES = 8
FRAME_BYTES = LENGTH_BYTES + 4 + 4
OTHER_END = (
    'its compressed content ends elsewhere: the file is truncated, or more data follows, such as another stream. Write '
    'it anew without compression'
)
_THREADS = 32
GZIP, ZLIB = 'GZIP', 'ZLIB'
# The size of a gzip file's content is known modulo this number (RFC 1952, 2.3.1: ISIZE).
SIZE_MODULUS = 1 << 32
_HEAD_BYTES, _PIECE = 12, 1 << 16
# For zlib's functions.
_WINDOW_BITS = {ZLIB: zlib.MAX_WBITS, GZIP: zlib.MAX_WBITS + 16}


def compression_of(path: str) -> str:
    """The compression of a record file, as TensorFlow names it: `GZIP`, `ZLIB`, or '' for neither."""
    head = head_of(path)
    # The length of the first record may look like the beginning of a compressed file.
    if has_length(head):
        return ''
    if head.startswith(b'\x1f\x8b'):
        return GZIP
    # RFC 1950, 2.2: the method deflate, a window of up to 32 KiB, no dictionary, and a checksum of the two bytes.
    is_zlib = len(head) > 1 and head[0] & 0x8F == 8 and not head[1] & 0x20 and int.from_bytes(head[:2], 'big') % 31 == 0
    return ZLIB if is_zlib else ''


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


def head_of(path: str) -> bytes:
    """The first bytes of a file; raises RemoteError, or tf.errors.OpError for a local file."""
    with remote.opened(path) as file:
        return file.read(_HEAD_BYTES)


def content_bytes(path: str, kind: str) -> int:
    """The size of a file's content, modulo `SIZE_MODULUS`; -1 if it is damaged, or has more data after its end."""
    if not kind:
        return remote.size(path) % SIZE_MODULUS
    stream, count = zlib.decompressobj(_WINDOW_BITS[kind]), 0
    with remote.opened(path) as file:
        try:
            for piece in iter(functools.partial(file.read, _PIECE), b''):
                count += len(stream.decompress(piece))
        except zlib.error:
            return -1
    return count % SIZE_MODULUS if stream.eof and not stream.unused_data else -1


def claimed_bytes(path: str, kind: str) -> int:
    """The size of a gzip file's content as stated at its end; for other files, which state none, `content_bytes`."""
    if kind != GZIP:
        return content_bytes(path, kind)
    with remote.opened(path) as file:
        file.seek(max(0, remote.size(path) - 4))
        return int.from_bytes(file.read(4), 'little')


def reader(
    any_path: str, buffer_size: int, paths: Sequence[str] = ()
) -> Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]:
    """A function from a path and its size, as in `records.expected_sizes`, to a data set of serialized records.

    `any_path` is one of the files, or their folder; `buffer_size` the read-ahead buffer in bytes; `paths` all files, if
    some may be compressed.
    """
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        kinds = [*pool.map(compression_of, paths)]
        sizes = [*pool.map(claimed_bytes, paths, kinds)] if any(kinds) else []

    def read(path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
        # TensorFlow clears the whole buffer before each read, which may take longer than reading a small file.
        size = tf.cast(size, tf.int64)
        buffer = tf.where(size > 0, tf.minimum(size, buffer_size), buffer_size)
        if not sizes:
            serialized = tf.data.TFRecordDataset(path, buffer_size=buffer)
            return read_to_the_end(serialized, path, size) if remote.hides_refusals(any_path) else serialized
        number = tf.argmax(tf.cast(tf.equal(tf.constant([*paths]), path), tf.int32))
        serialized = tf.data.TFRecordDataset(path, tf.gather(tf.constant(kinds), number), buffer)
        # TensorFlow 1.15 reads only the first of several gzip streams, and takes the data after it for the end.
        fault = remote.ENDED_EARLY if remote.hides_refusals(any_path) else OTHER_END
        return read_to_the_end(serialized, path, tf.gather(tf.constant(sizes, tf.int64), number), fault)

    return read


def read_to_the_end(
    serialized: tf.data.Dataset, path: tf.Tensor, size: tf.Tensor, fault: str = remote.ENDED_EARLY
) -> tf.data.Dataset:
    """The same records, with an error at the end if their bytes do not add up to the size of the file's content.

    On s3://, TensorFlow treats a read that is denied half-way as the end of the file, and an unreadable file as empty.
    The size is in bytes, modulo `SIZE_MODULUS`; `fault` is the message of the error.
    """
    end = tf.data.Dataset.from_tensors((True, ''))
    marked = serialized.map(lambda record: (False, record)).concatenate(end)

    def count(read: tf.Tensor, element: Tuple[tf.Tensor, tf.Tensor]) -> Tuple[tf.Tensor, Tuple[tf.Tensor, tf.Tensor]]:
        is_end, record = element
        differs = tf.not_equal((read - tf.cast(size, tf.int64)) % SIZE_MODULUS, 0)
        whole = tf.logical_not(tf.logical_and(is_end, differs))
        with tf.control_dependencies([require(whole, [path, fault, read, 'of', size])]):
            read += FRAME_BYTES + tf.cast(tf.strings.length(record), tf.int64)
        return read, (is_end, record)

    counted = marked.apply(tf.data.experimental.scan(tf.constant(0, tf.int64), count))
    return counted.filter(lambda is_end, record: tf.logical_not(is_end)).map(lambda is_end, record: record)
