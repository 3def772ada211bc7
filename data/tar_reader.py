"""Reading tar shards in the input pipeline, by TensorFlow operations alone: a TPU's hosts have no Python.

A shard is read in chunks, and all headers of a chunk are looked at together. Each block of 512 bytes could be a header,
and says where the next one would be; following that from the first block on, in leaps that double, finds those that
are. Samples that are whole are handed on; the last one waits for the next chunk. What a sample is, and what is wrong
with it, `data.tar_shards` says.
"""

import functools
from typing import Callable, NamedTuple, Tuple, Union

import tensorflow as tf

from data import remote
from data.records import ParsedRecord
from data.tar_shards import (
    BLANKS,
    BLOCK,
    DIRECTORY,
    EXTENSION_BYTES,
    EXTENSIONS,
    IMAGE_EXTENSIONS,
    LABEL_BYTES,
    LABEL_EXTENSION,
    LONG_NAME,
    NAME_BYTES,
    PAX,
    POSIX_MAGIC,
    REGULAR,
    SAMPLE_BYTES,
    WITHOUT_DATA,
    Problem,
)

# What a sample begins with when it is handed on: its label, in as many digits, or why it cannot be used.
_LABEL_DIGITS = 20
# Where reading is: among members, after the end of the archive, or where nothing more is read.
_MEMBERS, _ENDED, _STOPPED = range(3)
# The name of an extension that is compared: the longest of those that count, and a byte to tell longer ones.
_EXTENSION_LETTERS = 5
# The longest length that stands before a pax record.
_PAX_DIGITS = 7

_PPM = 'P6'
# Width, height and 255, each after white space or comments, and one white space.
_PPM_GAP = r'(?:\s|#[^\r\n]*[\r\n])+'
_PPM_HEADER = rf'^{_PPM}{_PPM_GAP}(\d{{1,6}}){_PPM_GAP}(\d{{1,6}}){_PPM_GAP}255\s'
_PPM_HEADER_BYTES = 1024

_State = Tuple[tf.Tensor, tf.Tensor, tf.Tensor]


class _Samples(NamedTuple):
    """Samples of a chunk, each field int64 [samples]: the `Problem`, the label, and where the image is in the chunk."""

    problem: tf.Tensor
    label: tf.Tensor
    start: tf.Tensor
    size: tf.Tensor


class _Pax(NamedTuple):
    """What pax headers say, each field int64 [blocks].

    Attributes:
      name_start: of the header in a block: where in the chunk it has the next member's name.
      name_length: the bytes of that name; 0 if it has none.
      size: of the header before a block: the bytes of the block's member; -1 if it does not say.
    """

    name_start: tf.Tensor
    name_length: tf.Tensor
    size: tf.Tensor


