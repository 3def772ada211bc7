"""Checkpoints: their list, their saving, and making sure that they are whole and fit what they are to be used for."""

import contextlib
import os
import re
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.python.lib.io import file_io

from console.errors import CommandError
from console.log import logger
from data import remote

# As TensorFlow names them.
PREFIX = 'model.ckpt'
_LIST = 'checkpoint'
_NAME = re.compile(rf'{re.escape(PREFIX)}-(\d+)(?=\.(index|meta|data-\d+-of-\d+)$)')
_KEPT = 5

# While it is there: the names of the checkpoint that is being written and of those that it replaces. What of them the
# list does not name is unfinished.
_NOTE = 'saving.unfinished'

# Below model_dir: what was not gone on from.
PASSED_OVER = 'passed_over'

_AVERAGE_SUFFIX = '/ExponentialMovingAverage'
_NAMED_AT_MOST = 3


class CheckpointError(CommandError):
    """A checkpoint that cannot be read, or does not fit what is asked of it."""


class DamagedError(CheckpointError):
    """A checkpoint whose files are damaged or not all there, or whose values are not finite.

    Args:
      checkpoint: its path.
      reason: what is wrong with it.
    """

    def __init__(self, checkpoint: str, reason: str):
        super().__init__(
            f'{checkpoint}: is damaged ({reason}). --skip_damaged_checkpoints passes it over, and goes on from the '
            'newest one that is whole.'
        )


class NotFiniteError(DamagedError):
    """A checkpoint with values that are not finite."""


def latest_checkpoint(model_dir: str) -> Optional[str]:
    """The path of the newest checkpoint in a folder, or None if it has none.

    Raises:
      CheckpointError: the folder's list of checkpoints, the file `checkpoint`, is spoilt or names one that is gone.
      RemoteError: it is refused, or cannot be reached.
    """
    path = os.path.join(model_dir, _LIST)
    if not remote.exists(path):
        return None
    # What TensorFlow cannot read, it takes for a list of nothing.
    remote.check_readable(path)
    try:
        state = tf.train.get_checkpoint_state(model_dir)
    except ValueError:
        state = None
    if not state:
        raise CheckpointError(
            f'{path}: names no checkpoint. Put back what it held, go on from the newest one that is whole with '
            '--skip_damaged_checkpoints, or start in a new --model_dir.'
        )
    if not is_whole(state.model_checkpoint_path):
        raise CheckpointError(
            f'{path}: names {os.path.basename(state.model_checkpoint_path)}, whose files are not all there. Put them '
            'back, go on from the newest one that is whole with --skip_damaged_checkpoints, or start in a new '
            '--model_dir.'
        )
    return state.model_checkpoint_path


def newest_checkpoint(model_dir: str) -> str:
    """The path of the newest checkpoint in a folder.

    Raises:
      CheckpointError: there is none, or as `latest_checkpoint`.
      RemoteError: as `latest_checkpoint`.
    """
    checkpoint = latest_checkpoint(model_dir)
    if not checkpoint:
        raise CheckpointError(f'--model_dir={model_dir}: there is no checkpoint in it.')
    return checkpoint


def latest_step(model_dir: str) -> int:
    """The global step of the newest checkpoint in a folder; 0 without any. Errors as of `latest_checkpoint`."""
    checkpoint = latest_checkpoint(model_dir)
    return step_of(checkpoint) if checkpoint else 0


def is_whole(checkpoint: str) -> bool:
    """Whether the index and data of a checkpoint are there."""
    return remote.exists(f'{checkpoint}.index') and bool(_data_files(checkpoint))


def _data_files(checkpoint: str) -> List[str]:
    folder, name = os.path.split(checkpoint)
    names = remote.names_in(folder) or []
    return [os.path.join(folder, other) for other in names if other.startswith(f'{name}.data-')]


def step_of(checkpoint: str) -> int:
    """The global step of a checkpoint.

    Raises:
      CheckpointError: it cannot be read.
      RemoteError: it is refused, or cannot be reached.
    """
    return int(_reader(checkpoint).get_tensor(tf.compat.v1.GraphKeys.GLOBAL_STEP))


def check_holds_averages(checkpoint: str) -> None:
    """Makes sure that a checkpoint holds averages of its weights.

    Raises:
      CheckpointError: it holds none, or cannot be read.
    """
    if not any(name.endswith(_AVERAGE_SUFFIX) for name in _reader(checkpoint).get_variable_to_shape_map()):
        raise CheckpointError(
            f'{checkpoint}: holds no averages of the weights; it was trained with --moving_average=False. '
            'Evaluate and export it with that flag, too.'
        )


