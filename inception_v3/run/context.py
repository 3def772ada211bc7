"""The objects that a run's guard, trainer and evaluator share."""

from typing import NamedTuple, Optional, Sequence

from compat import tf
from console.screen import Screen
from data.dataset_info import DatasetInfo
from inception_v3.config import Config
from inception_v3.run.hooks.stopping import Termination
from inception_v3.run.trainer_lock import TrainerLock
from inception_v3.run.workers import Workers


class Context(NamedTuple):
    """The objects of one run, made once; the data set is None without a description."""

    config: Config
    screen: Screen
    termination: Termination
    workers: Workers
    lock: TrainerLock
    estimator: tf.estimator.tpu.TPUEstimator
    data_set: Optional[DatasetInfo]

    @property
    def model_dir(self) -> str:
        """The folder of the run's checkpoints and records."""
        return str(self.config.model_dir)

    @property
    def class_names(self) -> Sequence[str]:
        """The names of the classes by label; empty if the data set does not name them."""
        return self.data_set.class_names if self.data_set else ()
