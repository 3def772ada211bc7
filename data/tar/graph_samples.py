"""Finding the samples of a tar shard, window by window, with TensorFlow operations.

A window begins with a sample. Its headers are parsed together, and its last sample is left for the next window, unless
the shard ends in this one. `data.tar.layout` defines a sample and its problems.
"""

from typing import NamedTuple, Tuple

from console.tensorflow_versions import either, tf
from data.tar import byte_tensors, graph_headers, graph_links, graph_names, graph_pax
from data.tar.byte_tensors import all_of, any_of, is_one_of, select
from data.tar.graph_headers import Candidates
from data.tar.graph_links import Files
from data.tar.layout import (
    BLOCK,
    EXTENSION_BYTES,
    EXTENSIONS,
    HARD_LINK,
    IMAGE_EXTENSIONS,
    LABEL_BYTES,
    LABEL_EXTENSION,
    LABEL_FOUND,
    REGULAR,
    WITHOUT_DATA,
    Label,
    Problem,
)

# Larger than any file, and small enough for sums without overflow.
_HUGE = 1 << 61


class Samples(NamedTuple):
    """Samples of a window, each field int64 [samples]: the `Problem`, the label, and the image's position and size."""

    problem: tf.Tensor
    label: tf.Tensor
    start: tf.Tensor
    size: tf.Tensor


