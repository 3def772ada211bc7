"""Stops training that has diverged, before a checkpoint of it is saved."""

import math

from console.tensorflow_versions import tf
from inception_v3.run.failures import DivergedError
from inception_v3.run.hooks.step import Step, Watcher

# Training stops at this multiple of ln(classes), the loss of a network that guesses. Only weights a hundred times too
# large, or logits that differ by thousands, reach it. Recovery would take longer than the run so far.
LOSS_LIMIT = 1e4


class DivergenceWatcher(Watcher):
    """Stops training if its loss is not finite, or above `LOSS_LIMIT` times the loss of guessing.

    It must see a step before the hook that saves checkpoints. On a TPU it sees the last step of each loop.

    Args:
      num_classes: the number of classes among which a network guesses.

    Attributes:
      steps_before: the number of steps done when the loss was last within the limit, or when the session began.
    """

    def __init__(self, num_classes: int):
        self._limit = LOSS_LIMIT * math.log(num_classes)
        self.steps_before = 0

    def session_began(self, session: tf.Session, begin: int, now: float) -> None:
        """Assumes that the restored checkpoint is good."""
        self.steps_before = begin

    def step_done(self, session: tf.Session, done: Step) -> None:
        """Checks the loss.

        Raises:
          DivergedError: it is not finite, or too large.
        """
        if not math.isfinite(done.loss):
            raise DivergedError('The loss is no longer finite', done.step - 1, self.steps_before)
        if done.loss > self._limit:
            what = f'The loss has exploded to {done.loss:.3g} (training stops above {self._limit:,.0f})'
            raise DivergedError(what, done.step - 1, self.steps_before)
        self.steps_before = done.step
