"""Reads the origin and the results of a run from its model_dir, and compares two runs."""

import dataclasses
import os
import re
from typing import AbstractSet, Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from compat import tf
from compat.errors import CheckpointError
from compat.messages import in_rows, printable, shown
from data import remote
from inception_v3.config import Config, ConfigError
from inception_v3.machines.cluster import OF_PLACE
from inception_v3.model_dir import (
    BEST_FOLDER,
    CONFIG_FILE,
    digest_of_checkpoint,
    latest_checkpoint,
    read_config,
    step_of,
)
from inception_v3.run.evaluations import Evaluation, read_evaluations, shows_top_5
from inception_v3.run.starts import Start, not_default, read_starts

_INDEX = re.compile(r'model\.ckpt-\d+\.index')
# Settings that do not affect training: its place, the copy of the best checkpoint, and permission to resume.
_WITHOUT_EFFECT = OF_PLACE | {'keep_best', 'allow_other_data_set'}
# Data sets are identified by fingerprints or, without these, by their paths.
_PATHS = ('data_dir', 'train_files', 'eval_files')
_SCORES = ('top_1', 'top_5', 'cross_entropy', 'images')
# The most characters of a value: enough for a command, but not for the weights of many classes.
_LONGEST_VALUE = 500


class Difference(NamedTuple):
    """A value that differs between two runs."""

    name: str
    old: Any
    new: Any

    def __str__(self) -> str:
        old, new = ('none' if value in (None, '') else shown(value, _LONGEST_VALUE) for value in self[1:])
        return f'{old} -> {new}'


class Checkpoint(NamedTuple):
    """A checkpoint of a run: its path relative to model_dir, its step and the digest of its variables.

    If it cannot be read, step and digest are None, and `problem` has the reason.
    """

    checkpoint: str
    step: Optional[int]
    digest: Optional[str]
    problem: str

    def __str__(self) -> str:
        return self.problem or f'step {self.step:,}, digest {self.digest}'


class RunRecord(NamedTuple):
    """A run: its folder, the configuration of its last start, its starts, its evaluations and its checkpoints."""

    model_dir: str
    config: Config
    starts: List[Start]
    evaluations: List[Evaluation]
    checkpoints: List[Checkpoint]

    def text(self) -> str:
        """The record for a terminal."""
        seed = 'none: the run cannot be repeated' if self.config.seed is None else self.config.seed
        settings = ((name, shown(value, _LONGEST_VALUE)) for name, value in not_default(self.config).items())
        sections = [
            section(self.model_dir, [('seed', seed)]),
            section('configuration that differs from the defaults', settings),
            *(section(f'started at step {start.step:,}, {start.time}', _rows_of(start)) for start in self.starts),
            section('evaluations', (_row_of_evaluation(each, self.config.num_classes) for each in self.evaluations)),
            section('checkpoints', ((each.checkpoint, each) for each in self.checkpoints)),
        ]
        return '\n\n'.join(sections)


def section(title: str, rows: Iterable[Tuple[str, Any]], without: str = 'none') -> str:
    """A title, and a line for each name and value; `without` stands for no rows."""
    return f'{printable(title)}\n{in_rows([*rows] or [("", without)], "  ")}'


def _rows_of(start: Start) -> Iterator[Tuple[str, Any]]:
    host, weights = start.host, {**dict.fromkeys(('path', 'step', 'values', 'digest')), **(start.weights or {})}
    rows = {
        'from': start.checkpoint,
        'weights': start.weights and '{path}, step {step}, {values}, digest {digest}'.format_map(weights),
        'command': ' '.join(start.command),
        'in': start.directory,
        'host': f'{host.get("name")}: {host.get("cores")} cores, {host.get("processor")}',
        'data set': start.data_set or ('synthetic images' if start.config.get('use_data') == 'fake' else 'has no name'),
        'fingerprint': start.fingerprint,
        **start.versions,
    }
    return ((name, value) for name, value in rows.items() if value not in ('', None))


