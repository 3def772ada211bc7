"""Runs long conversions: one at a time in a folder, resumable after any interruption."""

import contextlib
import fcntl
import os
import signal
import sys
import time
from typing import Any, Callable, Dict, Iterator, Optional, Sequence

from console import outputs
from console.errors import TerminatedError
from console.json_content import from_json
from console.screen import Screen, duration
from console.tensorflow_versions import tf
from data import remote
from data.image_files import show
from data.records import DataError

# The folder of intermediate files, beside the files of the data set until the conversion is finished.
WORK_FOLDER = 'conversion'
# The file that describes a finished conversion, beside the files of the data set.
REPORT_NAME = 'conversion.json'

# The end of the message about an interrupted conversion.
RESUMABLE = 'the same command resumes and keeps finished files'

_NAMED_AT_MOST = 3

# A conversion, or a part of one, shows no progress before it has taken this long: on a terminal, and elsewhere.
_QUIET_SECONDS = 1.0
_QUIET_PLAIN_SECONDS = 15.0

# Called with the number of finished items.
Progress = Callable[[int], None]
# Called with a label and a number of items, or None if that is unknown, to start showing their progress.
StartProgress = Callable[[str, Optional[int]], Progress]


def settings_in(path: str) -> Optional[Dict[str, str]]:
    """The settings in a conversion's file, by flag; None if there is no such file.

    Raises:
      DataError: the file has no settings.
      RemoteError: access to it is denied, or the store cannot be reached.
    """
    content = remote.read(path)
    if content is None:
        return None
    try:
        return from_json(content, lambda values: {str(flag): str(value) for flag, value in values['settings'].items()})
    except ValueError:
        raise DataError(f'{path}: does not hold the settings of a conversion. Name a new folder.')


def start(data_dir: str, started_name: str, settings: Dict[str, str], say: Callable[[str], None]) -> Optional[str]:
    """Starts or resumes a conversion.

    Args:
      data_dir: the folder of the data set: new, empty, or with a conversion of the same settings.
      started_name: the file in the work folder that has the settings of an unfinished conversion.
      settings: the inputs and options of the conversion, by flag.
      say: called with a message if the conversion is already finished.

    Returns:
      The work folder, which exists; None if the conversion is already finished.

    Raises:
      DataError: a setting differs, or the folder has other content, or cannot be made.
      RemoteError: access to the folders is denied, or the store cannot be reached.
    """
    work_dir = os.path.join(data_dir, WORK_FOLDER)
    finished = settings_in(os.path.join(data_dir, REPORT_NAME))
    started = settings_in(os.path.join(work_dir, started_name)) if finished is None else finished
    if started is None:
        try:
            if set(remote.names_in(data_dir) or ()) - {WORK_FOLDER, f'{WORK_FOLDER}/'}:
                raise DataError(f'{data_dir}: exists already. Name a new folder.')
            with remote.explained(data_dir, remote.WRITE):
                tf.io.gfile.makedirs(work_dir)
        except tf.errors.OpError as error:
            raise DataError(f'{data_dir}: cannot be made: {error.message}')
        return work_dir
    changed = [
        f'{flag} was {started.get(flag, "not given")}, and is {value}'
        for flag, value in settings.items()
        if started.get(flag) != value
    ]
    if changed:
        raise DataError(
            f'{data_dir}: was started with other settings: {"; ".join(changed)}. Resume with the same settings, or '
            'name a new folder.'
        )
    if finished is not None:
        say(f'{data_dir}: already finished')
        return None
    return work_dir


@contextlib.contextmanager
def alone_in(work_dir: str) -> Iterator[None]:
    """Locks a local folder against a second conversion, until the block or the process ends.

    Raises:
      DataError: another process has the lock.
    """
    if remote.is_remote(work_dir):
        yield
        return
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
            if not done or seconds < quiet:
                return
            of_total = f' of {total:,}' if total else ''
            remaining = f', {duration(seconds * max(total - done, 0) / done)} left' if total else ''
            screen.update(f'{what}: {done:,}{of_total}, {done / seconds:,.0f}/s{remaining}')

        return move

    try:
        yield start
    finally:
        screen.clear()


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Makes SIGTERM interrupt the block as Ctrl-C does.

    Raises:
      TerminatedError: SIGTERM was received.
    """
    is_terminated = False

    def interrupt(*_: Any) -> None:
        nonlocal is_terminated
        is_terminated = True
        # Not an Exception: code that reads damaged files catches every Exception.
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if is_terminated:
            raise TerminatedError(f'ended by SIGTERM; {RESUMABLE}')
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def listed(names: Sequence[str], all_in: str = '') -> str:
    """The first few of some names, the number of the others, and the path of the file that lists all of them."""
    more = len(names) - _NAMED_AT_MOST
    text = ', '.join(map(show, names[:_NAMED_AT_MOST]))
    return text if more <= 0 else f'{text} and {more:,} more' + (f' (all in {show(all_in)})' if all_in else '')
