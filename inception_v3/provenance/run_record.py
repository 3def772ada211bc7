"""What a run has left in its model_dir: how it was made, what came of it, and what two runs differ in."""

import dataclasses
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import tensorflow as tf

from data import remote
from inception_v3.config import Config, ConfigError
from inception_v3.model_dir import digests, starts
from inception_v3.model_dir.checkpoints import CheckpointError, latest_checkpoint, step_of
from inception_v3.model_dir.evaluations import Evaluation, read_evaluations
from inception_v3.model_dir.files import BEST_FOLDER, CONFIG_FILE, text_of
from inception_v3.model_dir.starts import Start

_INDEX = re.compile(r'model\.ckpt-\d+\.index')
# Where a run lies and what is done besides, which makes it no other run.
_PLACES = ('model_dir', 'export_dir', 'keep_best')
_SCORES = ('top_1', 'top_5', 'cross_entropy')


class Difference(NamedTuple):
    """A value that two runs differ in."""

    name: str
    old: Any
    new: Any


class Checkpoint(NamedTuple):
    """A checkpoint of a run.

    Attributes:
      checkpoint: its path in model_dir.
      step: its global step; None if it cannot be read.
      digest: of its variables; None if it cannot be read.
      problem: why it cannot be read; empty if it can.
    """

    checkpoint: str
    step: Optional[int]
    digest: Optional[str]
    problem: str


class RunRecord(NamedTuple):
    """A run, as far as its model_dir tells.

    Attributes:
      model_dir: the folder.
      config: the configuration of the last start of training.
      starts: of training, the first one first.
      evaluations: in the order in which they were made.
      checkpoints: those that are there, the first step first.
    """

    model_dir: str
    config: Config
    starts: List[Start]
    evaluations: List[Evaluation]
    checkpoints: List[Checkpoint]

    def json(self) -> Dict[str, Any]:
        """All of it, for programs."""
        return {
            'model_dir': self.model_dir,
            'seed': self.config.seed,
            'config': dataclasses.asdict(self.config),
            'not_default': starts.not_default(self.config),
            'starts': [start._asdict() for start in self.starts],
            'evaluations': [evaluation._asdict() for evaluation in self.evaluations],
            'checkpoints': [checkpoint._asdict() for checkpoint in self.checkpoints],
        }


def read(model_dir: str) -> RunRecord:
    """Reads what a run has left.

    Raises:
      ConfigError: there is no configuration of a run, or it cannot be read.
      RemoteError: something is refused, or cannot be reached.
    """
    path = os.path.join(model_dir, CONFIG_FILE)
    text = text_of(path)
    if not text:
        raise ConfigError(f'{path}: does not exist, or is empty; name the model_dir of a run.')
    try:
        config = Config.from_json(text)
    except ConfigError as error:
        raise ConfigError(f'{path}: {error}')
    return RunRecord(model_dir, config, starts.read(model_dir), read_evaluations(model_dir), _checkpoints(model_dir))


def _checkpoints(model_dir: str) -> List[Checkpoint]:
    names = remote.names_in(model_dir) or ()
    paths = [os.path.join(model_dir, name[: -len('.index')]) for name in names if _INDEX.fullmatch(name)]
    found = [_checkpoint(path, model_dir) for path in paths]
    # Of a copy of what another run kept as its best, and of what this one keeps.
    for folder in (model_dir, os.path.join(model_dir, BEST_FOLDER)):
        try:
            latest = latest_checkpoint(folder)
        except CheckpointError as error:
            listed = os.path.relpath(os.path.join(folder, 'checkpoint'), model_dir)
            found.append(Checkpoint(listed, None, None, str(error)))
            continue
        if latest and latest not in paths:
            found.append(_checkpoint(latest, model_dir))
    return sorted(found, key=lambda checkpoint: (checkpoint.step or 0, checkpoint.checkpoint))


