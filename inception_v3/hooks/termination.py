"""Handles SIGTERM, which processes receive before their machine is preempted.

During training, the current step is finished (on a TPU, the loop of `--iterations` steps) and its checkpoint saved.
At any other time the process ends at once: the last checkpoint has everything needed to resume.
"""

import os
import signal
import threading
import time
from typing import Any, Callable

import tensorflow as tf

from console.log import logger

# Seconds in which a second signal counts as the same request: a script may forward a signal that its whole process
# group has received.
_SAME_REQUEST = 5.0
# Maximum seconds to wait for `release`: a remote store may not answer.
_RELEASE_WITHIN = 5.0


class Termination:
    """Handles SIGTERM on a thread of its own, while the context is open.

    A signal handler in Python waits until TensorFlow's current operation returns, which on a TPU may take minutes. A
    thread that reads the signal from a pipe does not wait.

    Args:
      end_at_once: ends the process. Called if there are no steps to lose, or if another signal comes more than 5
        seconds after the first.

    Attributes:
      requested: whether SIGTERM came while there were steps to lose.
      release: called before the process ends at once.
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
        # Closing the last writing end of the pipe ends the thread.
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
        logger.info('SIGTERM: finishing and saving the current step; another SIGTERM ends the run at once')

    def hook(self) -> tf.estimator.SessionRunHook:
        """Makes a hook that ends training after the step in which SIGTERM came."""
        return _TerminationHook(self)

    def steps_to_lose(self, there_are: bool) -> None:
        """Sets whether training has steps to lose from now on."""
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
