"""Finds the samples of a tar shard, window by window, with TensorFlow operations.

A window begins with a sample. Its headers are parsed together, and its last sample is left for the next window, unless
the shard ends in this one. `data.tar.layout` defines a sample and its problems.

A block of 512 bytes may be a header if it has the checksum of one. It then gives the position of the next header. The
headers are the blocks that are reached by following these positions from the first block.
"""

from typing import NamedTuple, Tuple

from console.tensorflow_versions import either, tf
from data.tar.byte_tensors import all_of, any_of, is_one_of, number_in, select, size_of, texts, until_zero
from data.tar.layout import (
    BLANKS,
    BLOCK,
    DIRECTORY,
    EXTENSION_BYTES,
    EXTENSION_LETTERS,
    EXTENSIONS,
    HARD_LINK,
    IMAGE_EXTENSIONS,
    LABEL_BYTES,
    LABEL_EXTENSION,
    LABEL_FOUND,
    LONG_LINK,
    LONG_NAME,
    MAGIC_BEGINS,
    NAME_BYTES,
    PAX,
    POSIX_MAGIC,
    PREFIX,
    REGULAR,
    SPARSE,
    SPARSE_BLOCK_EXTENDED,
    SPARSE_EXTENDED,
    WITHOUT_DATA,
    Label,
    Problem,
)

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
    checksum, is_number, _ = number_in(field, 8)
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
    octal, is_octal, _ = number_in(rows[:, 124:136], 8)
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
    count = size_of(blocks) // BLOCK
    end = tf.gather(tf.concat([ends, [count]], 0), tf.searchsorted(ends, places + 2, out_type=tf.int64))
    return select(candidates.is_extended, end, places + 1)


