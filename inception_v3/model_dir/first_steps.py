"""What a run with a seed leaves of its first steps, `first_steps.json`, so that they can be repeated and compared."""

import json
import os
from typing import Any, List, NamedTuple

import tensorflow as tf

from inception_v3.model_dir import digests
from inception_v3.model_dir.files import text_of, write_whole

FIRST_STEPS_FILE = 'first_steps.json'
# As many are recorded; between visits of a TPU's host there may be more, and the first visit is recorded.
FIRST_STEPS = 10


class Step(NamedTuple):
    """After a training step.

    Attributes:
      step: the number of steps done.
      loss: of the last of them.
      digest: of all variables, as `digests.of_values` makes it.
    """

    step: int
    loss: float
    digest: str


def read(model_dir: str) -> List[Step]:
    """The first steps that a run has recorded; none if it has recorded none, or they cannot be read.

    Raises:
      RemoteError: they are refused, or cannot be reached.
    """
    try:
        steps = json.loads(text_of(os.path.join(model_dir, FIRST_STEPS_FILE)))
        return [Step(**step) for step in steps]
    except (TypeError, ValueError):
        return []


class RecordFirstStepsHook(tf.estimator.SessionRunHook):
    """Records the first steps of a run that begins at step 0, in all cycles of the same command.

    Args:
      model_dir: of the run.
    """

    def __init__(self, model_dir: str):
        self._model_dir = model_dir
        self._steps: List[Step] = []
        self._follows = False

    def begin(self) -> None:
        """Finds the loss, which Estimator puts last into the collection LOSSES, and the variables."""
        self._loss = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.LOSSES)[-1]
        self._variables = {variable.op.name: variable for variable in tf.compat.v1.global_variables()}

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        """Finds out whether the session goes on where the last one ended, or begins anew."""
        step = int(session.run(tf.compat.v1.train.get_global_step()))
        if step == 0:
            self._steps = []
        last = self._steps[-1].step if self._steps else 0
        self._follows = step == last < FIRST_STEPS

    def before_run(self, run_context: Any) -> tf.estimator.SessionRunArgs:
        """Asks for the loss."""
        return tf.estimator.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Records, until there are enough."""
        if not self._follows:
            return
        # Only now: what is fetched with a step may be read before it or after it.
        values = run_context.session.run(self._variables)
        step = int(values[tf.compat.v1.GraphKeys.GLOBAL_STEP])
        self._steps.append(Step(step, float(run_values.results), digests.of_values(values)))
        text = json.dumps([step._asdict() for step in self._steps], indent=2) + '\n'
        write_whole(os.path.join(self._model_dir, FIRST_STEPS_FILE), text)
        self._follows = step < FIRST_STEPS
