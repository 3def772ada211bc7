"""Parsing the pax headers of a tar shard with TensorFlow operations."""

from typing import NamedTuple, Tuple

from console.tensorflow_versions import tf
from data.tar import byte_tensors
from data.tar.byte_tensors import all_of, select, texts
from data.tar.graph_headers import Candidates, chain
from data.tar.layout import BLOCK, EXTENSION_BYTES, LABEL_BYTES, PAX

# Digits of the longest record length in a pax header.
_LENGTH_DIGITS = 7


class Pax(NamedTuple):
    """The contents of pax headers; each field is int64 [candidates], for the candidates for headers.

    Attributes:
      name_start: the position in the shard of the next member's name.
      name_length: the bytes of that name; 0 if the header has none.
      size: the size that the previous header gives for this member; -1 if it gives none.
    """

    name_start: tf.Tensor
    name_length: tf.Tensor
    size: tf.Tensor


class _Records(NamedTuple):
    """Records of pax headers, each field int64 [records]: the index of the header; positions of keyword and value."""

    owner: tf.Tensor
    key_start: tf.Tensor
    key_length: tf.Tensor
    value_start: tf.Tensor
    value_length: tf.Tensor


def parse(raw: tf.Tensor, headers: Candidates, keyword: bytes = b'path') -> Pax:
    """Parses the pax headers among candidates for headers.

    Args:
      raw: uint8 [bytes], the shard.
      headers: the candidates.
      keyword: that of the name, or of the name that the next member is a link to.
    """
    places = headers.place
    owners = tf.where(tf.equal(headers.type, ord(PAX)))[:, 0]
    candidates, blocks = byte_tensors.size(places), tf.gather(places, owners)
    sizes = tf.clip_by_value(tf.gather(headers.size, owners), 0, EXTENSION_BYTES)
    begins = (blocks + 1) * BLOCK
    # The content of a header contains no other header.
    ends = tf.minimum(begins + sizes, tf.concat([blocks[1:] * BLOCK, [byte_tensors.size(raw)]], 0))
    spans = tf.ragged.range(begins, tf.maximum(begins, ends))
    text, owner = tf.gather(raw, spans.flat_values), spans.value_rowids()
    records = _find_records(text, owner, spans.row_splits)

    def find(keyword: bytes) -> Tuple[tf.Tensor, tf.Tensor]:
        """The position of each header's value of a keyword in the shard, and its length; 0 if there is none."""
        letters = texts(text, records.key_start, records.key_length, len(keyword) + 1)
        matches = tf.reduce_all(tf.equal(letters, [*keyword, 0]), axis=1)
        is_it = tf.logical_and(matches, tf.equal(records.key_length, len(keyword)))
        order = tf.range(byte_tensors.size(is_it))
        last = tf.math.unsorted_segment_max(select(is_it, order, -1), records.owner, byte_tensors.size(owners))
        # Headers without the keyword refer to an additional element.
        safe = select(last >= 0, last, byte_tensors.size(is_it))
        start, length = (
            tf.gather(tf.concat([values, [0]], 0), safe) for values in (records.value_start, records.value_length)
        )
        positions = tf.concat([spans.flat_values, [0]], 0)
        return tf.gather(positions, tf.minimum(start, byte_tensors.size(text))), length

    name_start, name_length = find(keyword)
    size_start, size_length = find(b'size')
    value, is_number, is_not_blank = byte_tensors.number(texts(raw, size_start, size_length, LABEL_BYTES), 10)
    has_size = all_of(size_length <= LABEL_BYTES, is_number, is_not_blank)
    # The index of the next header, if it is a candidate; otherwise, the index of an additional element.
    after = blocks + 1 + (sizes + BLOCK - 1) // BLOCK
    index = tf.searchsorted(places, after, out_type=tf.int64)
    is_candidate = tf.equal(tf.gather(tf.concat([places, [-1]], 0), index), after)
    index = select(tf.logical_and(has_size, is_candidate), index, candidates)

    def of_candidates(values: tf.Tensor, indices: tf.Tensor, default: int) -> tf.Tensor:
        default = tf.fill([candidates + 1], tf.constant(default, tf.int64))
        return tf.tensor_scatter_nd_update(default, indices[:, tf.newaxis], values)[:-1]

    return Pax(
        name_start=of_candidates(name_start, owners, 0),
        name_length=of_candidates(name_length, owners, 0),
        size=of_candidates(value, index, -1),
    )


def _find_records(text: tf.Tensor, owner: tf.Tensor, splits: tf.Tensor) -> _Records:
    """Finds the records, `LENGTH KEYWORD=VALUE` and a line feed, of each header up to its first invalid record.

    Args:
      text: uint8 [letters], the contents of all headers.
      owner: int64 [letters], the index of the header of each letter.
      splits: int64 [headers + 1], the positions where headers begin, and the end of the last one.
    """
    count = byte_tensors.size(text)
    is_first = tf.not_equal(owner, tf.concat([[-1], owner], 0)[:-1])
    follows_line = tf.equal(tf.concat([[0], tf.cast(text, tf.int32)], 0)[:-1], ord('\n'))
    # The candidates for the beginning of a record. As with headers, the lengths are followed from the first one.
    may_begin = tf.logical_or(is_first, all_of(text - ord('0') < 10, follows_line))
    begin = tf.where(may_begin)[:, 0]
    limit = tf.gather(splits, tf.gather(owner, begin) + 1)
    letters = texts(text, begin, limit - begin, _LENGTH_DIGITS + 1)
    is_digit = tf.cast(tf.math.cumprod(tf.cast(letters - ord('0') < 10, tf.int64), axis=1), tf.bool)
    length, _, has_number = byte_tensors.number(select(is_digit, letters, 0), 10)
    digits = tf.reduce_sum(tf.cast(is_digit, tf.int64), axis=1)
    key = begin + digits + 1
    signs = tf.concat([tf.where(tf.equal(text, ord('=')))[:, 0], [count]], 0)
    sign = tf.gather(signs, tf.searchsorted(signs, tf.minimum(key, count), out_type=tf.int64))
    end = begin + length

    def letter(at: tf.Tensor) -> tf.Tensor:
        return tf.gather(text, tf.clip_by_value(at, 0, count - 1))

    is_record = all_of(
        has_number,
        digits <= _LENGTH_DIGITS,
        tf.equal(letter(key - 1), ord(' ')),
        sign + 1 < end,
        end <= limit,
        tf.equal(letter(end - 1), ord('\n')),
    )
    # After an invalid record, the chain continues with the next header.
    may_follow = tf.gather(tf.concat([may_begin, [True]], 0), tf.clip_by_value(end, 0, count))
    reached = chain(begin, select(tf.logical_and(is_record, may_follow), end, limit), count)
    reached = tf.boolean_mask(reached, tf.gather(is_record, reached))
    begin, key, sign, end = (tf.gather(each, reached) for each in (begin, key, sign, end))
    return _Records(tf.gather(owner, begin), key, sign - key, sign + 1, end - 1 - (sign + 1))
