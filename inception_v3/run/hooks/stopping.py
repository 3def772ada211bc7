"""Ends a run before its last step: after signals, or if sessions are interrupted repeatedly.

Ctrl-C, and SIGTERM, which processes receive before their machine is preempted: during training, the current step is
finished (on a TPU, the loop of `--iterations` steps) and its checkpoint saved. At any other time the process ends at
once: the last checkpoint has everything needed to resume.

When a worker is lost, such as a preempted TPU, TensorFlow starts a new session from the last checkpoint. It also treats
a file server that stays down as a lost worker; then it recovers forever, without a message.
"""

import contextlib
import os
import signal
import threading
import time
from typing import Any, Callable, Dict, Iterator, Optional, Tuple, Type

from tensorflow.python.training import monitored_session
from tensorflow_estimator.python.estimator.tpu import error_handling

from compat import tf
from compat.errors import CommandError, InterruptedByUserError, RetryableError, TerminatedError
from compat.log import logger

# The name of a signal, its error, and the seconds in which a second one counts as the same request: a script may
# forward a signal that its whole process group has received. A user who presses Ctrl-C again wants to end the run at
# once.
_SIGNALS: Dict[int, Tuple[str, Type[CommandError], float]] = {
    signal.SIGTERM: ('SIGTERM', TerminatedError, 5.0),
    signal.SIGINT: ('Ctrl-C', InterruptedByUserError, 0.3),
}
# Maximum seconds to wait for `release`: a remote store may not answer.
_RELEASE_WITHIN = 5.0
# Sessions that may begin at one step. If all of them are interrupted, the cause is not transient.
_SESSIONS_PER_STEP = 3


class Termination(tf.estimator.SessionRunHook):
    """Handles SIGTERM and Ctrl-C on a separate thread while the context is open.

    As a hook, it ends training after the step in which a signal arrived.

    A signal handler in Python waits until TensorFlow's current operation returns, which on a TPU may take minutes. A
    thread that reads the signal from a pipe does not wait.

    `end_at_once` ends the process because of an error. It is called, after `tell` with the error and `release`, if
    there are no steps to lose, or if another signal comes: a SIGTERM more than 5 seconds after the first signal, or a
    second Ctrl-C. `request` is the signal that came while there were steps to lose. After each step, `agree` receives
    it, and returns the signal of any worker of the run, after which all workers end.
    """

    def __init__(self, end_at_once: Callable[[CommandError], None]):
        self._end_at_once = end_at_once
        self._lock = threading.Lock()
        self._has_steps_to_lose = False
        # When this process received its first signal.
        self._received_at: Optional[float] = None
        self.request: Optional[int] = None
        self.release: Callable[[], None] = lambda: None
        self.tell: Callable[[CommandError], None] = lambda error: None
        self.agree: Callable[[Optional[int]], Optional[int]] = lambda request: request

    def __enter__(self) -> 'Termination':
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        self._handlers = {number: signal.signal(number, lambda *unused: None) for number in _SIGNALS}
        self._wakeup_fd = signal.set_wakeup_fd(write_end)
        threading.Thread(target=self._watch, args=[read_end], daemon=True).start()
        return self

    def __exit__(self, *unused: Any) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        # Closing the last writing end of the pipe ends the thread.
        os.close(signal.set_wakeup_fd(self._wakeup_fd))

    def _watch(self, read_end: int) -> None:
        for received in iter(lambda: os.read(read_end, 1), b''):
            if received[0] in _SIGNALS:
                self._answer(received[0])
        os.close(read_end)

    def _answer(self, number: int) -> None:
        name, error, same_request = _SIGNALS[number]
        with self._lock:
            now = time.monotonic()
            # If another worker has received the request, this may be the same signal, sent to this worker.
            if self._received_at is None:
                self._received_at = now
            if self.request and now - self._received_at < same_request:
                return
            if self.request or not self._has_steps_to_lose:
                ended = error(f'ended by {name}; the same command resumes from the last checkpoint')
                self.tell(ended)
                self.end_process(ended)
                return
            self.request = number
        logger.info('%s: finishing and saving the current step; another %s ends the run at once', name, name)

    def end_process(self, error: CommandError) -> None:
        """Ends the process at once, because of an error. May be called from any thread."""
        release = threading.Thread(target=self.release, daemon=True)
        release.start()
        release.join(_RELEASE_WITHIN)
        self._end_at_once(error)

    def error(self, step: int, steps: int) -> CommandError:
        """The error that ends a run on request at a saved step; `steps` is the number of all steps of the run."""
        assert self.request
        name, error, _ = _SIGNALS[self.request]
        return error(f'ended by {name} after step {step:,} of {steps:,}, which is saved; the same command resumes')

    def steps_to_lose(self, there_are: bool) -> None:
        """Sets whether training has steps to lose from now on."""
        with self._lock:
            self._has_steps_to_lose = there_are

    def after_create_session(self, session: tf.Session, coord: Any) -> None:
        """From now on, there are steps to lose."""
        self.steps_to_lose(True)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Ends training after a signal."""
        # A signal may come between the agreement and this line: only the agreed signal ends training after this step.
        agreed = self.agree(self.request)
        if agreed:
            self.request = agreed
            run_context.request_stop()


@contextlib.contextmanager
def without_recovery() -> Iterator[None]:
    """Makes an interrupted session end with its error.

    This is for runs on the CPU. No worker can be lost there, and TensorFlow has already retried a failing file server
    ten times. A hook cannot do this: if a session fails before it has begun, no hook is called.
    """
    recovered, ignored = monitored_session._PREEMPTION_ERRORS, error_handling._IGNORED_ERRORS
    # TPUEstimator returns as if it had finished training when it gets one of the ignored errors.
    monitored_session._PREEMPTION_ERRORS = error_handling._IGNORED_ERRORS = ()
    try:
        yield
    finally:
        monitored_session._PREEMPTION_ERRORS, error_handling._IGNORED_ERRORS = recovered, ignored


class RecoveryLimitHook(tf.estimator.SessionRunHook):
    """Stops a run whose sessions are repeatedly interrupted before the next checkpoint.

    It first calls `check`, which raises an error if the run's files cannot be read or written.
    """

    def __init__(self, check: Callable[[], None]):
        self._check = check
        self._step: Optional[int] = None
        self._sessions = 0

    def after_create_session(self, session: tf.Session, coord: Any) -> None:
        """Counts the sessions that begin at the same step."""
        step = int(session.run(tf.train.get_global_step()))
        self._sessions = self._sessions + 1 if step == self._step else 1
        self._step = step
        if self._sessions > _SESSIONS_PER_STEP:
            self._check()
            raise RetryableError(
                f'The run was interrupted {_SESSIONS_PER_STEP} times after step {step:,}, before the next checkpoint. '
                'The same command resumes from there; --verbose shows the cause.'
            )


class StepLimitHook(tf.estimator.SessionRunHook):
    """Ends a session after a number of steps. TensorFlow's own hook counts evaluation steps in a variable."""

    def __init__(self, steps: int):
        self._left = steps

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts the step."""
        self._left -= 1
        if self._left <= 0:
            run_context.request_stop()
