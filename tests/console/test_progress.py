"""Tests of bars, and of the progress over images."""

from typing import Any, List

from console import progress


def test_progress__shown_after_each_batch(monkeypatch: Any) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, 'monotonic', lambda: now[0])
    shown: List[str] = []

    class FakeScreen:
        def update(self, text: str) -> None:
            shown.append(text)

    shower = progress.Progress(FakeScreen(), 8, 2)  # type: ignore[arg-type]
    for _ in range(5):
        now[0] += 10
        shower.add()
    assert shown == [
        '####............ 2 of 8, 0.1 images/s, 1:00 left',
        '########........ 4 of 8, 0.1 images/s, 0:40 left',
    ]


def test_bar__length_is_proportional() -> None:
    assert progress.bar(1, 10) == '█' * 10
    assert progress.bar(0.5, 10) == '█' * 5
    assert progress.bar(0.54, 10) == '█' * 5 + '▍'
    assert progress.bar(0, 10) == ''
    assert progress.bar(0.54, 10, '#') == '#####'
