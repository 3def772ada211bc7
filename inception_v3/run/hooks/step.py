"""Reads step, loss and time once after each training step, for all watchers of training."""

import time
from typing import Any, NamedTuple, Sequence

from console.tensorflow_versions import tf


class Step(NamedTuple):
    """The state of training after a session call: one step, or on a TPU one loop of `--iterations` steps.

    Attributes:
      step: the number of steps done.
      loss: the training loss of the last of them, in nats; on a TPU, that of the first core.
      time: the time of the reading, `time.monotonic()` in seconds.
    """

    step: int
    loss: float
    time: float


class Watcher:
    """Watches training; subclasses override the methods that they need."""

    def graph_built(self) -> None:
        """Called when the graph is complete, before the session exists."""

    def session_began(self, session: tf.Session, begin: int, now: float) -> None:
        """Called when a session has been restored.

        Args:
          session: the session.
          begin: the number of steps done.
          now: `time.monotonic()`, in seconds.
        """

    def step_done(self, session: tf.Session, done: Step) -> None:
        """Called after each session call."""

    def session_ended(self) -> None:
        """Called when training ends without an error."""


class StepHook(tf.estimator.SessionRunHook):
    """Calls watchers, in their order, with one reading of step, loss and time for all.

    Args:
      watchers: called in this order at each event; if one raises an error, the later ones are not called.
    """

    def __init__(self, watchers: Sequence[Watcher]):
        self._watchers = watchers

    def begin(self) -> None:
        """Finds the step and the loss. Estimator adds the training loss last to the collection LOSSES."""
        self._step = tf.train.get_global_step()
        self._loss = tf.get_collection(tf.GraphKeys.LOSSES)[-1]
        for watcher in self._watchers:
            watcher.graph_built()

    def after_create_session(self, session: tf.Session, coord: Any) -> None:
        """Reads the step at which the session begins."""
        begin, now = int(session.run(self._step)), time.monotonic()
        for watcher in self._watchers:
            watcher.session_began(session, begin, now)

    def before_run(self, run_context: Any) -> tf.estimator.SessionRunArgs:
        """Adds the loss to the fetches of the session call."""
        return tf.estimator.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Reads the step in a separate call: fetched with the loss, it might be the step before the update."""
        session = run_context.session
        done = Step(int(session.run(self._step)), float(run_values.results), time.monotonic())
        for watcher in self._watchers:
            watcher.step_done(session, done)

    def end(self, session: tf.Session) -> None:
        """Tells the watchers that training ended without an error."""
        for watcher in self._watchers:
            watcher.session_ended()
