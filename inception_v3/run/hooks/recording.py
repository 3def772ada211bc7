"""Records each start of training, and the first steps of a run with a seed."""

from typing import Any, Dict, List, Optional

from console.tensorflow_versions import tf
from data.dataset_info import DatasetInfo
from inception_v3.config import Config
from inception_v3.run import digests, first_steps, starts
from inception_v3.run.hooks.step import Step, Watcher


class StartRecorder(Watcher):
    """Records the configuration and the start of training in model_dir, once for all cycles of a command.

    It waits until the training graph is built: a command that fails earlier leaves `config.json` and `starts.jsonl`
    unchanged.
    """

    def __init__(self, config: Config, data_set: Optional[DatasetInfo]):
        self._config = config
        self._data_set = data_set
        self._recorded = False
        self._weights: Optional[Dict[str, Any]] = None

    def begins_from(self, weights: Dict[str, Any]) -> None:
        """Sets the origin of the weights that the run begins from."""
        self._weights = weights

    def graph_built(self) -> None:
        """Writes both files, unless an earlier cycle has."""
        if not self._recorded:
            starts.record(self._config, self._data_set, self._weights)
        self._recorded = True


class FirstStepsRecorder(Watcher):
    """Records loss and digest of the first steps of a run that begins at step 0, over all cycles of a command."""

    def __init__(self, model_dir: str):
        self._model_dir = model_dir
        self._steps: List[first_steps.Step] = []
        self._is_recording = False

    def graph_built(self) -> None:
        """Finds the variables."""
        self._variables = {variable.op.name: variable for variable in tf.global_variables()}

    def session_began(self, session: tf.Session, begin: int, now: float) -> None:
        """Records if the session begins at step 0, or where the recorded steps end."""
        if begin == 0:
            self._steps = []
        last = self._steps[-1].step if self._steps else 0
        self._is_recording = begin == last < first_steps.FIRST_STEPS

    def step_done(self, session: tf.Session, done: Step) -> None:
        """Records the step, until there are `FIRST_STEPS`."""
        if not self._is_recording:
            return
        # In a call of its own: variables fetched with the step might be read before their update.
        values = session.run(self._variables)
        self._steps.append(first_steps.Step(done.step, done.loss, digests.of_values(values)))
        first_steps.write(self._model_dir, self._steps)
        self._is_recording = done.step < first_steps.FIRST_STEPS
