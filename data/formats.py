"""The formats of a data set's files, with the functions that find, check and read them."""

from typing import Callable, Dict, Iterator, List, NamedTuple, Sequence

from console.tensorflow_versions import tf
from data import entries, ppm, records, tf_example, tfrecord
from data.record_checker import RecordChecker, check_keys
from data.tar import files as tar_files
from data.tar import reader as tar_reader
from data.tar.layout import label_of
from data.tar.shard import SampleChecker
from data.tf_example import Fields


class Format(NamedTuple):
    """The functions for a file format.

    Attributes:
      shard_path: (folder, split, number, count) → the path of a file.
      find_shards: (folder, split) → the paths of the files.
      missing_shards: (folder, split, paths) → the names of the missing files.
      check_not_empty: (paths, number) → None; raises DataError unless the files have more records than the number.
      check_keys: (path, fields) → None; raises DataError if the first record has no image or label under its key.
      count_records: paths → the number of records in each.
      is_read_whole: a file or folder → whether the pipeline loads such files into memory as a whole.
      sizes_for_reader: paths → the size in bytes of each, for `reader`.
      reader: (a file or folder, read-ahead bytes, all files, fields) → a function (path, size) → serialized records.
      parse: (serialized record, whether to parse its boxes, fields) → a `tf_example.ParsedRecord`.
      checker: (number of classes, function that decodes an image, whether to check boxes, fields) → a checker of
        records.
      entries: (path, number of classes, fields) → the records for the audit.
    """

    shard_path: Callable[[str, str, int, int], str]
    find_shards: Callable[[str, str], List[str]]
    missing_shards: Callable[[str, str, Sequence[str]], List[str]]
    check_not_empty: Callable[[Sequence[str], int], None]
    check_keys: Callable[[str, Fields], None]
    count_records: Callable[[Sequence[str]], List[int]]
    is_read_whole: Callable[[str], bool]
    sizes_for_reader: Callable[[Sequence[str]], List[int]]
    reader: Callable[[str, int, Sequence[str], Fields], Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]]
    parse: Callable[[tf.Tensor, bool, Fields], tf_example.ParsedRecord]
    checker: Callable[[int, Callable[[tf.Tensor], tf.Tensor], bool, Fields], RecordChecker]
    entries: Callable[[str, int, Fields], Iterator[entries.Entry]]


# By the values of --data_format.
FORMATS: Dict[str, Format] = {
    'tfrecord': Format(
        records.shard_path,
        records.find_shards,
        records.missing_shards,
        tfrecord.check_not_empty,
        check_keys,
        tfrecord.count_records,
        lambda path: False,
        records.expected_sizes,
        lambda any_path, ahead, paths, fields: tfrecord.reader(any_path, ahead, paths),
        tf_example.parse,
        RecordChecker,
        entries.of_records,
    ),
    'tar': Format(
        tar_files.shard_path,
        tar_files.find_shards,
        tar_files.missing_shards,
        tar_files.check_not_empty,
        tar_files.check_keys,
        tar_files.count_samples,
        tar_reader.is_read_whole,
        records.sizes_of,
        lambda any_path, ahead, paths, fields: tar_reader.reader(any_path, ahead, label_of(fields.label)),
        lambda serialized, with_boxes, fields: tar_reader.parse(serialized, fields.label_offset),
        lambda num_classes, decode, with_boxes, fields: SampleChecker(
            num_classes, lambda image: decode(ppm.as_png(image)), with_boxes, fields
        ),
        entries.of_tar,
    ),
}
