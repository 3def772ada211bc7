"""Reading tar shards in the input pipeline, with TensorFlow operations alone: a TPU's hosts have no Python.

A whole shard is loaded into memory, and its headers are parsed together. `data.tar.layout` defines a sample and its
problems.
"""

from typing import NamedTuple

from console.tensorflow_versions import mapped_by_the_requesting_thread, tf
from data import ppm, remote
from data.tar import byte_tensors, graph_headers, graph_names, graph_pax
from data.tar.byte_tensors import all_of, any_of, is_one_of, select
from data.tar.layout import (
    BLOCK,
    EXTENSION_BYTES,
    EXTENSIONS,
    IMAGE_EXTENSIONS,
    LABEL_BYTES,
    LABEL_EXTENSION,
    REGULAR,
    WITHOUT_DATA,
    Problem,
)
from data.tf_example import ParsedRecord

# Digits of the label at the beginning of a serialized sample.
_LABEL_DIGITS = 20


class _Members(NamedTuple):
    """The files of a shard, and other members in the place of files. All fields except the last are [members].

    Attributes:
      start: int64, the position of the content in the shard, in bytes.
      size: int64, its size in bytes.
      has_key: bool, whether it is a file whose name has a key.
      is_first: bool, whether it is the first member of a sample.
      extension: int64, as of `graph_names.packed`.
      is_truncated: bool, whether the shard ends within its content.
      shard_problem: int64 scalar, the `Problem` of the shard after the last member.
    """

    start: tf.Tensor
    size: tf.Tensor
    has_key: tf.Tensor
    is_first: tf.Tensor
    extension: tf.Tensor
    is_truncated: tf.Tensor
    shard_problem: tf.Tensor


class _Samples(NamedTuple):
    """Samples of a shard, each field int64 [samples]: the `Problem`, the label, and the image's position and size."""

    problem: tf.Tensor
    label: tf.Tensor
    start: tf.Tensor
    size: tf.Tensor