def _checkpoint(path: str, model_dir: str) -> Checkpoint:
    name = os.path.relpath(path, model_dir)
    try:
        return Checkpoint(name, step_of(path), digests.of_checkpoint(path), '')
    except CheckpointError as error:
        return Checkpoint(name, None, None, str(error))
    except tf.errors.OpError as error:
        # A run that goes on removes the oldest.
        return Checkpoint(name, None, None, error.message.partition('\n')[0])


def differences(old: RunRecord, new: RunRecord) -> Dict[str, List[Difference]]:
    """What two runs differ in, by section.

    `configuration`, `data` and `results`, which is evaluations and checkpoints of the same steps, are what makes two
    runs different. `surroundings` are the versions, the host and the command of the last start of each.
    """
    old_starts, new_starts = old.starts[-1:], new.starts[-1:]
    surroundings = _of_values({'starts': [s.step for s in old.starts]}, {'starts': [s.step for s in new.starts]})
    data: List[Difference] = []
    for old_start, new_start in zip(old_starts, new_starts):
        data += data_differences(old_start, new_start)
        surroundings += surrounding_differences(old_start, new_start)
        surroundings += _of_values({'command': old_start.command}, {'command': new_start.command})
    # What data sets are, their fingerprints tell, if they have one; else where they are.
    fingerprinted = all(start.fingerprint for start in (*old_starts, *new_starts))
    left_out = (*_PLACES, 'data_dir') if fingerprinted else _PLACES
    configuration = _of_values(dataclasses.asdict(old.config), dataclasses.asdict(new.config))
    return {
        'configuration': [difference for difference in configuration if difference.name not in left_out],
        'data': data,
        'results': [*_of_evaluations(old, new), *_of_checkpoints(old, new)],
        'surroundings': surroundings,
    }


def data_differences(old: Start, new: Start) -> List[Difference]:
    """What the data sets of two starts differ in."""
    names = ('data_set', 'fingerprint')
    return _of_values(*({name: getattr(start, name) for name in names} for start in (old, new)))


def surrounding_differences(old: Start, new: Start) -> List[Difference]:
    """What two starts differ in besides their configuration, data and command: versions and host."""
    return [*_of_values(old.versions, new.versions), *_of_values(*(_of_host(start) for start in (old, new)))]


def common(old: RunRecord, new: RunRecord) -> Tuple[int, int]:
    """How many evaluations, and how many checkpoints, two runs have of the same steps."""
    return (
        len(_evaluations(old).keys() & _evaluations(new).keys()),
        len(_digests(old).keys() & _digests(new).keys()),
    )


def _of_host(start: Start) -> Dict[str, Any]:
    return {f'host {name}': value for name, value in start.host.items()}


def _of_values(old: Dict[str, Any], new: Dict[str, Any]) -> List[Difference]:
    names = [*old, *(name for name in new if name not in old)]
    return [Difference(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def _evaluations(run: RunRecord) -> Dict[Tuple[int, str, Tuple[str, ...]], Evaluation]:
    """The last evaluation of each step and kind."""
    return {(e.step, e.weights, e.changed): e for e in run.evaluations}


def _digests(run: RunRecord) -> Dict[int, str]:
    return {c.step: c.digest for c in run.checkpoints if c.step is not None and c.digest}


def _of_evaluations(old: RunRecord, new: RunRecord) -> List[Difference]:
    found, others = [], _evaluations(new)
    for kind, evaluation in _evaluations(old).items():
        if kind in others:
            for name in (*_SCORES, 'images'):
                pair = getattr(evaluation, name), getattr(others[kind], name)
                if pair[0] != pair[1]:
                    found.append(Difference(f'step {evaluation.step}, {evaluation.weights} weights, {name}', *pair))
    return found


def _of_checkpoints(old: RunRecord, new: RunRecord) -> List[Difference]:
    old_digests, new_digests = _digests(old), _digests(new)
    return [
        Difference(f'checkpoint of step {step}', digest, new_digests[step])
        for step, digest in old_digests.items()
        if new_digests.get(step, digest) != digest
    ]
