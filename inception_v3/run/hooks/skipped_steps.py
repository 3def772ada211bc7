"""Logs the steps that loss scaling skips."""

from typing import Optional

from console.log import logger
from console.tensorflow_versions import tf
from inception_v3 import loss_scale
from inception_v3.run.hooks.step import Step, Watcher


class SkippedSteps(Watcher):
    """Logs each step that `loss_scale` skips, with the new scale, and their number when training ends."""

    def __init__(self) -> None:
        self._state: Optional[loss_scale.State] = None
        self._skipped = 0
        self._step = 0

    def graph_built(self) -> None:
        """Finds the variables of loss scaling."""
        self._state = loss_scale.state()

    def session_began(self, session: tf.Session, begin: int, now: float) -> None:
        """Reads the number of steps that an earlier part of the run skipped."""
        self._step = begin
        if self._state:
            self._skipped = int(session.run(self._state.skipped_steps))

    def step_done(self, session: tf.Session, done: Step) -> None:
        """Logs the step, if it was skipped."""
        self._step = done.step
        if not self._state:
            return
        now = loss_scale.State(*session.run(self._state))
        if now.skipped_steps > self._skipped:
            self._skipped = int(now.skipped_steps)
            logger.info(
                'step %d: a gradient overflows float16; its update is skipped, and the loss scale is now %g (steps '
                'skipped so far: %d)',
                *(done.step, now.scale, self._skipped),
            )

    def session_ended(self) -> None:
        """Logs the number of skipped steps."""
        if self._state and self._skipped:
            logger.info('loss scaling skipped %d of %d steps', self._skipped, self._step)
