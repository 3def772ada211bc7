"""An end to recoveries that lead nowhere.

TensorFlow answers a worker that was taken away, as a TPU can be, with a new session from the last checkpoint; and it
takes a file server that stays unavailable for such a worker. If that goes on, so does the recovery: endless and silent.
"""

import contextlib
from typing import Any, Callable, Iterator, Optional

import tensorflow as tf
from tensorflow.python.training import monitored_session
from tensorflow_estimator.python.estimator.tpu import error_handling

from console.errors import CommandError, RetryableError

# Sessions that may begin at one step: after as many, what interrupts them does not pass.
_SESSIONS_PER_STEP = 3


class TrainingError(CommandError):
    """Training that cannot go on."""


class InterruptedTrainingError(TrainingError, RetryableError):
    """Training that was interrupted; the same command may well go on."""


@contextlib.contextmanager
def without_recovery() -> Iterator[None]:
    """Lets a session that is interrupted end with its error.

    For runs on this machine's CPU: nothing can be taken away from them, and what a file server failed to give was asked
    for ten times. A hook cannot do this, since none is called when a session fails before it has begun.
    """
    recovered, ignored = monitored_session._PREEMPTION_ERRORS, error_handling._IGNORED_ERRORS
    # TPUEstimator ends as if it had trained, if such an error reaches it.
    monitored_session._PREEMPTION_ERRORS = error_handling._IGNORED_ERRORS = ()
    try:
        yield
    finally:
        monitored_session._PREEMPTION_ERRORS, error_handling._IGNORED_ERRORS = recovered, ignored


class RecoveryLimitHook(tf.estimator.SessionRunHook):
    """Gives up a session that is interrupted again and again before the next checkpoint.

    Args:
      check: raises what is wrong with the files of the run, if anything is.
    """

    def __init__(self, check: Callable[[], None]):
        self._check = check
        self._step: Optional[int] = None
        self._sessions = 0

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        """Counts the sessions that begin at the same step.

        Raises:
          InterruptedTrainingError: they are too many, and the files are not to blame.
        """
        step = int(session.run(tf.compat.v1.train.get_global_step()))
        self._sessions = self._sessions + 1 if step == self._step else 1
        self._step = step
        if self._sessions > _SESSIONS_PER_STEP:
            self._check()
            raise InterruptedTrainingError(
                f'The run was interrupted {_SESSIONS_PER_STEP} times after step {step}, before a later checkpoint. '
                'The same command goes on from there; --verbose shows what interrupts it.'
            )
