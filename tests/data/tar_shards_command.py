"""Runs python -m data.tar_shards."""

import pathlib
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]


def tar_shards(*arguments: Any, **others: Any) -> 'subprocess.CompletedProcess[str]':
    command = [sys.executable, '-W', 'ignore', '-m', 'data.tar_shards', *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, **others)
