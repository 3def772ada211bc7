"""The progress of tools that process images."""

import time

from console.screen import Screen, bar, duration

_BAR = 16


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