def chain(places: tf.Tensor, after: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Follows the chain of headers from position 0 to the first position that is not a candidate.

    Each iteration doubles the number of known headers and the length of a jump. `places` has the positions of the
    candidates, `after` that of the next header if a candidate is one, both int64 [candidates]; there are `count`
    positions. Returns the headers in order, as indices of `places`.
    """
    candidates = size_of(places)
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

    An extension header belongs to the next header that is none.
    """
    member = tf.cumsum(tf.cast(tf.logical_not(is_extension), tf.int64), exclusive=True)
    return tf.gather(tf.math.unsorted_segment_min(places, member, size_of(places) + 1), member)


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


class _PaxRecords(NamedTuple):
    """Records of pax headers, each field int64 [records]: the index of the header; positions of keyword and value."""

    owner: tf.Tensor
    key_start: tf.Tensor
    key_length: tf.Tensor
    value_start: tf.Tensor
    value_length: tf.Tensor


def parse_pax(raw: tf.Tensor, headers: Candidates, keyword: bytes = b'path') -> Pax:
    """Parses the pax headers among candidates for headers.

    The keyword is that of the name, or of the name that the next member is a link to.
    """
    places = headers.place
    owners = tf.where(tf.equal(headers.type, ord(PAX)))[:, 0]
    candidates, blocks = size_of(places), tf.gather(places, owners)
    sizes = tf.clip_by_value(tf.gather(headers.size, owners), 0, EXTENSION_BYTES)
    begins = (blocks + 1) * BLOCK
    # The content of a header contains no other header.
    ends = tf.minimum(begins + sizes, tf.concat([blocks[1:] * BLOCK, [size_of(raw)]], 0))
    spans = tf.ragged.range(begins, tf.maximum(begins, ends))
    text, owner = tf.gather(raw, spans.flat_values), spans.value_rowids()
    records = _find_records(text, owner, spans.row_splits)

    def find(keyword: bytes) -> Tuple[tf.Tensor, tf.Tensor]:
        """The position of each header's value of a keyword in the shard, and its length; 0 if there is none."""
        letters = texts(text, records.key_start, records.key_length, len(keyword) + 1)
        matches = tf.reduce_all(tf.equal(letters, [*keyword, 0]), axis=1)
        is_it = tf.logical_and(matches, tf.equal(records.key_length, len(keyword)))
        order = tf.range(size_of(is_it))
        last = tf.math.unsorted_segment_max(select(is_it, order, -1), records.owner, size_of(owners))
        # Headers without the keyword refer to an additional element.
        safe = select(last >= 0, last, size_of(is_it))
        start, length = (
            tf.gather(tf.concat([values, [0]], 0), safe) for values in (records.value_start, records.value_length)
        )
        positions = tf.concat([spans.flat_values, [0]], 0)
        return tf.gather(positions, tf.minimum(start, size_of(text))), length

    name_start, name_length = find(keyword)
    size_start, size_length = find(b'size')
    value, is_number, is_not_blank = number_in(texts(raw, size_start, size_length, LABEL_BYTES), 10)
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


def _find_records(text: tf.Tensor, owner: tf.Tensor, splits: tf.Tensor) -> _PaxRecords:
    """Finds the records, `LENGTH KEYWORD=VALUE` and a line feed, of each header up to its first invalid record.

    `text`, uint8 [letters], has the contents of all headers; `owner` is the header of each letter, and `splits` are the
    positions where headers begin, and the end of the last one.
    """
    count = size_of(text)
    is_first = tf.not_equal(owner, tf.concat([[-1], owner], 0)[:-1])
    follows_line = tf.equal(tf.concat([[0], tf.cast(text, tf.int32)], 0)[:-1], ord('\n'))
    # The candidates for the beginning of a record. As with headers, the lengths are followed from the first one.
    may_begin = tf.logical_or(is_first, all_of(text - ord('0') < 10, follows_line))
    begin = tf.where(may_begin)[:, 0]
    limit = tf.gather(splits, tf.gather(owner, begin) + 1)
    letters = texts(text, begin, limit - begin, _LENGTH_DIGITS + 1)
    is_digit = tf.cast(tf.math.cumprod(tf.cast(letters - ord('0') < 10, tf.int64), axis=1), tf.bool)
    length, _, has_number = number_in(select(is_digit, letters, 0), 10)
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
    return _PaxRecords(tf.gather(owner, begin), key, sign - key, sign + 1, end - 1 - (sign + 1))


# Bytes of a header's first field, the name; and the place of that of a link's target, of the same length.
_FIELD, _LINK = 100, 157
# Factors of the letters in `hashes`, modulo 2**64, as signed numbers.
_FACTORS = [(pow(0x9E3779B97F4A7C15, place, 1 << 64) ^ 1 << 63) - (1 << 63) for place in range(1, NAME_BYTES + 1)]


class Names(NamedTuple):
    """Names of any length: uint8 [letters], with a zero at the end; int64 [names], start and length of each."""

    letters: tf.Tensor
    start: tf.Tensor
    length: tf.Tensor

    def gather(self, indices: tf.Tensor) -> 'Names':
        """The names at some indices."""
        return Names(self.letters, tf.gather(self.start, indices), tf.gather(self.length, indices))


def find_names(
    raw: tf.Tensor, places: tf.Tensor, rows: tf.Tensor, sizes: tf.Tensor, pax: Pax, of_links: bool = False
) -> Names:
    """The names of members, or those that members are links to.

    They are not padded, so that they are no longer than the shard even if one is very long.

    Args:
      raw: uint8 [bytes], the shard.
      places: int64 [members], the indices of their headers' blocks.
      rows: uint8 [members, 512], these blocks.
      sizes: int64 [members], the sizes of their contents.
      pax: the contents of the pax headers among the members, with the names that are to be found.
      of_links: find the names that members are links to.
    """
    field, long_name = (_LINK, LONG_LINK) if of_links else (0, LONG_NAME)
    types = rows[:, 156]
    is_extension = is_one_of(types, EXTENSIONS)
    # POSIX splits a long name over two fields, to be joined by a slash. Elsewhere, the second field has other values.
    prefix = until_zero(rows[:, PREFIX:500])
    has_prefix = tf.logical_and(tf.reduce_all(tf.equal(rows[:, 257:263], [*POSIX_MAGIC]), axis=1), not of_links)
    prefix = select(has_prefix, prefix, 0)
    start = places * BLOCK
    length = prefix + tf.cast(prefix > 0, tf.int64) + until_zero(rows[:, field : field + _FIELD])
    # For each member, the last extension header before it that contains its name.
    is_long_name = is_one_of(types, long_name)
    own_length = select(is_long_name, sizes, select(is_one_of(types, PAX), pax.name_length, 0))
    own_start = select(is_long_name, start + BLOCK, pax.name_start)
    member = tf.cumsum(tf.cast(tf.logical_not(is_extension), tf.int64), exclusive=True)
    count = size_of(places)
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
    place = select(letters < prefix, start + PREFIX, start + field - prefix - tf.cast(prefix > 0, tf.int64))
    place = select(is_named, own_start, place) + letters
    text = tf.gather(raw, tf.clip_by_value(place, 0, size_of(raw) - 1))
    text = select(all_of(tf.equal(letters, prefix), prefix > 0, tf.logical_not(is_named)), ord('/'), text)
    end = tf.math.unsorted_segment_min(select(tf.equal(text, 0), letters, NAME_BYTES), owner, size_of(length))
    length = tf.minimum(length, end)
    text = tf.boolean_mask(text, letters < tf.gather(length, owner))
    return Names(tf.concat([text, [0]], 0), tf.cumsum(length, exclusive=True), length)


def short_names(rows: tf.Tensor) -> Names:
    """The names of members that are in the first field of their headers alone: uint8 [members, 512]."""
    text = rows[:, :_FIELD]
    start = tf.range(size_of(rows) // BLOCK) * _FIELD
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
    members = size_of(names.length)
    slash = tf.math.unsorted_segment_max(select(tf.equal(text, ord('/')), place, -1), owner, members)
    is_dot = tf.logical_and(tf.equal(text, ord('.')), place > tf.gather(slash, owner))
    dot = tf.math.unsorted_segment_min(select(is_dot, place, NAME_BYTES), owner, members)
    last_dot = tf.math.unsorted_segment_max(select(is_dot, place, -1), owner, members)
    has_key = tf.logical_and(dot < names.length, dot > slash + 1)

    def extension(dot: tf.Tensor) -> tf.Tensor:
        dot = tf.clip_by_value(dot, 0, names.length)
        letters = texts(names.letters, names.start + dot + 1, names.length - dot - 1, EXTENSION_LETTERS)
        is_upper = tf.logical_and(letters >= ord('A'), letters <= ord('Z'))
        lower = tf.cast(select(is_upper, letters + (ord('a') - ord('A')), letters), tf.int64)
        number = tf.reduce_sum(lower * [256**place for place in range(EXTENSION_LETTERS)], axis=1)
        return select(has_key, number, 0)

    return select(has_key, dot, -1), extension(dot), extension(last_dot)


def hashes(names: Names) -> tf.Tensor:
    """A number for each name, int64 [names]; different names have the same one with a probability of 1 in 2**64."""
    spans = tf.ragged.range(names.start, names.start + names.length)
    letters, owner = tf.gather(names.letters, spans.flat_values), spans.value_rowids()
    factors = tf.gather(tf.constant(_FACTORS, tf.int64), spans.flat_values - tf.gather(names.start, owner))
    terms = (tf.cast(letters, tf.int64) + 1) * factors
    return tf.math.unsorted_segment_sum(terms, owner, size_of(names.length))


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
    total = tf.math.unsorted_segment_sum(differ, owner, size_of(same))
    return tf.logical_and(same, tf.equal(total, 0))


class Files(NamedTuple):
    """Regular files of a shard, in order; each field is int64 [files].

    Attributes:
      name: the number of the name, of `hashes`.
      start: the position of the content, in bytes; in a window, negative before it.
      size: its size in bytes.
      label: the number in the file, if it may be a label; -1 otherwise.
    """

    name: tf.Tensor
    start: tf.Tensor
    size: tf.Tensor
    label: tf.Tensor


def link_targets(names: tf.Tensor, is_file: tf.Tensor) -> tf.Tensor:
    """The index of the last file before each link that has the name of its target, int64 [members]; -1 if none has.

    The names are the numbers of those of files, and of the targets of links, both int64 [members].
    """
    # Stable: among equal names, each file precedes the links after it.
    order = tf.argsort(names, stable=True)
    names, is_file = tf.gather(names, order), tf.gather(is_file, order)
    # The place in this order of the last file up to each place; -1 if there is none.
    files = tf.concat([[-1], tf.where(is_file)[:, 0]], 0)
    last = tf.gather(files, tf.cumsum(tf.cast(is_file, tf.int64)))
    safe = tf.maximum(last, 0)
    found = tf.logical_and(last >= 0, tf.equal(tf.gather(names, safe), names))
    found = select(found, tf.cast(tf.gather(order, safe), tf.int64), -1)
    return tf.scatter_nd(order[:, tf.newaxis], found, tf.shape(found, out_type=order.dtype))


# Larger than any file, and small enough for sums without overflow.
_HUGE = 1 << 61


class Samples(NamedTuple):
    """Samples of a window, each field int64 [samples]: the `Problem`, the label, and the image's position and size."""

    problem: tf.Tensor
    label: tf.Tensor
    start: tf.Tensor
    size: tf.Tensor


class Remainder(NamedTuple):
    """The remainder of a shard after the samples of a window, four scalars.

    Attributes:
      start: int64, the position in the window of the next window's first byte.
      needed: int64, the bytes from there on without which no further sample is complete.
      is_read: bool, whether the last sample has been found: only the zeros after it are unchecked.
      is_unusable: bool, whether nothing that follows can be used. The reason is among the samples.
    """

    start: tf.Tensor
    needed: tf.Tensor
    is_read: tf.Tensor
    is_unusable: tf.Tensor


class _Members(NamedTuple):
    """The files of a window, and other members in the place of files. All fields are [members].

    Attributes:
      begin: int64, the position of the first of its headers, in bytes.
      start: int64, the position of the content, in bytes.
      size: int64, its size in bytes.
      is_first: bool, whether it is the first member of a sample, or of what is left out before any sample.
      extension: int64, as of `packed`; 0 if it is not a file whose name has a key.
      last_extension: int64, the same, from the last dot of the name on.
      is_truncated: bool, whether the shard ends within its content.
      name: int64, of `hashes`.
      is_file: bool, whether it is a regular file.
      target: int64, the index of the file that a hard link has the content of, among the files before the window and
        these members; -1 for others.
    """

    begin: tf.Tensor
    start: tf.Tensor
    size: tf.Tensor
    is_first: tf.Tensor
    extension: tf.Tensor
    last_extension: tf.Tensor
    is_truncated: tf.Tensor
    name: tf.Tensor
    is_file: tf.Tensor
    target: tf.Tensor


class _End(NamedTuple):
    """The end of the headers of a window, three scalars.

    Attributes:
      place: int64, the position after the last member, in bytes. It may be beyond the window.
      is_last: bool, whether this is the end of the members of the shard, not only of the window.
      problem: int64, the `Problem` of the shard after its last member.
    """

    place: tf.Tensor
    is_last: tf.Tensor
    problem: tf.Tensor


def find(raw: tf.Tensor, remaining: tf.Tensor, label: Label, files: Files) -> Tuple[Samples, Remainder, Files]:
    """Finds the samples of a window, which begins with a header. Also returns the files before the next window.

    `raw` is uint8 [bytes], the window; `remaining` has the bytes of the shard from its beginning on; `files` are those
    before it.
    """
    members, end = _find_members(raw, remaining, files)
    # A sample is a first member and all others before the next first one.
    sample = tf.cumsum(tf.cast(members.is_first, tf.int64)) - 1
    count = tf.reduce_sum(tf.cast(members.is_first, tf.int64))
    samples, is_sample, labels = _samples(raw, members, sample, count, label, files.label)
    # The last sample may go on in the next window.
    complete = select(end.is_last, count, tf.maximum(count - 1, 0))
    last = tf.reshape(end.problem, [1])
    last = tf.boolean_mask(last, last > 0)
    none = tf.zeros_like(last)
    begins = tf.boolean_mask(members.begin, members.is_first)
    begin = tf.concat([begins, [0]], 0)[complete]
    found = [tf.boolean_mask(each[:complete], is_sample[:complete]) for each in samples]
    is_passed = tf.logical_and(members.is_file, sample < complete)
    passed = [tf.boolean_mask(each, is_passed) for each in (members.name, members.start, members.size, labels)]
    return (
        Samples(tf.concat([found[0], last], 0), *[tf.concat([each, none], 0) for each in found[1:]]),
        Remainder(
            start=begin,
            needed=end.place + BLOCK - begin,
            is_read=end.is_last,
            is_unusable=tf.logical_or(end.problem > 0, tf.reduce_any(members.is_truncated)),
        ),
        Files(*[tf.concat(both, 0) for both in zip(files, passed)]),
    )


def _samples(
    raw: tf.Tensor, members: _Members, sample: tf.Tensor, count: tf.Tensor, label: Label, labels_before: tf.Tensor
) -> Tuple[Samples, tf.Tensor, tf.Tensor]:
    """The samples of members; bool [samples], whether each is one, or is left out; int64 [members], as `Files.label`.

    `sample`, int64 [members], is the sample of each member, of `count` samples. `labels_before` is `Files.label` of the
    files before the window.
    """

    def number(flags: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(tf.cast(flags, tf.int64), sample, count)

    def of_only(flags: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(select(flags, values, 0), sample, count)

    def is_any(extension: tf.Tensor, *names: str) -> tf.Tensor:
        return any_of(*[tf.equal(extension, packed(name)) for name in names])

    is_image = is_any(members.extension, *IMAGE_EXTENSIONS)
    is_label = is_any(members.extension, label.extension)
    is_part = is_any(members.last_extension, *IMAGE_EXTENSIONS, LABEL_EXTENSION)
    numbers = _labels(raw, members, is_label, label)
    of_target = tf.gather(tf.concat([labels_before, numbers], 0), tf.maximum(members.target, 0))
    numbers = select(members.target >= 0, of_target, numbers)
    image_bytes = of_only(is_image, members.size)
    # The last of these conditions that holds determines the problem.
    problem = tf.zeros([count], tf.int64)
    for holds, which in (
        (number(tf.logical_and(is_label, numbers < 0)) > 0, Problem.BAD_LABEL),
        (number(is_label) > 1, Problem.LABELS),
        (tf.equal(number(is_label), 0), Problem.NO_LABEL),
        (number(is_image) > 1, Problem.IMAGES),
        (tf.equal(image_bytes, 0), Problem.NO_IMAGE),
        (number(members.is_truncated) > 0, Problem.TRUNCATED),
    ):
        problem = select(holds, int(which), problem)
    usable = tf.equal(problem, int(Problem.NONE))
    samples = Samples(
        problem=problem,
        label=of_only(is_label, numbers),
        start=select(usable, of_only(is_image, members.start), 0),
        size=select(usable, image_bytes, 0),
    )
    return samples, number(tf.logical_or(is_part, members.is_truncated)) > 0, numbers


def _labels(raw: tf.Tensor, members: _Members, is_label: tf.Tensor, label: Label) -> tf.Tensor:
    """The numbers in the files of labels, int64 [members]; -1 in others, in links and in files without a number."""
    is_label = tf.logical_and(is_label, members.is_file)
    if not label.key:
        text = texts(raw, members.start, members.size, LABEL_BYTES)
        number, is_number, is_not_blank = number_in(text, 10)
        return select(all_of(is_label, is_number, is_not_blank, members.size <= LABEL_BYTES), number, -1)
    count = size_of(members.start)
    end = tf.minimum(members.start + members.size, size_of(raw))
    spans = tf.ragged.range(members.start, select(is_label, tf.maximum(end, members.start), members.start))
    letters = tf.gather([bytes([byte]) for byte in range(256)], tf.cast(tf.gather(raw, spans.flat_values), tf.int32))
    found = tf.strings.unsorted_segment_join(letters, spans.value_rowids(), count)
    for expression, replacement in label.replacements():
        found = tf.strings.regex_replace(found, expression, replacement)
    found = tf.where_v2(tf.strings.regex_full_match(found, LABEL_FOUND), found, '=-1')
    return tf.strings.to_number(tf.strings.substr(found, 1, LABEL_BYTES), tf.int64)


def _find_members(raw: tf.Tensor, remaining: tf.Tensor, files: Files) -> Tuple[_Members, _End]:
    """Finds the members of a window; see `find` for the arguments. The last one may go on after the window."""
    count = size_of(raw) // BLOCK
    blocks = tf.reshape(raw[: count * BLOCK], [-1, BLOCK])
    candidates = find_candidates(blocks)
    stops = tf.concat([tf.where(candidates.is_zero)[:, 0], [size_of(candidates.place)]], 0)
    given = (raw, remaining, blocks, stops[0], *files, *candidates)
    return either(_are_plain(candidates, stops[0]), _plain_members, _any_members, *given)


def _are_plain(candidates: Candidates, stop: tf.Tensor) -> tf.Tensor:
    """Whether all headers are those of regular files with short names, as webdataset and `tar-shards` write them.

    Each candidate before the first block of zeros, of which there are `stop`, must follow the content of the one before
    it, and so must the zeros.
    """
    places, size = candidates.place[: stop + 1], candidates.size[:stop]
    after = candidates.place[:stop] + 1 + (size + BLOCK - 1) // BLOCK
    expected = tf.concat([[0], after], 0)[: size_of(places)]
    return all_of(
        stop > 0,
        tf.reduce_all(tf.equal(places, expected)),
        tf.reduce_all(candidates.is_plain[:stop]),
    )


def _plain_members(
    raw: tf.Tensor, remaining: tf.Tensor, blocks: tf.Tensor, stop: tf.Tensor, *columns: tf.Tensor
) -> Tuple[_Members, _End]:
    """The same as `_any_members` for candidates that `_are_plain`, with a third of the operations."""
    found = Candidates(*columns[len(Files._fields) :])
    places, sizes = found.place[:stop], found.size[:stop]
    begins = places * BLOCK
    starts = begins + BLOCK
    is_truncated = starts + sizes > remaining
    stop_place = places[-1] + 1 + (sizes[-1] + BLOCK - 1) // BLOCK
    end = _end(raw, stop_place, size_of(found.place) > stop, tf.reduce_any(is_truncated), remaining)
    names = short_names(tf.gather(blocks, places))
    is_file, target = tf.ones_like(is_truncated), -tf.ones_like(sizes)
    return _members(begins, starts, sizes, is_truncated, names, hashes(names), is_file, target), end


def _members(
    begins: tf.Tensor,
    starts: tf.Tensor,
    sizes: tf.Tensor,
    is_truncated: tf.Tensor,
    names: Names,
    name: tf.Tensor,
    is_file: tf.Tensor,
    target: tf.Tensor,
) -> _Members:
    """The members with these names; the other arguments are fields of `_Members`."""
    key, *extensions = key_and_extensions(names)
    has_key = tf.logical_and(key >= 0, tf.logical_or(is_file, target >= 0))
    # Members that are left out do not separate the files of a sample.
    counted = tf.logical_or(has_key, is_truncated)
    kept = tf.where(counted)
    has_same_key = same_key(names.gather(kept[:, 0]), *[tf.gather(each, kept[:, 0]) for each in (key, has_key)])
    follows = tf.concat([tf.zeros([1], tf.bool), has_same_key], 0)[: size_of(kept)]
    follows = tf.scatter_nd(kept, tf.cast(follows, tf.int64), [size_of(key)]) > 0
    is_before = tf.equal(tf.cumsum(tf.cast(counted, tf.int64)), 0)
    is_first = tf.logical_or(is_before, tf.logical_and(counted, tf.logical_not(follows)))
    extension, last_extension = (select(has_key, each, 0) for each in extensions)
    given = (is_truncated, name, is_file, target)
    return _Members(begins, starts, sizes, is_first, extension, last_extension, *given)


def _any_members(
    raw: tf.Tensor, remaining: tf.Tensor, blocks: tf.Tensor, stop: tf.Tensor, *columns: tf.Tensor
) -> Tuple[_Members, _End]:
    """The members among any candidates. The arguments are those of `_find_members` and `_are_plain`."""
    files, candidates = Files(*columns[: len(Files._fields)]), Candidates(*columns[len(Files._fields) :])
    pax = parse_pax(raw, candidates)
    is_extension = is_one_of(candidates.type, EXTENSIONS)
    # The size in a pax header is that of a file, not that of another extension header before it.
    sizes = select(all_of(pax.size >= 0, tf.logical_not(is_extension)), pax.size, candidates.size)
    is_valid = all_of(sizes >= 0, tf.logical_not(all_of(is_extension, sizes > EXTENSION_BYTES)))
    # An invalid size leads to no header, as one that is larger than the shard.
    sizes = select(sizes >= 0, tf.minimum(sizes, _HUGE), _HUGE)
    sizes = select(is_one_of(candidates.type, WITHOUT_DATA), 0, sizes)
    begins = content_begins(blocks, candidates)
    after = begins + (sizes + BLOCK - 1) // BLOCK

    headers = chain(candidates.place, after, size_of(blocks) // BLOCK)
    is_zero = tf.gather(candidates.is_zero, headers)
    # The first block that is not a valid header ends the members.
    stops = tf.where(any_of(is_zero, tf.logical_not(tf.gather(is_valid, headers))))[:, 0]
    stop = tf.concat([stops, [size_of(headers)]], 0)[0]
    has_end = tf.reduce_any(is_zero[stop : stop + 1])
    headers = headers[:stop]
    stop_place = tf.concat([[0], tf.gather(after, headers)], 0)[-1]
    starts = tf.gather(begins, headers) * BLOCK
    is_truncated = starts + tf.gather(sizes, headers) > remaining
    end = _end(raw, stop_place, has_end, tf.reduce_any(is_truncated), remaining)

    places, begins, sizes, types, is_extension = (
        tf.gather(each, headers) for each in (candidates.place, begins, sizes, candidates.type, is_extension)
    )
    pax = Pax(*[tf.gather(each, headers) for each in pax])
    parsed = (raw, places, tf.gather(blocks, places), sizes)
    names = find_names(*parsed, pax)
    starts = begins * BLOCK
    is_truncated = starts + sizes > remaining
    # A truncated extension header takes the place of the member that it belongs to.
    is_ignored = tf.logical_or(is_extension, is_folder(types, names))
    members = tf.where(tf.logical_or(is_truncated, tf.logical_not(is_ignored)))[:, 0]
    firsts = first_headers(places, is_extension) * BLOCK
    firsts, starts, types, sizes, is_truncated, is_extension = (
        tf.gather(each, members) for each in (firsts, starts, types, sizes, is_truncated, is_extension)
    )
    is_file = all_of(is_one_of(types, REGULAR), tf.logical_not(is_extension))
    is_link = is_one_of(types, HARD_LINK)
    names = names.gather(members)
    name = hashes(names)
    given = (*parsed, headers, members, is_link, is_file, name, files.name, *columns[len(Files._fields) :])
    target = either(tf.reduce_any(is_link), _targets, lambda *given: -tf.ones_like(given[8]), *given)
    starts, sizes = (
        select(target >= 0, tf.gather(tf.concat(both, 0), tf.maximum(target, 0)), both[1])
        for both in ((files.start, starts), (files.size, sizes))
    )
    return _members(firsts, starts, sizes, is_truncated, names, name, is_file, target), end


def _targets(
    raw: tf.Tensor,
    places: tf.Tensor,
    rows: tf.Tensor,
    sizes: tf.Tensor,
    headers: tf.Tensor,
    members: tf.Tensor,
    is_link: tf.Tensor,
    is_file: tf.Tensor,
    name: tf.Tensor,
    names_before: tf.Tensor,
    *candidates: tf.Tensor,
) -> tf.Tensor:
    """The field `target` of `_Members`; the arguments are from `_any_members`, the first four for `find_names`."""
    pax = Pax(*[tf.gather(each, headers) for each in parse_pax(raw, Candidates(*candidates), b'linkpath')])
    to = find_names(raw, places, rows, sizes, pax, of_links=True).gather(members)
    names = tf.concat([names_before, select(is_link, hashes(to), name)], 0)
    is_file = tf.concat([tf.ones_like(names_before, tf.bool), is_file], 0)
    return select(is_link, link_targets(names, is_file)[size_of(names_before) :], -1)


def _end(
    raw: tf.Tensor, stop_place: tf.Tensor, has_end: tf.Tensor, is_truncated: tf.Tensor, remaining: tf.Tensor
) -> _End:
    """The end of the headers of a window.

    `stop_place` is the index of the block after the last member, and `has_end` whether it is a block of zeros. If the
    shard ends within a member, the problem is that member's. `remaining` has the bytes of the shard from the beginning
    of the window on.
    """
    length = size_of(raw)
    has_more = tf.reduce_any(tf.not_equal(raw[tf.minimum(stop_place * BLOCK, length) :], 0))
    is_inside = stop_place < length // BLOCK
    reaches_end = length >= remaining
    problem = tf.zeros([], tf.int64)
    # The last of these conditions that holds determines the problem.
    for holds, which in (
        (tf.logical_and(tf.logical_not(has_end), reaches_end), Problem.NO_END),
        (tf.logical_and(tf.logical_not(has_end), is_inside), Problem.DAMAGED),
        (tf.logical_and(has_end, has_more), Problem.AFTER_END),
        (is_truncated, Problem.NONE),
    ):
        problem = select(holds, int(which), problem)
    return _End(stop_place * BLOCK, any_of(is_inside, is_truncated, reaches_end), problem)
