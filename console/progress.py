"""Bars of characters, and the progress over a number of images."""

import time

from console.screen import Screen, duration

# Characters that fill increasing parts of a cell.
EIGHTHS = '▏▎▍▌▋▊▉█'
_BAR = 16


def bar(fraction: float, width: int, steps: str = EIGHTHS) -> str:
    """Draws a bar for a fraction of 1, which has `width` cells; `steps` fill increasing parts of a cell."""
    whole, rest = divmod(round(fraction * width * len(steps)), len(steps))
    return steps[-1] * whole + (steps[rest - 1] if rest else '')


class Progress:
    """Shows the number of images done, after each batch."""

    def __init__(self, screen: Screen, images: int, batch_size: int):
        self._screen = screen
        self._images = images
        self._batch_size = batch_size
        self._done = 0
        self._start = time.monotonic()

    def add(self) -> None:
        """Counts an image."""
        self._done += 1
        if self._done % self._batch_size:
            return
        rate = self._done / (time.monotonic() - self._start)
        left = duration((self._images - self._done) / rate)
        done = bar(self._done / self._images, _BAR, '#').ljust(_BAR, '.')
        self._screen.update(f'{done} {self._done:,} of {self._images:,}, {rate:,.1f} images/s, {left} left')