def read(path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
    """The samples of a shard in order, string scalars for `parse`, including unusable ones.

    The shard stays in memory while its samples are read; at first, there are two copies.

    Args:
      path: string scalar, the shard.
      size: int64 scalar, its size in bytes; 0 if the store reports every denied access.
    """
    # The shard is read in the thread that requests it. All operations share the inter-op threads, one per core; a few
    # reads that wait for a remote store would block them all.
    content = mapped_by_the_requesting_thread(tf.data.Dataset.from_tensors(path), tf.io.read_file)
    # On s3://, a denied read yields no element. The empty element then takes its place, and fails the size check.
    content = content.concatenate(tf.data.Dataset.from_tensors(''))
    return content.take(1).flat_map(lambda content: _serialize(content, _find_samples(_whole(content, path, size))))


def _whole(content: tf.Tensor, path: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """The content of a file, with an error at run time if it is not complete."""
    length = tf.cast(tf.strings.length(content), tf.int64)
    whole = tf.logical_or(tf.equal(size, 0), tf.equal(length, tf.cast(size, tf.int64)))
    with tf.control_dependencies([tf.Assert(whole, [path, remote.ENDED_EARLY, length, 'of', size])]):
        return tf.identity(content)


def _serialize(content: tf.Tensor, samples: _Samples) -> tf.data.Dataset:
    """The samples of a shard as strings: the label in decimal and the image; or the problem, in words."""
    labels = tf.strings.as_string(samples.label, width=_LABEL_DIGITS, fill='0')
    reasons = tf.gather([str(problem) for problem in Problem], samples.problem)
    labels = select(tf.equal(samples.problem, int(Problem.NONE)), labels, reasons)
    return tf.data.Dataset.from_tensor_slices((labels, samples.start, samples.size)).map(
        lambda label, start, size: tf.strings.join([label, tf.strings.substr(content, start, size)])
    )


def parse(serialized: tf.Tensor) -> ParsedRecord:
    """Parses a sample of `read`, a string scalar, with TensorFlow operations. It has no bounding boxes.

    Raises:
      tf.errors.InvalidArgumentError: at run time, for a sample that cannot be used.
    """
    # For an unusable sample, this is the beginning of its problem: not a number, so that the error quotes it.
    label = tf.strings.to_number(tf.strings.substr(serialized, 0, _LABEL_DIGITS), tf.int64)
    with tf.control_dependencies([label]):
        encoded = tf.strings.substr(serialized, _LABEL_DIGITS, tf.strings.length(serialized))
    return ParsedRecord(ppm.as_png(encoded), label, tf.zeros([1, 0, 4]))


def _find_samples(content: tf.Tensor) -> _Samples:
    """Finds the samples of a shard in its content, a string scalar."""
    raw = tf.io.decode_raw(content, tf.uint8)
    members = _find_members(raw)
    # A sample is a first member and all others before the next first one.
    sample = tf.cumsum(tf.cast(members.is_first, tf.int64)) - 1
    count = tf.reduce_sum(tf.cast(members.is_first, tf.int64))

    def number(flags: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(tf.cast(flags, tf.int64), sample, count)

    def of_only(flags: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(select(flags, values, 0), sample, count)

    is_image = any_of(*[tf.equal(members.extension, graph_names.packed(name)) for name in IMAGE_EXTENSIONS])
    is_label = tf.equal(members.extension, graph_names.packed(LABEL_EXTENSION))
    label_text = byte_tensors.texts(raw, members.start, members.size, LABEL_BYTES)
    label, is_number, is_not_blank = byte_tensors.number(label_text, 10)
    is_label_valid = all_of(is_number, is_not_blank, members.size <= LABEL_BYTES)
    image_bytes = of_only(is_image, members.size)
    # The last of these conditions that holds determines the problem.
    problem = tf.zeros([count], tf.int64)
    for holds, which in (
        (number(tf.logical_and(is_label, tf.logical_not(is_label_valid))) > 0, Problem.BAD_LABEL),
        (number(is_label) > 1, Problem.LABELS),
        (tf.equal(number(is_label), 0), Problem.NO_LABEL),
        (number(is_image) > 1, Problem.IMAGES),
        (tf.equal(image_bytes, 0), Problem.NO_IMAGE),
        (tf.equal(number(members.has_key), 0), Problem.FOREIGN),
        (number(members.is_truncated) > 0, Problem.TRUNCATED),
    ):
        problem = select(holds, int(which), problem)

    usable = tf.equal(problem, int(Problem.NONE))
    last = tf.reshape(members.shard_problem, [1])
    last = tf.boolean_mask(last, last > 0)
    none = tf.zeros_like(last)
    return _Samples(
        problem=tf.concat([problem, last], 0),
        label=tf.concat([of_only(is_label, label), none], 0),
        start=tf.concat([select(usable, of_only(is_image, members.start), 0), none], 0),
        size=tf.concat([select(usable, image_bytes, 0), none], 0),
    )


def _find_members(raw: tf.Tensor) -> _Members:
    """Finds the members of a shard, uint8 [bytes]."""
    count = byte_tensors.size(raw) // BLOCK
    blocks = tf.reshape(raw[: count * BLOCK], [-1, BLOCK])
    candidates = graph_headers.find_candidates(blocks)
    pax = graph_pax.parse(raw, candidates)
    sizes = select(pax.size >= 0, pax.size, candidates.size)
    is_extension = is_one_of(candidates.type, EXTENSIONS)
    is_valid = all_of(sizes >= 0, tf.logical_not(all_of(is_extension, sizes > EXTENSION_BYTES)))
    # An invalid size, or one larger than the shard, leads to no header.
    sizes = tf.clip_by_value(sizes, 0, byte_tensors.size(raw) + 1)
    sizes = select(is_one_of(candidates.type, WITHOUT_DATA), 0, sizes)
    begins = graph_headers.content_begins(blocks, candidates)
    after = begins + (sizes + BLOCK - 1) // BLOCK

    headers = graph_headers.chain(candidates.place, after, count)
    is_zero = tf.gather(candidates.is_zero, headers)
    # The first block that is not a valid header ends the members.
    stops = tf.where(any_of(is_zero, tf.logical_not(tf.gather(is_valid, headers))))[:, 0]
    stop = tf.concat([stops, [byte_tensors.size(headers)]], 0)[0]
    has_end = tf.reduce_any(is_zero[stop : stop + 1])
    headers = headers[:stop]
    stop_place = tf.concat([[0], tf.gather(after, headers)], 0)[-1]
    has_more = tf.reduce_any(tf.not_equal(raw[tf.minimum(stop_place * BLOCK, byte_tensors.size(raw)) :], 0))

    places, begins, sizes, types, is_extension = (
        tf.gather(each, headers) for each in (candidates.place, begins, sizes, candidates.type, is_extension)
    )
    pax = graph_pax.Pax(*[tf.gather(each, headers) for each in pax])
    names = graph_names.find_names(raw, places, tf.gather(blocks, places), sizes, pax)
    starts = begins * BLOCK
    is_truncated = starts + sizes > byte_tensors.size(raw)
    # A truncated extension header takes the place of the member that it belongs to.
    is_ignored = tf.logical_or(is_extension, graph_names.is_folder(types, names))
    members = tf.where(tf.logical_or(is_truncated, tf.logical_not(is_ignored)))[:, 0]
    starts, types, sizes, is_truncated, is_extension = (
        tf.gather(each, members) for each in (starts, types, sizes, is_truncated, is_extension)
    )
    names = names.gather(members)
    key, extension = graph_names.key_and_extension(names)
    has_key = all_of(key >= 0, is_one_of(types, REGULAR), tf.logical_not(is_extension))
    same_key = graph_names.same_key(names, key, has_key)
    follows = tf.concat([tf.zeros([1], tf.bool), same_key], 0)[: byte_tensors.size(members)]
    return _Members(
        starts,
        sizes,
        has_key,
        tf.logical_not(follows),
        extension,
        is_truncated,
        _shard_problem(has_end, has_more, stop_place < count, tf.reduce_any(is_truncated)),
    )


def _shard_problem(has_end: tf.Tensor, has_more: tf.Tensor, is_inside: tf.Tensor, is_truncated: tf.Tensor) -> tf.Tensor:
    """The `Problem` of a shard after its last member, int64 scalar.

    Args:
      has_end: bool scalar, whether a block of zeros follows the last member.
      has_more: bool scalar, whether other bytes than zeros follow the last member.
      is_inside: bool scalar, whether a whole block follows the last member.
      is_truncated: bool scalar, whether the shard ends within a member; the problem is then that member's.
    """
    problem = tf.zeros([], tf.int64)
    # The last of these conditions that holds determines the problem.
    for holds, which in (
        (tf.logical_not(has_end), Problem.NO_END),
        (tf.logical_and(tf.logical_not(has_end), is_inside), Problem.DAMAGED),
        (tf.logical_and(has_end, has_more), Problem.AFTER_END),
        (is_truncated, Problem.NONE),
    ):
        problem = select(holds, int(which), problem)
    return problem
