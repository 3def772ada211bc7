"""The evaluations of a run, in `results.jsonl`: a line for each."""

import datetime
import os
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from console.json_content import record, sealed, unsealed
from data.dataset_info import DatasetInfo
from data.files import append_line, read_lines
from data.records import VALIDATION
from inception_v3.config import Config
from inception_v3.model_dir import absolute, differences, now, recorded_config, step_of
from inception_v3.run.starts import config_of, starts_before
from inception_v3.run.trained_data import changes_between

RESULTS_FILE = 'results.jsonl'
# The relative error of an accuracy that was computed in float32, with a margin.
_FLOAT32_ERROR = 1e-6
# The fields of a configuration that affect the probabilities of an evaluated image, besides the weights.
OF_MODEL = (
    'num_classes',
    'preprocessing',
    'height',
    'width',
    'network',
    'depth_multiplier',
    'precision',
    'transfer',
    'moving_average',
)
# The settings that change the result of an evaluation.
DECIDING = (
    *OF_MODEL,
    'use_data',
    'data_dir',
    'data_format',
    'eval_files',
    'image_key',
    'label_key',
    'label_offset',
    'num_eval_images',
    'eval_total_size',
    'max_bad_records',
)


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
      data_set, fingerprint: from `dataset.json`; empty without that file.
      digest: the digest of the checkpoint (`digest_of_index`); empty for an evaluation by an earlier version.
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

    def contradiction(self) -> Optional[str]:
        """The reason why these scores are impossible; None if they are possible."""
        for name in ('top_1', 'top_5'):
            score = getattr(self, name)
            right = score * self.images
            if not 0 <= score <= 1 or abs(right - round(right)) > _FLOAT32_ERROR * self.images:
                return f'{name} is {score}, which is not a number of {self.images:,} images'
        return 'top_1 is above top_5' if self.top_1 > self.top_5 else None

    def differences_of_kind(self, other: 'Evaluation') -> List[str]:
        """The differences that make another evaluation incomparable with this one, each as `name: old -> new`."""
        names = ('weights', 'images', 'data_set', 'fingerprint', 'changed')
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in names]
        return [f'{name}: {before or "none"} -> {after or "none"}' for name, before, after in pairs if before != after]


def evaluation_of(
    config: Config,
    data_set: Optional[DatasetInfo],
    checkpoint: str,
    digest: str,
    metrics: Dict[str, Any],
    seconds: float,
) -> Evaluation:
    """The record of an evaluation that ends now; `digest` is the checkpoint's digest before the evaluation."""
    return Evaluation(
        step=step_of(checkpoint),
        checkpoint=os.path.basename(checkpoint),
        weights=config.evaluated_weights,
        top_1=float(metrics['top_1']),
        top_5=float(metrics['top_5']),
        cross_entropy=float(metrics['cross_entropy']),
        images=int(metrics['images']),
        seconds=round(seconds, 3),
        time=now(),
        changed=changed_since_training(config, data_set, checkpoint),
        data_set=data_set.name if data_set else '',
        fingerprint=data_set.fingerprint if data_set else '',
        digest=digest,
    )


def shows_top_5(num_classes: int) -> bool:
    """Whether texts show the top-5 accuracy: there are more than five classes besides the background."""
    return num_classes > 6


def changed_since_training(config: Config, data_set: Optional[DatasetInfo], checkpoint: str) -> Tuple[str, ...]:
    """The differences between an evaluation's settings and data set and those that a checkpoint was trained with.

    Left out are settings that do not affect the result, and anything that is not recorded beside the checkpoint. Data
    sets are compared by content; by path only if the record lacks the content.
    """
    newest, recorded = recorded_config(os.path.dirname(checkpoint)), starts_before(checkpoint)
    trained = config_of(checkpoint, newest) if newest else None
    deciding = {*DECIDING}
    if trained and trained.data_dir and config.data_dir and absolute(trained.data_dir) == absolute(config.data_dir):
        deciding -= {'data_dir'}
    if recorded:
        has_samples = VALIDATION in (recorded[-1].samples or {})
        has_fingerprints = recorded[-1].fingerprint and data_set and data_set.fingerprint
        deciding -= {'data_dir', 'eval_files'} if has_samples else {'data_dir'} if has_fingerprints else set()
    changes = [each for each in differences(trained, config) if each.split(':')[0] in deciding] if trained else []
    changes += changes_between(recorded[-1], config, data_set) if recorded else ()
    return tuple(dict.fromkeys(changes))


def shortfall(config: Config, evaluation: Evaluation, skipped: int) -> Optional[str]:
    """A sentence if an evaluation has another number of images than configured, apart from skipped ones; else None."""
    if evaluation.images + skipped == config.eval_images:
        return None
    flag = 'eval_total_size' if config.eval_total_size else 'num_eval_images'
    return f'{evaluation.images:,} images were evaluated, and {config.eval_images:,} were expected (--{flag})'


def result_of(config: Config, evaluation: Evaluation, skipped: int) -> Iterator[str]:
    """The result of an evaluation, and facts that its user may not expect; `skipped` images could not be used."""
    top_5 = f', top-5 {evaluation.top_5:.2%}' if shows_top_5(config.num_classes) else ''
    yield (
        f'step {evaluation.step:,}: top-1 {evaluation.top_1:.2%}{top_5}, cross-entropy '
        f'{evaluation.cross_entropy:.4f}, {evaluation.images:,} images, {evaluation.weights} weights'
    )
    if evaluation.changed:
        yield f'settings that differ from those of the training: {"; ".join(evaluation.changed)}'
    missed = shortfall(config, evaluation, skipped)
    if missed:
        yield f'warning: {missed}'


def append_evaluation(model_dir: str, evaluation: Evaluation) -> None:
    """Adds a line to `results.jsonl`."""
    append_line(os.path.join(model_dir, RESULTS_FILE), sealed(evaluation._asdict()))


def read_evaluations(model_dir: str) -> List[Evaluation]:
    """The evaluations in `results.jsonl`, oldest first. Damaged lines are skipped."""
    return evaluations_in(os.path.join(model_dir, RESULTS_FILE))


def read_unchanged(model_dir: str) -> List[Evaluation]:
    """The last evaluation of each step with training's own settings, in the order of the steps."""
    of_step = {evaluation.step: evaluation for evaluation in read_evaluations(model_dir) if not evaluation.changed}
    return [of_step[step] for step in sorted(of_step)]


def evaluations_in(path: str) -> List[Evaluation]:
    """The evaluations in a file, a line each. Lines that are damaged or were changed are skipped and logged."""
    return read_lines(path, evaluation_in)


def evaluation_in(values: Dict[str, Any]) -> Evaluation:
    """The evaluation with these JSON values; raises an error of `from_json` if they are damaged or were changed."""
    content, has_digest = unsealed(values)
    made = record(Evaluation, {**content, 'changed': tuple(content.get('changed', ()))})
    datetime.datetime.fromisoformat(made.time)
    # Evaluations of earlier versions have no digest.
    problem = None if has_digest else made.contradiction()
    if problem:
        raise ValueError(problem)
    return made


def most_accurate(model_dir: str, last: Evaluation) -> Evaluation:
    """The first recorded evaluation with the best top-1 among those that can be compared with the last one."""
    # Checkpoints of an earlier run in this folder may have had the same steps, or later ones.
    of_step = {each.step: each for each in read_evaluations(model_dir) if each.step <= last.step}
    comparable = [each for each in of_step.values() if not last.differences_of_kind(each)]
    return max(comparable, key=lambda each: each.top_1, default=last)