def check_fits(checkpoint: str) -> None:
    """Makes sure that a checkpoint has the variables of the current graph, in the graph's shapes.

    Raises:
      CheckpointError: some differ, as another network's or another number of classes' do, or it cannot be read.
    """
    stored = _reader(checkpoint).get_variable_to_shape_map()
    wanted: Dict[str, List[int]] = {v.op.name: v.shape.as_list() for v in tf.compat.v1.global_variables()}
    problems = [f'{name} is missing' for name in sorted(wanted) if name not in stored]
    problems += [
        f'{name} is {stored[name]}, here {shape}'
        for name, shape in sorted(wanted.items())
        if name in stored and stored[name] != shape
    ]
    if problems:
        more = len(problems) - _NAMED_AT_MOST
        named = '; '.join(problems[:_NAMED_AT_MOST]) + (f'; and {more} more' if more > 0 else '')
        raise CheckpointError(
            f'{checkpoint}: does not fit this run. {named}. Name another --model_dir, or give the flags of the run '
            f'that made it ({os.path.join(os.path.dirname(checkpoint), "config.json")}).'
        )


def _reader(checkpoint: str) -> Any:
    try:
        # Opening reads the index; a value is in the data.
        with _damage_named(checkpoint, [f'{checkpoint}.index']):
            reader = tf.train.load_checkpoint(checkpoint)
        with _damage_named(checkpoint, _data_files(checkpoint)):
            reader.get_tensor(tf.compat.v1.GraphKeys.GLOBAL_STEP)
        return reader
    except tf.errors.NotFoundError:
        if is_whole(checkpoint):
            raise CheckpointError(f'{checkpoint}: has no global step; it is not a checkpoint of a training run.')
        raise


@contextlib.contextmanager
def _damage_named(checkpoint: str, paths: Sequence[str]) -> Iterator[None]:
    """Names the files of a checkpoint in which reading finds damage; what may not be read is refused as such.

    Raises:
      DamagedError: instead of what TensorFlow finds.
    """
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
        if is_whole(checkpoint):
            for path in paths:
                remote.check_readable(path)
        names = ', '.join(os.path.basename(path) for path in paths)
        raise DamagedError(checkpoint, f'{names}: {error.message.partition(chr(10))[0]}')


def check_sound(checkpoint: str) -> None:
    """Reads all of a checkpoint, whose values have checksums, and makes sure that they are finite.

    The 434 MB of the documented default take 0.3 s from memory.

    Raises:
      DamagedError: a file is damaged, or missing.
      NotFiniteError: a value is not finite.
      CheckpointError: it is not a checkpoint of a training run.
      RemoteError: it is refused, or cannot be reached.
    """
    if not is_whole(checkpoint):
        raise DamagedError(checkpoint, 'its files are not all there')
    reader, data_files = _reader(checkpoint), _data_files(checkpoint)
    for name in sorted(reader.get_variable_to_shape_map()):
        with _damage_named(checkpoint, data_files):
            value = reader.get_tensor(name)
        if value.dtype.kind == 'f' and not np.isfinite(value).all():
            raise NotFiniteError(checkpoint, f'{name} has values that are not finite')


def _names_in_list(model_dir: str) -> List[str]:
    """The names in a folder's list of checkpoints, oldest first; none if it cannot be read."""
    try:
        state = tf.train.get_checkpoint_state(model_dir)
    except ValueError:
        state = None
    if not state:
        return []
    names = [os.path.basename(path) for path in (*state.all_model_checkpoint_paths, state.model_checkpoint_path)]
    # The newest is the last but one, too.
    return names[: names.index(names[-1]) + 1]


def _write_list(model_dir: str, names: List[str]) -> None:
    lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names)]
    file_io.atomic_write_string_to_file(os.path.join(model_dir, _LIST), '\n'.join(lines) + '\n')


def _files_of(model_dir: str) -> Dict[int, List[str]]:
    """The names of the files of a folder's checkpoints, by step."""
    files: Dict[int, List[str]] = {}
    for name in remote.names_in(model_dir) or []:
        match = _NAME.match(name)
        if match:
            files.setdefault(int(match.group(1)), []).append(name)
    return files


