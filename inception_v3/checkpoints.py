"""Reading checkpoints, and making sure that they fit what they are to be used for."""

import os
from typing import Any, Dict, List, Optional

import tensorflow as tf
from absl import app

from data import remote

_AVERAGE_SUFFIX = '/ExponentialMovingAverage'
_NAMED_AT_MOST = 3


class CheckpointError(app.UsageError):
    """A checkpoint that cannot be read, or does not fit what is asked of it."""


def latest_checkpoint(model_dir: str) -> Optional[str]:
    """The path of the newest checkpoint in a folder, or None if it has none.

    Raises:
      CheckpointError: the folder's list of checkpoints, the file `checkpoint`, is spoilt or names one that is gone.
      RemoteError: it is refused, or cannot be reached.
    """
    path = os.path.join(model_dir, 'checkpoint')
    if not remote.exists(path):
        return None
    # What TensorFlow cannot read, it takes for a list of nothing.
    remote.check_readable(path)
    try:
        state = tf.train.get_checkpoint_state(model_dir)
    except ValueError:
        state = None
    if not state:
        raise CheckpointError(f'{path}: names no checkpoint. Put back what it held, or start in a new --model_dir.')
    if not is_whole(state.model_checkpoint_path):
        raise CheckpointError(
            f'{path}: names {os.path.basename(state.model_checkpoint_path)}, whose files are not all there. Put them '
            'back, name an older checkpoint in it, or start in a new --model_dir.'
        )
    return state.model_checkpoint_path


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


class CheckpointFitsHook(tf.estimator.SessionRunHook):
    """Does `check_fits` before a session restores a checkpoint.

    Args:
      checkpoint: the path of the checkpoint.
    """

    def __init__(self, checkpoint: str):
        self._checkpoint = checkpoint

    def begin(self) -> None:
        """Checks, when the graph is complete."""
        check_fits(self._checkpoint)


def _reader(checkpoint: str) -> Any:
    try:
        reader = tf.train.load_checkpoint(checkpoint)
        # Opening reads the index; a value is in the data.
        reader.get_tensor(tf.compat.v1.GraphKeys.GLOBAL_STEP)
        return reader
    except tf.errors.NotFoundError:
        if is_whole(checkpoint):
            raise CheckpointError(f'{checkpoint}: has no global step; it is not a checkpoint of a training run.')
        raise
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
        if is_whole(checkpoint):
            for path in (f'{checkpoint}.index', *_data_files(checkpoint)):
                remote.check_readable(path)
        raise CheckpointError(
            f'{checkpoint}: is damaged ({error.message}). Name an older one in the file `checkpoint` beside it, or '
            'start in a new --model_dir.'
        )
