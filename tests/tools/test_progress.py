"""The progress of tools that process images."""

import time
import types
from typing import Any, List

from tools.progress import Progress


def test_progress__is_shown_after_each_batch(monkeypatch: Any) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, 'monotonic', lambda: clock[0])
    lines: List[str] = []
    shower = Progress(types.SimpleNamespace(update=lines.append), 8, 2)  # type: ignore[arg-type]
    for _ in range(5):
        clock[0] += 10
        shower.add()
    assert lines == [
        '####............ 2 of 8, 0.1 images/s, 1:00 left',
        '########........ 4 of 8, 0.1 images/s, 0:40 left',
    ]