def _row_of_evaluation(evaluation: Evaluation, num_classes: int) -> Tuple[str, str]:
    top_5 = f'top-5 {evaluation.top_5:.2%}, ' if shows_top_5(num_classes) else ''
    text = (
        f'top-1 {evaluation.top_1:.2%}, {top_5}cross-entropy {evaluation.cross_entropy:.4f}, '
        f'{evaluation.images:,} images, {evaluation.weights} weights, {evaluation.time}'
    )
    return f'step {evaluation.step:,}', '; '.join([text, *evaluation.changed])


def read(model_dir: str) -> RunRecord:
    """Reads the record of a run.

    Raises:
      ConfigError: `config.json` is missing or cannot be read.
    """
    config = read_config(model_dir)
    if not config:
        path = os.path.join(model_dir, CONFIG_FILE)
        raise ConfigError(f'{path}: is missing or empty; name the model_dir of a run.')
    checkpoints = sorted(_checkpoints(model_dir), key=lambda each: (each.step or 0, each.checkpoint))
    return RunRecord(model_dir, config, read_starts(model_dir), read_evaluations(model_dir), checkpoints)


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
            yield Checkpoint(name, step_of(path), digest_of_checkpoint(path), '')
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
    last = [*old.starts[-1:], *new.starts[-1:]]
    ignored = _WITHOUT_EFFECT - {*(() if all(start.fingerprint for start in last) else _PATHS)}
    old_results, new_results = _results(old), _results(new)
    data: List[Difference] = []
    surroundings = _compared({'starts': [s.step for s in old.starts]}, {'starts': [s.step for s in new.starts]})
    if old.starts and new.starts:
        of_starts = differences_of_starts(*last)
        data = of_starts['data']
        commands = _compared({'command': last[0].command}, {'command': last[1].command})
        surroundings = [*of_starts['surroundings'], *surroundings, *commands]
    return {
        'configuration': _compared(_settings(old.config), _settings(new.config), ignored),
        'data': data,
        # Results that only one of the runs has do not count as differences.
        'results': _compared(old_results, new_results, {*old_results} ^ {*new_results}),
        'surroundings': surroundings,
    }


def _settings(config: Config) -> Dict[str, Any]:
    # The number of machines replaces their addresses.
    return {**dataclasses.asdict(config), 'machines': config.machines}


def differences_of_starts(old: Start, new: Start) -> Dict[str, List[Difference]]:
    """Compares two starts: their `data` and weights to begin from, and their `surroundings`."""

    def parts(start: Start) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        weights = start.weights and [start.weights.get(name) for name in ('digest', 'values')]
        data = {'data_set': start.data_set, 'fingerprint': start.fingerprint, 'weights': weights}
        return data, {**start.versions, **{f'host {name}': value for name, value in start.host.items()}}

    data, surroundings = (_compared(*each) for each in zip(parts(old), parts(new)))
    return {'data': data, 'surroundings': surroundings}


def _compared(old: Dict[str, Any], new: Dict[str, Any], ignored: AbstractSet[str] = frozenset()) -> List[Difference]:
    names = [name for name in {**old, **new} if name not in ignored and old.get(name) != new.get(name)]
    return [Difference(name, old.get(name), new.get(name)) for name in names]


def common(old: RunRecord, new: RunRecord) -> Tuple[int, int]:
    """The numbers of evaluations and of checkpoints that two runs have in common, by step."""
    names = _results(old).keys() & _results(new).keys()
    checkpoints = sum(name.startswith('checkpoint') for name in names)
    return (len(names) - checkpoints) // len(_SCORES), checkpoints


def _results(run: RunRecord) -> Dict[str, Any]:
    scores = {
        '; '.join([f'step {each.step:,}, {each.weights} weights, {name}', *each.changed]): getattr(each, name)
        for each in run.evaluations
        for name in _SCORES
    }
    return {**scores, **{f'checkpoint of step {each.step:,}': each.digest for each in run.checkpoints if each.digest}}
