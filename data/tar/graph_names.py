"""The names of a tar shard's members, and their keys and extensions, with TensorFlow operations."""

from typing import NamedTuple, Tuple

from console.tensorflow_versions import tf
from data.tar import byte_tensors
from data.tar.byte_tensors import all_of, is_one_of, select, until_zero
from data.tar.graph_pax import Pax
from data.tar.layout import (
    BLOCK,
    DIRECTORY,
    EXTENSION_LETTERS,
    EXTENSIONS,
    LONG_NAME,
    NAME_BYTES,
    PAX,
    POSIX_MAGIC,
    PREFIX,
)

# Bytes of a header's first field, the name.
_FIELD = 100


class Names(NamedTuple):
    """Names of any length: uint8 [letters], with a zero at the end; int64 [names], start and length of each."""

    letters: tf.Tensor
    start: tf.Tensor
    length: tf.Tensor

    def gather(self, indices: tf.Tensor) -> 'Names':
        """The names at some indices."""
        return Names(self.letters, tf.gather(self.start, indices), tf.gather(self.length, indices))


def find_names(raw: tf.Tensor, places: tf.Tensor, rows: tf.Tensor, sizes: tf.Tensor, pax: Pax) -> Names:
    """The names of members. They are not padded, so that they are no longer than the shard even if one is very long.

    Args:
      raw: uint8 [bytes], the shard.
      places: int64 [members], the indices of their headers' blocks.
      rows: uint8 [members, 512], these blocks.
      sizes: int64 [members], the sizes of their contents.
      pax: the contents of the pax headers among the members.
    """
    types = rows[:, 156]
    is_extension = is_one_of(types, EXTENSIONS)
    # POSIX splits a long name over two fields, to be joined by a slash. Elsewhere, the second field has other values.
    prefix = until_zero(rows[:, PREFIX:500])
    prefix = select(tf.reduce_all(tf.equal(rows[:, 257:263], [*POSIX_MAGIC]), axis=1), prefix, 0)
    start = places * BLOCK
    length = prefix + tf.cast(prefix > 0, tf.int64) + until_zero(rows[:, :_FIELD])
    # For each member, the last extension header before it that contains its name.
    is_long_name = is_one_of(types, LONG_NAME)
    own_length = select(is_long_name, sizes, select(is_one_of(types, PAX), pax.name_length, 0))
    own_start = select(is_long_name, start + BLOCK, pax.name_start)
    member = tf.cumsum(tf.cast(tf.logical_not(is_extension), tf.int64), exclusive=True)
    count = byte_tensors.size(places)
    namer = tf.math.unsorted_segment_max(select(own_length > 0, tf.range(count), -1), member, count + 1)
    namer = tf.gather(namer, member)
    is_named = tf.logical_and(namer >= 0, tf.logical_not(is_extension))
    namer = tf.maximum(namer, 0)
    length = tf.minimum(select(is_named, tf.gather(own_length, namer), length), NAME_BYTES)

    spans = tf.ragged.range(tf.zeros_like(length), length)
    letters, owner = spans.flat_values, spans.value_rowids()
    start, prefix, is_named, own_start = (
        tf.gather(each, owner) for each in (start, prefix, is_named, tf.gather(own_start, namer))
    )
    # The positions of the letters: of the prefix, the slash, and the first field; or in the extension header.
    place = select(letters < prefix, start + PREFIX, start - prefix - tf.cast(prefix > 0, tf.int64))
    place = select(is_named, own_start, place) + letters
    text = tf.gather(raw, tf.clip_by_value(place, 0, byte_tensors.size(raw) - 1))
    text = select(all_of(tf.equal(letters, prefix), prefix > 0, tf.logical_not(is_named)), ord('/'), text)
    end = tf.math.unsorted_segment_min(select(tf.equal(text, 0), letters, NAME_BYTES), owner, byte_tensors.size(length))
    length = tf.minimum(length, end)
    text = tf.boolean_mask(text, letters < tf.gather(length, owner))
    return Names(tf.concat([text, [0]], 0), tf.cumsum(length, exclusive=True), length)


def short_names(rows: tf.Tensor) -> Names:
    """The names of members that are in the first field of their headers alone: uint8 [members, 512]."""
    text = rows[:, :_FIELD]
    start = tf.range(byte_tensors.size(rows) // BLOCK) * _FIELD
    return Names(tf.concat([tf.reshape(text, [-1]), [0]], 0), start, until_zero(text))


def is_folder(types: tf.Tensor, names: Names) -> tf.Tensor:
    """Whether members are folders. In the oldest archives, only a slash at the end of the name marks a folder."""
    last = tf.gather(names.letters, tf.maximum(names.start + names.length - 1, 0))
    slash = tf.logical_and(names.length > 0, tf.equal(last, ord('/')))
    return tf.logical_or(is_one_of(types, DIRECTORY), tf.logical_and(tf.equal(types, 0), slash))


def key_and_extensions(names: Names) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The length of each name's key, -1 if it has none, and its extensions from the first and from the last dot on.

    All are int64 [names], the extensions as of `packed`; 0 if there is no key.
    """
    spans = tf.ragged.range(names.start, names.start + names.length)
    text, owner = tf.gather(names.letters, spans.flat_values), spans.value_rowids()
    place = spans.flat_values - tf.gather(names.start, owner)
    members = byte_tensors.size(names.length)
    slash = tf.math.unsorted_segment_max(select(tf.equal(text, ord('/')), place, -1), owner, members)
    is_dot = tf.logical_and(tf.equal(text, ord('.')), place > tf.gather(slash, owner))
    dot = tf.math.unsorted_segment_min(select(is_dot, place, NAME_BYTES), owner, members)
    last_dot = tf.math.unsorted_segment_max(select(is_dot, place, -1), owner, members)
    has_key = tf.logical_and(dot < names.length, dot > slash + 1)

    def extension(dot: tf.Tensor) -> tf.Tensor:
        dot = tf.clip_by_value(dot, 0, names.length)
        letters = byte_tensors.texts(names.letters, names.start + dot + 1, names.length - dot - 1, EXTENSION_LETTERS)
        is_upper = tf.logical_and(letters >= ord('A'), letters <= ord('Z'))
        lower = tf.cast(select(is_upper, letters + (ord('a') - ord('A')), letters), tf.int64)
        number = tf.reduce_sum(lower * [256**place for place in range(EXTENSION_LETTERS)], axis=1)
        return select(has_key, number, 0)

    return select(has_key, dot, -1), extension(dot), extension(last_dot)


def packed(extension: str) -> int:
    """The bytes of an extension as one integer, for comparisons."""
    return int.from_bytes(extension.encode(), 'little')


def same_key(names: Names, key: tf.Tensor, has_key: tf.Tensor) -> tf.Tensor:
    """Whether each name except the first has the same key as the name before it, bool [names - 1].

    Args:
      names: the names.
      key: int64 [names], the lengths of their keys.
      has_key: bool [names].
    """
    same = all_of(tf.equal(key[1:], key[:-1]), has_key[1:], has_key[:-1])
    spans = tf.ragged.range(names.start[1:], names.start[1:] + select(same, key[1:], 0))
    place, owner = spans.flat_values, spans.value_rowids()
    before = place + tf.gather(names.start[:-1] - names.start[1:], owner)
    differ = tf.cast(tf.not_equal(tf.gather(names.letters, place), tf.gather(names.letters, before)), tf.int64)
    total = tf.math.unsorted_segment_sum(differ, owner, byte_tensors.size(same))
    return tf.logical_and(same, tf.equal(total, 0))
