"""The evaluations of a run, in the `results.jsonl` of its model_dir."""

import os
from typing import Any, List, NamedTuple, Tuple, get_type_hints

from inception_v3.config import Config, differences
from inception_v3.model_dir.files import append_line, read_lines, recorded_config

RESULTS_FILE = 'results.jsonl'


# The fields of a configuration that decide what an evaluation of a checkpoint gives.
_DECIDING = (
    *('use_data', 'data_dir', 'data_format', 'num_classes', 'num_eval_images', 'eval_total_size', 'max_bad_records'),
    *('preprocessing', 'height', 'width', 'network', 'depth_multiplier', 'precision', 'transfer', 'moving_average'),
)


class Evaluation(NamedTuple):
    """One evaluation: one line of `results.jsonl`.

    Attributes:
      step: the checkpoint's global step.
      checkpoint: the checkpoint's name in model_dir.
      weights: 'average' or 'raw'.
      top_1: fraction of the images whose label is the likeliest class.
      top_5: fraction of the images whose label is among the five likeliest.
      cross_entropy: mean over the images, in nats, without label smoothing.
      images: number of images, each evaluated once.
      seconds: duration, the building of the graph included.
      time: when it ended: UTC, ISO 8601.
      changed: the settings that decide an evaluation and differ from those of the training, `name: old -> new`.
      data_set: the name of the data set, as `dataset.json` has it; empty if there is none.
      fingerprint: of the data set, as `dataset.json` has it; empty if there is none.
    """

    step: int
    checkpoint: str
    weights: str
    top_1: float
    top_5: float
    cross_entropy: float
    images: int
    seconds: float
    time: str
    changed: Tuple[str, ...] = ()
    data_set: str = ''
    fingerprint: str = ''

    @property
    def identity(self) -> Tuple[int, str, int, str, Tuple[str, ...]]:
        """The inputs of the evaluation: two with the same identity have the same scores."""
        return self.step, self.weights, self.images, self.fingerprint, self.changed


def changed_since_training(config: Config, checkpoint: str) -> Tuple[str, ...]:
    """The settings that decide an evaluation and differ from those in the `config.json` beside a checkpoint.

    None, if that cannot be read.
    """
    trained = recorded_config(os.path.dirname(checkpoint))
    if not trained:
        return ()
    return tuple(change for change in differences(trained, config) if change.split(':')[0] in _DECIDING)


def append_evaluation(model_dir: str, evaluation: Evaluation) -> None:
    """Adds a line to `results.jsonl`."""
    append_line(os.path.join(model_dir, RESULTS_FILE), evaluation._asdict())


def read_evaluations(model_dir: str) -> List[Evaluation]:
    """The evaluations in `results.jsonl`, in the order in which they were made; other lines are passed over."""
    return evaluations_in(os.path.join(model_dir, RESULTS_FILE))


def read_unchanged(model_dir: str) -> List[Evaluation]:
    """The evaluations with the training's own settings, in the order of the steps; of a step, the one made last."""
    of_step = {evaluation.step: evaluation for evaluation in read_evaluations(model_dir) if not evaluation.changed}
    return [of_step[step] for step in sorted(of_step)]


def evaluations_in(path: str) -> List[Evaluation]:
    """The evaluations in a file, a line each; other lines are passed over."""
    return read_lines(path, _evaluation_of)


def _evaluation_of(values: Any) -> Evaluation:
    evaluation = Evaluation(**{**values, 'changed': tuple(values.get('changed', ()))})
    types = get_type_hints(Evaluation)
    for name, value in evaluation._asdict().items():
        if not _is_of_type(value, types[name]):
            raise TypeError(f'{name} is {value!r}')
    return evaluation


def _is_of_type(value: Any, expected: Any) -> bool:
    if expected not in (int, float, str):
        return isinstance(value, tuple) and all(type(each) is str for each in value)
    # To JSON, a whole number may be a float.
    return type(value) is expected or (expected is float and type(value) is int)
