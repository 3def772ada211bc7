"""What conversions that take long have in common: one at a time in a folder, which can be stopped and gone on with."""

import contextlib
import fcntl
import json
import os
import sys
import time
import uuid
from typing import Callable, Dict, Iterator, Optional

import tensorflow as tf

from data import remote
from data.records import DataError

# Beside the files of the data set, until all are finished: what a conversion is to remember.
WORK_FOLDER = 'conversion'
# Beside the files of the data set, when all are finished: what was done.
REPORT_NAME = 'conversion.json'

# Seconds between two lines about how far it is, where there is no terminal.
_SAY_EVERY = 30

# Is told how many there are so far.
Progress = Callable[[int], None]


def settings_in(path: str) -> Optional[Dict[str, str]]:
    """The settings in a file that a conversion has left; None if there is no such file.

    Raises:
      DataError: it tells of none.
      RemoteError: it is refused, or cannot be reached.
    """
    content = remote.read(path)
    if content is None:
        return None
    try:
        return {str(flag): str(value) for flag, value in json.loads(content.decode())['settings'].items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise DataError(f'{path}: does not tell of what the folder was made. Name a new folder.')


def check_same(data_dir: str, begun: Dict[str, str], settings: Dict[str, str]) -> None:
    """Makes sure that what a folder was begun with is what it is to be gone on with.

    Raises:
      DataError: it is something else.
    """
    changed = [
        f'{flag} was {begun.get(flag, "not given")}, and is {value}'
        for flag, value in settings.items()
        if begun.get(flag) != value
    ]
    if changed:
        raise DataError(
            f'{data_dir}: was made from something else: {"; ".join(changed)}. Go on with what it was begun with, or '
            'name a new folder.'
        )


def make_dir(data_dir: str, work_dir: str) -> None:
    """Makes the folders, or makes sure that they hold nothing but what was left of a conversion that never began.

    Raises:
      DataError: they hold something, or cannot be made.
      RemoteError: they are refused, or cannot be reached.
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
    """Keeps a second program out of a local folder, for as long as this one lives.

    Raises:
      DataError: it is the second.
    """
    if remote.is_remote(work_dir):
        yield
        return
    with open(os.path.join(work_dir, 'lock'), 'w') as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f'{os.path.dirname(work_dir)}: another program is at it. Wait for it, or end it.')
        yield


def write_whole(path: str, content: bytes, work_dir: str) -> None:
    """Writes a file that is there as a whole, or not at all.

    Args:
      path: of the file.
      content: of the file.
      work_dir: where it is as long as it is not whole.

    Raises:
      RemoteError: it is refused, or cannot be reached.
      tf.errors.OpError: a local one cannot be written.
    """
    unfinished = os.path.join(work_dir, f'{os.path.basename(path)}.{uuid.uuid4().hex}.unfinished')
    with remote.explained(path, remote.WRITE):
        with tf.io.gfile.GFile(unfinished, 'wb') as file:
            file.write(content)
        tf.io.gfile.rename(unfinished, path, overwrite=True)


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str, Optional[int]], Progress]]:
    """Bars on a terminal, and lines now and then elsewhere: a function that starts one, and returns what moves it.

    Raises:
      DataError: what draws them is not installed.
    """
    try:
        import rich.console
        import rich.progress
    except ImportError:
        raise DataError("rich is not installed: pip install '.[data]'.")
    console = rich.console.Console(stderr=True)
    columns = [
        rich.progress.TextColumn('{task.description}'),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TimeRemainingColumn(),
    ]
    bars = rich.progress.Progress(*columns, console=console)
    with contextlib.ExitStack() as stack:
        if console.is_terminal:
            stack.enter_context(bars)

        def start(what: str, total: Optional[int]) -> Progress:
            task = bars.add_task(what, total=total)
            said = began = time.monotonic()

            def move(done: int) -> None:
                nonlocal said
                bars.update(task, completed=done)
                now = time.monotonic()
                if not console.is_terminal and now - said >= _SAY_EVERY:
                    said = now
                    of_total = f' of {total:,}' if total else ''
                    print(f'{what}: {done:,}{of_total}, {done / (now - began):,.0f}/s', file=sys.stderr, flush=True)

            return move

        yield start
