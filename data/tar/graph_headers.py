"""Finding the headers of a tar shard with TensorFlow operations.

A block of 512 bytes may be a header if it has the checksum of one. It then gives the position of the next header. The
headers are the blocks that are reached by following these positions from the first block.
"""

from typing import NamedTuple, Tuple

from console.tensorflow_versions import tf
from data.tar import byte_tensors
from data.tar.byte_tensors import all_of, is_one_of, select
from data.tar.layout import BLANKS, BLOCK, MAGIC_BEGINS, SPARSE, SPARSE_BLOCK_EXTENDED, SPARSE_EXTENDED

# Blocks that are examined at a time.
_PIECE = 64
# The bytes of a number. Those of an empty header, zeros, are among them.
_NUMERIC = b'01234567' + BLANKS


class Candidates(NamedTuple):
    """Blocks that may be headers, each field [candidates].

    Attributes:
      place: int64, the index of the block.
      is_zero: bool, whether it is all zeros, as at the end of a shard.
      type: uint8, the type of the member.
      size: int64, the size of the member's content; -1 if it is invalid.
      is_extended: bool, whether blocks with the positions of a sparse file's pieces precede the content.
    """

    place: tf.Tensor
    is_zero: tf.Tensor
    type: tf.Tensor
    size: tf.Tensor
    is_extended: tf.Tensor


def find_candidates(blocks: tf.Tensor) -> Candidates:
    """Finds the blocks that have the checksum of a header or are all zeros, wherever they are.

    Blocks are examined in groups of `_PIECE`. The int32 copies and intermediate values take many times the memory of
    the blocks, and in shards of small images most blocks are examined.

    Args:
      blocks: uint8 [blocks, 512].
    """
    # Few blocks of image data have such bytes in these places, so few are examined further: the magic begins here, and
    # the checksum ends.
    may_be = all_of(is_one_of(blocks[:, 257], MAGIC_BEGINS), *[is_one_of(blocks[:, at], _NUMERIC) for at in (149, 151)])
    places = tf.where(may_be)[:, 0]
    count = byte_tensors.size(places)

    def of_piece(start: tf.Tensor) -> tf.Tensor:
        piece = tf.minimum(start + tf.range(_PIECE, dtype=tf.int64), count - 1)
        rows = tf.gather(blocks, tf.gather(places, piece))
        size, has_size = _size_field(rows)
        types = rows[:, 156]
        columns = (
            _has_checksum(rows),
            tf.reduce_all(tf.equal(rows, 0), axis=1),
            types,
            select(has_size, size, -1),
            all_of(is_one_of(types, SPARSE), rows[:, SPARSE_EXTENDED] > 0),
        )
        return tf.stack([tf.cast(column, tf.int64) for column in columns])

    found = tf.map_fn(of_piece, tf.range(0, count, _PIECE), tf.int64, parallel_iterations=1, back_prop=False)
    found = tf.reshape(tf.transpose(found, [1, 0, 2]), [found.shape[1], -1])[:, :count]
    has_checksum, is_zero = found[0] > 0, found[1] > 0
    is_candidate = tf.logical_or(has_checksum, is_zero)
    places, is_zero, types, sizes, is_extended = (
        tf.boolean_mask(each, is_candidate) for each in (places, is_zero, found[2], found[3], found[4] > 0)
    )
    return Candidates(places, is_zero, tf.cast(types, tf.uint8), sizes, is_extended)


def _has_checksum(rows: tf.Tensor) -> tf.Tensor:
    """Whether blocks, uint8 [blocks, 512], have the checksum of a header, bool [blocks]."""
    numbers = tf.cast(rows, tf.int32)
    # In the sum, the checksum's own field counts as blanks.
    total = tf.reduce_sum(numbers, 1) + tf.reduce_sum(ord(' ') - numbers[:, 148:156], 1)
    checksum, is_number, _ = byte_tensors.number(rows[:, 148:156], 8)
    return tf.logical_and(is_number, tf.equal(tf.cast(total, tf.int64), checksum))


def _size_field(rows: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """The sizes in headers, int64 [headers], and whether they are valid: octal, or binary if the first bit is set."""
    octal, is_octal, _ = byte_tensors.number(rows[:, 124:136], 8)
    first, high = rows[:, 124], rows[:, 125:129]
    low = tf.cast(rows[:, 129:136], tf.int64)
    binary = tf.reduce_sum(low * [256**i for i in reversed(range(7))], axis=1)
    is_binary = tf.logical_and(tf.equal(first, 0x80), tf.reduce_all(tf.equal(high, 0), axis=1))
    return select(first >= 0x80, binary, octal), tf.logical_or(is_octal, is_binary)


def content_begins(blocks: tf.Tensor, candidates: Candidates) -> tf.Tensor:
    """The index of the block where the content of each candidate begins, int64 [candidates]."""
    places = candidates.place
    # The last block of positions is the first that announces no other block; there may be none in a truncated shard.
    ends = tf.where(tf.equal(blocks[:, SPARSE_BLOCK_EXTENDED], 0))[:, 0] + 1
    count = byte_tensors.size(blocks) // BLOCK
    end = tf.gather(tf.concat([ends, [count]], 0), tf.searchsorted(ends, places + 2, out_type=tf.int64))
    return select(candidates.is_extended, end, places + 1)


def chain(places: tf.Tensor, after: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Follows the chain of headers from position 0 to the first position that is not a candidate.

    Each iteration doubles the number of known headers and the length of a jump.

    Args:
      places: int64 [candidates], the positions of the candidates.
      after: int64 [candidates], the position of the next header, provided that the candidate is a header.
      count: int64 scalar, the number of positions.

    Returns:
      int64 [headers], the headers in order, as indices of `places`.
    """
    candidates = byte_tensors.size(places)
    # The candidate at each position, and the successor of each candidate; the value `candidates` means none.
    at = tf.tensor_scatter_nd_update(tf.fill([count + 1], candidates), places[:, tf.newaxis], tf.range(candidates))
    jump = tf.concat([tf.gather(at, tf.minimum(after, count)), [candidates]], 0)

    def double(headers: tf.Tensor, jump: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
        # The first n headers, and jumps of n steps, become 2n.
        return tf.concat([headers, tf.gather(jump, headers)], 0), tf.gather(jump, jump)

    headers, _ = tf.while_loop(
        lambda headers, jump: headers[-1] < candidates,
        double,
        (at[:1], jump),
        shape_invariants=(tf.TensorShape([None]), tf.TensorShape([None])),
    )
    return tf.boolean_mask(headers, headers < candidates)


def first_headers(places: tf.Tensor, is_extension: tf.Tensor) -> tf.Tensor:
    """The position of each header, or of the first of the extension headers before it, int64 [headers].

    Args:
      places: int64 [headers], their positions.
      is_extension: bool [headers], whether each belongs to the next header that is no extension.
    """
    member = tf.cumsum(tf.cast(tf.logical_not(is_extension), tf.int64), exclusive=True)
    return tf.gather(tf.math.unsorted_segment_min(places, member, byte_tensors.size(places) + 1), member)
