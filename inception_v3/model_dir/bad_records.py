"""Records that cannot be used: skipped, counted and named if that is allowed, and looked for if it is not."""

import contextlib
import itertools
import os
from typing import Iterator, List, Sequence

import tensorflow as tf

from console.screen import Screen, logger
from data import record_checker, records, remote
from data.formats import FORMATS
from inception_v3.config import Config
from preprocessing.decoding import decode_image

# Below model_dir, by split: an empty file for each record that was skipped, FILE@POSITION.
_FOLDER = 'bad_records'
_SEPARATOR = '@'
# The operation that fails when the input pipeline does.
_INPUT_OPERATION = 'IteratorGetNext'
# Bad records that one message names.
_NAMED_AT_MOST = 10


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
    """The records of a run that cannot be used.

    Args:
      config: of the run.
      splits: those that the run reads.
      screen: where the progress of a search is shown.
    """

    def __init__(self, config: Config, splits: Sequence[str], screen: Screen):
        self._config = config
        self._splits = splits
        self._screen = screen

    def forget(self) -> None:
        """Forgets which records an earlier command skipped: they may have been mended since."""
        for split in self._splits:
            for name in self._names(split):
                tf.io.gfile.remove(os.path.join(_folder(self._config, split), name))

    def count(self, split: str) -> int:
        """How many records of a split have been skipped."""
        return len(self._names(split))

    def skipped(self) -> Iterator[record_checker.BadRecord]:
        """The records that have been skipped, and what is wrong with them."""
        for split in self._splits:
            with contextlib.closing(checker_of(self._config, split)) as checker:
                for name in self._names(split):
                    file_name, _, position = name.rpartition(_SEPARATOR)
                    yield checker.problem_at(os.path.join(self._config.data_dir, file_name), int(position))

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Turns the failure of an operation in the input pipeline into a message that names the record.

        The failure itself does not say which record it was; a search of the files does.

        Raises:
          DataError: instead of the failure.
        """
        try:
            yield
        except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
            self._screen.clear()
            is_of_input = any(text in error.message for text in (_INPUT_OPERATION, records.UNPARSABLE))
            if self._config.use_data == 'fake' or not is_of_input:
                raise
            if remote.ENDED_EARLY in error.message:
                raise
            logger.info('a record cannot be used; looking for it')
            found = self._search()
            self._screen.clear()
            if not found:
                raise
            raise records.DataError(self._complaint(found))

    def _search(self) -> List[record_checker.BadRecord]:
        at_most = max(_NAMED_AT_MOST, self._config.max_bad_records) + 1
        return list(itertools.islice(self._bad_records(), at_most))

    def _bad_records(self) -> Iterator[record_checker.BadRecord]:
        for split in self._splits:
            paths = FORMATS[self._config.data_format].find_shards(self._config.data_dir, split)
            with contextlib.closing(checker_of(self._config, split)) as checker:
                yield from checker.search(paths, self._screen.update)

    def _complaint(self, found: Sequence[record_checker.BadRecord]) -> str:
        lines = [
            f'--max_bad_records={self._config.max_bad_records} records may be skipped, and these cannot be used:',
            *[str(bad_record) for bad_record in found[:_NAMED_AT_MOST]],
            *(['and more.'] if len(found) > _NAMED_AT_MOST else []),
            'Mend the data, or allow more to be skipped, which damaged TFRecord files cannot be. What was trained is '
            'kept.',
        ]
        return '\n'.join(lines)

    def _names(self, split: str) -> List[str]:
        if not self._config.max_bad_records:
            return []
        return remote.names_in(_folder(self._config, split)) or []
