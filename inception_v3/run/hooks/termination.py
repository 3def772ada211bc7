"""Handles Ctrl-C, and SIGTERM, which processes receive before their machine is preempted.

During training, the current step is finished (on a TPU, the loop of `--iterations` steps) and its checkpoint saved.
At any other time the process ends at once: the last checkpoint has everything needed to resume.
"""

import os
import signal
import threading
import time
from typing import Any, Callable, Dict, Optional, Type

from console.errors import CommandError, InterruptedByUserError, TerminatedError
from console.log import logger
from console.tensorflow_versions import tf

# Seconds in which a second signal counts as the same request: a script may forward a signal that its whole process
# group has received. A person presses Ctrl-C again to end the run at once.
_SAME_REQUEST = {signal.SIGTERM: 5.0, signal.SIGINT: 0.3}
_NAMES = {signal.SIGTERM: 'SIGTERM', signal.SIGINT: 'Ctrl-C'}
_ERRORS: Dict[int, Type[CommandError]] = {signal.SIGTERM: TerminatedError, signal.SIGINT: InterruptedByUserError}
# Maximum seconds to wait for `release`: a remote store may not answer.
_RELEASE_WITHIN = 5.0


class Termination:
    """Handles SIGTERM and Ctrl-C on a thread of its own, while the context is open.

    A signal handler in Python waits until TensorFlow's current operation returns, which on a TPU may take minutes. A
    thread that reads the signal from a pipe does not wait.

    Args:
      end_at_once: ends the process because of an error. Called if there are no steps to lose, or if another signal
        comes: a SIGTERM more than 5 seconds after the first signal, or a second Ctrl-C.

    Attributes:
      request: the signal that came while there were steps to lose; None if none came.
      release: called before the process ends at once.
    """

    def __init__(self, end_at_once: Callable[[CommandError], None]):
        self._end_at_once = end_at_once
        self._lock = threading.Lock()
        self._has_steps_to_lose = False
        self._requested_at = 0.0
        self.request: Optional[signal.Signals] = None
        self.release: Callable[[], None] = lambda: None

    def __enter__(self) -> 'Termination':
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        self._handlers = {number: signal.signal(number, lambda *unused: None) for number in _NAMES}
        self._wakeup_fd = signal.set_wakeup_fd(write_end)
        threading.Thread(target=self._watch, args=[read_end], daemon=True).start()
        return self

    def __exit__(self, *unused: Any) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        # Closing the last writing end of the pipe ends the thread.
        os.close(signal.set_wakeup_fd(self._wakeup_fd))

    def _watch(self, read_end: int) -> None:
        while True:
            received = os.read(read_end, 1)
            if not received:
                os.close(read_end)
                return
            if received[0] in _NAMES:
                self._answer(signal.Signals(received[0]))

    def _answer(self, number: signal.Signals) -> None:
        with self._lock:
            if self.request and time.monotonic() - self._requested_at < _SAME_REQUEST[number]:
                return
            if self.request or not self._has_steps_to_lose:
                release = threading.Thread(target=self.release, daemon=True)
                release.start()
                release.join(_RELEASE_WITHIN)
                self._end_at_once(
                    _ERRORS[number](f'ended by {_NAMES[number]}; the same command resumes from the last checkpoint')
                )
                return
            self.request, self._requested_at = number, time.monotonic()
        name = _NAMES[number]
        logger.info('%s: finishing and saving the current step; another %s ends the run at once', name, name)

    def error(self, step: int, steps: int) -> CommandError:
        """The error that ends a requested run.

        Args:
          step: the step that is saved.
          steps: the number of steps of the whole run.
        """
        assert self.request
        return _ERRORS[self.request](
            f'ended by {_NAMES[self.request]} after step {step} of {steps}, which is saved; the same command resumes'
        )

    def hook(self) -> tf.estimator.SessionRunHook:
        """Makes a hook that ends training after the step in which a signal came."""
        return _TerminationHook(self)

    def steps_to_lose(self, there_are: bool) -> None:
        """Sets whether training has steps to lose from now on."""
        with self._lock:
            self._has_steps_to_lose = there_are


class _TerminationHook(tf.estimator.SessionRunHook):
    def __init__(self, termination: Termination):
        self._termination = termination

    def after_create_session(self, session: tf.Session, coord: Any) -> None:
        self._termination.steps_to_lose(True)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._termination.request:
            run_context.request_stop()
