"""An end to training that has diverged, before a checkpoint of it is kept."""

import math
from typing import Any

import tensorflow as tf

# A network that guesses has a loss of ln(classes). So many times that is reached only by weights that have grown a
# hundredfold or by logits thousands apart, which take longer to come back than the run that led to them took.
LOSS_LIMIT = 1e4


class DivergedError(Exception):
    """Training that has diverged.

    Args:
      what: what shows it.
      step: the step in which it showed, counted from 0.
      steps_before: the steps that were done when all was last fine: those of a checkpoint whose own loss is the one
        that shows it, or has not been seen, are as many.
    """

    def __init__(self, what: str, step: int, steps_before: int):
        super().__init__(what)
        self.what = what
        self.step = step
        self.steps_before = steps_before


class DivergenceHook(tf.estimator.SessionRunHook):
    """Ends training whose loss is not finite, or beyond `LOSS_LIMIT` times that of guessing.

    It comes before the hook that saves checkpoints. On a TPU it sees the loss of the last step of each loop.

    Args:
      num_classes: the classes among which a network guesses.

    Attributes:
      steps_before: the steps that were done when the loss was last fine, or when the session began.
    """

    def __init__(self, num_classes: int):
        self._limit = LOSS_LIMIT * math.log(num_classes)
        self.steps_before = 0

    def begin(self) -> None:
        """Finds the step and the loss, which Estimator puts last into the collection LOSSES."""
        self._step = tf.compat.v1.train.get_global_step()
        self._loss = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.LOSSES)[-1]

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        """Notes where the session begins."""
        self.steps_before = int(session.run(self._step))

    def before_run(self, run_context: Any) -> tf.estimator.SessionRunArgs:
        """Asks for the loss."""
        return tf.estimator.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Looks at the loss.

        Raises:
          DivergedError: it is not finite, or too large.
        """
        loss = float(run_values.results)
        steps = int(run_context.session.run(self._step))
        if not math.isfinite(loss):
            raise DivergedError('The loss is not a number any more', steps - 1, self.steps_before)
        if loss > self._limit:
            what = f'The loss has exploded to {loss:.3g} (more than {self._limit:,.0f} is beyond any use)'
            raise DivergedError(what, steps - 1, self.steps_before)
        self.steps_before = steps
