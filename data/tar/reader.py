"""Reading tar shards in the input pipeline, with TensorFlow operations alone: a TPU's hosts have no Python.

Written by hand, because libraries for tar files need Python.

A shard is read piece by piece. A piece and the rest of the pieces before it form a window, in which
`data.tar.graph_samples` finds the samples. `data.tar.layout` defines a sample and its problems.
"""

import functools
from typing import Callable, Tuple

from compat import tf
from compat.graph_checks import require
from compat.tensorflow import mapped_by_the_requesting_thread
from data import ppm, remote
from data.tar import graph_samples
from data.tar.graph_samples import Samples, all_of, select
from data.tar.layout import BLOCK, DOCUMENTED_LABEL, Label, Problem
from data.tf_example import ParsedRecord

# Bytes in a piece of a shard. Each open file takes a few times as much memory. Finding the samples of a piece takes
# hundreds of operations whatever its size, so a larger piece costs less per image.
PIECE = 3 << 20
# A piece is read in chunks. TensorFlow copies each one several times, which is faster within the processor's caches.
_CHUNK = 1 << 16
# The read-ahead buffer for a local file, for the same reason; each read of a remote file is a request.
_LOCAL_BUFFER = 1 << 18
# Digits of the label at the beginning of a serialized sample.
_LABEL_DIGITS = 20

# Stages of reading a shard: the next piece is searched for samples, checked for zeros or, after unusable data, ignored.
_SAMPLES, _ZEROS, _NOTHING = range(3)

# The state between two windows, four scalars: int64, the stage; int64, the position of the rest in the shard; int64,
# the fewest bytes that can complete a sample in the rest; string, the rest: the bytes after the last complete sample.
_State = Tuple[tf.Tensor, ...]


