"""Finds the samples of a tar shard, window by window, with TensorFlow operations.

A window begins with a sample. Its headers are parsed together, and its last sample is left for the next window, unless
the shard ends in this one. `data.tar.layout` defines a sample and its problems.

A block of 512 bytes may be a header if it has the checksum of one. It then gives the position of the next header. The
headers are the blocks that are reached by following these positions from the first block.
"""

import functools
from typing import NamedTuple, Tuple, Union

from compat import tf
from compat.tensorflow import either
from data.tar import layout
from data.tar.layout import BLOCK, Label, Problem

# The bytes of a number, including zero, of which an empty header consists.
_NUMERIC = b'01234567' + layout.BLANKS
# Four of the eight bytes of a word.
_EVEN_BYTES = 0x00FF00FF00FF00FF
# The place of the name in a header, and its length.
_NAME, _FIELD = 0, 100
# Each byte as a character: bytes in any encoding become valid UTF-8, which regular expressions need.
_CHARACTERS = [chr(byte).encode() for byte in range(256)]
# Matches the key of a name, up to the first dot of the file name, and its extension; otherwise, nothing.
_KEY_AND_EXTENSION = r'^(?s:((?:.*/)?[^./]+)\.([^/]*))$|^(?s:.*)$'


class Samples(NamedTuple):
    """Samples of a window, each field int64 [samples]: the `Problem`, the label, and the image's position and size."""

    problem: tf.Tensor
    label: tf.Tensor
    start: tf.Tensor
    size: tf.Tensor


class Remainder(NamedTuple):
    """The remainder of a shard after the samples of a window, four scalars."""

    start: tf.Tensor  # int64, the position in the window of the next window's first byte.
    needed: tf.Tensor  # int64, the fewest bytes from there on that can complete another sample.
    is_read: tf.Tensor  # bool, whether the last sample has been found: only the zeros after it are unchecked.
    is_unusable: tf.Tensor  # bool, whether the remainder is unusable. The reason is among the samples.


class Files(NamedTuple):
    """Regular files of a window, in order; each field is int64 [files]."""

    start: tf.Tensor  # The position of the content in the window, in bytes.
    size: tf.Tensor  # Its size in bytes.
    label: tf.Tensor  # The number in the file, if it may be a label; -1 otherwise.


