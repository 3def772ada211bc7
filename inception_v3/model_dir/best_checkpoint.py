"""The best checkpoint of a run, kept apart from those that come and go: the folder `best` in model_dir.

    best/checkpoint                says which version is the best, as TensorFlow's own lists of checkpoints do
    best/step-500/model.ckpt-500.* the checkpoint
    best/step-500/config.json      the configuration that trained it
    best/step-500/evaluation.json  its evaluation: the line of results.jsonl

A new version is written beside the old one. Then `checkpoint`, which is replaced in one move wherever it is, names it:
whatever is interrupted leaves the old version or the new one, whole. What an interruption leaves behind is removed when
the next version is written.

TensorFlow and this program take `best` for a model_dir: --model_dir=RUN/best --mode=eval --train_steps=1 evaluates it,
and with --export_dir exports it. To go on from it, train in a copy of the folder, which is the new run's model_dir; in
RUN itself, training goes on from the last checkpoint.
"""

import json
import os
import re
from typing import List, NamedTuple, Optional

import tensorflow as tf

from console.log import logger
from data import remote
from inception_v3.model_dir.checkpoints import CheckpointError, is_whole, latest_checkpoint
from inception_v3.model_dir.evaluations import Evaluation, evaluations_in
from inception_v3.model_dir.files import BEST_FOLDER, CONFIG_FILE, write_whole

_LIST = 'checkpoint'
_EVALUATION_FILE = 'evaluation.json'
_VERSION = re.compile(r'step-\d+(-again)?')
# What two evaluations have in common if one can be better than the other.
_KIND = ('weights', 'images', 'data_set', 'fingerprint', 'changed')


class Best(NamedTuple):
    """The best checkpoint: its path, and its evaluation."""

    checkpoint: str
    evaluation: Evaluation


def read(model_dir: str) -> Optional[Best]:
    """The best checkpoint that is kept in a run's model_dir; None if there is none yet.

    Raises:
      CheckpointError: there is one, and it or its evaluation is not whole.
      RemoteError: it is refused, or cannot be reached.
    """
    folder = os.path.join(model_dir, BEST_FOLDER)
    checkpoint = latest_checkpoint(folder)
    if not checkpoint:
        return None
    path = os.path.join(os.path.dirname(checkpoint), _EVALUATION_FILE)
    evaluations = evaluations_in(path)
    if not evaluations:
        raise CheckpointError(
            f'{path}: does not hold the evaluation of the checkpoint beside it. Put it back, or move {folder} away: '
            '--keep_best then begins anew.'
        )
    return Best(checkpoint, evaluations[0])


def keep(model_dir: str, checkpoint: str, evaluation: Evaluation) -> None:
    """Keeps a checkpoint if its top-1 is better than that of the one that is kept; of equals, the earlier stays.

    One process at a time may do so in a model_dir.

    Args:
      model_dir: of the run.
      checkpoint: its path.
      evaluation: of the checkpoint.

    Raises:
      CheckpointError, RemoteError: as `read`.
      tf.errors.OpError, RemoteError: it cannot be written. What was kept before still is.
    """
    folder = os.path.join(model_dir, BEST_FOLDER)
    best = read(model_dir)
    if best:
        otherwise = differences_of_kind(best.evaluation, evaluation)
        if otherwise:
            logger.info(
                'step %d is not compared with the best so far, step %d, which was evaluated otherwise: %s. The best '
                'stays; move %s away to begin anew',
                *(evaluation.step, best.evaluation.step, '; '.join(otherwise), folder),
            )
            return
        if evaluation.top_1 <= best.evaluation.top_1:
            return
    current = os.path.basename(os.path.dirname(best.checkpoint)) if best else None
    _remove_versions(folder, except_for=current)
    version = f'step-{evaluation.step}'
    if version == current:
        version += '-again'
    try:
        _write_version(os.path.join(folder, version), checkpoint, evaluation)
    except (tf.errors.OpError, remote.RemoteError):
        if is_whole(checkpoint):
            raise
    # A trainer that overtakes it removes its index first: as long as that is there, so was all that was copied.
    if not is_whole(checkpoint):
        logger.info('%s vanished before it could be kept as the best', checkpoint)
        return
    # No list of all checkpoints: training that goes on from here counts its own, and never removes this one.
    state = f'model_checkpoint_path: "{version}/{os.path.basename(checkpoint)}"\n'
    write_whole(os.path.join(folder, _LIST), state)
    logger.info('step %d is the best so far, and kept in %s', evaluation.step, folder)
    _remove_versions(folder, except_for=version)


def differences_of_kind(old: Evaluation, new: Evaluation) -> List[str]:
    """In what two evaluations differ that makes their results incomparable."""
    pairs = [(name, getattr(old, name), getattr(new, name)) for name in _KIND]
    return [f'{name}: {before or "none"} -> {after or "none"}' for name, before, after in pairs if before != after]


def _write_version(folder: str, checkpoint: str, evaluation: Evaluation) -> None:
    """Copies a checkpoint and the configuration beside it into a new folder, and adds the evaluation."""
    source, name = os.path.split(checkpoint)
    with remote.explained(folder, remote.WRITE):
        tf.io.gfile.makedirs(folder)
    names = [other for other in remote.names_in(source) or () if other.startswith(f'{name}.')]
    if remote.exists(os.path.join(source, CONFIG_FILE)):
        names.append(CONFIG_FILE)
    for other in names:
        _copy(os.path.join(source, other), os.path.join(folder, other))
    write_whole(os.path.join(folder, _EVALUATION_FILE), json.dumps(evaluation._asdict()) + '\n')


def _copy(source: str, target: str) -> None:
    with remote.explained(source, remote.READ):
        tf.io.gfile.copy(source, target, overwrite=True)
    # On s3:// TensorFlow takes a refusal for the end of a file.
    if remote.size(target) != remote.size(source):
        raise remote.UnreachableError(f'{source}: could not be copied whole to {target}. Try again.')


def _remove_versions(folder: str, except_for: Optional[str]) -> None:
    """Removes all versions but one, and nothing else: someone may have evaluated in the folder, or trained on."""
    for name in remote.names_in(folder) or ():
        # Remote folders are listed with a slash at the end.
        version = name.rstrip('/')
        if _VERSION.fullmatch(version) and version != except_for:
            path = os.path.join(folder, version)
            with remote.explained(path, remote.DELETE):
                tf.io.gfile.rmtree(path)
