"""Reads the origin and the results of a run from its model_dir, and compares two runs."""

import dataclasses
import os
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from console.messages import in_rows, printable
from console.tensorflow_versions import tf
from data import remote
from inception_v3.config import Config, ConfigError
from inception_v3.run import digests, starts
from inception_v3.run.checkpoints import CheckpointError, latest_checkpoint, step_of
from inception_v3.run.evaluations import Evaluation, read_evaluations, shows_top_5
from inception_v3.run.files import BEST_FOLDER, CONFIG_FILE, read_config
from inception_v3.run.starts import Start

_INDEX = re.compile(r'model\.ckpt-\d+\.index')
# Settings that do not affect training: folders, the copy of the best checkpoint, and what may be resumed.
_WITHOUT_EFFECT = ('model_dir', 'export_dir', 'keep_best', 'allow_other_data_set')
# Fingerprints identify data sets; without fingerprints, their paths do.
_PATHS = ('data_dir', 'train_files', 'eval_files')
_SCORES = ('top_1', 'top_5', 'cross_entropy', 'images')


class Difference(NamedTuple):
    """A value that differs between two runs."""

    name: str
    old: Any
    new: Any


class Checkpoint(NamedTuple):
    """A checkpoint of a run: its path relative to model_dir, its step and the digest of its variables.

    If it cannot be read, step and digest are None, and `problem` has the reason.
    """

    checkpoint: str
    step: Optional[int]
    digest: Optional[str]
    problem: str


class RunRecord(NamedTuple):
    """The record of a run.

    Attributes:
      model_dir: the folder.
      config: the configuration of the last start of training.
      starts: the starts of training, oldest first.
      evaluations: the evaluations, oldest first.
      checkpoints: the existing checkpoints, in the order of their steps.
    """

    model_dir: str
    config: Config
    starts: List[Start]
    evaluations: List[Evaluation]
    checkpoints: List[Checkpoint]

    def json(self) -> Dict[str, Any]:
        """The object that `--json` prints."""
        return {
            'model_dir': self.model_dir,
            'seed': self.config.seed,
            'config': dataclasses.asdict(self.config),
            'not_default': starts.not_default(self.config),
            'starts': [start._asdict() for start in self.starts],
            'evaluations': [evaluation._asdict() for evaluation in self.evaluations],
            'checkpoints': [checkpoint._asdict() for checkpoint in self.checkpoints],
        }

    def text(self) -> str:
        """The record for a terminal."""
        seed = 'none: the run cannot be repeated' if self.config.seed is None else self.config.seed
        return '\n\n'.join(
            [
                section(self.model_dir, {'seed': seed}),
                section('configuration that differs from the defaults', starts.not_default(self.config)),
                *(section(f'started at step {start.step:,}, {start.time}', _rows_of(start)) for start in self.starts),
                *([] if self.starts else [section('starts', {})]),
                _lines('evaluations', (_row_of_evaluation(each, self.config.num_classes) for each in self.evaluations)),
                _lines('checkpoints', map(_row_of_checkpoint, self.checkpoints)),
            ]
        )


def section(title: str, values: Dict[str, Any], without: str = 'none') -> str:
    """A title, and a line for each value; `without` stands for no values."""
    return _lines(title, values.items(), without)


def _lines(title: str, rows: Any, without: str = 'none') -> str:
    return f'{printable(title)}\n{in_rows([*rows] or [("", without)], "  ")}'


def _rows_of(start: Start) -> Dict[str, Any]:
    weights, host = start.weights or {}, start.host
    rows = {
        'from': start.checkpoint,
        'weights': '{path}, step {step}, {values}, digest {digest}'.format_map({'step': None, **weights})
        if weights
        else '',
        'command': ' '.join(start.command),
        'in': start.directory,
        'host': f'{host.get("name")}: {host.get("cores")} cores, {host.get("processor")}',
        'data set': start.data_set or ('synthetic images' if start.config.get('use_data') == 'fake' else 'has no name'),
        'fingerprint': start.fingerprint,
        **start.versions,
    }
    return {name: value for name, value in rows.items() if value not in ('', None)}


def _row_of_evaluation(evaluation: Evaluation, num_classes: int) -> Tuple[str, str]:
    top_5 = f'top-5 {evaluation.top_5:.2%}, ' if shows_top_5(num_classes) else ''
    text = (
        f'top-1 {evaluation.top_1:.2%}, {top_5}cross-entropy {evaluation.cross_entropy:.4f}, '
        f'{evaluation.images:,} images, {evaluation.weights} weights, {evaluation.time}'
    )
    return f'step {evaluation.step:,}', '; '.join([text, *evaluation.changed])


def _row_of_checkpoint(checkpoint: Checkpoint) -> Tuple[str, str]:
    return checkpoint.checkpoint, checkpoint.problem or f'step {checkpoint.step:,}, digest {checkpoint.digest}'


