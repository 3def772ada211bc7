"""The evaluations of a run, in the `results.jsonl` of its model_dir."""

import os
from typing import Any, List, NamedTuple, Optional, Tuple

from console.json_content import record
from data.dataset_info import DatasetInfo
from data.json_lines import append_line, read_lines
from inception_v3.config import Config, differences
from inception_v3.run import starts
from inception_v3.run.files import recorded_config
from inception_v3.run.trained_data import changes_between

RESULTS_FILE = 'results.jsonl'


# The fields of a configuration that change the result of an evaluation.
DECIDING = (
    'use_data',
    'data_dir',
    'data_format',
    'eval_files',
    'image_key',
    'label_key',
    'label_offset',
    'num_classes',
    'num_eval_images',
    'eval_total_size',
    'max_bad_records',
    'preprocessing',
    'height',
    'width',
    'network',
    'depth_multiplier',
    'precision',
    'transfer',
    'moving_average',
)


def shows_top_5(num_classes: int) -> bool:
    """Whether texts show the top-5 accuracy: there are more than five classes besides the background."""
    return num_classes > 6


class Evaluation(NamedTuple):
    """One evaluation: a line of `results.jsonl`.

    Attributes:
      step: the global step of the checkpoint.
      checkpoint: the name of the checkpoint in model_dir.
      weights: 'average' or 'raw'.
      top_1: the fraction of images whose label is the most likely class.
      top_5: the fraction of images whose label is among the five most likely classes.
      cross_entropy: the mean over the images, in nats, without label smoothing.
      images: the number of images; each is evaluated once.
      seconds: the duration, including the time to build the graph.
      time: the end of the evaluation in UTC, ISO 8601.
      changed: the settings and the properties of the data set that differ from training's, as `name: old -> new`.
      data_set: the name of the data set in `dataset.json`; empty without that file.
      fingerprint: the fingerprint of the data set in `dataset.json`; empty without that file.
      digest: of the checkpoint (`digests.of_index`); empty of an evaluation by an earlier version.
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
    digest: str = ''

    @property
    def identity(self) -> Tuple[str, str, int, str, Tuple[str, ...]]:
        """The inputs of the evaluation. Evaluations with equal identities have equal scores."""
        return self.digest, self.weights, self.images, self.fingerprint, self.changed


def changed_since_training(config: Config, data_set: Optional[DatasetInfo], checkpoint: str) -> Tuple[str, ...]:
    """The differences of an evaluation's settings and data set from those that a checkpoint was trained with.

    Settings that do not affect the result, and whatever is not recorded beside the checkpoint, do not differ.
    """
    trained, recorded = recorded_config(os.path.dirname(checkpoint)), starts.before(checkpoint)
    changes = [each for each in differences(trained, config) if each.split(':')[0] in DECIDING] if trained else []
    changes += changes_between(recorded[-1], config, data_set) if recorded else ()
    return tuple(dict.fromkeys(changes))


def append_evaluation(model_dir: str, evaluation: Evaluation) -> None:
    """Adds a line to `results.jsonl`."""
    append_line(os.path.join(model_dir, RESULTS_FILE), evaluation._asdict())


def read_evaluations(model_dir: str) -> List[Evaluation]:
    """The evaluations in `results.jsonl`, oldest first. Damaged lines are skipped."""
    return evaluations_in(os.path.join(model_dir, RESULTS_FILE))


def read_unchanged(model_dir: str) -> List[Evaluation]:
    """The last evaluation of each step with training's own settings, in the order of the steps."""
    of_step = {evaluation.step: evaluation for evaluation in read_evaluations(model_dir) if not evaluation.changed}
    return [of_step[step] for step in sorted(of_step)]


def evaluations_in(path: str) -> List[Evaluation]:
    """The evaluations in a file, a line each. Damaged lines are skipped."""
    return read_lines(path, _evaluation_of)


def _evaluation_of(values: Any) -> Evaluation:
    return record(Evaluation, {**values, 'changed': tuple(values.get('changed', ()))})
