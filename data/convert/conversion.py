"""Runs long conversions: one at a time in a folder, resumable after any interruption."""

import contextlib
import fcntl
import os
import signal
import sys
import time
from typing import Any, Callable, Dict, Iterator, Optional

from console import outputs
from console.errors import TerminatedError
from console.json_content import from_json
from console.screen import Screen, duration
from console.tensorflow_versions import tf
from data import remote
from data.records import DataError

# The folder of intermediate files, beside the files of the data set until the conversion is finished.
WORK_FOLDER = 'conversion'
# The file that describes a finished conversion, beside the files of the data set.
REPORT_NAME = 'conversion.json'

# The end of the message about an interrupted conversion.
RESUMABLE = 'the same command resumes and keeps finished files'

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


def check_same(data_dir: str, begun: Dict[str, str], settings: Dict[str, str]) -> None:
    """Checks that a conversion is resumed with the settings that it was started with.

    Raises:
      DataError: a setting differs.
    """
    changed = [
        f'{flag} was {begun.get(flag, "not given")}, and is {value}'
        for flag, value in settings.items()
        if begun.get(flag) != value
    ]
    if changed:
        raise DataError(
            f'{data_dir}: was started with other settings: {"; ".join(changed)}. Resume with the same settings, or '
            'name a new folder.'
        )


def make_dir(data_dir: str, work_dir: str) -> None:
    """Makes the folders of a new conversion.

    Raises:
      DataError: the folder of the data set has other content than an empty work folder, or cannot be made.
      RemoteError: access to the folders is denied, or the store cannot be reached.
    """
    try:
        if set(remote.names_in(data_dir) or ()) - {WORK_FOLDER, f'{WORK_FOLDER}/'}:
            raise DataError(f'{data_dir}: exists already. Name a new folder.')
        with remote.explained(data_dir, remote.WRITE):
            tf.io.gfile.makedirs(work_dir)
    except tf.errors.OpError as error:
        raise DataError(f'{data_dir}: cannot be made: {error.message}')


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
