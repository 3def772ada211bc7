"""Names the records that the input pipeline skips, by an empty file for each; counts and explains them after a run."""

import contextlib
import os
import re
from typing import Iterator, List, Sequence

from compat import tf
from compat.log import logger
from data import checks, record_checker, records, remote
from data.sources import common_folder
from inception_v3.config import Config

# Between the file and the position in a name.
_SEPARATOR = '@'
_NAME = re.compile(r'.+@\d+')
# More bytes than a path can have.
_LONGEST_PATH = 1 << 20


def folder_of(config: Config, split: str) -> str:
    """The folder of a split in model_dir: an empty file for each skipped record, named FILE@POSITION."""
    return os.path.join(str(config.model_dir), 'bad_records', split)


def name_bad_records(config: Config, split: str, paths: tf.Tensor, positions: tf.Tensor) -> tf.Operation:
    """Writes an empty file named after each bad record; fails if there are more than `max_bad_records`.

    It writes files because the hosts of a TPU run the input pipeline without Python. A record counts once, even if it
    is read again in the next epoch or by another host.

    The paths, string [records], are of at least one record, and the positions, int64 [records], are in these files. At
    run time, the operation raises `tf.errors.InvalidArgumentError` if there are too many.
    """
    folder = folder_of(config, split)
    begin = len(os.fsencode(common_folder(config.source.find(split))))
    # As in `Source.name_of`.
    file_names = tf.strings.substr(paths, begin, _LONGEST_PATH)
    for character, code in (('%', '%25'), ('/', '%2F')):
        file_names = tf.strings.regex_replace(file_names, character, code)
    names = tf.strings.join([folder, os.sep, file_names, _SEPARATOR, tf.as_string(positions)])

    def write(index: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.io.write_file(names[index], '')]):
            return index + 1

    written = tf.while_loop(lambda index: index < tf.size(names), write, [0], parallel_iterations=1)
    # The pattern depends on the loop. With a constant pattern, TensorFlow's constant folding would list the files
    # before they are written.
    pattern = tf.strings.join([folder, os.sep, tf.strings.substr(names[0], 0, written * 0), '*@*'])
    count = tf.size(tf.io.matching_files(pattern))
    return tf.Assert(count <= config.max_bad_records, ['more bad records than may be skipped:', count])


def checker_of(config: Config, split: str) -> record_checker.RecordChecker:
    """Returns a checker for a split's records. It checks boxes only for training with `use_annotated_bbox`."""
    with_boxes = config.use_annotated_bbox and split == records.TRAIN
    source = config.source
    return checks.checker(source.data_format, config.num_classes, with_boxes, source.fields)


class BadRecords:
    """The records, of the splits that a run reads, that its commands have skipped."""

    def __init__(self, config: Config, splits: Sequence[str]):
        self._config = config
        self._splits = splits

    def forget(self) -> None:
        """Removes the names that earlier commands recorded: the records may have been repaired since."""
        for split in self._splits:
            for name in self._names(split):
                tf.io.gfile.remove(os.path.join(folder_of(self._config, split), name))

    def count(self, split: str) -> int:
        """Returns the number of skipped records of a split."""
        return len(self._names(split))

    def skipped(self) -> Iterator[record_checker.BadRecord]:
        """Yields the skipped records, each with its problem."""
        for split in self._splits:
            names, source = self._names(split), self._config.source
            if not names:
                continue
            files = source.find(split)
            path_of = {source.name_of(path, files): path for path in files}
            with contextlib.closing(checker_of(self._config, split)) as checker:
                for name in names:
                    file_name, _, position = name.rpartition(_SEPARATOR)
                    yield checker.problem_at(path_of[file_name], int(position))

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
        names = remote.names_in(folder_of(self._config, split)) or []
        # Without the files that file managers leave.
        return [name for name in names if _NAME.fullmatch(name)]
