"""Shell programs in place of trials, and waiting for them."""

import os
import pathlib
import time
from typing import Any, Callable


def shell(script: str) -> Any:
    """A program: it has the trial's flags as its arguments."""
    return 'sh', '-c', script, 'program'


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError('it does not come')


def text_of(path: str) -> str:
    return pathlib.Path(path).read_text() if os.path.exists(path) else ''