class Rest(NamedTuple):
    """The remainder of a shard after the samples of a window.

    Attributes:
      start: int64 scalar, the position in the window of the next window's first byte.
      needed: int64 scalar, the bytes from there on without which no further sample is complete.
      is_read: bool scalar, whether the last sample has been found: only the zeros after it are unchecked.
      is_unusable: bool scalar, whether nothing that follows can be used. The reason is among the samples.
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
      extension: int64, as of `graph_names.packed`; 0 if it is not a file whose name has a key.
      last_extension: int64, the same, from the last dot of the name on.
      is_truncated: bool, whether the shard ends within its content.
      name: int64, of `graph_names.hashes`.
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
    """The end of the headers of a window.

    Attributes:
      place: int64 scalar, the position after the last member, in bytes. It may be beyond the window.
      is_last: bool scalar, whether this is the end of the members of the shard, not only of the window.
      problem: int64 scalar, the `Problem` of the shard after its last member.
    """

    place: tf.Tensor
    is_last: tf.Tensor
    problem: tf.Tensor


def find(raw: tf.Tensor, remaining: tf.Tensor, label: Label, files: Files) -> Tuple[Samples, Rest, Files]:
    """Finds the samples of a window. Also returns the files before the next window.

    Args:
      raw: uint8 [bytes], the window. It begins with the first header of a sample.
      remaining: int64 scalar, the bytes of the shard from the beginning of the window on.
      label: the place of the labels.
      files: those before the window.
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
        Rest(
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

    Args:
      raw: uint8 [bytes], the window.
      members: of the window.
      sample: int64 [members], the sample of each member.
      count: int64 scalar, the number of samples.
      label: the place of the labels.
      labels_before: int64 [files], `Files.label` of those before the window.
    """

    def number(flags: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(tf.cast(flags, tf.int64), sample, count)

    def of_only(flags: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(select(flags, values, 0), sample, count)

    def is_any(extension: tf.Tensor, *names: str) -> tf.Tensor:
        return any_of(*[tf.equal(extension, graph_names.packed(name)) for name in names])

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
        text = byte_tensors.texts(raw, members.start, members.size, LABEL_BYTES)
        number, is_number, is_not_blank = byte_tensors.number(text, 10)
        return select(all_of(is_label, is_number, is_not_blank, members.size <= LABEL_BYTES), number, -1)
    count = byte_tensors.size(members.start)
    end = tf.minimum(members.start + members.size, byte_tensors.size(raw))
    spans = tf.ragged.range(members.start, select(is_label, tf.maximum(end, members.start), members.start))
    letters = tf.gather([bytes([byte]) for byte in range(256)], tf.cast(tf.gather(raw, spans.flat_values), tf.int32))
    found = tf.strings.unsorted_segment_join(letters, spans.value_rowids(), count)
    for expression, replacement in label.replacements():
        found = tf.strings.regex_replace(found, expression, replacement)
    found = tf.where_v2(tf.strings.regex_full_match(found, LABEL_FOUND), found, '=-1')
    return tf.strings.to_number(tf.strings.substr(found, 1, LABEL_BYTES), tf.int64)


def _find_members(raw: tf.Tensor, remaining: tf.Tensor, files: Files) -> Tuple[_Members, _End]:
    """Finds the members of a window; see `find` for the arguments. The last one may go on after the window."""
    count = byte_tensors.size(raw) // BLOCK
    blocks = tf.reshape(raw[: count * BLOCK], [-1, BLOCK])
    candidates = graph_headers.find_candidates(blocks)
    stops = tf.concat([tf.where(candidates.is_zero)[:, 0], [byte_tensors.size(candidates.place)]], 0)
    given = (raw, remaining, blocks, stops[0], *files, *candidates)
    return either(_are_plain(candidates, stops[0]), _plain_members, _any_members, *given)


def _are_plain(candidates: Candidates, stop: tf.Tensor) -> tf.Tensor:
    """Whether all headers are those of regular files with short names, as webdataset and `tar-shards` write them.

    Each candidate before the first block of zeros must follow the content of the one before it, and so must the zeros.

    Args:
      candidates: of a window.
      stop: int64 scalar, the number of those before the first block of zeros.
    """
    places, size = candidates.place[: stop + 1], candidates.size[:stop]
    after = candidates.place[:stop] + 1 + (size + BLOCK - 1) // BLOCK
    expected = tf.concat([[0], after], 0)[: byte_tensors.size(places)]
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
    end = _end(raw, stop_place, byte_tensors.size(found.place) > stop, tf.reduce_any(is_truncated), remaining)
    names = graph_names.short_names(tf.gather(blocks, places))
    is_file, target = tf.ones_like(is_truncated), -tf.ones_like(sizes)
    return _members(begins, starts, sizes, is_truncated, names, graph_names.hashes(names), is_file, target), end


def _members(
    begins: tf.Tensor,
    starts: tf.Tensor,
    sizes: tf.Tensor,
    is_truncated: tf.Tensor,
    names: graph_names.Names,
    name: tf.Tensor,
    is_file: tf.Tensor,
    target: tf.Tensor,
) -> _Members:
    """The members with these names; the other arguments are fields of `_Members`."""
    key, *extensions = graph_names.key_and_extensions(names)
    has_key = tf.logical_and(key >= 0, tf.logical_or(is_file, target >= 0))
    # Members that are left out do not separate the files of a sample.
    counted = tf.logical_or(has_key, is_truncated)
    kept = tf.where(counted)
    same_key = graph_names.same_key(names.gather(kept[:, 0]), *[tf.gather(each, kept[:, 0]) for each in (key, has_key)])
    follows = tf.concat([tf.zeros([1], tf.bool), same_key], 0)[: byte_tensors.size(kept)]
    follows = tf.scatter_nd(kept, tf.cast(follows, tf.int64), [byte_tensors.size(key)]) > 0
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
    pax = graph_pax.parse(raw, candidates)
    is_extension = is_one_of(candidates.type, EXTENSIONS)
    # The size in a pax header is that of a file, not that of another extension header before it.
    sizes = select(all_of(pax.size >= 0, tf.logical_not(is_extension)), pax.size, candidates.size)
    is_valid = all_of(sizes >= 0, tf.logical_not(all_of(is_extension, sizes > EXTENSION_BYTES)))
    # An invalid size leads to no header, as one that is larger than the shard.
    sizes = select(sizes >= 0, tf.minimum(sizes, _HUGE), _HUGE)
    sizes = select(is_one_of(candidates.type, WITHOUT_DATA), 0, sizes)
    begins = graph_headers.content_begins(blocks, candidates)
    after = begins + (sizes + BLOCK - 1) // BLOCK

    headers = graph_headers.chain(candidates.place, after, byte_tensors.size(blocks) // BLOCK)
    is_zero = tf.gather(candidates.is_zero, headers)
    # The first block that is not a valid header ends the members.
    stops = tf.where(any_of(is_zero, tf.logical_not(tf.gather(is_valid, headers))))[:, 0]
    stop = tf.concat([stops, [byte_tensors.size(headers)]], 0)[0]
    has_end = tf.reduce_any(is_zero[stop : stop + 1])
    headers = headers[:stop]
    stop_place = tf.concat([[0], tf.gather(after, headers)], 0)[-1]
    starts = tf.gather(begins, headers) * BLOCK
    is_truncated = starts + tf.gather(sizes, headers) > remaining
    end = _end(raw, stop_place, has_end, tf.reduce_any(is_truncated), remaining)

    places, begins, sizes, types, is_extension = (
        tf.gather(each, headers) for each in (candidates.place, begins, sizes, candidates.type, is_extension)
    )
    pax = graph_pax.Pax(*[tf.gather(each, headers) for each in pax])
    parsed = (raw, places, tf.gather(blocks, places), sizes)
    names = graph_names.find_names(*parsed, pax)
    starts = begins * BLOCK
    is_truncated = starts + sizes > remaining
    # A truncated extension header takes the place of the member that it belongs to.
    is_ignored = tf.logical_or(is_extension, graph_names.is_folder(types, names))
    members = tf.where(tf.logical_or(is_truncated, tf.logical_not(is_ignored)))[:, 0]
    firsts = graph_headers.first_headers(places, is_extension) * BLOCK
    firsts, starts, types, sizes, is_truncated, is_extension = (
        tf.gather(each, members) for each in (firsts, starts, types, sizes, is_truncated, is_extension)
    )
    is_file = all_of(is_one_of(types, REGULAR), tf.logical_not(is_extension))
    is_link = is_one_of(types, HARD_LINK)
    names = names.gather(members)
    name = graph_names.hashes(names)
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
    pax = graph_pax.Pax(
        *[tf.gather(each, headers) for each in graph_pax.parse(raw, Candidates(*candidates), b'linkpath')]
    )
    to = graph_names.find_names(raw, places, rows, sizes, pax, of_links=True).gather(members)
    names = tf.concat([names_before, select(is_link, graph_names.hashes(to), name)], 0)
    is_file = tf.concat([tf.ones_like(names_before, tf.bool), is_file], 0)
    return select(is_link, graph_links.targets(names, is_file)[byte_tensors.size(names_before) :], -1)


def _end(
    raw: tf.Tensor, stop_place: tf.Tensor, has_end: tf.Tensor, is_truncated: tf.Tensor, remaining: tf.Tensor
) -> _End:
    """The end of the headers of a window.

    Args:
      raw: uint8 [bytes], the window.
      stop_place: int64 scalar, the index of the block after the last member.
      has_end: bool scalar, whether it is a block of zeros.
      is_truncated: bool scalar, whether the shard ends within a member; the problem is then that member's.
      remaining: int64 scalar, the bytes of the shard from the beginning of the window on.
    """
    length = byte_tensors.size(raw)
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
