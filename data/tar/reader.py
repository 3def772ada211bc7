"""Reading tar shards in the input pipeline, by TensorFlow operations alone: a TPU's hosts have no Python.

A shard is read as a whole, and all its headers are looked at together. A block of 512 bytes may be a header if one of
its bytes says so, and then it says where the next one would be; following that from the first block on, in leaps that
double, finds those that are. What a sample is, and what is wrong with it, `data.tar_layout` says.
"""

import functools
from typing import NamedTuple, Tuple, Union

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

from data import ppm, remote
from data.records import ParsedRecord
from data.tar.layout import (
    BLANKS,
    BLOCK,
    BLOCK_GOES_ON,
    DIRECTORY,
    EXTENSION_BYTES,
    EXTENSIONS,
    HEADER_GOES_ON,
    IMAGE_EXTENSIONS,
    LABEL_BYTES,
    LABEL_EXTENSION,
    LONG_NAME,
    MAGIC_BEGINS,
    NAME_BYTES,
    PAX,
    POSIX_MAGIC,
    REGULAR,
    SPARSE,
    WITHOUT_DATA,
    Problem,
)

# Blocks that are looked at together.
_PIECE = 256
# What a sample begins with when it is handed on: its label, in as many digits, or why it cannot be used.
_LABEL_DIGITS = 20
# The name of an extension that is compared: the longest of those that count, and a byte to tell longer ones.
_EXTENSION_LETTERS = 5
# The longest length that stands before a pax record.
_PAX_DIGITS = 7


class _Samples(NamedTuple):
    """Samples of a shard, each field int64 [samples]: the `Problem`, the label, and where the image is in the shard."""

    problem: tf.Tensor
    label: tf.Tensor
    start: tf.Tensor
    size: tf.Tensor


class _Candidates(NamedTuple):
    """Blocks that may be headers, each field [candidates].

    Attributes:
      place: int64, the block.
      is_zero: bool, whether it is all zeros, as at the end of a shard.
      type: uint8, of the member.
      size: int64, what it says of that; -1 if that is no size.
      goes_on: bool, whether other blocks with what it says stand between it and the content.
    """

    place: tf.Tensor
    is_zero: tf.Tensor
    type: tf.Tensor
    size: tf.Tensor
    goes_on: tf.Tensor


class _Pax(NamedTuple):
    """What pax headers say, each field int64, of candidates for headers.

    Attributes:
      name_start: where in the shard one has the next member's name.
      name_length: the bytes of that name; 0 if it has none.
      size: what the one before says of this one's size; -1 if nothing.
    """

    name_start: tf.Tensor
    name_length: tf.Tensor
    size: tf.Tensor


class _Texts(NamedTuple):
    """Texts, one after the other: uint8 [letters], with a zero at the end; where each begins, and how long it is."""

    letters: tf.Tensor
    start: tf.Tensor
    length: tf.Tensor


