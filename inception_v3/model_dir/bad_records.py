"""Records that cannot be used: skipped, counted and named if that is allowed, and looked for if it is not."""

import contextlib
import os
from typing import Iterator, List, Sequence

import tensorflow as tf

from console.log import logger
from data import record_checker, records, remote
from data.formats import FORMATS
from inception_v3.config import Config
from preprocessing.decoding import decode_image

# Below model_dir, by split: an empty file for each record that was skipped, FILE@POSITION.
_FOLDER = 'bad_records'
_SEPARATOR = '@'


def _folder(config: Config, split: str) -> str:
    return os.path.join(str(config.model_dir), _FOLDER, split)


def name_bad_records(config: Config, split: str, paths: tf.Tensor, positions: tf.Tensor) -> tf.Operation:
    """Leaves a file named after each of some records, and fails when there are more than may be skipped.

    Files, since the input pipeline of a TPU runs on hosts that have no Python; and since the same record, met again in
    the next epoch or by another host, counts once.

    Args:
      config: says where, and how many.
      split: the split of the records.
      paths: string [records], their files.
      positions: int64 [records], their places in these.
    """
    folder = _folder(config, split)
    file_names = tf.strings.regex_replace(paths, f'^.*{os.sep}', '')
    names = tf.strings.join([folder, os.sep, file_names, _SEPARATOR, tf.as_string(positions)])

    def leave(index: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.io.write_file(names[index], '')]):
            return index + 1

    left = tf.while_loop(lambda index: index < tf.size(names), leave, [0], parallel_iterations=1)
    # The list of what matches a constant would be taken for a constant, and made before.
    pattern = tf.strings.join([folder, os.sep, tf.strings.substr(names[0], 0, left * 0), '*'])
    count = tf.size(tf.io.matching_files(pattern))
    return tf.Assert(count <= config.max_bad_records, ['more bad records than may be skipped:', count])


def checker_of(config: Config, split: str) -> record_checker.RecordChecker:
    """What tells the problems that a run has with records of a split. Boxes are read in training that uses them."""
    with_boxes = config.use_annotated_bbox and split == records.TRAIN
    return FORMATS[config.data_format].checker(config.num_classes, decode_image, with_boxes)


class BadRecords:
    """The records that the commands of a run have skipped.

    Args:
      config: of the run.
      splits: the splits that the run reads.
    """

    def __init__(self, config: Config, splits: Sequence[str]):
        self._config = config
        self._splits = splits

    def forget(self) -> None:
        """Removes the names that an earlier command has left: the records may have been repaired since."""
        for split in self._splits:
            for name in self._names(split):
                tf.io.gfile.remove(os.path.join(_folder(self._config, split), name))

    def count(self, split: str) -> int:
        """The number of skipped records of a split."""
        return len(self._names(split))

    def skipped(self) -> Iterator[record_checker.BadRecord]:
        """The skipped records, with the reason for each."""
        for split in self._splits:
            with contextlib.closing(checker_of(self._config, split)) as checker:
                for name in self._names(split):
                    file_name, _, position = name.rpartition(_SEPARATOR)
                    yield checker.problem_at(os.path.join(self._config.data_dir, file_name), int(position))

    def log(self) -> None:
        """Logs the skipped records."""
        skipped = [*self.skipped()]
        if skipped:
            logger.info('%d records could not be used:', len(skipped))
        for bad_record in skipped:
            logger.info('skipped %s', bad_record)

    def _names(self, split: str) -> List[str]:
        if not self._config.max_bad_records:
            return []
        return remote.names_in(_folder(self._config, split)) or []
