"""The formats of a data set's files, for what finds, checks and reads them whichever it is."""

from typing import Callable, Dict, List, NamedTuple, Sequence

import tensorflow as tf

from data import ppm, records, tar_layout, tar_reader


class Format(NamedTuple):
    """A format of files.

    Attributes:
      shard_path: folder, split, number and count to the path of a file.
      find_shards: folder and split to the files.
      missing_shards: folder, split and files to the names of those that are missing.
      check_not_empty: raises DataError unless some file has an example.
      count_records: files to the number of examples in each.
      reader: folder and bytes to read ahead to what reads a file, given its path and `records.sizes_to_reach`.
      parse: what was read, and whether its boxes are wanted, to a `ParsedRecord`.
      checker: number of classes, and what decodes an image, to what tells the problems of examples.
    """

    shard_path: Callable[[str, str, int, int], str]
    find_shards: Callable[[str, str], List[str]]
    missing_shards: Callable[[str, str, Sequence[str]], List[str]]
    check_not_empty: Callable[[Sequence[str]], None]
    count_records: Callable[[Sequence[str]], List[int]]
    reader: Callable[[str, int], Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]]
    parse: Callable[[tf.Tensor, bool], records.ParsedRecord]
    checker: Callable[[int, Callable[[tf.Tensor], tf.Tensor]], records.RecordChecker]


# By the values of --data_format.
FORMATS: Dict[str, Format] = {
    'tfrecord': Format(
        records.shard_path,
        records.find_shards,
        records.missing_shards,
        records.check_not_empty,
        records.count_records,
        records.reader,
        records.parse,
        records.RecordChecker,
    ),
    'tar': Format(
        tar_layout.shard_path,
        tar_layout.find_shards,
        tar_layout.missing_shards,
        tar_layout.check_not_empty,
        tar_layout.count_samples,
        # A shard is read at once, wherever it is.
        lambda data_dir, buffer_size: tar_reader.read,
        lambda serialized, with_boxes: tar_reader.parse(serialized),
        lambda num_classes, decode: tar_layout.SampleChecker(num_classes, lambda image: decode(ppm.as_png(image))),
    ),
}
