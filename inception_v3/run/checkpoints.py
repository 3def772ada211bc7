"""Saves, lists, verifies and skips the checkpoints of a model_dir."""

import contextlib
import os
import re
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import numpy as np

from compat import tf
from compat.errors import CheckpointError
from compat.log import logger
from compat.messages import listed
from compat.names import checkpoint_errors
from console import outputs
from data import remote
from data.files import write_whole
from inception_v3 import loss_scale, moving_average
from inception_v3.model_dir import (
    LIST_FILE,
    check_kinds,
    data_files,
    is_complete,
    latest_checkpoint,
    list_of_checkpoints,
)

# TensorFlow's names.
PREFIX = 'model.ckpt'
_NAME = re.compile(rf'{re.escape(PREFIX)}-(\d+)(?=\.(index|meta|data-\d+-of-\d+)$)')
_OWN_NAME = re.compile(rf'{re.escape(PREFIX)}-\d+')
_STEP_IN_NAME = re.compile(r'-(\d+)$')
_KEPT = 5

# A file that exists only during a save. It names the checkpoint being written and the checkpoints to remove. After
# a crash, those that are not in the list are removed.
_NOTE = 'saving.unfinished'

# Temporary names that TensorFlow and this program give to files until these are complete, and names of probe files.
_UNFINISHED = re.compile(
    r'.+\.unfinished|\.probe-\d+|model\.ckpt-\d+_temp_[0-9a-f]+/?|'
    r'(checkpoint|graph\.pbtxt|trainer\.json|saving\.unfinished|model\.ckpt-\d+\.meta)\.tmp[0-9a-f]+'
)

# The folder in model_dir for checkpoints that were skipped.
PASSED_OVER = 'passed_over'


class DamagedError(CheckpointError):
    """The files of a checkpoint are damaged or incomplete, or its values are not finite."""

    def __init__(self, checkpoint: str, reason: str):
        super().__init__(
            f'{checkpoint}: is damaged ({reason}). With --skip_damaged_checkpoints, training resumes from the newest '
            'undamaged checkpoint.'
        )


class NotFiniteError(DamagedError):
    """A checkpoint has values that are not finite."""


def newest_checkpoint(model_dir: str) -> str:
    """As `latest_checkpoint`; a folder without a checkpoint is an error."""
    checkpoint = latest_checkpoint(model_dir)
    if not checkpoint:
        raise CheckpointError(f'{model_dir}: contains no checkpoint.')
    return checkpoint


def latest_step(model_dir: str) -> int:
    """The global step of the newest checkpoint in a folder; 0 if it has none. Raises as `latest_checkpoint`."""
    checkpoint = latest_checkpoint(model_dir)
    return step_of(checkpoint) if checkpoint else 0


def step_of(checkpoint: str) -> int:
    """The global step of a checkpoint. Raises CheckpointError if it cannot be read."""
    return int(_reader(checkpoint).get_tensor(tf.GraphKeys.GLOBAL_STEP))


def check_holds_averages(checkpoint: str) -> None:
    """Checks that a checkpoint has moving averages of its weights, else raises CheckpointError."""
    _reader(checkpoint)
    moving_average.check_holds_averages(checkpoint)


def check_fits(checkpoint: str) -> None:
    """Raises CheckpointError unless a checkpoint has the current graph's variables, but for those of loss scaling."""
    stored = _reader(checkpoint).get_variable_to_shape_map()
    optional = {v.op.name for v in tf.get_collection(loss_scale.VARIABLES)}
    wanted: Dict[str, List[int]] = {
        v.op.name: v.shape.as_list() for v in tf.global_variables() if v.op.name not in optional
    }
    problems = [
        f'{name} is missing' if name not in stored else f'{name} has the shape {stored[name]}, not {shape}'
        for name, shape in sorted(wanted.items(), key=lambda each: (each[0] in stored, each[0]))
        if stored.get(name) != shape
    ]
    if problems:
        raise CheckpointError(
            f'{checkpoint}: does not fit this run: {listed(problems)}. Use another --model_dir, or the flags of the '
            f'run that wrote it ({os.path.join(os.path.dirname(checkpoint), "config.json")}).'
        )


