"""What a user sees while a command runs: one live line on a terminal, plain lines elsewhere."""

import logging
import os
import time
import warnings
from typing import Optional, TextIO

import tensorflow as tf
from tensorflow.python.util import deprecation

from console.log import logger

# Seconds between renewals of the live line, and between plain lines.
_LIVE_INTERVAL = 0.2
_PLAIN_INTERVAL = 15.0

_ERASE_LINE = '\r\x1b[K'


class Screen(logging.Handler):
    """Shows log lines, and below them on a terminal one line that is renewed in place.

    Args:
      stream: the stream to write to; standard error for a command.

    Attributes:
      verbose: whether errors are shown with their tracebacks; `set_up_logging` sets it.
    """

    def __init__(self, stream: TextIO):
        super().__init__()
        self._stream = stream
        self._live = stream.isatty()
        self._line = self._passed_over = ''
        self._shown_at: Optional[float] = None
        self.verbose = False

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a log line, above the live one."""
        text = self.format(record)
        self._stream.write(f'{_ERASE_LINE}{text}\n{self._line}' if self._live else f'{text}\n')
        self._stream.flush()

    def update(self, text: str, at_once: bool = False) -> None:
        """Renews the live line, or writes a plain one, unless the last one is too recent.

        Args:
          text: what is shown.
          at_once: show it however recent the last one is.
        """
        now = time.monotonic()
        interval = _LIVE_INTERVAL if self._live else _PLAIN_INTERVAL
        if not at_once and self._shown_at is not None and now - self._shown_at < interval:
            self._passed_over = text
            return
        self._shown_at, self._passed_over = now, ''
        if self._live:
            self._line = text[: _terminal_width(self._stream) - 1]
            self._stream.write(_ERASE_LINE + self._line)
            self._stream.flush()
        else:
            logger.info(text)

    def catch_up(self) -> None:
        """Shows what `update` was last given, if that was passed over."""
        if self._passed_over:
            self.update(self._passed_over, at_once=True)

    def clear(self) -> None:
        """Takes the live line away."""
        if self._line:
            self._line = ''
            self._stream.write(_ERASE_LINE)
            self._stream.flush()
        self._shown_at, self._passed_over = None, ''


def _terminal_width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def set_up_logging(screen: Screen, verbose: bool) -> None:
    """Shows this program's log lines, and TensorFlow's only if they are wanted.

    TensorFlow's errors are raised, too, and told then: logged as well, they would be told twice.

    Args:
      screen: where to.
      verbose: show TensorFlow's log and Python's warnings too.
    """
    screen.verbose = verbose
    screen.setFormatter(logging.Formatter('%(asctime)s %(message)s', '%H:%M:%S'))
    for shown in (logger, logging.getLogger('tensorflow')):
        shown.handlers = [screen]
        shown.propagate = False
    logger.setLevel(logging.INFO)
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO if verbose else tf.compat.v1.logging.FATAL)
    # To see whether an argument is deprecated, TensorFlow looks at a function's signature each time that it is called:
    # a fifth of the time that it takes to build a graph.
    deprecation._PRINT_DEPRECATION_WARNINGS = verbose
    if not verbose:
        warnings.simplefilter('ignore')


def failure(error: Exception) -> str:
    """What is shown of an error of TensorFlow or the system: its first line; the others say where in the graph."""
    message = str(error.message if isinstance(error, tf.errors.OpError) else error).partition('\n')[0]
    return f'{message} (--verbose shows where this arose)'


def duration(seconds: float) -> str:
    """A number of seconds as `h:mm:ss`, or `m:ss` below an hour."""
    minutes, second = divmod(int(seconds + 0.5), 60)
    hours, minute = divmod(minutes, 60)
    return f'{hours}:{minute:02d}:{second:02d}' if hours else f'{minute}:{second:02d}'
