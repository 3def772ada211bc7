"""Keeps the best checkpoint of a run in the folder `best` of its model_dir.

    best/checkpoint                names the best checkpoint, in TensorFlow's format
    best/step-500/model.ckpt-500.* the checkpoint
    best/step-500/config.json      the configuration that trained it
    best/step-500/starts.jsonl     the starts of the training
    best/step-500/evaluation.json  its evaluation: its line of results.jsonl

A new version is first written beside the old one. Then the file `checkpoint` is replaced atomically, and names the new
version. After an interruption, either the old or the new version is complete. The next update removes leftover files.

The folder `best` is a model_dir, for TensorFlow and for this program. --model_dir=RUN/best --mode=eval --train_steps=1
evaluates the best checkpoint, and with --export_dir exports it. To resume training from it, copy the folder, and train
with the copy as --model_dir; training in RUN itself resumes from the newest checkpoint.
"""

import json
import os
import re
from typing import NamedTuple, Optional

from compat import tf
from compat.errors import CheckpointError
from compat.log import logger
from console.json_content import sealed
from data import remote
from data.files import write_whole
from inception_v3.model_dir import BEST_FOLDER, CONFIG_FILE, LIST_FILE, is_complete, latest_checkpoint
from inception_v3.run.evaluations import Evaluation, evaluations_in
from inception_v3.run.starts import STARTS_FILE

EVALUATION_FILE = 'evaluation.json'
_VERSION = re.compile(r'step-\d+(-again)?')


class Best(NamedTuple):
    """The path of the best checkpoint, and its evaluation."""

    checkpoint: str
    evaluation: Evaluation


def read(model_dir: str) -> Optional[Best]:
    """The best checkpoint in a run's model_dir, which must be undamaged; None if there is none yet."""
    folder = os.path.join(model_dir, BEST_FOLDER)
    checkpoint = latest_checkpoint(folder)
    if not checkpoint:
        return None
    path = os.path.join(os.path.dirname(checkpoint), EVALUATION_FILE)
    evaluations = evaluations_in(path)
    if not evaluations:
        raise CheckpointError(
            f'{path}: the evaluation of the best checkpoint is missing or damaged. Restore the file, or move {folder} '
            'away: --keep_best then starts over.'
        )
    return Best(checkpoint, evaluations[0])


def keep(model_dir: str, checkpoint: str, evaluation: Evaluation) -> None:
    """Keeps a checkpoint if its top-1 accuracy is higher than the kept one's. On a tie, the kept checkpoint stays.

    Only one process at a time may call this for a model_dir. If the checkpoint cannot be copied, the old version stays.
    """
    folder = os.path.join(model_dir, BEST_FOLDER)
    best = read(model_dir)
    if best:
        different = best.evaluation.differences_of_kind(evaluation)
        if different:
            logger.info(
                'step %s cannot be compared with the best checkpoint, step %s, because the evaluations differ: %s. '
                'Move %s away to start over',
                *(f'{evaluation.step:,}', f'{best.evaluation.step:,}', '; '.join(different), folder),
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
        if is_complete(checkpoint):
            raise
    # The trainer may remove this checkpoint during the copy. It removes the index first: if the index still exists, the
    # copy is complete.
    if not is_complete(checkpoint):
        logger.info('%s was removed before it could be kept as the best', checkpoint)
        return
    # The list has no `all_model_checkpoint_paths`, so training that resumes from this folder never removes this
    # checkpoint as one of its older ones.
    state = f'model_checkpoint_path: "{version}/{os.path.basename(checkpoint)}"\n'
    write_whole(os.path.join(folder, LIST_FILE), state)
    logger.info('step %s is the best so far; kept in %s', f'{evaluation.step:,}', folder)
    _remove_versions(folder, except_for=version)


def _write_version(folder: str, checkpoint: str, evaluation: Evaluation) -> None:
    """Copies a checkpoint and the records of its training into a new folder, and adds the evaluation."""
    source, name = os.path.split(checkpoint)
    with remote.explained(folder, remote.WRITE):
        tf.io.gfile.makedirs(folder)
    names = [other for other in remote.names_in(source) or () if other.startswith(f'{name}.')]
    names += [other for other in (CONFIG_FILE, STARTS_FILE) if remote.exists(os.path.join(source, other))]
    for other in names:
        _copy(os.path.join(source, other), os.path.join(folder, other))
    write_whole(os.path.join(folder, EVALUATION_FILE), json.dumps(sealed(evaluation._asdict())) + '\n')


def _copy(source: str, target: str) -> None:
    with remote.explained(source, remote.READ):
        tf.io.gfile.copy(source, target, overwrite=True)
    # On s3://, TensorFlow reports denied access as the end of the file.
    if remote.size(target) != remote.size(source):
        raise remote.UnreachableError(f'{source}: the copy {target} is incomplete. Try again.')


def _remove_versions(folder: str, except_for: Optional[str]) -> None:
    """Removes all versions except one. Other files stay, because the folder may have been used as a model_dir."""
    for name in remote.names_in(folder) or ():
        # The names of remote folders end with a slash.
        version = name.rstrip('/')
        if _VERSION.fullmatch(version) and version != except_for:
            path = os.path.join(folder, version)
            with remote.explained(path, remote.DELETE):
                tf.io.gfile.rmtree(path)