def find(raw: tf.Tensor, remaining: tf.Tensor, label: Label) -> Tuple[Samples, Remainder]:
    """Finds the samples of a window, which begins with a header.

    `raw` is uint8 [bytes], the window; `remaining` is the number of bytes of the shard from the window's beginning on.
    """
    places, rows, sizes, stop_place, has_end = _headers(raw)
    types, starts, count = rows[:, 156], (places + 1) * BLOCK, size_of(places)
    is_truncated = starts + sizes > remaining
    problem, is_last = _end(raw, stop_place, has_end, tf.reduce_any(is_truncated), remaining)
    # The headers with a member's extensions precede its own header.
    member = tf.cumsum(tf.cast(tf.logical_not(is_one_of(types, layout.EXTENSIONS)), tf.int64), exclusive=True)
    begins = tf.gather(tf.math.unsorted_segment_min(places * BLOCK, member, count + 1), member)
    # The headers that webdataset and `tar-shards` write.
    is_plain = tf.reduce_all(tf.logical_and(tf.equal(types, ord('0')), tf.equal(rows[:, layout.PREFIX], 0)))
    names = either(is_plain, _plain_names, _any_names, raw, rows, starts, sizes, member)

    keys, extensions = (tf.strings.regex_replace(names, _KEY_AND_EXTENSION, part) for part in (r'\1', r'\2'))
    extensions = tf.strings.lower(extensions)
    has_key = tf.logical_and(tf.not_equal(keys, ''), is_one_of(types, layout.REGULAR))
    is_label = tf.logical_and(tf.equal(extensions, label.extension), has_key)
    files = Files(starts, sizes, _labels(raw, starts, select(is_label, sizes, 0), label))

    # Other members are left out, and do not separate the files of a sample.
    parts = tf.where(tf.logical_or(has_key, is_truncated))[:, 0]
    keys, extensions, is_label, is_truncated = (
        tf.gather(each, parts) for each in (tf.where_v2(has_key, keys, ''), extensions, is_label, is_truncated)
    )
    is_first = tf.logical_or(tf.not_equal(keys, tf.concat([[''], keys], 0)[:-1]), tf.equal(keys, ''))
    samples, is_sample = _samples(
        tf.cumsum(tf.cast(is_first, tf.int64)) - 1,
        Files(*[tf.gather(each, parts) for each in files]),
        is_image=tf.strings.regex_full_match(extensions, layout.IMAGES),
        is_label=is_label,
        is_part=tf.logical_or(tf.strings.regex_full_match(extensions, layout.PARTS), is_truncated),
        is_truncated=is_truncated,
    )
    # The last sample may continue in the next window. Without samples, the next window begins with the last member.
    complete = size_of(is_sample)
    complete = select(is_last, complete, tf.maximum(complete - 1, 0))
    begin = tf.concat([tf.boolean_mask(tf.gather(begins, parts), is_first), begins[-1:], [0]], 0)[complete]
    found = [tf.boolean_mask(each[:complete], is_sample[:complete]) for each in samples]
    last = tf.boolean_mask([problem], [problem > 0])
    return (
        Samples(tf.concat([found[0], last], 0), *[tf.concat([each, tf.zeros_like(last)], 0) for each in found[1:]]),
        Remainder(
            start=begin,
            needed=(stop_place + 1) * BLOCK - begin,
            is_read=is_last,
            is_unusable=tf.logical_or(problem > 0, tf.reduce_any(is_truncated)),
        ),
    )


