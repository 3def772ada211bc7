"""Reading TFRecord files in the graph: records of any length, each framed by its length and checksums."""

from typing import Callable, Tuple

from console.tensorflow_versions import tf
from data import remote

# The bytes of a frame: the record's length, the length's checksum, and the record's checksum.
LENGTH_BYTES = 8
FRAME_BYTES = LENGTH_BYTES + 4 + 4


def reader(any_path: str, buffer_size: int) -> Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]:
    """A function from a path and its size, of `records.expected_sizes`, to a data set of serialized records.

    `any_path` is one of the files, or their folder; `buffer_size` the read-ahead buffer in bytes.
    """

    def read(path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
        # TensorFlow clears the whole buffer before each read, which may take longer than reading a small file.
        size = tf.cast(size, tf.int64)
        buffer = tf.where(size > 0, tf.minimum(size, buffer_size), buffer_size)
        serialized = tf.data.TFRecordDataset(path, buffer_size=buffer)
        return read_to_the_end(serialized, path, size) if remote.hides_refusals(any_path) else serialized

    return read


def read_to_the_end(serialized: tf.data.Dataset, path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
    """The same records, with an error at the end if they have fewer bytes than their file, whose size is given.

    On s3://, TensorFlow treats a read that is denied half-way as the end of the file, and an unreadable file as empty.
    """
    end = tf.data.Dataset.from_tensors((True, ''))
    marked = serialized.map(lambda record: (False, record)).concatenate(end)

    def count(read: tf.Tensor, element: Tuple[tf.Tensor, tf.Tensor]) -> Tuple[tf.Tensor, Tuple[tf.Tensor, tf.Tensor]]:
        is_end, record = element
        whole = tf.logical_not(tf.logical_and(is_end, tf.not_equal(read, tf.cast(size, tf.int64))))
        with tf.control_dependencies([tf.Assert(whole, [path, remote.ENDED_EARLY, read, 'of', size])]):
            read += FRAME_BYTES + tf.cast(tf.strings.length(record), tf.int64)
        return read, (is_end, record)

    counted = marked.apply(tf.data.experimental.scan(tf.constant(0, tf.int64), count))
    return counted.filter(lambda is_end, record: tf.logical_not(is_end)).map(lambda is_end, record: record)