def read(path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
    """The samples of a shard in order, string scalars for `parse`; those that cannot be used are among them.

    The shard is in memory as long as it is read, and at the beginning twice.

    Args:
      path: string scalar, the shard.
      size: int64 scalar, its bytes; 0 where whoever refuses it says so.
    """
    # In the thread that asks for it: of those that operations share there is one for each of the machine's cores, and a
    # few that wait for an answer from elsewhere are all.
    content = dataset_ops.MapDataset(
        tf.data.Dataset.from_tensors(path), tf.io.read_file, use_inter_op_parallelism=False
    )
    # Where a refusal looks like the end of the file, the first of these is empty.
    content = content.concatenate(tf.data.Dataset.from_tensors(''))
    return content.take(1).flat_map(lambda content: _cut_out(content, _find(_whole(content, path, size))))


def _whole(content: tf.Tensor, path: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """The content of a file, if that is all of it."""
    length = _length(content)
    whole = tf.logical_or(tf.equal(size, 0), tf.equal(length, tf.cast(size, tf.int64)))
    with tf.control_dependencies([tf.Assert(whole, [path, remote.ENDED_EARLY, length, 'of', size])]):
        return tf.identity(content)


def _cut_out(content: tf.Tensor, samples: _Samples) -> tf.data.Dataset:
    """The samples of a shard, each a string of the label and the image."""
    labels = tf.strings.as_string(samples.label, width=_LABEL_DIGITS, fill='0')
    reasons = tf.gather([str(problem) for problem in Problem], samples.problem)
    labels = _select(tf.equal(samples.problem, int(Problem.NONE)), labels, reasons)
    return tf.data.Dataset.from_tensor_slices((labels, samples.start, samples.size)).map(
        lambda label, start, size: tf.strings.join([label, tf.strings.substr(content, start, size)])
    )


def parse(serialized: tf.Tensor) -> ParsedRecord:
    """Parses a sample, a string scalar that `reader` made, as TensorFlow operations. It has no bounding boxes.

    When they run, a sample that cannot be used raises tf.errors.InvalidArgumentError.
    """
    # Where there is no label, this is no number but the reason, and the error says it.
    label = tf.strings.to_number(tf.strings.substr(serialized, 0, _LABEL_DIGITS), tf.int64)
    with tf.control_dependencies([label]):
        encoded = tf.strings.substr(serialized, _LABEL_DIGITS, tf.strings.length(serialized))
    return ParsedRecord(ppm.as_png(encoded), label, tf.zeros([1, 0, 4]))


def _find(content: tf.Tensor) -> _Samples:
    """Finds the samples of a shard, given its content, a string scalar."""
    raw = tf.io.decode_raw(content, tf.uint8)
    count = _size(raw) // BLOCK
    blocks = tf.reshape(raw[: count * BLOCK], [-1, BLOCK])
    # Few blocks of images have one of these bytes here: what follows looks at few blocks.
    places = tf.where(_is_one_of(blocks[:, 257], MAGIC_BEGINS))[:, 0]
    candidates = _candidates(blocks, places)
    places, types = candidates.place, candidates.type
    pax = _pax(raw, candidates)
    sizes = _select(pax.size >= 0, pax.size, candidates.size)
    is_extension = _is_one_of(types, EXTENSIONS)
    fits = tf.logical_not(tf.logical_and(is_extension, sizes > EXTENSION_BYTES))
    is_sound = tf.logical_and(sizes >= 0, fits)
    # Sizes that are larger than the shard, or none, lead nowhere.
    sizes = tf.clip_by_value(sizes, 0, _size(raw) + 1)
    sizes = _select(_is_one_of(types, WITHOUT_DATA), 0, sizes)
    begins = _content_begins(blocks, candidates)
    after = begins + (sizes + BLOCK - 1) // BLOCK

    headers = _chain(places, after, count)
    is_zero = tf.gather(candidates.is_zero, headers)
    # What follows the first that is no header is none, either.
    stops = tf.where(_any(is_zero, tf.logical_not(tf.gather(is_sound, headers))))[:, 0]
    stop = tf.concat([stops, [_size(headers)]], 0)[0]
    ended = tf.reduce_any(is_zero[stop : stop + 1])
    headers = headers[:stop]
    stop_place = tf.concat([[0], tf.gather(after, headers)], 0)[-1]
    more = tf.reduce_any(tf.not_equal(raw[tf.minimum(stop_place * BLOCK, _size(raw)) :], 0))

    places, begins, sizes, types, is_extension = (
        tf.gather(each, headers) for each in (places, begins, sizes, types, is_extension)
    )
    pax = _Pax(*[tf.gather(each, headers) for each in pax])
    names = _names(raw, places, tf.gather(blocks, places), sizes, pax)
    starts = begins * BLOCK
    is_truncated = starts + sizes > _size(raw)
    # An extension that is cut short stands for the member that it belongs to.
    is_member = tf.logical_or(is_truncated, tf.logical_not(tf.logical_or(is_extension, _is_folder(types, names))))
    members = tf.where(is_member)[:, 0]
    starts, types, sizes, is_truncated, is_extension = (
        tf.gather(each, members) for each in (starts, types, sizes, is_truncated, is_extension)
    )
    names = _Texts(names.letters, tf.gather(names.start, members), tf.gather(names.length, members))

    # Members that stand together and share a key are a sample; one without a key is a sample of its own.
    key, extension = _key_and_extension(names)
    has_key = tf.logical_and(key >= 0, tf.logical_and(_is_one_of(types, REGULAR), tf.logical_not(is_extension)))
    goes_on = tf.concat([tf.zeros([1], tf.bool), _same_key(names, key, has_key)], 0)[: _size(members)]
    is_first = tf.logical_not(goes_on)
    sample = tf.cumsum(tf.cast(is_first, tf.int64)) - 1
    samples = tf.reduce_sum(tf.cast(is_first, tf.int64))

    def number(flags: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(tf.cast(flags, tf.int64), sample, samples)

    def of_only(flags: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(_select(flags, values, 0), sample, samples)

    is_image = _any(*[tf.equal(extension, _packed(name)) for name in IMAGE_EXTENSIONS])
    is_label = tf.equal(extension, _packed(LABEL_EXTENSION))
    labels, is_whole_number = _labels(raw, starts, sizes)
    images, image_bytes = number(is_image), of_only(is_image, sizes)
    # The first of these that holds is the sample's problem.
    problem = tf.zeros([samples], tf.int64)
    for holds, which in (
        (number(tf.logical_and(is_label, tf.logical_not(is_whole_number))) > 0, Problem.BAD_LABEL),
        (number(is_label) > 1, Problem.LABELS),
        (tf.equal(number(is_label), 0), Problem.NO_LABEL),
        (images > 1, Problem.IMAGES),
        (tf.equal(image_bytes, 0), Problem.NO_IMAGE),
        (tf.logical_not(number(has_key) > 0), Problem.FOREIGN),
        (number(is_truncated) > 0, Problem.TRUNCATED),
    ):
        problem = _select(holds, int(which), problem)

    fine = tf.equal(problem, int(Problem.NONE))
    image_starts = of_only(is_image, starts)

    # Why there are no more.
    last = tf.zeros([], tf.int64)
    for holds, which in (
        (tf.logical_not(ended), Problem.NO_END),
        (tf.logical_and(tf.logical_not(ended), stop_place < count), Problem.DAMAGED),
        (tf.logical_and(ended, more), Problem.AFTER_END),
        (tf.reduce_any(is_truncated), Problem.NONE),
    ):
        last = _select(holds, int(which), last)
    last = tf.reshape(last, [1])
    last = tf.boolean_mask(last, last > 0)
    none = tf.zeros_like(last)
    return _Samples(
        problem=tf.concat([problem, last], 0),
        label=tf.concat([of_only(is_label, labels), none], 0),
        start=tf.concat([_select(fine, image_starts, 0), none], 0),
        size=tf.concat([_select(fine, image_bytes, 0), none], 0),
    )


def _content_begins(blocks: tf.Tensor, candidates: _Candidates) -> tf.Tensor:
    """The block where the content of each candidate begins, int64 [candidates]."""
    places = candidates.place
    # Where what a header says has ended, with the first block that does not go on, or with the shard.
    ends = tf.where(tf.equal(blocks[:, BLOCK_GOES_ON], 0))[:, 0] + 1
    count = _size(blocks) // BLOCK
    end = tf.gather(tf.concat([ends, [count]], 0), tf.searchsorted(ends, places + 2, out_type=tf.int64))
    return _select(candidates.goes_on, end, places + 1)


def _chain(places: tf.Tensor, after: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """The blocks that are headers, in order, as indices of `places`, int64 [headers]; up to a place that is none.

    Args:
      places: int64 [candidates], the blocks that may be headers.
      after: int64 [candidates], the block that follows, if one is, and its member.
      count: int64 scalar, the number of blocks.
    """
    candidates = _size(places)
    # The candidate in each block, and from each the next; the last stands for none.
    at = tf.tensor_scatter_nd_update(tf.fill([count + 1], candidates), places[:, tf.newaxis], tf.range(candidates))
    jump = tf.concat([tf.gather(at, tf.minimum(after, count)), [candidates]], 0)

    def leap(headers: tf.Tensor, jump: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
        # The first n headers, and where n steps lead.
        return tf.concat([headers, tf.gather(jump, headers)], 0), tf.gather(jump, jump)

    headers, _ = tf.while_loop(
        lambda headers, jump: headers[-1] < candidates,
        leap,
        (at[:1], jump),
        shape_invariants=(tf.TensorShape([None]), tf.TensorShape([None])),
    )
    return tf.boolean_mask(headers, headers < candidates)


def _candidates(blocks: tf.Tensor, places: tf.Tensor) -> _Candidates:
    """Those of some blocks that are headers, or all zeros, wherever they stand.

    In pieces: where images are small, most blocks are looked at, and what that takes is many times as large as they.

    Args:
      blocks: uint8 [blocks, 512].
      places: int64 [some], the blocks that are looked at.
    """
    count = _size(places)

    def of_piece(start: tf.Tensor) -> tf.Tensor:
        piece = tf.minimum(start + tf.range(_PIECE, dtype=tf.int64), count - 1)
        rows = tf.gather(blocks, tf.gather(places, piece))
        size, has_size = _size_field(rows)
        types = rows[:, 156]
        return tf.stack(
            [
                tf.cast(each, tf.int64)
                for each in (
                    _is_checked(rows),
                    tf.reduce_all(tf.equal(rows, 0), axis=1),
                    types,
                    _select(has_size, size, -1),
                    _all(_is_one_of(types, SPARSE), rows[:, HEADER_GOES_ON] > 0),
                )
            ]
        )

    found = tf.map_fn(of_piece, tf.range(0, count, _PIECE), tf.int64, parallel_iterations=1, back_prop=False)
    found = tf.reshape(tf.transpose(found, [1, 0, 2]), [found.shape[1], -1])[:, :count]
    is_checked, is_zero = found[0] > 0, found[1] > 0
    is_candidate = tf.logical_or(is_checked, is_zero)
    places, is_zero, types, sizes, goes_on = (
        tf.boolean_mask(each, is_candidate) for each in (places, is_zero, found[2], found[3], found[4] > 0)
    )
    return _Candidates(places, is_zero, tf.cast(types, tf.uint8), sizes, goes_on)


def _is_checked(rows: tf.Tensor) -> tf.Tensor:
    """Whether blocks, uint8 [blocks, 512], have the checksum of a header, bool [blocks]."""
    numbers = tf.cast(rows, tf.int32)
    # As if the checksum's own field were blank.
    total = tf.reduce_sum(numbers, 1) + tf.reduce_sum(ord(' ') - numbers[:, 148:156], 1)
    checksum, is_number, _ = _number(rows[:, 148:156], 8)
    return tf.logical_and(is_number, tf.equal(tf.cast(total, tf.int64), checksum))


def _size_field(rows: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """The size that headers say, int64 [headers], and whether it is one: in octal, or binary with the first bit set."""
    octal, is_octal, _ = _number(rows[:, 124:136], 8)
    first, high = rows[:, 124], rows[:, 125:129]
    low = tf.cast(rows[:, 129:136], tf.int64)
    binary = tf.reduce_sum(low * [256**i for i in reversed(range(7))], axis=1)
    is_binary = tf.logical_and(tf.equal(first, 0x80), tf.reduce_all(tf.equal(high, 0), axis=1))
    return _select(first >= 0x80, binary, octal), tf.logical_or(is_octal, is_binary)


def _number(text: tf.Tensor, base: int) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Numbers in ASCII, with blanks before and after them.

    Args:
      text: uint8 [numbers, letters].
      base: 8 or 10.

    Returns:
      Their values, int64 [numbers], 0 where there are only blanks; whether they are numbers or blank; and whether they
      are not blank.
    """
    # Unsigned, what is below '0' is above '9'.
    digits = text - ord('0')
    is_digit = digits < base
    # 1 where a number begins, and -1 after it.
    counted = tf.cast(is_digit, tf.int64)
    edges = tf.pad(counted, [[0, 0], [0, 1]]) - tf.pad(counted, [[0, 0], [1, 0]])
    begins = tf.reduce_sum(tf.maximum(edges, 0), axis=1)
    power = tf.cumsum(counted, axis=1, exclusive=True, reverse=True)
    factors = tf.gather(tf.constant([base**i for i in range(text.shape[1] + 1)], tf.int64), power)
    value = tf.reduce_sum(tf.cast(digits, tf.int64) * counted * factors, axis=1)
    fits = tf.reduce_all(tf.logical_or(is_digit, _is_one_of(text, BLANKS)), axis=1)
    return value, tf.logical_and(fits, begins <= 1), begins > 0


def _names(raw: tf.Tensor, places: tf.Tensor, rows: tf.Tensor, sizes: tf.Tensor, pax: _Pax) -> _Texts:
    """The names of members: together they are no longer than the shard, however long one of them is."""
    types = rows[:, 156]
    is_extension = _is_one_of(types, EXTENSIONS)
    # A POSIX header has a long name in two fields, with a slash between them. Others use the second for other things.
    prefix = _until_zero(rows[:, 345:500])
    prefix = _select(tf.reduce_all(tf.equal(rows[:, 257:263], [*POSIX_MAGIC]), axis=1), prefix, 0)
    start = places * BLOCK
    length = prefix + tf.cast(prefix > 0, tf.int64) + _until_zero(rows[:, :100])
    # The last extension before a member that has a name for it.
    is_long_name = _is_one_of(types, LONG_NAME)
    own_length = _select(is_long_name, sizes, _select(_is_one_of(types, PAX), pax.name_length, 0))
    own_start = _select(is_long_name, start + BLOCK, pax.name_start)
    member = tf.cumsum(tf.cast(tf.logical_not(is_extension), tf.int64), exclusive=True)
    order = tf.range(_size(places))
    namer = tf.math.unsorted_segment_max(_select(own_length > 0, order, -1), member, _size(places) + 1)
    namer = tf.gather(namer, member)
    is_named = tf.logical_and(namer >= 0, tf.logical_not(is_extension))
    namer = tf.maximum(namer, 0)
    length = tf.minimum(_select(is_named, tf.gather(own_length, namer), length), NAME_BYTES)

    spans = tf.ragged.range(tf.zeros_like(length), length)
    letters, owner = spans.flat_values, spans.value_rowids()
    start, prefix, is_named, own_start = (
        tf.gather(each, owner) for each in (start, prefix, is_named, tf.gather(own_start, namer))
    )
    # Where the letters are: those of the prefix, the slash, and the rest; or those that an extension has.
    place = _select(letters < prefix, start + 345, start - prefix - tf.cast(prefix > 0, tf.int64))
    place = _select(is_named, own_start, place) + letters
    text = tf.gather(raw, tf.clip_by_value(place, 0, _size(raw) - 1))
    text = _select(_all(tf.equal(letters, prefix), prefix > 0, tf.logical_not(is_named)), ord('/'), text)
    end = tf.math.unsorted_segment_min(_select(tf.equal(text, 0), letters, NAME_BYTES), owner, _size(length))
    length = tf.minimum(length, end)
    text = tf.boolean_mask(text, letters < tf.gather(length, owner))
    return _Texts(tf.concat([text, [0]], 0), tf.cumsum(length, exclusive=True), length)


def _is_folder(types: tf.Tensor, names: _Texts) -> tf.Tensor:
    """Whether members are folders: the first archives told them from files by a slash after the name alone."""
    last = tf.gather(names.letters, tf.maximum(names.start + names.length - 1, 0))
    slash = tf.logical_and(names.length > 0, tf.equal(last, ord('/')))
    return tf.logical_or(_is_one_of(types, DIRECTORY), tf.logical_and(tf.equal(types, 0), slash))


def _key_and_extension(names: _Texts) -> Tuple[tf.Tensor, tf.Tensor]:
    """The length of each member's key, -1 if it has none, and its extension as `_packed`; int64 [members] both."""
    spans = tf.ragged.range(names.start, names.start + names.length)
    text, owner = tf.gather(names.letters, spans.flat_values), spans.value_rowids()
    place = spans.flat_values - tf.gather(names.start, owner)
    members = _size(names.length)
    slash = tf.math.unsorted_segment_max(_select(tf.equal(text, ord('/')), place, -1), owner, members)
    is_dot = tf.logical_and(tf.equal(text, ord('.')), place > tf.gather(slash, owner))
    dot = tf.math.unsorted_segment_min(_select(is_dot, place, NAME_BYTES), owner, members)
    has_key = tf.logical_and(dot < names.length, dot > slash + 1)
    dot = tf.minimum(dot, names.length)
    letters = _texts(names.letters, names.start + dot + 1, names.length - dot - 1, _EXTENSION_LETTERS)
    is_upper = tf.logical_and(letters >= ord('A'), letters <= ord('Z'))
    lower = tf.cast(_select(is_upper, letters + (ord('a') - ord('A')), letters), tf.int64)
    packed = tf.reduce_sum(lower * [256**place for place in range(_EXTENSION_LETTERS)], axis=1)
    return _select(has_key, dot, -1), packed


def _packed(extension: str) -> int:
    """An extension as a number."""
    return int.from_bytes(extension.encode(), 'little')


def _same_key(names: _Texts, key: tf.Tensor, has_key: tf.Tensor) -> tf.Tensor:
    """Whether each member but the first has the key of the one before it."""
    same = _all(tf.equal(key[1:], key[:-1]), has_key[1:], has_key[:-1])
    spans = tf.ragged.range(names.start[1:], names.start[1:] + _select(same, key[1:], 0))
    place, owner = spans.flat_values, spans.value_rowids()
    before = place + tf.gather(names.start[:-1] - names.start[1:], owner)
    differ = tf.cast(tf.not_equal(tf.gather(names.letters, place), tf.gather(names.letters, before)), tf.int64)
    return tf.logical_and(same, tf.equal(tf.math.unsorted_segment_sum(differ, owner, _size(same)), 0))


def _labels(raw: tf.Tensor, starts: tf.Tensor, sizes: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """The content of members as numbers, int64 [members], and whether it is one."""
    text = _texts(raw, starts, sizes, LABEL_BYTES)
    value, is_number, is_not_blank = _number(text, 10)
    return value, _all(is_number, is_not_blank, sizes <= LABEL_BYTES)


def _texts(raw: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor, width: int) -> tf.Tensor:
    """Pieces of a shard, uint8 [pieces, width], with zeros after those that are shorter."""
    letters = tf.range(width, dtype=tf.int64)[tf.newaxis]
    text = tf.gather(raw, tf.clip_by_value(starts[:, tf.newaxis] + letters, 0, _size(raw) - 1))
    return _select(letters < lengths[:, tf.newaxis], text, 0)


def _pax(raw: tf.Tensor, headers: _Candidates) -> _Pax:
    """What pax headers say, of all candidates for headers."""
    places = headers.place
    owners = tf.where(tf.equal(headers.type, ord(PAX)))[:, 0]
    candidates, blocks = _size(places), tf.gather(places, owners)
    sizes = tf.clip_by_value(tf.gather(headers.size, owners), 0, EXTENSION_BYTES)
    begins = (blocks + 1) * BLOCK
    # Of those that are headers, none is in what another says.
    ends = tf.minimum(begins + sizes, tf.concat([blocks[1:] * BLOCK, [_size(raw)]], 0))
    spans = tf.ragged.range(begins, tf.maximum(begins, ends))
    text, owner = tf.gather(raw, spans.flat_values), spans.value_rowids()

    said = _pax_records(text, owner, spans.row_splits)

    def find(keyword: bytes) -> Tuple[tf.Tensor, tf.Tensor]:
        """Where the value is that each header has for a keyword, and its bytes, 0 if there is none."""
        letters = _texts(text, said.key_start, said.key_length, len(keyword) + 1)
        matches = tf.reduce_all(tf.equal(letters, [*keyword, 0]), axis=1)
        is_it = tf.logical_and(matches, tf.equal(said.key_length, len(keyword)))
        last = tf.math.unsorted_segment_max(_select(is_it, tf.range(_size(is_it)), -1), said.owner, _size(owners))
        # One more, for the headers that say nothing.
        safe = _select(last >= 0, last, _size(is_it))
        start, length = (
            tf.gather(tf.concat([values, [0]], 0), safe) for values in (said.value_start, said.value_length)
        )
        return tf.gather(tf.concat([spans.flat_values, [0]], 0), tf.minimum(start, _size(text))), length

    name_start, name_length = find(b'path')
    size_start, size_length = find(b'size')
    value, is_number, is_not_blank = _number(_texts(raw, size_start, size_length, LABEL_BYTES), 10)
    says = _all(size_length <= LABEL_BYTES, is_number, is_not_blank)
    # The header after each, if that is a candidate; one more place is for those that are not.
    after = blocks + 1 + (sizes + BLOCK - 1) // BLOCK
    index = tf.searchsorted(places, after, out_type=tf.int64)
    is_candidate = tf.equal(tf.gather(tf.concat([places, [-1]], 0), index), after)
    index = _select(tf.logical_and(says, is_candidate), index, candidates)

    def of_candidates(values: tf.Tensor, indices: tf.Tensor, default: int) -> tf.Tensor:
        default = tf.fill([candidates + 1], tf.constant(default, tf.int64))
        return tf.tensor_scatter_nd_update(default, indices[:, tf.newaxis], values)[:-1]

    return _Pax(
        name_start=of_candidates(name_start, owners, 0),
        name_length=of_candidates(name_length, owners, 0),
        size=of_candidates(value, index, -1),
    )


class _PaxRecords(NamedTuple):
    """Records of pax headers, each field int64 [records]: whose they are, and where keyword and value are."""

    owner: tf.Tensor
    key_start: tf.Tensor
    key_length: tf.Tensor
    value_start: tf.Tensor
    value_length: tf.Tensor


def _pax_records(text: tf.Tensor, owner: tf.Tensor, splits: tf.Tensor) -> _PaxRecords:
    """The records, each `LENGTH KEYWORD=VALUE` and a line feed; of each header up to one that is none.

    Args:
      text: uint8 [letters], the contents of all headers.
      owner: int64 [letters], the header that each letter is of.
      splits: int64 [headers + 1], where the header's letters begin, and the last end.
    """
    count = _size(text)
    is_first = tf.not_equal(owner, tf.concat([[-1], owner], 0)[:-1])
    follows_line = tf.equal(tf.concat([[0], tf.cast(text, tf.int32)], 0)[:-1], ord('\n'))
    # Where one may begin: the number of its bytes is followed from the first on, as from header to header.
    may_begin = tf.logical_or(is_first, _all(text - ord('0') < 10, follows_line))
    begin = tf.where(may_begin)[:, 0]
    limit = tf.gather(splits, tf.gather(owner, begin) + 1)
    letters = _texts(text, begin, limit - begin, _PAX_DIGITS + 1)
    is_digit = tf.cast(tf.math.cumprod(tf.cast(letters - ord('0') < 10, tf.int64), axis=1), tf.bool)
    length, _, has_number = _number(_select(is_digit, letters, 0), 10)
    digits = tf.reduce_sum(tf.cast(is_digit, tf.int64), axis=1)
    key = begin + digits + 1
    signs = tf.concat([tf.where(tf.equal(text, ord('=')))[:, 0], [count]], 0)
    sign = tf.gather(signs, tf.searchsorted(signs, tf.minimum(key, count), out_type=tf.int64))
    end = begin + length

    def letter(at: tf.Tensor) -> tf.Tensor:
        return tf.gather(text, tf.clip_by_value(at, 0, count - 1))

    is_record = _all(
        has_number,
        digits <= _PAX_DIGITS,
        tf.equal(letter(key - 1), ord(' ')),
        sign + 1 < end,
        end <= limit,
        tf.equal(letter(end - 1), ord('\n')),
    )
    # After what is none, the next header begins.
    goes_on = tf.gather(tf.concat([may_begin, [True]], 0), tf.clip_by_value(end, 0, count))
    reached = _chain(begin, _select(tf.logical_and(is_record, goes_on), end, limit), count)
    reached = tf.boolean_mask(reached, tf.gather(is_record, reached))
    begin, key, sign, end = (tf.gather(each, reached) for each in (begin, key, sign, end))
    return _PaxRecords(tf.gather(owner, begin), key, sign - key, sign + 1, end - 1 - (sign + 1))


def _until_zero(text: tf.Tensor) -> tf.Tensor:
    """The letters before the first zero, int64 [texts], of uint8 [texts, letters]."""
    ends = tf.pad(tf.cast(tf.equal(text, 0), tf.int8), [[0, 0], [0, 1]], constant_values=1)
    return tf.argmax(ends, axis=1)


def _is_one_of(values: tf.Tensor, allowed: bytes) -> tf.Tensor:
    return tf.gather([byte in allowed for byte in range(256)], tf.cast(values, tf.int32))


def _all(*conditions: tf.Tensor) -> tf.Tensor:
    return functools.reduce(tf.logical_and, conditions)


def _any(*conditions: tf.Tensor) -> tf.Tensor:
    return functools.reduce(tf.logical_or, conditions)


def _select(condition: tf.Tensor, yes: Union[tf.Tensor, int], no: Union[tf.Tensor, int]) -> tf.Tensor:
    """One or the other, as `tf.where`, but with broadcasting; a number takes the type of the tensor."""
    dtype = next(each.dtype for each in (yes, no) if not isinstance(each, int))
    return tf.compat.v2.where(condition, tf.cast(yes, dtype), tf.cast(no, dtype))


def _size(tensor: tf.Tensor) -> tf.Tensor:
    return tf.size(tensor, out_type=tf.int64)


def _length(text: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.strings.length(text), tf.int64)
