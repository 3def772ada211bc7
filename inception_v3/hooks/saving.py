"""Hooks that check and save checkpoints."""

import tensorflow as tf

from inception_v3.hooks.divergence import DivergedError
from inception_v3.model_dir import checkpoints


class CheckpointFitsHook(tf.estimator.SessionRunHook):
    """Does `check_fits` before a session restores a checkpoint.

    Args:
      checkpoint: the path of the checkpoint.
    """

    def __init__(self, checkpoint: str):
        self._checkpoint = checkpoint

    def begin(self) -> None:
        """Checks, when the graph is complete."""
        checkpoints.check_fits(self._checkpoint)


class CheckpointHook(tf.estimator.CheckpointSaverHook):
    """Saves checkpoints, and lists each only when it has been read back and found sound: a kill leaves a whole one.

    What a session begins with is not saved again, as TensorFlow's own hook does: it empties the index of the newest
    checkpoint before it fills it anew.

    Args:
      model_dir: where to.
      save_secs: seconds between checkpoints.
      steps_per_run: steps of a TPU's loop.
      writes_graph: write the graph, too, as text and for TensorBoard, which takes seconds.
    """

    def __init__(self, model_dir: str, save_secs: int, steps_per_run: int, writes_graph: bool):
        super().__init__(model_dir, save_secs=save_secs, checkpoint_basename=checkpoints.PREFIX)
        self._set_steps_per_run(steps_per_run)
        self._model_dir = model_dir
        self._writes_graph = writes_graph

    def after_create_session(self, session: tf.compat.v1.Session, coord: tf.train.Coordinator) -> None:
        """Saves what training begins with, if there is no checkpoint of it."""
        if self._writes_graph:
            super().after_create_session(session, coord)
            return
        step = session.run(self._global_step_tensor)
        self._save(session, step)
        self._timer.update_last_triggered_step(step)

    def _save(self, session: tf.compat.v1.Session, step: int) -> bool:
        """Saves a checkpoint; returns whether training is to end, which saving never asks for."""
        saver, path = self._get_saver(), self._save_path
        try:
            checkpoints.save(
                self._model_dir, step, lambda: saver.save(session, path, global_step=step, write_state=False)
            )
        except checkpoints.NotFiniteError:
            # The loss of this step was finite: it was computed from the weights before the step.
            raise DivergedError('The weights are not finite any more', step - 1, step)
        return False
