"""Reads the origin and the results of a run from its model_dir, and compares two runs."""

import dataclasses
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from console.tensorflow_versions import tf
from data import remote
from inception_v3.config import Config, ConfigError
from inception_v3.run import digests, starts
from inception_v3.run.checkpoints import CheckpointError, latest_checkpoint, step_of
from inception_v3.run.evaluations import Evaluation, read_evaluations
from inception_v3.run.files import BEST_FOLDER, CONFIG_FILE, read_config
from inception_v3.run.starts import Start

_INDEX = re.compile(r'model\.ckpt-\d+\.index')
# Settings that do not affect training: folders, the copy of the best checkpoint, and what may be resumed.
_WITHOUT_EFFECT = ('model_dir', 'export_dir', 'keep_best', 'allow_other_data_set')
_SCORES = ('top_1', 'top_5', 'cross_entropy')


class Difference(NamedTuple):
    """A value that differs between two runs."""

    name: str
    old: Any
    new: Any


class Checkpoint(NamedTuple):
    """A checkpoint of a run.

    Attributes:
      checkpoint: path relative to model_dir.
      step: global step; None if the checkpoint cannot be read.
      digest: SHA-256 of the variables; None if the checkpoint cannot be read.
      problem: the reason why the checkpoint cannot be read; empty if it can.
    """

    checkpoint: str
    step: Optional[int]
    digest: Optional[str]
    problem: str


class RunRecord(NamedTuple):
    """The origin and the results of a run, as recorded in its model_dir.

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
        """Returns the object that `--json` prints."""
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
    """Reads the record of a run.

    Raises:
      ConfigError: `config.json` is missing or cannot be read.
      RemoteError: access is denied, or the store cannot be reached.
    """
    config = read_config(model_dir)
    if not config:
        path = os.path.join(model_dir, CONFIG_FILE)
        raise ConfigError(f'{path}: is missing or empty; name the model_dir of a run.')
    return RunRecord(model_dir, config, starts.read(model_dir), read_evaluations(model_dir), _checkpoints(model_dir))


def _checkpoints(model_dir: str) -> List[Checkpoint]:
    names = remote.names_in(model_dir) or ()
    paths = [os.path.join(model_dir, name[: -len('.index')]) for name in names if _INDEX.fullmatch(name)]
    found = [_checkpoint(path, model_dir) for path in paths]
    # The best checkpoint; in a model_dir that was copied from another run's `best`, also the checkpoint in a subfolder.
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
        # A run that is still training removes old checkpoints.
        return Checkpoint(name, None, None, error.message.partition('\n')[0])


def differences(old: RunRecord, new: RunRecord) -> Dict[str, List[Difference]]:
    """Compares two runs.

    Returns:
      The differences by section. Two runs are equal if `configuration`, `data` and `results` (evaluations and
      checkpoints of the same steps) are empty; `surroundings` are the versions, hosts and commands of the last starts.
    """
    old_starts, new_starts = old.starts[-1:], new.starts[-1:]
    surroundings = _of_values({'starts': [s.step for s in old.starts]}, {'starts': [s.step for s in new.starts]})
    data: List[Difference] = []
    for old_start, new_start in zip(old_starts, new_starts):
        data += data_differences(old_start, new_start)
        surroundings += surrounding_differences(old_start, new_start)
        surroundings += _of_values({'command': old_start.command}, {'command': new_start.command})
    # Fingerprints identify data sets; without fingerprints, their paths do.
    fingerprinted = all(start.fingerprint for start in (*old_starts, *new_starts))
    ignored = (*_WITHOUT_EFFECT, 'data_dir', 'train_files', 'eval_files') if fingerprinted else _WITHOUT_EFFECT
    configuration = _of_values(dataclasses.asdict(old.config), dataclasses.asdict(new.config))
    return {
        'configuration': [difference for difference in configuration if difference.name not in ignored],
        'data': data,
        'results': [*_of_evaluations(old, new), *_of_checkpoints(old, new)],
        'surroundings': surroundings,
    }


def data_differences(old: Start, new: Start) -> List[Difference]:
    """Compares the data sets of two starts, and the weights that they begin from."""
    return _of_values(*(_of_data(start) for start in (old, new)))


def surrounding_differences(old: Start, new: Start) -> List[Difference]:
    """Compares the versions and the hosts of two starts."""
    return [*_of_values(old.versions, new.versions), *_of_values(*(_of_host(start) for start in (old, new)))]


def common(old: RunRecord, new: RunRecord) -> Tuple[int, int]:
    """Returns the numbers of evaluations and of checkpoints that two runs have in common, by step."""
    return (
        len(_evaluations(old).keys() & _evaluations(new).keys()),
        len(_digests(old).keys() & _digests(new).keys()),
    )


def _of_data(start: Start) -> Dict[str, Any]:
    weights = start.weights and [start.weights.get(name) for name in ('digest', 'values')]
    return {'data_set': start.data_set, 'fingerprint': start.fingerprint, 'weights': weights}


def _of_host(start: Start) -> Dict[str, Any]:
    return {f'host {name}': value for name, value in start.host.items()}


def _of_values(old: Dict[str, Any], new: Dict[str, Any]) -> List[Difference]:
    names = [*old, *(name for name in new if name not in old)]
    return [Difference(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def _evaluations(run: RunRecord) -> Dict[Tuple[int, str, Tuple[str, ...]], Evaluation]:
    """Returns the last evaluation of each step, kind of weights and set of changed settings."""
    return {(e.step, e.weights, e.changed): e for e in run.evaluations}


def _digests(run: RunRecord) -> Dict[int, str]:
    return {c.step: c.digest for c in run.checkpoints if c.step is not None and c.digest}


def _of_evaluations(old: RunRecord, new: RunRecord) -> List[Difference]:
    found, new_evaluations = [], _evaluations(new)
    for kind, evaluation in _evaluations(old).items():
        if kind in new_evaluations:
            for name in (*_SCORES, 'images'):
                pair = getattr(evaluation, name), getattr(new_evaluations[kind], name)
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
