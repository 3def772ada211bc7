"""Hooks that check and save checkpoints."""

import functools
import math
from typing import Callable

from compat import tf
from inception_v3 import replicas
from inception_v3.model_dir import NotFiniteError, check_fits_graph
from inception_v3.run import checkpoints
from inception_v3.run.failures import DivergedError


class CheckpointFitsHook(tf.estimator.SessionRunHook):
    """Checks that a checkpoint fits the graph, before a session restores it."""

    def __init__(self, checkpoint: str):
        self._checkpoint = checkpoint

    def begin(self) -> None:
        """Checks the variables of the complete graph."""
        check_fits_graph(self._checkpoint)


class CheckpointHook(tf.estimator.CheckpointSaverHook):
    """Saves checkpoints, and lists each only after reading it back, so that a kill leaves an intact newest checkpoint.

    Unlike TensorFlow's own hook, it does not save a restored checkpoint again. TensorFlow empties the index of that
    checkpoint before rewriting it, and a kill in between would lose the checkpoint. With 0 seconds, it saves only at
    the beginning and at the end of training. `written` is called before each checkpoint is listed.
    """

    def __init__(self, model_dir: str, save_secs: int, steps_per_run: int, written: Callable[[], None] = lambda: None):
        super().__init__(model_dir, save_secs=save_secs or math.inf, checkpoint_basename=checkpoints.PREFIX)
        self._set_steps_per_run(steps_per_run)
        self._model_dir = model_dir
        self._written = written

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        """Saves the initial variables, if there is no checkpoint of them.

        TensorFlow's own hook would also write the graph as text and, for TensorBoard, a second time, which takes
        seconds; the writer of the summaries has written it already.
        """
        step = session.run(self._global_step_tensor)
        self._save(session, step)
        self._timer.update_last_triggered_step(step)

    def _save(self, session: tf.Session, step: int) -> bool:
        """Saves a checkpoint; returns False, because saving does not end training."""
        saver, path = self._get_saver(), self._save_path
        try:
            # The graph of several replicas fits only this number of replicas, and takes seconds to write.
            options = {'write_state': False, 'write_meta_graph': not replicas.are_several()}
            write = functools.partial(saver.save, session, path, global_step=step, **options)
            checkpoints.save(self._model_dir, step, write, self._written)
        except NotFiniteError:
            # The loss of this step was finite: it was computed from the weights before the step.
            raise DivergedError('The weights are no longer finite', step - 1, step)
        return False
