"""Exponential moving averages of the weights: updated in training, used in evaluation and export."""

import collections
from typing import Any, Optional, Sequence

from compat import tf  # isort: skip  Before TensorFlow is loaded.
from tensorflow.python.framework import ops
from tensorflow.python.training import slot_creator

from compat.errors import CheckpointError
from inception_v3 import replicas

# The suffix of the names of averages in a checkpoint.
SUFFIX = '/ExponentialMovingAverage'
# The collection of a graph's saver that restores averages; registered, because TensorFlow warns about collections that
# it cannot write.
_SAVERS = 'averaging_savers'
ops.register_proto_function(_SAVERS, tf.train.SaverDef, tf.train.Saver.to_proto, tf.train.Saver.from_proto)


def update_averages(decay: float, global_step: tf.Tensor, frozen: Sequence[tf.Variable] = ()) -> tf.Operation:
    """Updates the averages: average -= (1 - d) * (average - weight).

    d is min(decay, (1 + step) / (10 + step)), so that averages follow the fast changes of early
    training. The trainable variables and the collection MOVING_AVERAGE_VARIABLES have averages. The moving mean and
    variance of batch normalization have none, because they are averages already. An average is stored under the
    variable's name plus `/ExponentialMovingAverage`. With several replicas, only the first has averages.

    Args:
      decay: the decay of the averages per step, after the first steps.
      global_step: the number of steps done, this one included.
      frozen: variables that do not train; their averages are set to their values.
    """
    steps = tf.cast(global_step, tf.float32)
    share = 1.0 - tf.minimum(decay, (1.0 + steps) / (10.0 + steps))

    def update(share: tf.Tensor) -> tf.Operation:
        updates = []
        with replicas.on_first():
            for each in frozen:
                variable = replicas.copies(each)[0]
                # If a run is resumed with other layers frozen, their averages still lag behind.
                updates.append(_create_average(variable).assign(variable, read_value=False))
            # A variable may be in both collections.
            for each in collections.OrderedDict.fromkeys([*tf.trainable_variables(), *tf.moving_average_variables()]):
                variable = replicas.copies(each)[0]
                average = _create_average(variable)
                difference = (average - variable) * tf.cast(share, average.dtype)
                updates.append(average.assign_sub(difference, read_value=False))
        return tf.group(*updates)

    return replicas.merged(update, share)


def _create_average(variable: tf.Variable) -> tf.Variable:
    """Creates the average of a variable, with the variable's initial value.

    `tf.train.ExponentialMovingAverage` checks, when it is initialized, whether the variable is initialized. It adds a
    conditional for each variable: an eighth of a training graph's operations.
    """
    with tf.init_scope():
        # The variable is read, because its initial value would be drawn a second time.
        with tf.control_dependencies([variable.initializer]):
            first = variable.read_value()
        # A strategy cannot place a variable beside one copy of another variable.
        return slot_creator.create_slot(variable, first, SUFFIX[1:], colocate_with_primary=not replicas.are_several())


def averaging_saver() -> replicas.Saver:
    """A saver that restores the variables of the graph, from their averages if these exist."""
    # Only the names are needed; they do not depend on the decay.
    averages = tf.train.ExponentialMovingAverage(decay=0.0)
    saver = replicas.Saver(averages.variables_to_restore())
    saver.build()
    return saver


class LoadEMAHook(tf.estimator.SessionRunHook):
    """Replaces the weights by the averages of one checkpoint, before the first step of an evaluation.

    Args:
      path: the evaluated checkpoint, which TPUEstimator restores and which need not be the newest; or a model_dir, for
        its newest checkpoint when the session starts.
    """

    def __init__(self, path: str):
        self._path = path
        self._saver: Optional[tf.train.Saver] = None

    def begin(self) -> None:
        """Adds the restore operations to the graph.

        Raises:
          CheckpointError: the path is neither a checkpoint nor a folder; the checkpoint has no averages, or the
            model_dir has no checkpoint.
        """
        check_holds_averages(self._checkpoint())
        # A graph that serves several evaluations has a hook for each of them.
        savers = tf.get_collection_ref(_SAVERS)
        if not savers:
            savers.append(averaging_saver())
        self._saver = savers[0]

    def after_create_session(self, session: tf.Session, coord: Any) -> None:
        """Restores the averages."""
        assert self._saver is not None, 'begin() comes first'
        self._saver.restore(session, self._checkpoint())

    def _checkpoint(self) -> str:
        path = tf.train.latest_checkpoint(self._path) if tf.io.gfile.isdir(self._path) else self._path
        if not path or not tf.train.checkpoint_exists(path):
            raise CheckpointError(f'{self._path}: is neither a checkpoint nor a folder of checkpoints.')
        return path


def check_holds_averages(checkpoint: str) -> None:
    """Checks that a checkpoint has moving averages of its weights.

    Raises:
      CheckpointError: it has none.
    """
    if not any(name.endswith(SUFFIX) for name, _ in tf.train.list_variables(checkpoint)):
        raise CheckpointError(
            f'{checkpoint}: has no moving averages of the weights, because it was trained with --moving_average=False. '
            'Use that flag for evaluation and export, too.'
        )
