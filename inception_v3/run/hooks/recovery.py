"""Limits TensorFlow's recovery of interrupted sessions.

When a worker is lost, such as a preempted TPU, TensorFlow starts a new session from the last checkpoint. It treats a
file server that stays down as a lost worker, too. Then it recovers endlessly, without a message.
"""

import contextlib
from typing import Any, Callable, Iterator, Optional

from tensorflow.python.training import monitored_session
from tensorflow_estimator.python.estimator.tpu import error_handling

from console.tensorflow_versions import tf
from inception_v3.run.failures import InterruptedTrainingError

# Sessions that may begin at one step. If all of them are interrupted, the cause is not transient.
_SESSIONS_PER_STEP = 3


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
    """Stops a run whose sessions are interrupted again and again before the next checkpoint.

    Args:
      check: raises an error if the run's files cannot be read or written.
    """

    def __init__(self, check: Callable[[], None]):
        self._check = check
        self._step: Optional[int] = None
        self._sessions = 0

    def after_create_session(self, session: tf.Session, coord: Any) -> None:
        """Counts the sessions that begin at the same step.

        Raises:
          InterruptedTrainingError: there were too many, although the run's files can be used.
        """
        step = int(session.run(tf.train.get_global_step()))
        self._sessions = self._sessions + 1 if step == self._step else 1
        self._step = step
        if self._sessions > _SESSIONS_PER_STEP:
            self._check()
            raise InterruptedTrainingError(
                f'The run was interrupted {_SESSIONS_PER_STEP} times after step {step}, before the next checkpoint. '
                'The same command resumes from there; --verbose shows the cause.'
            )
