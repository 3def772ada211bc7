"""What a run has trained, to be used on this machine's CPU: the weights that it evaluates, and how they are fed."""

import dataclasses
import os
from typing import NamedTuple, Optional

import tensorflow as tf

from data import remote
from inception_v3.config import Config, ConfigError
from inception_v3.model_dir import starts
from inception_v3.model_dir.checkpoints import (
    CheckpointError,
    check_fits,
    check_holds_averages,
    check_sound,
    is_whole,
    latest_checkpoint,
    step_of,
)
from inception_v3.model_dir.files import CONFIG_FILE, text_of
from inception_v3.moving_average import averaging_saver


class TrainedModel(NamedTuple):
    """A checkpoint of a run.

    Attributes:
      checkpoint: its path.
      step: its global step.
      config: of the run, but for what it ran on: the CPU of this machine.
    """

    checkpoint: str
    step: int
    config: Config

    @property
    def weights(self) -> str:
        """Which weights are evaluated: 'average' or 'raw'."""
        return 'average' if self.config.moving_average else 'raw'

    def restore(self, session: tf.compat.v1.Session) -> None:
        """Puts the weights that are evaluated into the variables of the current graph.

        Raises:
          CheckpointError: it is damaged, does not fit the graph, or has no averages of the weights.
        """
        check_sound(self.checkpoint)
        check_fits(self.checkpoint)
        if self.config.moving_average:
            check_holds_averages(self.checkpoint)
        saver = averaging_saver() if self.config.moving_average else tf.compat.v1.train.Saver()
        saver.restore(session, self.checkpoint)


def find(model_dir: str, checkpoint: Optional[str] = None) -> TrainedModel:
    """A checkpoint in a run's model_dir.

    Args:
      model_dir: of the run; or the folder `best` in it.
      checkpoint: its name in `model_dir`, or its path; None: the newest.

    Raises:
      CheckpointError: there is no such checkpoint, or it cannot be read.
      ConfigError: there is no configuration beside it, or none that can be read.
      RemoteError: something is refused, or cannot be reached.
    """
    path = latest_checkpoint(model_dir) if checkpoint is None else _named(model_dir, checkpoint)
    if not path:
        raise CheckpointError(f'{model_dir}: there is no checkpoint in it.')
    beside = os.path.join(os.path.dirname(path), CONFIG_FILE)
    text = text_of(beside)
    if not text:
        raise ConfigError(f'{beside}: does not exist, or is empty; it says how the checkpoint beside it was trained.')
    try:
        config = Config.from_json(text)
    except ConfigError as error:
        raise ConfigError(f'{beside}: {error}')
    here = dataclasses.replace(
        config,
        use_tpu=False,
        tpu=None,
        master='',
        intra_op_threads=0,
        mode='eval',
        model_dir=model_dir,
        data_dir=_from_here(config.data_dir, model_dir),
    )
    return TrainedModel(path, step_of(path), here)


def _named(model_dir: str, checkpoint: str) -> str:
    for path in (os.path.join(model_dir, checkpoint), checkpoint):
        if is_whole(path):
            return path
    raise CheckpointError(
        f'--checkpoint={checkpoint}: there is no such checkpoint, with its index and its data, in {model_dir}. Give '
        'its name without an extension, such as model.ckpt-500.'
    )


def _from_here(data_dir: str, model_dir: str) -> str:
    """The path of the run's data set; a relative one may have been relative to another folder than this."""
    if not data_dir or remote.is_remote(data_dir) or os.path.isabs(data_dir) or os.path.exists(data_dir):
        return data_dir
    begun_in = [os.path.join(start.directory, data_dir) for start in starts.read(model_dir)]
    return next((path for path in reversed(begun_in) if os.path.exists(path)), data_dir)
