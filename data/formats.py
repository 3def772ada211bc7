"""The formats of a data set's files, for what finds, checks and reads them whichever it is."""

from typing import Callable, Dict, Iterator, List, NamedTuple, Sequence

import tensorflow as tf

from data import entries, ppm, record_checker, records
from data.tar import layout as tar_layout
from data.tar import reader as tar_reader


class Format(NamedTuple):
    """A format of files.

    Attributes:
      shard_path: folder, split, number and count to the path of a file.
      find_shards: folder and split to the files.
      missing_shards: folder, split and files to the names of those that are missing.
      check_not_empty: files and a number; raises DataError unless they have more examples.
      count_records: files to the number of examples in each.
      is_read_whole: whether a file is in memory as a whole while it is read.
      reader: folder and bytes to read ahead to what reads a file, given its path and `records.sizes_to_reach`.
      parse: what was read, and whether its boxes are wanted, to a `ParsedRecord`.
      checker: number of classes, what decodes an image, and whether boxes are wanted, to what tells the problems of
        examples.
      entries: file and number of classes to what the audit takes of each example.
    """

    shard_path: Callable[[str, str, int, int], str]
    find_shards: Callable[[str, str], List[str]]
    missing_shards: Callable[[str, str, Sequence[str]], List[str]]
    check_not_empty: Callable[[Sequence[str], int], None]
    count_records: Callable[[Sequence[str]], List[int]]
    is_read_whole: bool
    reader: Callable[[str, int], Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]]
    parse: Callable[[tf.Tensor, bool], records.ParsedRecord]
    checker: Callable[[int, Callable[[tf.Tensor], tf.Tensor], bool], record_checker.RecordChecker]
    entries: Callable[[str, int], Iterator[entries.Entry]]


# By the values of --data_format.
FORMATS: Dict[str, Format] = {
    'tfrecord': Format(
        records.shard_path,
        records.find_shards,
        records.missing_shards,
        records.check_not_empty,
        records.count_records,
        False,
        records.reader,
        records.parse,
        record_checker.RecordChecker,
        entries.of_records,
    ),
    'tar': Format(
        tar_layout.shard_path,
        tar_layout.find_shards,
        tar_layout.missing_shards,
        tar_layout.check_not_empty,
        tar_layout.count_samples,
        True,
        lambda data_dir, buffer_size: tar_reader.read,
        lambda serialized, with_boxes: tar_reader.parse(serialized),
        lambda num_classes, decode, with_boxes: tar_layout.SampleChecker(
            num_classes, lambda image: decode(ppm.as_png(image)), with_boxes
        ),
        entries.of_tar,
    ),
}
