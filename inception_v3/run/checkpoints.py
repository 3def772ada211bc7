"""Saves, lists, skips and removes the checkpoints of a model_dir; `inception_v3.model_dir` reads them."""

import os
import re
from typing import Callable, Dict, List, Optional

from compat import tf
from compat.errors import CheckpointError
from compat.log import logger
from console import outputs
from data import remote
from data.files import write_whole
from inception_v3.model_dir import LIST_FILE, DamagedError, NotFiniteError, check_undamaged, list_of_checkpoints

# TensorFlow's names.
PREFIX = 'model.ckpt'
_NAME = re.compile(rf'{re.escape(PREFIX)}-(\d+)(?=\.(index|meta|data-\d+-of-\d+)$)')
_OWN_NAME = re.compile(rf'{re.escape(PREFIX)}-\d+')
_STEP_IN_NAME = re.compile(r'-(\d+)$')
_KEPT = 5

# A file that exists only during a save. It names the checkpoint being written and the checkpoints to remove. After a
# crash, the checkpoints in it that are not in the list are removed.
_NOTE = 'saving.unfinished'

# Temporary names that TensorFlow and this program give to files until these are complete, and names of probe files.
_UNFINISHED = re.compile(
    r'.+\.unfinished|\.probe-\d+|model\.ckpt-\d+_temp_[0-9a-f]+/?|'
    r'(checkpoint|graph\.pbtxt|trainer\.json|saving\.unfinished|model\.ckpt-\d+\.meta)\.tmp[0-9a-f]+'
)

# The folder in model_dir for checkpoints that were skipped.
PASSED_OVER = 'passed_over'


def _names_in_list(model_dir: str) -> List[str]:
    """The names in a folder's list of checkpoints, oldest first; empty if the list cannot be read.

    The names are relative to the folder; a checkpoint elsewhere has its whole path.
    """
    state = list_of_checkpoints(model_dir)
    if not state:
        return []
    prefix = os.path.join(model_dir, '')
    paths = [*state.all_model_checkpoint_paths, state.model_checkpoint_path]
    names = [path[len(prefix) :] if path.startswith(prefix) else path for path in paths]
    # TensorFlow's list usually names the newest checkpoint twice.
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
    problems: Dict[int, str] = {}
    for step in reversed(steps):
        checkpoint = os.path.join(model_dir, f'{PREFIX}-{step}')
        try:
            check_undamaged(checkpoint)
        except CheckpointError as error:
            problems[step] = error.fact if isinstance(error, DamagedError) else str(error)
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
    """Removes the unfinished files of a killed run, including checkpoints that were being written or removed.

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


def save(model_dir: str, step: int, write: Callable[[], None], written: Callable[[], None] = lambda: None) -> None:
    """Writes a checkpoint, reads it back, adds it to the list, and removes all but the newest five.

    If the process is killed at any moment, the newest listed checkpoint is complete. If the newest listed checkpoint
    already has this step, nothing is written. If training began from a checkpoint with another name or in another
    folder, that checkpoint stays in the list until there are five others; its files are never removed.

    `write` writes the checkpoint's files, without changing the list. If a value is not finite, the files are removed,
    and NotFiniteError is raised. Otherwise `written` is called, before the checkpoint is listed.
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
    written()
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