def _headers(raw: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """The headers of a window, up to the first block that should be one and is not.

    Returns the indices of their blocks, int64 [headers]; these blocks, uint8 [headers, 512]; the sizes of the contents,
    int64 [headers]; the index of the block after the last content, int64 scalar, which may be beyond the window; and
    whether that block has the zeros that end a shard, bool scalar.
    """
    count = size_of(raw) // BLOCK
    blocks = tf.reshape(raw[: count * BLOCK], [-1, BLOCK])
    # The first byte of the magic and the last bytes of the checksum: few blocks of image data have such bytes in these
    # places, so few are examined further.
    may_be = all_of(
        is_one_of(blocks[:, 257], layout.MAGIC_BEGINS), *[is_one_of(blocks[:, at], _NUMERIC) for at in (149, 151)]
    )
    places = tf.where(may_be)[:, 0]
    rows = tf.gather(blocks, places)
    sums = _sums(rows)
    # In the sum, the checksum's own field counts as blanks.
    field = rows[:, 148:156]
    in_blanks = sums + tf.reduce_sum(ord(' ') - tf.cast(field, tf.int64), 1)
    checksum, is_number = _octal(field)
    is_zero = tf.equal(sums, 0)
    is_candidate = tf.logical_or(is_zero, tf.logical_and(is_number, tf.equal(in_blanks, checksum)))
    places, is_zero, rows = (tf.boolean_mask(each, is_candidate) for each in (places, is_zero, rows))
    sizes = _sizes(rows)
    after = places + 1 + (sizes + BLOCK - 1) // BLOCK
    headers = chain(places, after, count)
    stops = tf.where(tf.logical_or(tf.gather(is_zero, headers), tf.gather(sizes, headers) < 0))[:, 0]
    stop = tf.concat([stops, [size_of(headers)]], 0)[0]
    has_end = tf.reduce_any(tf.gather(is_zero, headers[stop : stop + 1]))
    headers = headers[:stop]
    stop_place = tf.concat([[0], tf.gather(after, headers)], 0)[-1]
    places, rows, sizes = (tf.gather(each, headers) for each in (places, rows, sizes))
    return places, rows, sizes, stop_place, has_end


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


def _octal(text: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """Parses octal numbers with optional blanks before and after them, uint8 [numbers, letters].

    Returns the values, int64 [numbers], 0 if there are only blanks; and whether each text is a number or blank.
    """
    # In unsigned arithmetic, letters below '0' wrap around to values above 7.
    digits = text - ord('0')
    is_digit = digits < 8
    counted = tf.cast(is_digit, tf.int64)
    # 1 at the beginning of a number, and -1 after its end.
    edges = tf.pad(counted, [[0, 0], [0, 1]]) - tf.pad(counted, [[0, 0], [1, 0]])
    begins = tf.reduce_sum(tf.maximum(edges, 0), axis=1)
    power = tf.cumsum(counted, axis=1, exclusive=True, reverse=True)
    factors = tf.gather(tf.constant([8**i for i in range(text.shape[1] + 1)], tf.int64), power)
    value = tf.reduce_sum(tf.cast(digits, tf.int64) * counted * factors, axis=1)
    is_valid = tf.reduce_all(tf.logical_or(is_digit, is_one_of(text, layout.BLANKS)), axis=1)
    return value, tf.logical_and(is_valid, begins <= 1)


def _sizes(rows: tf.Tensor) -> tf.Tensor:
    """The sizes of the contents after headers, int64 [headers]: octal, or binary if the first bit is set.

    -1 stands for an invalid size, and for members that cannot be skipped.
    """
    octal, is_octal = _octal(rows[:, 124:136])
    first, high, types = rows[:, 124], rows[:, 125:129], rows[:, 156]
    binary = tf.reduce_sum(tf.cast(rows[:, 129:136], tf.int64) * [256**i for i in reversed(range(7))], axis=1)
    is_binary = tf.logical_and(tf.equal(first, 0x80), tf.reduce_all(tf.equal(high, 0), axis=1))
    size = select(first >= 0x80, binary, octal)
    is_long = tf.logical_and(is_one_of(types, layout.EXTENSIONS), size > layout.EXTENSION_BYTES)
    is_valid = all_of(
        tf.logical_or(is_octal, is_binary), tf.logical_not(tf.logical_or(is_long, is_one_of(types, layout.SPARSE)))
    )
    return select(is_valid, select(is_one_of(types, layout.WITHOUT_DATA), 0, size), -1)


def chain(places: tf.Tensor, after: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Follows the chain of headers from position 0 to the first position that is not a candidate.

    Each iteration doubles the number of known headers and the length of a jump. `places` has the positions of the
    candidates, `after` the position of the next header if the candidate is a header, both int64 [candidates]; there are
    `count` positions. Returns the headers in order, as indices of `places`.
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


def _end(
    raw: tf.Tensor, stop_place: tf.Tensor, has_end: tf.Tensor, is_truncated: tf.Tensor, remaining: tf.Tensor
) -> Tuple[tf.Tensor, tf.Tensor]:
    """The `Problem` of the shard after its last member, int64, and whether this is the end of its members; two scalars.

    `stop_place` and `has_end` are from `_headers`. If the shard ends within a member, the problem is that member's.
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
    return problem, functools.reduce(tf.logical_or, [is_inside, is_truncated, reaches_end])


def _plain_names(raw: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor, sizes: tf.Tensor, member: tf.Tensor) -> tf.Tensor:
    """The same as `_any_names` for regular files whose names are in one field of their headers."""
    return _field(raw, rows, starts, _NAME, _FIELD)


def _any_names(raw: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor, sizes: tf.Tensor, member: tf.Tensor) -> tf.Tensor:
    """The names of members, strings [headers].

    `raw` is the window, uint8 [bytes]; `rows` uint8 [headers, 512]; `starts` and `sizes` int64 [headers] of the
    contents; `member` int64 [headers], the number of the member that each header belongs to.
    """
    types, order = rows[:, 156], tf.range(size_of(starts))
    # POSIX splits a long name over two fields, to be joined by a slash. Other formats use the second field otherwise.
    is_posix = tf.reduce_all(tf.equal(rows[:, 257:263], [*layout.POSIX_MAGIC]), axis=1)
    prefix = tf.where_v2(is_posix, _field(raw, rows, starts, layout.PREFIX, 155), '')
    slash = tf.where_v2(tf.equal(prefix, ''), '', '/')
    field = tf.strings.join([prefix, slash, _field(raw, rows, starts, _NAME, _FIELD)])
    is_long, is_pax = is_one_of(types, layout.LONG_NAME), is_one_of(types, layout.PAX)
    content = strings_at(raw, starts, select(tf.logical_or(is_long, is_pax), sizes, 0))
    # The name in the last extension of each member; in its fields, if it has no extension.
    extended = tf.where_v2(is_long, tf.strings.join(['=', content]), _pax_path(tf.where_v2(is_pax, content, '')))
    last = tf.math.unsorted_segment_max(select(tf.equal(extended, ''), -1, order), member, size_of(starts) + 1)
    last = tf.gather(last, member)
    name = tf.where_v2(last >= 0, tf.gather(extended, tf.maximum(last, 0)), tf.strings.join(['=', field]))
    longest = tf.fill(tf.shape(order), _int64(layout.NAME_BYTES))
    name = tf.strings.substr(name, tf.ones_like(order), longest, unit=_BYTES)
    return tf.strings.regex_replace(name, r'\x00(?s:.*)', '')


def _field(raw: tf.Tensor, rows: tf.Tensor, starts: tf.Tensor, at: int, length: int) -> tf.Tensor:
    """The text in a field of headers up to its first zero, strings [headers]; the arguments are as in `_any_names`."""
    ends = tf.pad(tf.cast(tf.equal(rows[:, at : at + length], 0), tf.int8), [[0, 0], [0, 1]], constant_values=1)
    return strings_at(raw, starts - BLOCK + at, tf.argmax(ends, axis=1))


def _pax_path(text: tf.Tensor) -> tf.Tensor:
    """The last value of `path` in pax headers, strings [headers]: `=` and the value, or nothing.

    Records, `LENGTH KEYWORD=VALUE` and a line feed, are read up to the first invalid one; `text` is strings [headers].
    """

    def read_one(count: tf.Tensor, text: tf.Tensor, path: tf.Tensor) -> Tuple[tf.Tensor, ...]:
        digits = tf.strings.regex_replace(text, r'^(?s:(\d{1,7}) .*)$|^(?s:.*)$', r'0\1')
        length = tf.strings.to_number(digits, tf.int64)
        record = tf.strings.substr(text, tf.zeros_like(length), length, unit=_BYTES)
        is_record = tf.logical_and(
            tf.strings.regex_full_match(record, r'\d+ [^=]+=(?s:.*)\n'),
            tf.equal(tf.strings.length(record, unit=_BYTES), tf.cast(length, tf.int32)),
        )
        length = select(is_record, length, 0)
        rest = tf.strings.substr(text, length, tf.fill(tf.shape(length), _int64(layout.EXTENSION_BYTES)), unit=_BYTES)
        is_path = tf.logical_and(is_record, tf.strings.regex_full_match(record, r'\d+ path=(?s:.*)'))
        path = tf.where_v2(is_path, tf.strings.regex_replace(record, r'^\d+ \w+(=(?s:.*))\n$', r'\1'), path)
        return count + 1, tf.where_v2(is_record, rest, ''), path

    return tf.while_loop(
        lambda count, text, _: tf.logical_and(count < layout.PAX_RECORDS, tf.reduce_any(tf.not_equal(text, ''))),
        read_one,
        (0, text, tf.zeros_like(text)),
    )[2]


def _labels(raw: tf.Tensor, starts: tf.Tensor, sizes: tf.Tensor, label: Label) -> tf.Tensor:
    """The numbers in contents of these sizes, int64 [headers]; -1 if one holds no label."""
    sizes = sizes if label.key else select(sizes > layout.LABEL_BYTES, 0, sizes)
    found = strings_at(raw, starts, sizes)
    for expression, replacement in label.replacements():
        found = tf.strings.regex_replace(found, expression, replacement)
    found = tf.where_v2(tf.strings.regex_full_match(found, layout.LABEL_FOUND), found, '=-1')
    return tf.strings.to_number(tf.strings.substr(found, 1, layout.LABEL_BYTES), tf.int64)


def _samples(
    sample: tf.Tensor,
    files: Files,
    is_image: tf.Tensor,
    is_label: tf.Tensor,
    is_part: tf.Tensor,
    is_truncated: tf.Tensor,
) -> Tuple[Samples, tf.Tensor]:
    """The samples of files, and for each whether it is a sample or left out, bool [samples].

    All arguments are [files]; `sample`, int64, is the number of the sample of each file.
    """
    count = tf.concat([[0], sample + 1], 0)[-1]

    def number(flags: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(tf.cast(flags, tf.int64), sample, count)

    def of_only(flags: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(select(flags, values, 0), sample, count)

    image_bytes = of_only(is_image, files.size)
    # The last of these conditions that holds determines the problem.
    problem = tf.zeros([count], tf.int64)
    for holds, which in (
        (number(tf.logical_and(is_label, files.label < 0)) > 0, Problem.BAD_LABEL),
        (number(is_label) > 1, Problem.LABELS),
        (tf.equal(number(is_label), 0), Problem.NO_LABEL),
        (number(is_image) > 1, Problem.IMAGES),
        (tf.equal(image_bytes, 0), Problem.NO_IMAGE),
        (number(is_truncated) > 0, Problem.TRUNCATED),
    ):
        problem = select(holds, int(which), problem)
    usable = tf.equal(problem, int(Problem.NONE))
    start, size = (select(usable, each, 0) for each in (of_only(is_image, files.start), image_bytes))
    return Samples(problem, of_only(is_label, files.label), start, size), number(is_part) > 0


# ---- Bytes and conditions

# The characters of `strings_at` are bytes.
_BYTES = 'UTF8_CHAR'


def strings_at(raw: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Pieces of `raw`, uint8 [bytes], as strings [pieces] with a character for each byte, of `_CHARACTERS`."""
    ends = tf.maximum(starts, tf.minimum(starts + lengths, size_of(raw)))
    spans = tf.ragged.range(starts, ends)
    letters = tf.gather(_CHARACTERS, tf.cast(tf.gather(raw, spans.flat_values), tf.int32))
    return tf.strings.unsorted_segment_join(letters, spans.value_rowids(), size_of(starts))


def is_one_of(values: tf.Tensor, allowed: bytes) -> tf.Tensor:
    """Whether each byte of `values`, uint8, is in `allowed`: bool, in the shape of `values`."""
    return tf.gather([byte in allowed for byte in range(256)], tf.cast(values, tf.int32))


def all_of(*conditions: tf.Tensor) -> tf.Tensor:
    """The logical AND of conditions."""
    return functools.reduce(tf.logical_and, conditions)


def select(condition: tf.Tensor, yes: Union[tf.Tensor, int], no: Union[tf.Tensor, int]) -> tf.Tensor:
    """`tf.where` with broadcasting; a Python number takes the type of the tensor."""
    dtype = next(each.dtype for each in (yes, no) if not isinstance(each, int))
    return tf.where_v2(condition, tf.cast(yes, dtype), tf.cast(no, dtype))


def size_of(tensor: tf.Tensor) -> tf.Tensor:
    """The number of elements, int64 scalar."""
    return tf.size(tensor, out_type=tf.int64)


def _int64(number: int) -> tf.Tensor:
    return tf.constant(number, tf.int64)