def go_back(model_dir: str) -> Optional[str]:
    """Passes over the newest checkpoints of a folder that are not sound, and makes the next the newest.

    Their files are moved into the folder `passed_over`. Those that are newer than what the folder's list names are left
    as they are, unless the list cannot be read.

    Returns:
      The path of the newest checkpoint that is sound; None if the folder has no checkpoint at all.

    Raises:
      CheckpointError: none is sound; then all are left where they are.
      RemoteError: one is refused, or cannot be reached.
    """
    listed = _names_in_list(model_dir)
    newest_step = int(listed[-1].rpartition('-')[2]) if listed else None
    steps = [step for step in sorted(_files_of(model_dir)) if newest_step is None or step <= newest_step]
    problems: Dict[int, CheckpointError] = {}
    for step in reversed(steps):
        checkpoint = os.path.join(model_dir, f'{PREFIX}-{step}')
        try:
            check_sound(checkpoint)
        except CheckpointError as error:
            problems[step] = error
            continue
        for passed, problem in problems.items():
            pass_over(model_dir, passed)
            logger.info('passed over, and moved into %s: %s', os.path.join(model_dir, PASSED_OVER), problem)
        _write_list(model_dir, [f'{PREFIX}-{kept}' for kept in steps if kept <= step][-_KEPT:])
        return checkpoint
    if problems:
        raise CheckpointError(f'--model_dir={model_dir}: none of its checkpoints is whole. {problems[max(problems)]}')
    return None


def pass_over(model_dir: str, step: int) -> None:
    """Moves the files of a checkpoint out of the way, and takes it off the list unless nothing would be left there."""
    names = [name for name in _names_in_list(model_dir) if name != f'{PREFIX}-{step}']
    if names:
        _write_list(model_dir, names)
    folder = os.path.join(model_dir, PASSED_OVER)
    tf.io.gfile.makedirs(folder)
    for name in _files_of(model_dir).get(step, []):
        tf.io.gfile.rename(os.path.join(model_dir, name), os.path.join(folder, name), overwrite=True)


def remove_unfinished(model_dir: str) -> List[str]:
    """Removes the checkpoints that were being written or removed when a run was killed; returns their files."""
    noted = (remote.read(os.path.join(model_dir, _NOTE)) or b'').decode(errors='replace').split()
    unlisted = {name for name in noted if name not in _names_in_list(model_dir)}
    removed = [name for names in _files_of(model_dir).values() for name in names if _checkpoint_of(name) in unlisted]
    for name in removed:
        tf.io.gfile.remove(os.path.join(model_dir, name))
    return removed


def _checkpoint_of(file_name: str) -> str:
    return file_name[: file_name.index('.', len(PREFIX))]


def step_before(model_dir: str, step: int) -> Optional[int]:
    """The step of the newest checkpoint in a folder's list that is older than one of this step; None without any."""
    steps = [int(name.rpartition('-')[2]) for name in _names_in_list(model_dir)]
    return max((older for older in steps if older < step), default=None)


def save(model_dir: str, step: int, write: Callable[[], None]) -> None:
    """Writes a checkpoint, reads it back, and lists it: a kill at any moment leaves a sound newest checkpoint.

    The newest five stay. A step that is already the newest in the list is not written again.

    Args:
      model_dir: the folder.
      step: the global step of the checkpoint.
      write: writes the checkpoint's files, without listing them.

    Raises:
      NotFiniteError: a value is not finite; the files of the checkpoint are removed again.
      DamagedError: the files cannot be read back.
    """
    name = f'{PREFIX}-{step}'
    listed = _names_in_list(model_dir)
    if listed and listed[-1] == name:
        return
    kept = [*(other for other in listed if other != name), name]
    note = os.path.join(model_dir, _NOTE)
    file_io.atomic_write_string_to_file(note, ' '.join([name, *kept[:-_KEPT]]))
    write()
    try:
        check_sound(os.path.join(model_dir, name))
    except NotFiniteError:
        _remove(model_dir, name)
        raise
    _write_list(model_dir, kept[-_KEPT:])
    for old in kept[:-_KEPT]:
        _remove(model_dir, old)
    tf.io.gfile.remove(note)


def _remove(model_dir: str, name: str) -> None:
    for file_name in _files_of(model_dir).get(int(name.rpartition('-')[2]), []):
        tf.io.gfile.remove(os.path.join(model_dir, file_name))
