"""Checks the files and folders of a run: that records can be read, and folders for results written."""

import contextlib
import itertools
import os
import tempfile
import threading
import time
from typing import Container, Dict, Iterator, Mapping, Optional, Set, Tuple

from console.tensorflow_versions import tf
from data import record_counts, records
from data.formats import FORMATS
from data.record_counts import FileRecords
from data.sources import source_of
from inception_v3.commands.preflight.report import Report
from inception_v3.config import Config
from inception_v3.data_set import check_files, notes_on_files
from inception_v3.input.bad_records import checker_of
from inception_v3.run.files import check_writable

_NAMED_AT_MOST = 3
# TensorFlow retries requests for many minutes if a store does not answer.
_ANSWER_SECONDS = 60


def unanswered(folders: Mapping[str, Optional[str]], report: Report) -> Set[str]:
    """Reports remote folders, by flag, that do not answer in time, not even with an error, and returns their flags."""
    remotes = {flag: folder for flag, folder in folders.items() if folder and '://' in folder}
    # A request cannot be cancelled; a daemon thread does not keep the command from ending.
    looks = {flag: threading.Thread(target=_look_up, args=(folder,), daemon=True) for flag, folder in remotes.items()}
    for look in looks.values():
        look.start()
    deadline = time.monotonic() + _ANSWER_SECONDS
    silent = set()
    for flag, look in looks.items():
        look.join(max(0, deadline - time.monotonic()))
        if look.is_alive():
            silent.add(flag)
            report.error(
                f'--{flag}={folders[flag]}: no answer within {_ANSWER_SECONDS} seconds. Check the network and the '
                'credentials.'
            )
    return silent


def _look_up(folder: str) -> None:
    with contextlib.suppress(tf.errors.OpError):
        tf.io.gfile.exists(folder)


def count_shards(config: Config, report: Report) -> Dict[str, int]:
    """Reads the first file of each split, and returns the number of files per split that can be listed."""
    counts = {}
    for split in config.splits:
        with report.noting_errors():
            paths = source_of(config).find(split)
            counts[split] = len(paths)
            report.warnings += notes_on_files(config, split, paths)
            check_files(config, split, paths)
            with contextlib.closing(checker_of(config, split)) as checker:
                at_most = max(config.max_bad_records + 1, _NAMED_AT_MOST)
                bad = [*itertools.islice(checker.search(paths[:1], lambda text: None), at_most)]
            add = report.error if len(bad) > config.max_bad_records else report.warn
            skips = f'A run skips at most {config.max_bad_records} records (--max_bad_records).'
            for record in bad[:_NAMED_AT_MOST]:
                add(f'{record} Repair the data. {skips}')
    return counts


def check_folders(config: Config, unchecked: Container[str], report: Report) -> None:
    """Writes, reads and deletes a test file in each folder for results, but for the flags in `unchecked`."""
    for flag, folder in (('model_dir', config.model_dir), ('export_dir', config.export_dir)):
        if folder and flag not in unchecked:
            with report.noting_errors():
                check_writable(flag, folder)
                report.add('storage', 'written, read and deleted', **{flag: folder})


@contextlib.contextmanager
def stand_in(data_format: str, counts: Dict[str, int], train_images: int) -> Iterator[Tuple[str, str]]:
    """Makes temporary folders for building graphs, and yields their paths: a data_dir and an empty model_dir.

    Building a graph lists the files of each split, as many as `counts`, but does not read them. With a seed, it divides
    the `train_images` among the hosts.
    """
    with tempfile.TemporaryDirectory() as data_dir, tempfile.TemporaryDirectory() as model_dir:
        counted = {}
        for split, count in counts.items():
            for shard in range(count):
                # All records are in the first file: only their sum counts. A record has at least a byte.
                images = 0 if shard or split != records.TRAIN else train_images
                path = FORMATS[data_format].shard_path(data_dir, split, shard, count)
                with open(path, 'wb') as file:
                    file.truncate(images)
                if split == records.TRAIN:
                    counted[os.path.basename(path)] = FileRecords(images, images)
        record_counts.write(f'{data_dir}/', counted)
        yield data_dir, model_dir
