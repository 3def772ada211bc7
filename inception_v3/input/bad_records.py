"""Counts and explains the records that a run has skipped; `usable_records` writes a file named after each."""

import collections
import contextlib
import os
from typing import Iterator, List, Sequence, Tuple

from compat import tf
from compat.log import logger
from data import checks, record_checker, records, remote
from inception_v3.config import Config
from inception_v3.input.usable_records import NAME, SEPARATOR, folder_of
from inception_v3.machines import cluster


def checker_of(config: Config, split: str) -> record_checker.RecordChecker:
    """Returns a checker for a split's records. It checks boxes only for training with `use_annotated_bbox`."""
    with_boxes = config.use_annotated_bbox and split == records.TRAIN
    source = config.source
    return checks.checker(source.data_format, config.num_classes, with_boxes, source.fields)


class BadRecords:
    """The records that a run's commands have skipped, in the splits that it reads."""

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
        return (bad_record for bad_record, _ in self._with_workers())

    def log(self) -> None:
        """Logs the skipped records of all machines, and which worker skipped each."""
        skipped = [*self._with_workers()]
        if not skipped:
            return
        by_worker = collections.Counter(worker for _, worker in skipped)
        shares = ', '.join(f'{by_worker[worker]} at {worker}' for worker in self._workers() if worker in by_worker)
        logger.info('%s records could not be used%s:', f'{len(skipped):,}', f' ({shares})' if shares else '')
        for bad_record, worker in skipped:
            logger.info('skipped%s %s', f' at {worker}:' if worker else '', bad_record)

    def _workers(self) -> List[str]:
        """The names of the machines' workers, for messages; empty for one machine."""
        addresses = cluster.addresses_in(self._config.worker_hosts)
        return [cluster.name_of(addresses, number) for number in range(len(addresses))]

    def _with_workers(self) -> Iterator[Tuple[record_checker.BadRecord, str]]:
        """Yields the skipped records, each with the worker that skipped it last; on one machine with ''."""
        workers = {str(number).encode(): name for number, name in enumerate(self._workers())}
        for split in self._splits:
            names, source = self._names(split), self._config.source
            if not names:
                continue
            files = source.find(split)
            path_of = {source.name_of(path, files): path for path in files}
            with contextlib.closing(checker_of(self._config, split)) as checker:
                for name in names:
                    file_name, _, position = name.rpartition(SEPARATOR)
                    if file_name not in path_of:
                        # A simultaneous evaluation of other files skipped this record, and names it.
                        continue
                    number = remote.read(os.path.join(folder_of(self._config, split), name)) if workers else None
                    yield checker.problem_at(path_of[file_name], int(position)), workers.get(number or b'', '')

    def _names(self, split: str) -> List[str]:
        if not self._config.max_bad_records:
            return []
        names = remote.names_in(folder_of(self._config, split)) or []
        # Leaves out the files of file managers.
        return [name for name in names if NAME.fullmatch(name)]
