"""Runs long conversions: one at a time in a folder, resumable after any interruption."""

import contextlib
import fcntl
import json
import os
import sys
import time
from typing import Any, Callable, Dict, Iterable, Iterator, Mapping, Optional, Sequence, Tuple, TypeVar

from compat import tf
from compat.messages import counted
from console import outputs
from console.json_content import from_json
from console.screen import Screen, duration
from data import remote
from data.dataset_info import DatasetInfo
from data.files import write_whole
from data.records import DataError
from tools.image_files import listed

# The folder of intermediate files, beside the files of the data set until the conversion is finished.
WORK_FOLDER = 'conversion'
# The file that describes a finished conversion, beside the files of the data set.
REPORT_NAME = 'conversion.json'
_RESUMABLE = 'the same command resumes and keeps finished files'
# Seconds before a conversion, or a part of one, shows progress: on a terminal, and elsewhere.
_QUIET_SECONDS, _QUIET_PLAIN_SECONDS = 1.0, 15.0

Say = Callable[[str], None]
# Called with the number of finished items.
Progress = Callable[[int], None]
# Called with a label and a number of items, or None if it is unknown, to start showing progress.
StartProgress = Callable[[str, Optional[int]], Progress]

_Item = TypeVar('_Item')


def run(
    data_dir: str,
    started_name: str,
    settings: Dict[str, str],
    work: Callable[[str, StartProgress], Tuple[DatasetInfo, Dict[str, Any]]],
    say: Say,
) -> None:
    """Runs or resumes a conversion with some settings, by flag, unless it is finished already.

    The folder, local or remote, is new, empty, or has a conversion with the same settings, which `work` keeps in the
    file `started_name` of the work folder. `work` is called with the work folder and a function that shows progress. It
    writes the missing files of the data set, and returns the description of the data set and more entries of the report
    in `REPORT_NAME`.
    """
    work_dir, report = os.path.join(data_dir, WORK_FOLDER), os.path.join(data_dir, REPORT_NAME)
    finished = settings_in(report)
    started = settings_in(os.path.join(work_dir, started_name)) if finished is None else finished
    changed = [
        f'{flag} was {started.get(flag, "not given")}, and is {value}'
        for flag, value in settings.items()
        if started is not None and started.get(flag) != value
    ]
    if changed:
        raise DataError(
            f'{data_dir}: was started with other settings: {"; ".join(changed)}. Keep these, or name a new folder.'
        )
    if finished is not None:
        say(f'{data_dir}: already finished')
        return
    try:
        if started is None and set(remote.names_in(data_dir) or ()) - {WORK_FOLDER, f'{WORK_FOLDER}/'}:
            raise DataError(f'{data_dir}: exists already. Name a new folder.')
        with remote.explained(data_dir, remote.WRITE):
            tf.io.gfile.makedirs(work_dir)
        with _alone_in(work_dir), progress() as start:
            info, results = work(work_dir, start)
            info.write(data_dir)
            # The report comes last: it marks the conversion as finished.
            write_whole(report, json.dumps({'settings': settings, **results}), work_dir)
            tf.io.gfile.rmtree(work_dir)
    except tf.errors.OpError as error:
        raise DataError(f'{data_dir}: cannot be written: {error.message}; {_RESUMABLE}.')
    say(summary(info, data_dir))


def summary(info: DatasetInfo, data_dir: str) -> str:
    """The last message of a conversion."""
    return (
        f'{info.train_images:,} training and {info.validation_images:,} validation images of {info.num_classes - 1:,} '
        f'classes in {data_dir}'
    )


def say_notes(notes: Mapping[str, Sequence[str]], say: Say, all_in: str = '') -> None:
    """Prints the number of images for each note, and the names of the first ones."""
    for note, names in sorted(notes.items()):
        say(f'{counted(len(names), "image")} {note}: {listed(names, all_in)}')


def settings_in(path: str) -> Optional[Dict[str, str]]:
    """The settings in a conversion's file, by flag; None if there is no such file."""
    content = remote.read(path)
    if content is None:
        return None
    try:
        return from_json(content, lambda values: {str(flag): str(value) for flag, value in values['settings'].items()})
    except ValueError:
        raise DataError(f'{path}: does not hold the settings of a conversion. Name a new folder.')


@contextlib.contextmanager
def _alone_in(work_dir: str) -> Iterator[None]:
    """Locks a local folder against a second conversion, until the block or the process ends."""
    if remote.is_remote(work_dir):
        yield
        return
    # Without the package filelock, so that conversions need no further package.
    with open(outputs.replaceable(os.path.join(work_dir, 'lock')), 'w') as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f'{os.path.dirname(work_dir)}: in use by another conversion. Wait for it, or stop it.')
        yield


@contextlib.contextmanager
def progress() -> Iterator[StartProgress]:
    """Yields a function that shows progress on standard error, until the block ends."""
    screen = Screen(sys.stderr)
    quiet = _QUIET_SECONDS if sys.stderr.isatty() else _QUIET_PLAIN_SECONDS

    def start(what: str, total: Optional[int]) -> Progress:
        began = time.monotonic()

        def move(done: int) -> None:
            seconds = time.monotonic() - began
            if done == total:
                screen.clear()
            if not done or done == total or seconds < quiet:
                return
            of_total = f' of {total:,}' if total else ''
            remaining = f', {duration(seconds * max(total - done, 0) / done)} left' if total else ''
            screen.update(f'{what}: {done:,}{of_total}, {done / seconds:,.0f}/s{remaining}')

        return move

    try:
        yield start
    finally:
        screen.clear()


def watched(items: Iterable[_Item], move: Progress, before: int = 0) -> Iterator[_Item]:
    """Yields the items, and calls `move` with the number of each, counted from `before` + 1."""
    for number, item in enumerate(items, before + 1):
        move(number)
        yield item
