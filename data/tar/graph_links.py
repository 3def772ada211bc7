"""Following the hard links of a tar shard with TensorFlow operations."""

from typing import NamedTuple

from console.tensorflow_versions import tf
from data.tar import byte_tensors


class Files(NamedTuple):
    """Regular files of a shard, in order; each field is int64 [files].

    Attributes:
      name: the number of the name, of `graph_names.hashes`.
      start: the position of the content, in bytes; in a window, negative before it.
      size: its size in bytes.
      label: the number in the file, if it may be a label; -1 otherwise.
    """

    name: tf.Tensor
    start: tf.Tensor
    size: tf.Tensor
    label: tf.Tensor


def targets(names: tf.Tensor, is_file: tf.Tensor) -> tf.Tensor:
    """The index of the last file before each link that has the name of its target, int64 [members]; -1 if none has.

    Args:
      names: int64 [members], the numbers of the names of files, and of the targets of links.
      is_file: bool [members], whether each is a file; the others are links.
    """
    # Stable: among equal names, each file precedes the links after it.
    order = tf.argsort(names, stable=True)
    names, is_file = tf.gather(names, order), tf.gather(is_file, order)
    # The place in this order of the last file up to each place; -1 if there is none.
    files = tf.concat([[-1], tf.where(is_file)[:, 0]], 0)
    last = tf.gather(files, tf.cumsum(tf.cast(is_file, tf.int64)))
    safe = tf.maximum(last, 0)
    found = tf.logical_and(last >= 0, tf.equal(tf.gather(names, safe), names))
    found = byte_tensors.select(found, tf.cast(tf.gather(order, safe), tf.int64), -1)
    return tf.scatter_nd(order[:, tf.newaxis], found, tf.shape(found, out_type=order.dtype))
