"""What a run reads and writes, tried out beforehand: the record files, and the folders for what it leaves."""

import contextlib
import itertools
import multiprocessing.connection
import tempfile
import time
from typing import Container, Dict, Iterator, Optional, Set, Tuple

import tensorflow as tf
from absl import app

from data.formats import FORMATS
from inception_v3.config import Config
from inception_v3.data_set import check_files, notes_on_files, splits_of
from inception_v3.model_dir.bad_records import checker_of
from inception_v3.model_dir.checkpoints import latest_checkpoint
from inception_v3.model_dir.files import check_writable
from inception_v3.preflight.report import Report

_NAMED_AT_MOST = 3
# TensorFlow asks a bucket that does not answer again and again, for many minutes.
_ANSWER_SECONDS = 20
# A process that asks has to load TensorFlow first.
_START_SECONDS = 120


def unanswered(config: Config, left_out: Container[str], report: Report) -> Set[str]:
    """The flags that name remote folders from which no answer, good or bad, comes in time.

    Args:
      config: of the run.
      left_out: flags whose folders are not to be tried.
      report: where to.
    """
    asking, begun = {}, []
    # Only a process of its own can be stopped while it asks.
    processes = multiprocessing.get_context('spawn')
    for flag in ('data_dir', 'model_dir', 'export_dir'):
        folder = getattr(config, flag)
        if folder and '://' in folder and flag not in left_out:
            receiver, sender = processes.Pipe(duplex=False)
            asking[flag] = processes.Process(target=_ask, args=(folder, sender), daemon=True)
            asking[flag].start()
            # So that a process that ends early is not waited for.
            sender.close()
            begun.append(receiver)
    latest_start = time.monotonic() + _START_SECONDS
    for receiver in begun:
        receiver.poll(max(0, latest_start - time.monotonic()))
        receiver.close()
    deadline = time.monotonic() + _ANSWER_SECONDS
    silent = set()
    for flag, process in asking.items():
        process.join(max(0, deadline - time.monotonic()))
        if process.is_alive():
            process.terminate()
            silent.add(flag)
            report.error(
                f'--{flag}={getattr(config, flag)}: no answer in {_ANSWER_SECONDS} seconds. Is there a network, and '
                'are there credentials for it?'
            )
    return silent


def _ask(folder: str, begun: multiprocessing.connection.Connection) -> None:
    """Asks for a folder, and says beforehand that it is about to."""
    begun.send(None)
    with contextlib.suppress(tf.errors.OpError):
        tf.io.gfile.exists(folder)


def count_shards(config: Config, report: Report) -> Dict[str, int]:
    """Lists the record files of each split, and reads the first of each from its beginning to its end.

    Returns:
      The number of files by split, without those that cannot be listed.
    """
    counts = {}
    files = FORMATS[config.data_format]
    for split in splits_of(config):
        try:
            paths = files.find_shards(config.data_dir, split)
            counts[split] = len(paths)
            for note in notes_on_files(config, split, paths):
                report.warn(note)
            check_files(config, split, paths)
            _read(config, split, paths[0], report)
        except (app.UsageError, tf.errors.OpError) as error:
            report.error(_message(error))
    return counts


def _read(config: Config, split: str, path: str, report: Report) -> None:
    with contextlib.closing(checker_of(config, split)) as checker:
        at_most = max(config.max_bad_records + 1, _NAMED_AT_MOST)
        bad = [*itertools.islice(checker.search([path], lambda text: None), at_most)]
    tell = report.error if len(bad) > config.max_bad_records else report.warn
    for record in bad[:_NAMED_AT_MOST]:
        tell(f'{record} Mend the data; --max_bad_records={config.max_bad_records} may be skipped.')


def check_folders(config: Config, left_out: Container[str], report: Report) -> None:
    """Writes, reads and deletes a probe in each folder for results, and looks for a checkpoint.

    Args:
      config: of the run.
      left_out: flags whose folders are not to be tried.
      report: where to.
    """
    for flag, folder in (('model_dir', config.model_dir), ('export_dir', config.export_dir)):
        if folder and flag not in left_out:
            try:
                check_writable(flag, folder)
                report.add('storage', flag, folder, f'{folder}: written, read and deleted')
            except (app.UsageError, tf.errors.OpError) as error:
                report.error(_message(error))


def find_checkpoint(config: Config, report: Report) -> Optional[str]:
    """The path of the checkpoint that the run would go on from, or None."""
    try:
        checkpoint = latest_checkpoint(config.model_dir) if config.model_dir else None
    except (app.UsageError, tf.errors.OpError) as error:
        report.error(_message(error))
        return None
    if checkpoint:
        report.add('storage', 'checkpoint', checkpoint, f'{checkpoint}: the run goes on from it')
    return checkpoint


def _message(error: Exception) -> str:
    return str(error.message if isinstance(error, tf.errors.OpError) else error)


@contextlib.contextmanager
def stand_in(data_format: str, counts: Dict[str, int]) -> Iterator[Tuple[str, str]]:
    """Folders to build graphs on, which list files and do not read them: as many empty files, and a model_dir.

    So a graph does not take longer because its files are far away, for the pipeline of each host lists them anew.

    Args:
      data_format: the format of the files.
      counts: their number by split.

    Yields:
      The folder of the files, and the model_dir, which is empty.
    """
    with tempfile.TemporaryDirectory() as data_dir, tempfile.TemporaryDirectory() as model_dir:
        for split, count in counts.items():
            for shard in range(count):
                with open(FORMATS[data_format].shard_path(data_dir, split, shard, count), 'w'):
                    pass
        yield data_dir, model_dir
