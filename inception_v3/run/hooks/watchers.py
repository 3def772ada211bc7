"""Watchers of training: after each step, all receive one reading of step, loss and time, in order."""

import math
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from compat import tf
from compat.log import logger
from data.dataset_info import DatasetInfo
from inception_v3 import loss_scale, replicas
from inception_v3.config import Config
from inception_v3.model_dir import digest_of_values
from inception_v3.run.failures import DivergedError
from inception_v3.run.starts import FIRST_STEPS, FirstStep, append_start, this_start, write_config, write_first_steps

# Training stops at this multiple of ln(classes), the loss of a network that guesses. Only weights a hundred times too
# large, or logits that differ by thousands, reach it. Recovery would take longer than the run so far.
LOSS_LIMIT = 1e4


class Step(NamedTuple):
    """The state of training after a session call: one step, or on a TPU one loop of `--iterations` steps.

    It has the number of steps done, the loss of the last step in nats (on a TPU, the first core's loss), and the time
    of the reading, `time.monotonic()` in seconds.
    """

    step: int
    loss: float
    time: float


class Watcher:
    """Watches training; subclasses override the methods that they need."""

    def graph_built(self) -> None:
        """Called when the graph is complete, before the session exists."""

    def session_began(self, session: tf.Session, begin: int, now: float) -> None:
        """Called when a session has been restored with `begin` steps done, at the time `now` of `time.monotonic()`."""

    def step_done(self, session: tf.Session, done: Step) -> None:
        """Called after each session call."""

    def session_ended(self) -> None:
        """Called when training ends without an error."""


class StepHook(tf.estimator.SessionRunHook):
    """Calls watchers, in their order, at each event; if one raises an error, the later ones are not called."""

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


class StartRecorder(Watcher):
    """Records the start of training and the configuration in model_dir, once for all cycles of a command.

    The start is recorded when the training graph is built: a command that fails earlier leaves `starts.jsonl` as it is.
    `config.json` has the settings of the newest checkpoint: a command that saves no checkpoint leaves it as it is.

    Attributes:
      weights: the origin of the weights that the run begins from, if any.
    """

    def __init__(self, config: Config, data_set: Optional[DatasetInfo]):
        self._config = config
        self._data_set = data_set
        self._is_start_recorded = self._is_config_written = False
        self.weights: Optional[Dict[str, Any]] = None

    def graph_built(self) -> None:
        """Adds a line to `starts.jsonl`, unless an earlier cycle has."""
        if not self._is_start_recorded:
            append_start(self._config, this_start(self._config, self._data_set, self.weights))
        self._is_start_recorded = True

    def checkpoint_written(self) -> None:
        """Replaces `config.json` before the first checkpoint of this command is listed."""
        if not self._is_config_written:
            write_config(self._config)
        self._is_config_written = True


class FirstStepsRecorder(Watcher):
    """Records loss and digest of the first steps of a run that begins at step 0, over all cycles of a command."""

    def __init__(self, model_dir: str):
        self._model_dir = model_dir
        self._steps: List[FirstStep] = []
        self._is_recording = False

    def graph_built(self) -> None:
        """Finds the variables."""
        self._variables = {variable.op.name: replicas.copies(variable)[0] for variable in tf.global_variables()}

    def session_began(self, session: tf.Session, begin: int, now: float) -> None:
        """Records from now on if the session begins at step 0, or where the recorded steps end."""
        if begin == 0:
            self._steps = []
        last = self._steps[-1].step if self._steps else 0
        self._is_recording = begin == last < FIRST_STEPS

    def step_done(self, session: tf.Session, done: Step) -> None:
        """Records the step, until there are `FIRST_STEPS`."""
        if not self._is_recording:
            return
        # In a separate call: variables fetched with the step might be read before their update.
        digest = digest_of_values(session.run(self._variables))
        self._steps.append(FirstStep(done.step, done.loss, digest))
        write_first_steps(self._model_dir, self._steps)
        self._is_recording = done.step < FIRST_STEPS


class DivergenceWatcher(Watcher):
    """Stops training if its loss is not finite, or above `LOSS_LIMIT` times the loss of guessing among the classes.

    It must see a step before the hook that saves checkpoints. On a TPU it sees the last step of each loop.

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
        """Raises DivergedError if the loss is not finite, or too large."""
        if not math.isfinite(done.loss):
            raise DivergedError('The loss is no longer finite', done.step - 1, self.steps_before)
        if done.loss > self._limit:
            what = f'The loss has exploded to {done.loss:.3g} (training stops above {self._limit:,.0f})'
            raise DivergedError(what, done.step - 1, self.steps_before)
        self.steps_before = done.step


class SkippedSteps(Watcher):
    """Logs each step that `loss_scale` skips, with the new scale and the number of skipped steps so far."""

    def __init__(self) -> None:
        self._state: Optional[loss_scale.State] = None
        self._skipped = 0

    def graph_built(self) -> None:
        """Finds the variables of loss scaling."""
        self._state = loss_scale.state()

    def session_began(self, session: tf.Session, begin: int, now: float) -> None:
        """Reads the number of steps that an earlier part of the run skipped."""
        if self._state:
            self._skipped = int(session.run(self._state.skipped_steps))

    def step_done(self, session: tf.Session, done: Step) -> None:
        """Logs the step, if it was skipped."""
        now = loss_scale.State(*session.run(self._state)) if self._state else None
        if now and now.skipped_steps > self._skipped:
            self._skipped = int(now.skipped_steps)
            text = 'step %s: a gradient overflows float16; its update is skipped, and the loss scale is now %g (steps '
            logger.info(text + 'skipped so far: %s)', f'{done.step:,}', now.scale, f'{self._skipped:,}')