def reader(buffer_size: int) -> Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]:
    """What reads a shard, given its path and its size in bytes: its samples in order, string scalars for `parse`.

    Those that cannot be used are among them, each in its place.

    Args:
      buffer_size: the bytes that are read at a time. A shard that is being read takes about six times as many in
        memory, whatever its size; more if a sample is larger than that.
    """
    chunk = -(-buffer_size // BLOCK) * BLOCK

    def read(path: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
        size = tf.cast(size, tf.int64)

        def read_chunk(start: tf.Tensor) -> Tuple[bool, tf.Tensor]:
            length = tf.minimum(size - start, chunk)
            one = tf.data.FixedLengthRecordDataset(path, length, start, size - start - length, length)
            return False, tf.data.experimental.get_single_element(one)

        # Where a refusal looks like the end of the file, this ends there, and the end is seen to come early.
        chunks = tf.data.Dataset.range(0, size, chunk).map(read_chunk)
        chunks = chunks.concatenate(tf.data.Dataset.from_tensors((True, '')))

        def step(
            state: _State, element: Tuple[tf.Tensor, tf.Tensor]
        ) -> Tuple[_State, Tuple[tf.Tensor, Tuple[tf.Tensor, ...]]]:
            rest, offset, mode = state
            is_end, content = element
            read_until = offset + _length(rest) + _length(content)
            whole = tf.logical_or(tf.logical_not(is_end), tf.equal(read_until, size))
            with tf.control_dependencies([tf.Assert(whole, [path, remote.ENDED_EARLY, read_until, 'of', size])]):
                content = tf.strings.join([rest, content])
            samples, used, mode = tf.cond(
                tf.equal(mode, _MEMBERS),
                lambda: _find(content, size - offset, is_end),
                lambda: _watch(content, mode),
            )
            rest = tf.strings.substr(content, used, _length(content) - used)
            return (rest, offset + used, mode), (content, tuple(samples))

        begin = (tf.constant(''), tf.constant(0, tf.int64), tf.constant(_MEMBERS, tf.int64))
        found = chunks.apply(tf.data.experimental.scan(begin, step))
        return found.flat_map(lambda content, samples: _cut_out(content, _Samples(*samples)))

    return read


def _cut_out(content: tf.Tensor, samples: _Samples) -> tf.data.Dataset:
    """The samples of a chunk, each a string of the label and the image."""
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
        encoded = tf.strings.substr(serialized, _LABEL_DIGITS, _length(serialized) - _LABEL_DIGITS)
    is_ppm = tf.equal(tf.strings.substr(encoded, 0, len(_PPM)), _PPM)
    encoded = tf.cond(is_ppm, lambda: ppm_to_png(encoded), lambda: encoded)
    return ParsedRecord(encoded, label, tf.zeros([1, 0, 4]))


def ppm_to_png(encoded: tf.Tensor) -> tf.Tensor:
    """Makes a PNG image, which TensorFlow decodes, of a binary PPM image of 8 bits per channel, which it does not.

    Args:
      encoded: string scalar, the bytes of the file.

    Raises:
      tf.errors.InvalidArgumentError: when run on a PPM image of another kind, or cut short.
    """
    # The pixels that follow the header are no characters to a regular expression, but for \C.
    head = tf.strings.substr(encoded, 0, tf.minimum(_length(encoded), _PPM_HEADER_BYTES))
    fits = tf.Assert(tf.strings.regex_full_match(head, _PPM_HEADER + r'\C*'), ['not a binary PPM image of 8 bits'])
    with tf.control_dependencies([fits]):
        width, height = (
            tf.strings.to_number(tf.strings.regex_replace(head, _PPM_HEADER + r'\C*', group), tf.int64)
            for group in (r'\1', r'\2')
        )
    begin = _length(head) - _length(tf.strings.regex_replace(head, _PPM_HEADER, '', replace_global=False))
    pixels = height * width * 3
    whole = tf.logical_and(pixels > 0, begin + pixels <= _length(encoded))
    with tf.control_dependencies([tf.Assert(whole, ['a PPM image without pixels, or cut short'])]):
        content = tf.io.decode_raw(tf.strings.substr(encoded, begin, pixels), tf.uint8)
    return tf.image.encode_png(tf.reshape(content, [height, width, 3]), compression=1)


def _find(content: tf.Tensor, left: tf.Tensor, is_end: tf.Tensor) -> Tuple[_Samples, tf.Tensor, tf.Tensor]:
    """Finds the samples of a chunk.

    Args:
      content: string scalar, the chunk, which begins where a member does.
      left: int64 scalar, the bytes from there to the end of the shard.
      is_end: bool scalar, whether the chunk ends the shard.

    Returns:
      The samples, the bytes of the chunk that are done with, and where reading is then.
    """
    raw = tf.io.decode_raw(content, tf.uint8)
    count = _size(raw) // BLOCK
    blocks = tf.reshape(raw[: count * BLOCK], [-1, BLOCK])
    sizes, _ = _size_field(blocks)
    pax = _pax(raw, blocks, sizes)
    # Sizes that are larger than the shard, or negative in a block that is no header, lead nowhere.
    sizes = tf.clip_by_value(_select(pax.size >= 0, pax.size, sizes), 0, left + 1)
    data = _select(_is_one_of(blocks[:, 156], WITHOUT_DATA), 0, sizes)
    after = tf.range(count) + 1 + (data + BLOCK - 1) // BLOCK

    headers = _chain(after, count)
    rows = tf.gather(blocks, headers)
    is_zero = tf.reduce_all(tf.equal(rows, 0), axis=1)
    sound = _is_sound(rows, tf.gather(sizes, headers), tf.gather(pax.size, headers) >= 0)
    stops = tf.where(tf.logical_or(is_zero, tf.logical_not(sound)))[:, 0]
    stop = tf.concat([stops, [_size(headers)]], 0)[0]
    # What follows the first that is no header is none, either.
    ended = tf.reduce_any(is_zero[stop : stop + 1])
    damaged = tf.logical_and(stop < _size(headers), tf.logical_not(ended))
    after_end = raw[tf.concat([headers, [count]], 0)[stop] * BLOCK :]
    headers, rows = headers[:stop], rows[:stop]

    types, sizes = rows[:, 156], tf.gather(data, headers)
    is_extension = _is_one_of(types, EXTENSIONS)
    names = _names(raw, headers, rows, sizes, pax)
    is_truncated = (headers + 1) * BLOCK + sizes > left
    # An extension that is cut short stands for the member that it belongs to.
    is_member = tf.logical_or(is_truncated, tf.logical_not(tf.logical_or(is_extension, _is_folder(types, names))))
    members = tf.where(is_member)[:, 0]
    headers, types, sizes, names, is_truncated, is_extension = (
        tf.gather(of_headers, members) for of_headers in (headers, types, sizes, names, is_truncated, is_extension)
    )
    starts, next_bytes = (headers + 1) * BLOCK, tf.gather(after, headers) * BLOCK

    # Members that stand together and share a key are a sample; one without a key is a sample of its own.
    key, extension = _key_and_extension(names)
    has_key = tf.logical_and(key >= 0, tf.logical_and(_is_one_of(types, REGULAR), tf.logical_not(is_extension)))
    goes_on = tf.concat([tf.zeros([1], tf.bool), _same_key(names, key, has_key)], 0)[: _size(members)]
    is_first = tf.logical_not(goes_on)
    sample = tf.cumsum(tf.cast(is_first, tf.int64)) - 1
    samples = tf.reduce_sum(tf.cast(is_first, tf.int64))
    begins = tf.boolean_mask(tf.concat([tf.zeros([1], tf.int64), next_bytes], 0)[: _size(members)], is_first)
    is_large = next_bytes - tf.gather(begins, sample) > SAMPLE_BYTES

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
        (number(is_large) > 0, Problem.TOO_LARGE),
        (number(is_truncated) > 0, Problem.TRUNCATED),
    ):
        problem = _select(holds, int(which), problem)

    truncated = tf.reduce_any(is_truncated)
    too_large = tf.where(tf.equal(problem, int(Problem.TOO_LARGE)))[:, 0]
    stopped = tf.size(too_large) > 0
    # The last sample may go on in the next chunk, unless there is none.
    at_end = _any(is_end, ended, damaged, truncated)
    whole = tf.concat([too_large + 1, [_select(at_end, samples, tf.maximum(samples - 1, 0))]], 0)[0]
    used = tf.reduce_max(tf.concat([[0], tf.boolean_mask(next_bytes, sample < whole)], 0))
    fine = tf.equal(problem, int(Problem.NONE))
    found = _Samples(
        problem, of_only(is_label, labels), _select(fine, of_only(is_image, starts), 0), _select(fine, image_bytes, 0)
    )
    last = _select(tf.logical_and(is_end, tf.logical_not(ended)), int(Problem.NO_END), tf.zeros([], tf.int64))
    last = _select(tf.logical_and(ended, tf.reduce_any(tf.not_equal(after_end, 0))), int(Problem.AFTER_END), last)
    last = _select(damaged, int(Problem.DAMAGED), last)
    last = _select(tf.logical_or(stopped, truncated), int(Problem.NONE), last)
    stopped = _any(stopped, truncated, damaged, last > 0)
    mode = _select(stopped, _STOPPED, _select(ended, _ENDED, tf.zeros([], tf.int64) + _MEMBERS))
    done = tf.logical_or(stopped, ended)
    return (
        _and_last(_Samples(*[field[:whole] for field in found]), last),
        _select(done, _length(content), used),
        tf.cast(mode, tf.int64),
    )


def _watch(content: tf.Tensor, mode: tf.Tensor) -> Tuple[_Samples, tf.Tensor, tf.Tensor]:
    """As `_find`, of a chunk after the end of the archive, where there should be nothing."""
    nothing = tf.reduce_all(tf.equal(tf.io.decode_raw(content, tf.uint8), 0))
    found = tf.logical_and(tf.equal(mode, _ENDED), tf.logical_not(nothing))
    none = _Samples(*[tf.zeros([0], tf.int64)] * len(_Samples._fields))
    last = _select(found, int(Problem.AFTER_END), tf.zeros([], tf.int64))
    return _and_last(none, last), _length(content), _select(found, _STOPPED, mode)


def _and_last(samples: _Samples, problem: tf.Tensor) -> _Samples:
    """Samples and, if it is one, a problem in a place of its own."""
    own = tf.cast(problem > 0, tf.int64)
    return _Samples(
        tf.concat([samples.problem, tf.fill([own], problem)], 0),
        *[tf.concat([field, tf.zeros([own], tf.int64)], 0) for field in samples[1:]],
    )


def _chain(after: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """The headers among some blocks, in order, int64 [headers].

    Args:
      after: int64 [blocks], the block that follows if one is a header, and its member.
      count: int64 scalar, the number of blocks.
    """

    def leap(headers: tf.Tensor, jump: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
        # The first n headers, and where n steps lead from each block.
        return tf.concat([headers, tf.gather(jump, headers)], 0), tf.gather(jump, jump)

    headers, _ = tf.while_loop(
        lambda headers, jump: headers[-1] < count,
        leap,
        (tf.zeros([1], tf.int64), tf.concat([tf.minimum(after, count), [count]], 0)),
        shape_invariants=(tf.TensorShape([None]), tf.TensorShape([None])),
    )
    return tf.boolean_mask(headers, headers < count)


def _is_sound(rows: tf.Tensor, sizes: tf.Tensor, has_size: tf.Tensor) -> tf.Tensor:
    """Whether blocks are headers, bool [headers].

    Args:
      rows: uint8 [headers, 512].
      sizes: int64 [headers].
      has_size: bool [headers], whether the size was in a pax header.
    """
    numbers = tf.cast(rows, tf.int64)
    # As if the checksum's own field were blank.
    total = tf.reduce_sum(numbers, 1) + tf.reduce_sum(ord(' ') - numbers[:, 148:156], 1)
    checksum, is_number, _ = _number(rows[:, 148:156], 8)
    _, size_is_number = _size_field(rows)
    extends = tf.logical_and(_is_one_of(rows[:, 156], EXTENSIONS), sizes > EXTENSION_BYTES)
    return tf.reduce_all(
        [
            is_number,
            tf.equal(total, checksum),
            tf.logical_or(size_is_number, has_size),
            tf.logical_not(extends),
        ],
        axis=0,
    )


def _size_field(rows: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """The size that headers say, int64 [headers], and whether it is one: in octal, or binary with the first bit set."""
    octal, is_octal, _ = _number(rows[:, 124:136], 8)
    first, high = rows[:, 124], rows[:, 125:128]
    binary = tf.zeros_like(octal)
    for byte in tf.unstack(tf.cast(rows[:, 128:136], tf.int64), axis=1):
        binary = binary * 256 + byte
    is_binary = tf.logical_and(tf.equal(first, 0x80), tf.reduce_all(tf.equal(high, 0), axis=1))
    is_binary = tf.logical_and(is_binary, binary >= 0)
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
    value = tf.zeros([_size(text[:, 0])], tf.int64)
    begun = tf.zeros_like(value, tf.bool)
    over, fits = begun, tf.ones_like(begun)
    for letter in tf.unstack(text, axis=1):
        # Unsigned, what is below '0' is above '9'.
        digit = letter - ord('0')
        is_digit = digit < base
        value = _select(is_digit, value * base + tf.cast(digit, tf.int64), value)
        over = tf.logical_or(over, tf.logical_and(begun, tf.logical_not(is_digit)))
        begun = tf.logical_or(begun, is_digit)
        fits_here = tf.logical_or(
            tf.logical_and(is_digit, tf.logical_not(over)),
            tf.logical_and(tf.logical_not(is_digit), _is_one_of(letter, BLANKS)),
        )
        fits = tf.logical_and(fits, fits_here)
    return value, fits, begun


def _names(raw: tf.Tensor, headers: tf.Tensor, rows: tf.Tensor, sizes: tf.Tensor, pax: _Pax) -> tf.Tensor:
    """The names of members, uint8 [headers, letters], each with zeros after it."""
    types = rows[:, 156]
    is_extension = _is_one_of(types, EXTENSIONS)
    # A POSIX header has a long name in two fields, with a slash between them. Others use the second for other things.
    prefix = _until_zero(rows[:, 345:500])
    prefix = _select(tf.reduce_all(tf.equal(rows[:, 257:263], [*POSIX_MAGIC]), axis=1), prefix, 0)
    start = headers * BLOCK
    length = prefix + tf.cast(prefix > 0, tf.int64) + _until_zero(rows[:, :100])
    # The last extension before a member that has a name for it.
    is_long_name = _is_one_of(types, LONG_NAME)
    own_length = _select(is_long_name, sizes, _select(_is_one_of(types, PAX), tf.gather(pax.name_length, headers), 0))
    own_start = _select(is_long_name, start + BLOCK, tf.gather(pax.name_start, headers))
    member = tf.cumsum(tf.cast(tf.logical_not(is_extension), tf.int64), exclusive=True)
    order = tf.range(_size(headers))
    namer = tf.math.unsorted_segment_max(_select(own_length > 0, order, -1), member, _size(headers) + 1)
    namer = tf.gather(namer, member)
    is_named = tf.logical_and(namer >= 0, tf.logical_not(is_extension))
    namer = tf.maximum(namer, 0)
    length = tf.minimum(_select(is_named, tf.gather(own_length, namer), length), NAME_BYTES)

    letters = tf.range(tf.reduce_max(tf.concat([[1], length], 0)))[tf.newaxis]
    start, length, prefix, is_named, own_start = (
        each[:, tf.newaxis] for each in (start, length, prefix, is_named, tf.gather(own_start, namer))
    )
    # Where the letters are: those of the prefix, the slash, and the rest; or those that an extension has.
    place = _select(letters < prefix, start + 345, start - prefix - tf.cast(prefix > 0, tf.int64))
    place = _select(is_named, own_start, place) + letters
    text = tf.gather(raw, tf.clip_by_value(place, 0, _size(raw) - 1))
    is_slash = _all(tf.equal(letters, prefix), prefix > 0, tf.logical_not(is_named))
    text = _select(letters < length, _select(is_slash, ord('/'), text), 0)
    return _select(letters < _until_zero(text)[:, tf.newaxis], text, 0)


def _is_folder(types: tf.Tensor, names: tf.Tensor) -> tf.Tensor:
    """Whether members are folders: the first archives told them from files by a slash after the name alone."""
    ends = tf.one_hot(_until_zero(names) - 1, tf.shape(names)[1], True, False, dtype=tf.bool)
    slash = tf.reduce_any(tf.logical_and(ends, tf.equal(names, ord('/'))), axis=1)
    return tf.logical_or(_is_one_of(types, DIRECTORY), tf.logical_and(tf.equal(types, 0), slash))


def _key_and_extension(names: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """The length of each member's key, -1 if it has none, and its extension as `_packed`; int64 [members] both."""
    width = tf.shape(names, out_type=tf.int64)[1]
    letters = tf.range(width)[tf.newaxis]
    slash = tf.reduce_max(_select(tf.equal(names, ord('/')), letters, -1), axis=1)
    is_dot = tf.logical_and(tf.equal(names, ord('.')), letters > slash[:, tf.newaxis])
    dot = tf.reduce_min(_select(is_dot, letters, width), axis=1)
    has_key = tf.logical_and(dot < width, dot > slash + 1)
    padded = tf.pad(names, [[0, 0], [0, 1 + _EXTENSION_LETTERS]])
    rows = tf.range(tf.shape(names, out_type=tf.int64)[0])[:, tf.newaxis] * (width + 1 + _EXTENSION_LETTERS)
    letters = tf.gather(tf.reshape(padded, [-1]), rows + dot[:, tf.newaxis] + 1 + tf.range(_EXTENSION_LETTERS, dtype=tf.int64))
    is_upper = tf.logical_and(letters >= ord('A'), letters <= ord('Z'))
    lower = tf.cast(_select(is_upper, letters + (ord('a') - ord('A')), letters), tf.int64)
    packed = tf.reduce_sum(lower * [256**place for place in range(_EXTENSION_LETTERS)], axis=1)
    return _select(has_key, dot, -1), packed


def _packed(extension: str) -> int:
    """An extension as a number."""
    return int.from_bytes(extension.encode(), 'little')


def _same_key(names: tf.Tensor, key: tf.Tensor, has_key: tf.Tensor) -> tf.Tensor:
    """Whether each member but the first has the key of the one before it."""
    letters = tf.range(tf.shape(names, out_type=tf.int64)[1])[tf.newaxis]
    same = tf.logical_or(tf.equal(names[1:], names[:-1]), letters >= key[1:, tf.newaxis])
    return _all(tf.reduce_all(same, axis=1), tf.equal(key[1:], key[:-1]), has_key[1:], has_key[:-1])


def _labels(raw: tf.Tensor, starts: tf.Tensor, sizes: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """The content of members as numbers, int64 [members], and whether it is one."""
    text = _texts(raw, starts, sizes, LABEL_BYTES)
    value, is_number, is_not_blank = _number(text, 10)
    return value, _all(is_number, is_not_blank, sizes <= LABEL_BYTES)


def _texts(raw: tf.Tensor, starts: tf.Tensor, lengths: tf.Tensor, width: int) -> tf.Tensor:
    """Pieces of a chunk, uint8 [pieces, width], with zeros after those that are shorter."""
    letters = tf.range(width, dtype=tf.int64)[tf.newaxis]
    text = tf.gather(raw, tf.clip_by_value(starts[:, tf.newaxis] + letters, 0, _size(raw) - 1))
    return _select(letters < lengths[:, tf.newaxis], text, 0)


def _pax(raw: tf.Tensor, blocks: tf.Tensor, sizes: tf.Tensor) -> _Pax:
    """What pax headers say, of any block that looks like one."""
    count = tf.shape(blocks, out_type=tf.int64)[0]
    is_pax = tf.logical_and(tf.equal(blocks[:, 156], ord(PAX)), tf.equal(blocks[:, 257], ord('u')))
    owners = tf.where(is_pax)[:, 0]
    sizes = tf.clip_by_value(tf.gather(sizes, owners), 0, EXTENSION_BYTES)
    begins = (owners + 1) * BLOCK
    ends = tf.minimum(begins + sizes, tf.concat([owners[1:], [count]], 0) * BLOCK)
    places = tf.ragged.range(begins, tf.maximum(begins, ends))
    text, owner = tf.gather(raw, places.flat_values), places.value_rowids()

    def find(keyword: bytes) -> Tuple[tf.Tensor, tf.Tensor]:
        """Where the value is that each header has for a keyword, and its bytes, 0 if there is none."""
        mark = b' %s=' % keyword
        padded = tf.pad(text, [[0, len(mark)]])
        at = tf.where(
            _all(*[tf.equal(padded[i : i + _size(text)], letter) for i, letter in enumerate(mark)])
        )[:, 0]
        whose = tf.gather(owner, at)
        # Before it, there is the number of bytes of the whole record, of which a line feed is the last.
        back = at[:, tf.newaxis] - 1 - tf.range(_PAX_DIGITS, dtype=tf.int64)
        digits = tf.gather(text, tf.maximum(back, 0)) - ord('0')
        is_digit = tf.logical_and(digits < 10, back >= 0)
        is_digit = tf.cumprod(tf.cast(is_digit, tf.int64), axis=1)
        length = tf.reduce_sum(tf.cast(digits, tf.int64) * is_digit * [10**i for i in range(_PAX_DIGITS)], axis=1)
        start = at + len(mark)
        length -= tf.reduce_sum(is_digit, axis=1) + len(mark) + 1
        end = start + length
        safe_end = tf.clip_by_value(end, 0, tf.maximum(_size(text) - 1, 0))
        fits = tf.reduce_all(
            [
                length > 0,
                end < _size(text),
                tf.equal(tf.gather(text, safe_end), ord('\n')),
                tf.equal(tf.gather(owner, safe_end), whose),
            ],
            axis=0,
        )
        last = tf.math.unsorted_segment_max(_select(fits, tf.range(_size(at)), -1), whose, _size(owners))
        # One more, for headers that have no such record when no header has any.
        safe = _select(last >= 0, last, _size(at))
        start, length = (tf.gather(tf.concat([values, [0]], 0), safe) for values in (start, length))
        return tf.gather(tf.concat([places.flat_values, [0]], 0), tf.minimum(start, _size(text))), length

    name_start, name_length = find(b'path')
    size_start, size_length = find(b'size')
    value, is_number, _ = _number(_texts(raw, size_start, size_length, LABEL_BYTES), 10)
    says = _all(size_length > 0, size_length <= LABEL_BYTES, is_number)
    nexts = tf.minimum(owners + 1 + (sizes + BLOCK - 1) // BLOCK, count)
    own_size = tf.tensor_scatter_nd_update(tf.fill([count + 1], tf.constant(-1, tf.int64)), nexts[:, tf.newaxis], _select(says, value, -1))
    return _Pax(
        tf.scatter_nd(owners[:, tf.newaxis], name_start, count[tf.newaxis]),
        tf.scatter_nd(owners[:, tf.newaxis], name_length, count[tf.newaxis]),
        own_size[:count],
    )


def _until_zero(text: tf.Tensor) -> tf.Tensor:
    """The letters before the first zero, int64 [texts], of uint8 [texts, letters]."""
    ends = tf.pad(tf.cast(tf.equal(text, 0), tf.int8), [[0, 0], [0, 1]], constant_values=1)
    return tf.argmax(ends, axis=1)


def _is_one_of(values: tf.Tensor, allowed: bytes) -> tf.Tensor:
    return _any(*[tf.equal(values, each) for each in allowed])


def _all(*conditions: tf.Tensor) -> tf.Tensor:
    return functools.reduce(tf.logical_and, conditions)


def _any(*conditions: tf.Tensor) -> tf.Tensor:
    return functools.reduce(tf.logical_or, conditions)


def _select(condition: tf.Tensor, yes: Union[tf.Tensor, int], no: Union[tf.Tensor, int]) -> tf.Tensor:
    """One or the other, as `tf.where`, but with broadcasting; a number takes the type of the tensor."""
    dtype = no.dtype if isinstance(yes, int) else yes.dtype
    return tf.compat.v2.where(condition, tf.cast(yes, dtype), tf.cast(no, dtype))


def _size(tensor: tf.Tensor) -> tf.Tensor:
    return tf.size(tensor, out_type=tf.int64)


def _length(text: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.strings.length(text), tf.int64)
