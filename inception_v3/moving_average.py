"""Exponential moving averages of the weights: kept in training, used in evaluation and export."""

import collections
from typing import Any, Optional

import tensorflow as tf

from inception_v3.config import Config
from inception_v3.model_dir.checkpoints import check_holds_averages


def update_averages(config: Config, global_step: tf.Tensor) -> tf.Operation:
    """Moves the averages towards the weights: average -= (1 - d) * (average - weight).

    d is min(moving_average_decay, (1 + step) / (10 + step)), so that early averages follow the fast changes of
    early training. The averages are of the trainable variables and whatever is in the collection
    MOVING_AVERAGE_VARIABLES: not of batch normalization's mean and variance, which are averages already. They
    are stored under the variable's name and `/ExponentialMovingAverage`.

    Args:
      config: gives the decay.
      global_step: the number of steps done, this one included.
    """
    averages = tf.train.ExponentialMovingAverage(config.moving_average_decay, num_updates=global_step)
    variables = [*tf.compat.v1.trainable_variables(), *tf.compat.v1.moving_average_variables()]
    return averages.apply(list(collections.OrderedDict.fromkeys(variables)))


def averaging_saver() -> tf.compat.v1.train.Saver:
    """A saver that restores the variables of the graph: the averaged ones from their averages."""
    # The decay plays no part in the names, which are all that this is for.
    averages = tf.train.ExponentialMovingAverage(decay=0.0)
    return tf.compat.v1.train.Saver(averages.variables_to_restore())


class LoadEMAHook(tf.estimator.SessionRunHook):
    """Puts the averages of one checkpoint in place of the weights, before an evaluation's first step.

    Args:
      checkpoint: the path of the checkpoint that is evaluated: not whichever is the newest by then.
    """

    def __init__(self, checkpoint: str):
        self._checkpoint = checkpoint
        self._saver: Optional[tf.compat.v1.train.Saver] = None

    def begin(self) -> None:
        """Adds the restoring operations to the graph.

        Raises:
          CheckpointError: the checkpoint holds no averages.
        """
        check_holds_averages(self._checkpoint)
        self._saver = averaging_saver()

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        """Restores the averages."""
        assert self._saver is not None, 'begin() comes first'
        self._saver.restore(session, self._checkpoint)
