"""SIGTERM, with which a machine announces that it is about to be taken away.

While training has steps to lose, the step under way is finished (on a TPU, the loop of `--iterations` steps) and its
checkpoint saved; anything else ends at once, since all that it needs is in the last checkpoint.
"""

import os
import signal
import threading
import time
from typing import Any, Callable

import tensorflow as tf

from console.screen import logger

# Seconds in which a second signal is the same request: a script may pass on what its whole process group was sent.
_SAME_REQUEST = 5.0
# Seconds that there are for what is to be released: a remote store may not answer.
_RELEASE_WITHIN = 5.0


class Termination:
    """Answers SIGTERM, while it is open, on a thread of its own.

    Python's handlers have to wait until an operation of TensorFlow returns, which on a TPU may take minutes: a thread
    that reads what the C library's handler has written does not.

    Args:
      end_at_once: ends the process. It is called when there are no steps to lose, or by a second signal
        that comes later than what may be the same request.

    Attributes:
      requested: whether SIGTERM came while there were steps to lose.
      release: what is to be called before the process is ended at once.
    """

    def __init__(self, end_at_once: Callable[[], None]):
        self._end_at_once = end_at_once
        self._lock = threading.Lock()
        self._has_steps_to_lose = False
        self._requested_at = 0.0
        self.requested = False
        self.release: Callable[[], None] = lambda: None

    def __enter__(self) -> 'Termination':
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        self._before = signal.set_wakeup_fd(write_end), signal.signal(signal.SIGTERM, lambda *unused: None)
        threading.Thread(target=self._watch, args=[read_end], daemon=True).start()
        return self

    def __exit__(self, *unused: Any) -> None:
        wakeup_fd, handler = self._before
        signal.signal(signal.SIGTERM, handler)
        # The thread ends when there is nothing left that could write to it.
        os.close(signal.set_wakeup_fd(wakeup_fd))

    def _watch(self, read_end: int) -> None:
        while True:
            received = os.read(read_end, 1)
            if not received:
                os.close(read_end)
                return
            if received[0] == signal.SIGTERM:
                self._answer()

    def _answer(self) -> None:
        with self._lock:
            if self.requested and time.monotonic() - self._requested_at < _SAME_REQUEST:
                return
            if self.requested or not self._has_steps_to_lose:
                release = threading.Thread(target=self.release, daemon=True)
                release.start()
                release.join(_RELEASE_WITHIN)
                self._end_at_once()
                return
            self.requested, self._requested_at = True, time.monotonic()
        logger.info('SIGTERM: the step under way is finished and saved; a second one, later, ends the run at once')

    def hook(self) -> tf.estimator.SessionRunHook:
        """A hook that ends training after the step in which SIGTERM came."""
        return _TerminationHook(self)

    def steps_to_lose(self, there_are: bool) -> None:
        """Says whether training has steps to lose from now on."""
        with self._lock:
            self._has_steps_to_lose = there_are


class _TerminationHook(tf.estimator.SessionRunHook):
    def __init__(self, termination: Termination):
        self._termination = termination

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        self._termination.steps_to_lose(True)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._termination.requested:
            run_context.request_stop()
