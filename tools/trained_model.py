"""A run's checkpoint and configuration, for use on this machine's CPU."""

import dataclasses
import os
from typing import NamedTuple, Optional

from compat import tf
from compat.errors import CheckpointError
from inception_v3.config import Config, ConfigError
from inception_v3.model_dir import (
    CONFIG_FILE,
    check_fits_graph,
    check_undamaged,
    is_complete,
    newest_checkpoint,
    read_config,
    step_of,
)
from inception_v3.moving_average import averaging_saver, check_holds_averages
from inception_v3.run.starts import config_of


class TrainedModel(NamedTuple):
    """A run's checkpoint and its step, and the configuration of its training with this machine's CPU as the device."""

    checkpoint: str
    step: int
    config: Config

    def restore(self, session: tf.Session) -> None:
        """Restores the weights that evaluation uses into the current graph, whose variables must match."""
        check_undamaged(self.checkpoint)
        check_fits_graph(self.checkpoint)
        if self.config.moving_average:
            check_holds_averages(self.checkpoint)
        saver = averaging_saver() if self.config.moving_average else tf.train.Saver()
        saver.restore(session, self.checkpoint)


def find(model_dir: str, checkpoint: Optional[str] = None) -> TrainedModel:
    """Finds a checkpoint by its path or by its name in a model_dir, which may be a run's `best`; by default the newest.

    Raises:
      CheckpointError: there is no such checkpoint, or it cannot be read.
      ConfigError: the `config.json` beside the checkpoint is missing or cannot be read.
    """
    if checkpoint is None:
        path = newest_checkpoint(model_dir)
    else:
        paths = (os.path.join(model_dir, checkpoint), checkpoint)
        path = next((path for path in paths if is_complete(path)), '')
        if not path:
            raise CheckpointError(
                f'--checkpoint={checkpoint}: no checkpoint of this name, with its index and data files, in '
                f'{model_dir}. Give the name without an extension, such as model.ckpt-500.'
            )
    config = read_config(os.path.dirname(path))
    if not config:
        beside = os.path.join(os.path.dirname(path), CONFIG_FILE)
        raise ConfigError(f'{beside}: is missing or empty. Restore the file: it has the settings of the run.')
    here = dataclasses.replace(
        config_of(path, config),
        use_tpu=False,
        worker_hosts='',
        task_index=None,
        accelerator='cpu',
        num_gpus=1,
        layout='auto',
        tpu=None,
        master='',
        intra_op_threads=0,
        mode='eval',
        profile_steps='',
        model_dir=model_dir,
    )
    return TrainedModel(path, step_of(path), here)
