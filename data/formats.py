"""The formats of a data set's files, with the functions that find and read them. `data.checks` has their checks."""

import functools
from typing import Callable, Dict, List, NamedTuple, Sequence

from compat import tf
from compat.deferred import deferred
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


# Imported when called: most runs read no tar shards, and records are counted once per data set, into `.records.json`.
_label_of = deferred('data.tar.layout:label_of')
_read_tar, _parse_tar = deferred('data.tar.reader:reader'), deferred('data.tar.reader:parse')

# By the values of --data_format.
FORMATS: Dict[str, Format] = {
    'tfrecord': Format(
        records.shard_path,
        records.find_shards,
        deferred('data.tfrecord_files:count_records'),
        lambda path: False,
        records.expected_sizes,
        lambda any_path, ahead, paths, fields: tfrecord.reader(any_path, ahead, paths),
        tf_example.parse,
    ),
    'tar': Format(
        lambda *shard: f'{records.shard_path(*shard)}.tar',
        functools.partial(records.find_shards, is_tar=True),
        functools.partial(records.count_each, count=deferred('data.tar.shard:count')),
        deferred('data.tar.reader:is_read_whole'),
        records.sizes_of,
        lambda any_path, ahead, paths, fields: _read_tar(any_path, ahead, _label_of(fields.label)),
        lambda serialized, with_boxes, fields: _parse_tar(serialized, fields.label_offset),
    ),
}
