"""Shows progress and log lines: one live line on a terminal, plain lines elsewhere; and bars of characters."""

import logging
import os
import textwrap
import threading
import time
import warnings
from typing import Any, Optional, TextIO

from compat.log import logger, show
from compat.messages import printable

# Seconds between updates of the live line, and between plain lines.
_LIVE_INTERVAL = 0.2
_PLAIN_INTERVAL = 15.0

_ERASE_LINE = '\r\x1b[K'
# Characters that fill increasing parts of a cell.
EIGHTHS = '▏▎▍▌▋▊▉█'
# Indents the further lines of a log line to its text, after a time such as 12:00:00.
_BELOW_TIME = ' ' * 9


class Printable:
    """A text stream that escapes the characters that control a terminal; `raw` is the stream below."""

    def __init__(self, raw: TextIO):
        self.raw = raw
        self.encoding = raw.encoding or 'utf-8'

    def write(self, text: str) -> int:
        """Writes a text; characters that the encoding lacks are escaped, too."""
        self.raw.write(printable(text, '\n\t').encode(self.encoding, 'backslashreplace').decode(self.encoding))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw(stream: TextIO) -> TextIO:
    """The stream below a `Printable`, or the stream itself."""
    return getattr(stream, 'raw', stream)


class _Formatter(logging.Formatter):
    """Formats this program's log records on one line each, and other records in printable characters."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record), '' if record.name == logger.name else '\n\t')


class Screen(logging.Handler):
    """Shows log lines, and on a terminal one live line below them.

    Attributes:
      verbose: whether errors are shown with their tracebacks; None for a command without `--verbose`.
    """

    def __init__(self, stream: TextIO):
        super().__init__()
        self._stream = raw(stream)
        self._live = stream.isatty()
        self._line = self._pending = ''
        self._shown_at: Optional[float] = None
        self._writing = threading.RLock()
        self.verbose: Optional[bool] = None

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a log line above the live line."""
        text = self.format(record)
        if self._live:
            text = '\n'.join(_wrapped(line, _terminal_width(self._stream)) for line in text.split('\n'))
        with self._writing:
            self._stream.write(f'{_ERASE_LINE}{text}\n{self._line}' if self._live else f'{text}\n')
            self._stream.flush()

    def update(self, text: str, at_once: bool = False) -> None:
        """Updates the live line, or writes a plain line; skipped if the last update is recent, unless `at_once`."""
        now = time.monotonic()
        interval = _LIVE_INTERVAL if self._live else _PLAIN_INTERVAL
        if not at_once and self._shown_at is not None and now - self._shown_at < interval:
            self._pending = text
            return
        self._shown_at, self._pending = now, ''
        if self._live:
            with self._writing:
                self._line = printable(text)[: _terminal_width(self._stream) - 1]
                self._stream.write(_ERASE_LINE + self._line)
                self._stream.flush()
        else:
            logger.info(text)

    def keep(self) -> None:
        """Turns the live line into a log line."""
        line = self._line
        self.clear()
        if line:
            logger.info(line)

    def catch_up(self) -> None:
        """Shows the last text of `update` if it has not been shown."""
        if self._pending:
            self.update(self._pending, at_once=True)

    def clear(self) -> None:
        """Removes the live line."""
        with self._writing:
            if self._line:
                self._line = ''
                self._stream.write(_ERASE_LINE)
                self._stream.flush()
        self._shown_at, self._pending = None, ''


def _wrapped(line: str, width: int) -> str:
    """Wraps a log line between words to a terminal's width; paths and other long words stay whole, to be copied."""
    return textwrap.fill(
        line, width, subsequent_indent=_BELOW_TIME, break_long_words=False, break_on_hyphens=False, tabsize=4
    )


def _terminal_width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def set_up_logging(screen: Screen, verbose: bool) -> None:
    """Shows this program's log; TensorFlow's log, Python's warnings and tracebacks only if `verbose`.

    TensorFlow logs errors that it also raises. Without `verbose`, only the raised error is shown.
    """
    screen.verbose = verbose
    screen.setFormatter(_Formatter('%(asctime)s %(message)s', '%H:%M:%S'))
    show(screen, verbose)
    if not verbose:
        warnings.simplefilter('ignore')


def failure(error: Exception) -> str:
    """The first line of an error of TensorFlow or of the system; the other lines only locate it in the graph."""
    return str(getattr(error, 'message', error)).partition('\n')[0]


def duration(seconds: float) -> str:
    """Formats seconds as `h:mm:ss`, or `m:ss` below an hour."""
    minutes, second = divmod(int(seconds + 0.5), 60)
    hours, minute = divmod(minutes, 60)
    return f'{hours}:{minute:02d}:{second:02d}' if hours else f'{minute}:{second:02d}'


def bar(fraction: float, width: int, steps: str = EIGHTHS) -> str:
    """Draws a fraction of 1 as a bar of up to `width` cells; `steps` fill increasing parts of a cell."""
    whole, rest = divmod(round(fraction * width * len(steps)), len(steps))
    return steps[-1] * whole + (steps[rest - 1] if rest else '')