def read(model_dir: str) -> RunRecord:
    """Reads the record of a run.

    Raises:
      ConfigError: `config.json` is missing or cannot be read.
      RemoteError: access is denied, or the store cannot be reached.
    """
    config = read_config(model_dir)
    if not config:
        path = os.path.join(model_dir, CONFIG_FILE)
        raise ConfigError(f'{path}: is missing or empty; name the model_dir of a run.')
    checkpoints = sorted(_checkpoints(model_dir), key=lambda each: (each.step or 0, each.checkpoint))
    return RunRecord(model_dir, config, starts.read(model_dir), read_evaluations(model_dir), checkpoints)


def _checkpoints(model_dir: str) -> Iterator[Checkpoint]:
    names = remote.names_in(model_dir) or ()
    paths = [os.path.join(model_dir, name[: -len('.index')]) for name in names if _INDEX.fullmatch(name)]
    # The best checkpoint; in a model_dir that was copied from another run's `best`, also the checkpoint in a subfolder.
    for folder in (model_dir, os.path.join(model_dir, BEST_FOLDER)):
        try:
            latest = latest_checkpoint(folder)
        except CheckpointError as error:
            yield Checkpoint(os.path.relpath(os.path.join(folder, 'checkpoint'), model_dir), None, None, str(error))
            continue
        if latest and latest not in paths:
            paths.append(latest)
    for path in paths:
        name = os.path.relpath(path, model_dir)
        try:
            yield Checkpoint(name, step_of(path), digests.of_checkpoint(path), '')
        except CheckpointError as error:
            yield Checkpoint(name, None, None, str(error))
        except tf.errors.OpError as error:
            # A run that is still training removes old checkpoints.
            yield Checkpoint(name, None, None, error.message.partition('\n')[0])


def differences(old: RunRecord, new: RunRecord) -> Dict[str, List[Difference]]:
    """Compares two runs.

    Returns:
      The differences by section. Two runs are equal if `configuration`, `data` and `results` (evaluations and
      checkpoints of the same steps) are empty; `surroundings` are the versions, hosts and commands of the last starts.
    """
    last = [*zip(old.starts[-1:], new.starts[-1:])]
    surroundings = _compared({'starts': [s.step for s in old.starts]}, {'starts': [s.step for s in new.starts]})
    for old_start, new_start in last:
        surroundings += surrounding_differences(old_start, new_start)
        surroundings += _compared({'command': old_start.command}, {'command': new_start.command})
    fingerprinted = all(start.fingerprint for start in (*old.starts[-1:], *new.starts[-1:]))
    ignored = (*_WITHOUT_EFFECT, *(_PATHS if fingerprinted else ()))
    configuration = _compared(dataclasses.asdict(old.config), dataclasses.asdict(new.config))
    old_results, new_results = _results(old), _results(new)
    return {
        'configuration': [each for each in configuration if each.name not in ignored],
        'data': [each for pair in last for each in data_differences(*pair)],
        # Results of a step that only one of the runs has are no difference.
        'results': [
            each for each in _compared(old_results, new_results) if each.name in {*old_results} & {*new_results}
        ],
        'surroundings': surroundings,
    }


def data_differences(old: Start, new: Start) -> List[Difference]:
    """Compares the data sets of two starts, and the weights that they begin from."""
    values = [
        {
            'data_set': start.data_set,
            'fingerprint': start.fingerprint,
            'weights': start.weights and [start.weights.get(name) for name in ('digest', 'values')],
        }
        for start in (old, new)
    ]
    return _compared(*values)


def surrounding_differences(old: Start, new: Start) -> List[Difference]:
    """Compares the versions and the hosts of two starts."""
    values = [
        {**start.versions, **{f'host {name}': value for name, value in start.host.items()}} for start in (old, new)
    ]
    return _compared(*values)


def common(old: RunRecord, new: RunRecord) -> Tuple[int, int]:
    """The numbers of evaluations and of checkpoints that two runs have in common, by step."""
    return (
        len(_evaluations(old).keys() & _evaluations(new).keys()),
        len(_digests(old).keys() & _digests(new).keys()),
    )


def _compared(old: Dict[str, Any], new: Dict[str, Any]) -> List[Difference]:
    return [Difference(name, old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)]


def _results(run: RunRecord) -> Dict[str, Any]:
    scores = {
        f'step {step}, {weights} weights, {name}{"".join(f"; {each}" for each in changed)}': getattr(evaluation, name)
        for (step, weights, changed), evaluation in _evaluations(run).items()
        for name in _SCORES
    }
    return {**scores, **{f'checkpoint of step {step}': digest for step, digest in _digests(run).items()}}


def _evaluations(run: RunRecord) -> Dict[Tuple[int, str, Tuple[str, ...]], Evaluation]:
    """The last evaluation of each step, kind of weights and set of changed settings."""
    return {(e.step, e.weights, e.changed): e for e in run.evaluations}


def _digests(run: RunRecord) -> Dict[int, str]:
    return {c.step: c.digest for c in run.checkpoints if c.step is not None and c.digest}
