"""Finding the headers of a tar shard with TensorFlow operations.

A block of 512 bytes may be a header if it has the checksum of one. It then gives the position of the next header. The
headers are the blocks that are reached by following these positions from the first block.
"""

from typing import NamedTuple, Tuple

from console.tensorflow_versions import tf
from data.tar import byte_tensors
from data.tar.byte_tensors import all_of, any_of, is_one_of, select
from data.tar.layout import BLANKS, BLOCK, MAGIC_BEGINS, PREFIX, SPARSE, SPARSE_BLOCK_EXTENDED, SPARSE_EXTENDED

# The bytes of a number. Those of an empty header, zeros, are among them.
_NUMERIC = b'01234567' + BLANKS
# Four of the eight bytes of a word.
_EVEN_BYTES = 0x00FF00FF00FF00FF


class Candidates(NamedTuple):
    """Blocks that may be headers, each field [candidates].

    Attributes:
      place: int64, the index of the block.
      is_zero: bool, whether it is all zeros, as at the end of a shard.
      type: uint8, the type of the member.
      size: int64, the size of the member's content; -1 if it is invalid.
      is_extended: bool, whether blocks with the positions of a sparse file's pieces precede the content.
      is_plain: bool, whether it is a regular file with a valid size, whose name is in the header's first field alone.
    """

    place: tf.Tensor
    is_zero: tf.Tensor
    type: tf.Tensor
    size: tf.Tensor
    is_extended: tf.Tensor
    is_plain: tf.Tensor


def find_candidates(blocks: tf.Tensor) -> Candidates:
    """Finds the blocks that have the checksum of a header or are all zeros, wherever they are.

    Args:
      blocks: uint8 [blocks, 512].
    """
    # Few blocks of image data have such bytes in these places, so few are examined further: the magic begins here, and
    # the checksum ends.
    may_be = all_of(is_one_of(blocks[:, 257], MAGIC_BEGINS), *[is_one_of(blocks[:, at], _NUMERIC) for at in (149, 151)])
    places = tf.where(may_be)[:, 0]
    rows = tf.gather(blocks, places)
    sums = _sums(rows)
    # In the sum, the checksum's own field counts as blanks.
    field = rows[:, 148:156]
    in_blanks = sums + tf.reduce_sum(ord(' ') - tf.cast(field, tf.int64), 1)
    checksum, is_number, _ = byte_tensors.number(field, 8)
    is_zero = tf.equal(sums, 0)
    is_candidate = any_of(is_zero, all_of(is_number, tf.equal(in_blanks, checksum)))
    places, is_zero, rows = (tf.boolean_mask(each, is_candidate) for each in (places, is_zero, rows))
    size, has_size = _size_field(rows)
    types = rows[:, 156]
    is_extended = all_of(is_one_of(types, SPARSE), rows[:, SPARSE_EXTENDED] > 0)
    is_plain = all_of(tf.equal(types, ord('0')), has_size, tf.equal(rows[:, PREFIX], 0))
    return Candidates(places, is_zero, types, select(has_size, size, -1), is_extended, is_plain)


def _sums(rows: tf.Tensor) -> tf.Tensor:
    """The sums of the bytes of blocks, uint8 [blocks, 512]: int64 [blocks].

    Words of eight bytes are added, as four sums of 16 bits in a word. Copying the bytes to larger numbers would take
    many times their memory, and in shards of small images most blocks are examined.
    """
    words = tf.bitcast(tf.reshape(rows, [-1, BLOCK // 8, 8]), tf.int64)
    even_and_odd = (tf.bitwise.bitwise_and(each, _EVEN_BYTES) for each in (words, tf.bitwise.right_shift(words, 8)))
    # At most 128 times 255, below the sign of the highest sum.
    sums = tf.reduce_sum(tf.add(*even_and_odd), axis=1)
    return tf.add_n([tf.bitwise.bitwise_and(tf.bitwise.right_shift(sums, 16 * i), 0xFFFF) for i in range(4)])


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