def reader(
    any_path: str, buffer_size: int, label: Label = DOCUMENTED_LABEL
) -> Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]:
    """A function from a shard's path and size in bytes to its samples in order, string scalars for `parse`.

    The samples include unusable ones. Memory holds a piece of `PIECE` bytes, and as many more bytes as the largest
    sample has; if `is_read_whole`, it holds the whole shard, at first twice. `any_path` is one of the shards, or their
    folder; `buffer_size` is the size of the read-ahead buffer in bytes.
    """
    is_whole = is_read_whole(any_path)
    buffer = min(buffer_size, PIECE if remote.is_remote(any_path) else _LOCAL_BUFFER)

    def read(path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
        size = tf.cast(size, tf.int64)
        pieces = _one_piece(path, size).batch(1) if is_whole else _pieces(path, size, buffer)
        # The empty piece makes even a shard without a byte a window.
        all_pieces = pieces.concatenate(tf.data.Dataset.from_tensors(['']))
        stage, place, needed = (tf.constant(each, tf.int64) for each in (_SAMPLES, 0, BLOCK))
        begin: _State = (stage, place, needed, tf.constant(''))
        windows = all_pieces.apply(tf.data.experimental.scan(begin, functools.partial(_search, size, label)))
        return windows.flat_map(lambda content, *samples: _serialize(content, Samples(*samples)))

    return read


def is_read_whole(any_path: str) -> bool:
    """Whether shards that are stored as this one, or in this folder, are loaded into memory as a whole.

    On s3://, TensorFlow takes a denied or failed read for the end of the file, and the error of a data set names no
    file. The result of `tf.io.read_file` can be checked, with an error that names it.
    """
    return remote.hides_refusals(any_path)


def _pieces(path: tf.Tensor, size: tf.Tensor, buffer_size: int) -> tf.data.Dataset:
    """The content of a shard in pieces of up to `PIECE` bytes, each as string [chunks].

    `FixedLengthRecordDataset` requires files of whole records, and reads the bytes that it skips. Therefore the odd
    chunk comes first.
    """
    chunk = min(_CHUNK, PIECE)
    first = (size - 1) % chunk + 1

    def if_any(count: tf.Tensor, chunk: tf.Tensor, before: tf.Tensor, after: tf.Tensor) -> tf.data.Dataset:
        # Not `take`: with a count computed here, 1.15 crashes on a CPU that is not the process's first.
        once = tf.data.Dataset.range(tf.cast(count > 0, tf.int64))
        return once.flat_map(lambda _: tf.data.FixedLengthRecordDataset(path, chunk, before, after, buffer_size))

    none = tf.zeros_like(size)
    head = if_any(size, first, none, size - first)
    return head.concatenate(if_any(size - first, none + chunk, first, none)).batch(PIECE // chunk)


def _one_piece(path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
    """The whole content of a shard, with an error at run time if it is not complete."""
    # The shard is read in the thread that requests it. All operations share the inter-op threads, one per core; a few
    # reads that wait for a remote store would block them all.
    content = mapped_by_the_requesting_thread(tf.data.Dataset.from_tensors(path), tf.io.read_file)
    # A denied read yields no element. The empty element then takes its place, and fails the check.
    content = content.concatenate(tf.data.Dataset.from_tensors('')).take(1)

    def checked(content: tf.Tensor) -> tf.Tensor:
        length = tf.cast(tf.strings.length(content), tf.int64)
        whole = tf.equal(length, size)
        with tf.control_dependencies([require(whole, [path, remote.ENDED_EARLY, length, 'of', size])]):
            return tf.identity(content)

    return content.map(checked)


def _search(size: tf.Tensor, label: Label, state: _State, piece: tf.Tensor) -> Tuple[_State, Tuple[tf.Tensor, ...]]:
    """Finds the samples that a piece, string [chunks], completes in a shard of `size` bytes.

    Returns the new state; and the window's content, a string scalar, and the fields of its `Samples`.
    """
    stage, place, needed, rest = state
    content = tf.strings.reduce_join(tf.concat([[rest], piece], 0))
    length = tf.cast(tf.strings.length(content), tf.int64)
    remaining = size - place

    def search() -> Tuple[tf.Tensor, ...]:
        samples, left = graph_samples.find(tf.io.decode_raw(content, tf.uint8), remaining, label)
        after = select(left.is_unusable, _NOTHING, select(left.is_read, _ZEROS, tf.constant(_SAMPLES, tf.int64)))
        begin = select(tf.equal(after, _SAMPLES), left.start, length)
        return (after, place + begin, left.needed, tf.strings.substr(content, begin, length), *samples)

    def wait() -> Tuple[tf.Tensor, ...]:
        # In the stage that checks zeros, no rest precedes the piece.
        has_data = tf.reduce_any(tf.not_equal(tf.io.decode_raw(content, tf.uint8), 0))
        is_after_end = tf.logical_and(tf.equal(stage, _ZEROS), has_data)
        problem = tf.fill([tf.cast(is_after_end, tf.int32)], tf.constant(int(Problem.AFTER_END), tf.int64))
        after = select(is_after_end, _NOTHING, stage)
        kept = tf.strings.substr(content, tf.zeros_like(length), select(tf.equal(stage, _SAMPLES), length, 0))
        return (after, place, needed, kept, problem, *[tf.zeros_like(problem)] * 3)

    is_enough = length >= tf.minimum(needed, remaining)
    found = tf.cond(all_of(tf.equal(stage, _SAMPLES), is_enough), search, wait)
    return tuple(found[: len(state)]), (content, *found[len(state) :])


def _serialize(content: tf.Tensor, samples: Samples) -> tf.data.Dataset:
    """The samples of a window as strings: the label in decimal and the image; or the problem."""
    labels = tf.strings.as_string(samples.label, width=_LABEL_DIGITS, fill='0')
    reasons = tf.gather([str(problem) for problem in Problem], samples.problem)
    labels = select(tf.equal(samples.problem, int(Problem.NONE)), labels, reasons)
    # Not by the requesting thread, which would be faster: 1.15 crashes on a CPU that is not the process's first.
    return tf.data.Dataset.from_tensor_slices((labels, samples.start, samples.size)).map(
        lambda label, start, size: tf.strings.join([label, tf.strings.substr(content, start, size)])
    )


def parse(serialized: tf.Tensor, label_offset: int = 0) -> ParsedRecord:
    """Parses a sample of `reader`, a string scalar, or a group of samples, strings [samples].

    Samples have no bounding boxes. `label_offset` is added to the label. An unusable sample raises
    `tf.errors.InvalidArgumentError` at run time.
    """
    # For an unusable sample, this is the beginning of its problem: not a number, so that the error quotes it.
    label = tf.strings.to_number(tf.strings.substr(serialized, 0, _LABEL_DIGITS), tf.int64)
    with tf.control_dependencies([label]):
        lengths = tf.strings.length(serialized)
        encoded = tf.strings.substr(serialized, tf.fill(tf.shape(lengths), _LABEL_DIGITS), lengths)
    return ParsedRecord(ppm.as_png(encoded), label + label_offset, tf.zeros([1, 0, 4]))
