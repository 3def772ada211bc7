"""Shell scripts that stand in for trials, and waiting for conditions."""

import os
import pathlib
import time
from typing import Any, Callable


def shell(script: str) -> Any:
    """The command line of a shell script; a trial appends its flags as arguments."""
    return 'sh', '-c', script, 'program'


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Waits until a condition returns a true value, and returns it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f'the condition is not true after {seconds} seconds')


def text_of(path: str) -> str:
    """The content of a file; empty if the file is missing."""
    return pathlib.Path(path).read_text() if os.path.exists(path) else ''
