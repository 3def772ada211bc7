"""The formats of a data set's files, with the functions that find and read them. `data.checks` has their checks."""

import functools
from typing import Callable, Dict, List, NamedTuple, Sequence

from compat import tf
from data import records, tf_example, tfrecord
from data.tf_example import Fields


class Format(NamedTuple):
    """The functions for a file format."""

    shard_path: Callable[[str, str, int, int], str]  # (folder, split, number, count) → the path of a file.
    find_shards: Callable[[str, str], List[str]]  # (folder, split) → the paths of the files.
    count_records: Callable[[Sequence[str]], List[int]]  # Paths → the number of records in each.
    # A file or folder → whether the pipeline loads such files into memory as a whole.
    is_read_whole: Callable[[str], bool]
    sizes_for_reader: Callable[[Sequence[str]], List[int]]  # Paths → the size in bytes of each, for `reader`.
    # (a file or folder, read-ahead bytes, all files, fields) → a function (path, size) → serialized records.
    reader: Callable[[str, int, Sequence[str], Fields], Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]]
    # (serialized record, whether to parse its boxes, fields) → a `tf_example.ParsedRecord`.
    parse: Callable[[tf.Tensor, bool, Fields], tf_example.ParsedRecord]


# Counted once for a data set, which then has `.records.json`: reading in the graph needs no other reader of the files.
def _count_records(paths: Sequence[str]) -> List[int]:
    from data import tfrecord_files

    return tfrecord_files.count_records(paths)


def _count_samples(paths: Sequence[str]) -> List[int]:
    from data.tar.shard import count

    return records.count_each(paths, count)


# Only runs on tar shards read them.
def _tar_is_read_whole(path: str) -> bool:
    from data.tar import reader

    return reader.is_read_whole(path)


def _tar_reader(any_path: str, ahead: int, paths: Sequence[str], fields: Fields) -> Callable[..., tf.data.Dataset]:
    from data.tar import layout, reader

    return reader.reader(any_path, ahead, layout.label_of(fields.label))


def _tar_parse(serialized: tf.Tensor, with_boxes: bool, fields: Fields) -> tf_example.ParsedRecord:
    from data.tar import reader

    return reader.parse(serialized, fields.label_offset)


# By the values of --data_format.
FORMATS: Dict[str, Format] = {
    'tfrecord': Format(
        records.shard_path,
        records.find_shards,
        _count_records,
        lambda path: False,
        records.expected_sizes,
        lambda any_path, ahead, paths, fields: tfrecord.reader(any_path, ahead, paths),
        tf_example.parse,
    ),
    'tar': Format(
        lambda *shard: f'{records.shard_path(*shard)}.tar',
        functools.partial(records.find_shards, is_tar=True),
        _count_samples,
        _tar_is_read_whole,
        records.sizes_of,
        _tar_reader,
        _tar_parse,
    ),
}