def _reader(checkpoint: str) -> Any:
    try:
        check_kinds(checkpoint)
        # Opening a checkpoint reads only the index; reading a value reads the data.
        with _damage_named(checkpoint, [f'{checkpoint}.index']):
            reader = tf.train.load_checkpoint(checkpoint)
        with _damage_named(checkpoint, data_files(checkpoint)):
            reader.get_tensor(tf.GraphKeys.GLOBAL_STEP)
        return reader
    except tf.errors.NotFoundError:
        if is_complete(checkpoint):
            raise CheckpointError(f'{checkpoint}: is not a checkpoint of a training run: it has no global step.')
        raise


@contextlib.contextmanager
def _damage_named(checkpoint: str, paths: Sequence[str]) -> Iterator[None]:
    """Context manager that turns TensorFlow's error about damaged files into a DamagedError that names them."""
    try:
        with checkpoint_errors():
            yield
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
        if is_complete(checkpoint):
            for path in paths:
                remote.check_readable(path)
        names = ', '.join(os.path.basename(path) for path in paths)
        raise DamagedError(checkpoint, f'{names}: {error.message.partition(chr(10))[0]}')


def check_undamaged(checkpoint: str) -> None:
    """Reads a whole checkpoint, which verifies its checksums (0.3 s for 434 MB), and checks that values are finite.

    Raises:
      DamagedError: a file is damaged or missing; NotFiniteError: a value is not finite.
      CheckpointError: it is not a checkpoint of a training run.
    """
    try:
        if not is_complete(checkpoint):
            raise DamagedError(checkpoint, 'files are missing')
    except remote.UnreachableError:
        raise
    except remote.RemoteError as error:
        raise DamagedError(checkpoint, str(error))
    reader, paths = _reader(checkpoint), data_files(checkpoint)
    for name in sorted(reader.get_variable_to_shape_map()):
        with _damage_named(checkpoint, paths):
            value = reader.get_tensor(name)
        if value.dtype.kind == 'f' and not np.isfinite(value).all():
            raise NotFiniteError(checkpoint, f'{name} has values that are not finite')


def _names_in_list(model_dir: str) -> List[str]:
    """The names in a folder's list of checkpoints, oldest first; empty if the list cannot be read.

    They are relative to the folder; a checkpoint elsewhere has its whole path.
    """
    state = list_of_checkpoints(model_dir)
    if not state:
        return []
    prefix = os.path.join(model_dir, '')
    paths = [*state.all_model_checkpoint_paths, state.model_checkpoint_path]
    names = [path[len(prefix) :] if path.startswith(prefix) else path for path in paths]
    # TensorFlow's list usually names the newest twice.
    return names[: names.index(names[-1]) + 1]


def _step_in(name: str) -> Optional[int]:
    match = _STEP_IN_NAME.search(name)
    return int(match.group(1)) if match else None


def _write_list(model_dir: str, names: List[str]) -> None:
    lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names)]
    write_whole(os.path.join(model_dir, LIST_FILE), '\n'.join(lines) + '\n')


def _files_of(model_dir: str) -> Dict[int, List[str]]:
    """The names of the files of a folder's checkpoints, by step."""
    files: Dict[int, List[str]] = {}
    for name in remote.names_in(model_dir) or []:
        match = _NAME.match(name)
        if match:
            files.setdefault(int(match.group(1)), []).append(name)
    return files


def skip_damaged(model_dir: str) -> Optional[str]:
    """Moves the damaged checkpoints that are newer than the newest undamaged one into the folder `passed_over`.

    Checkpoints newer than the newest listed one stay, unless the list cannot be read.

    Returns the path of the newest undamaged checkpoint, which is now the newest in the list; None if there is no
    checkpoint. Raises CheckpointError, and moves none, if all are damaged.
    """
    listed = _names_in_list(model_dir)
    newest_step = _step_in(listed[-1]) if listed else None
    steps = [step for step in sorted(_files_of(model_dir)) if newest_step is None or step <= newest_step]
    problems: Dict[int, CheckpointError] = {}
    for step in reversed(steps):
        checkpoint = os.path.join(model_dir, f'{PREFIX}-{step}')
        try:
            check_undamaged(checkpoint)
        except CheckpointError as error:
            problems[step] = error
            continue
        for damaged, problem in problems.items():
            set_aside(model_dir, damaged)
            logger.info('skipped, and moved into %s: %s', os.path.join(model_dir, PASSED_OVER), problem)
        _write_list(model_dir, [f'{PREFIX}-{kept}' for kept in steps if kept <= step][-_KEPT:])
        return checkpoint
    if problems:
        raise CheckpointError(f'--model_dir={model_dir}: all checkpoints are damaged. {problems[max(problems)]}')
    return None


def set_aside(model_dir: str, step: int) -> None:
    """Moves the files of a checkpoint into `passed_over`, and removes it from the list unless it is the only one."""
    names = [name for name in _names_in_list(model_dir) if name != f'{PREFIX}-{step}']
    if names:
        _write_list(model_dir, names)
    folder = os.path.join(model_dir, PASSED_OVER)
    tf.io.gfile.makedirs(folder)
    for name in _files_of(model_dir).get(step, []):
        outputs.move(os.path.join(model_dir, name), os.path.join(folder, name))


def remove_leftovers(model_dir: str, of: str = 'a killed run') -> None:
    """Removes the unfinished files of a killed run, among them checkpoints that were being written or removed.

    The caller must hold the folder's lock. Complete checkpoints that are not in the list stay.
    """
    noted = (remote.read(os.path.join(model_dir, _NOTE)) or b'').decode(errors='replace').split()
    listed = _names_in_list(model_dir)
    removed = [file for name in noted if name not in listed for file in _remove(model_dir, name)]
    for name in remote.names_in(model_dir) or []:
        if _UNFINISHED.fullmatch(name):
            path = os.path.join(model_dir, name)
            (tf.io.gfile.rmtree if '_temp_' in name else tf.io.gfile.remove)(path)
            removed.append(name)
    if removed:
        logger.info('removed unfinished files of %s from %s: %s', of, model_dir, ', '.join(removed))


def step_before(model_dir: str, step: int) -> Optional[int]:
    """The step of the newest listed checkpoint that is older than `step`; None if there is none."""
    steps = [_step_in(name) for name in _names_in_list(model_dir)]
    return max((older for older in steps if older is not None and older < step), default=None)


def save(model_dir: str, step: int, write: Callable[[], None]) -> None:
    """Writes a checkpoint, reads it back, adds it to the list, and removes all but the newest five.

    If the process is killed at any moment, the newest listed checkpoint is complete. If the newest listed checkpoint
    already has this step, nothing is written. A checkpoint from which the training began, and which has another name
    or is elsewhere, stays in the list until there are five others; its files are never removed.

    `write` writes the checkpoint's files, without changing the list. If a value is not finite, the files are removed,
    and NotFiniteError is raised.
    """
    name = f'{PREFIX}-{step}'
    listed = _names_in_list(model_dir)
    if listed and listed[-1] == name:
        return
    names = [*(other for other in listed if other != name), name]
    own = [each for each in names if _OWN_NAME.fullmatch(each)]
    kept, obsolete = names if len(own) < _KEPT else own[-_KEPT:], own[:-_KEPT]
    note = os.path.join(model_dir, _NOTE)
    write_whole(note, ' '.join([name, *obsolete]))
    write()
    try:
        check_undamaged(os.path.join(model_dir, name))
    except NotFiniteError:
        _remove(model_dir, name)
        raise
    _write_list(model_dir, kept)
    for old in obsolete:
        _remove(model_dir, old)
    tf.io.gfile.remove(note)


def _remove(model_dir: str, name: str) -> List[str]:
    """Removes the files of a checkpoint, and returns their names."""
    files = _files_of(model_dir).get(_step_in(name) or 0, []) if _OWN_NAME.fullmatch(name) else []
    for file_name in files:
        tf.io.gfile.remove(os.path.join(model_dir, file_name))
    return files
