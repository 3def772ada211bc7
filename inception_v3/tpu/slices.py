"""Evaluation on a slice: each host reads its own files, and feeds its own cores."""

from typing import List, Sequence

from compat import tf  # isort: skip  Before TensorFlow is loaded.
from tensorflow_estimator.python.estimator import model_fn as modes
from tensorflow_estimator.python.estimator.tpu import tpu_context

from compat.log import logger
from data import dataset_info
from data.records import VALIDATION
from inception_v3.config import Config
from inception_v3.tpu import topology


def shares_of(records: Sequence[int], hosts: int, at_most: int = 0) -> List[int]:
    """The number of images that each host evaluates, from the numbers of records in the files.

    Args:
      records: the number of records in each file. File i belongs to host i modulo `hosts`.
      hosts: the number of hosts; hosts beyond the number of files have no images.
      at_most: the number of images of an evaluation, divided as equally as the files allow; 0: all.
    """
    images = [sum(records[host::hosts]) for host in range(hosts)]
    if not at_most:
        return images
    # Hosts with few images come first: the others share the images that these cannot supply.
    for served, host in enumerate(sorted(range(hosts), key=lambda host: images[host])):
        images[host] = min(images[host], at_most // (hosts - served))
        at_most -= images[host]
    return images


def images_of_hosts(config: Config, hosts: int) -> List[int]:
    """The validation images that each host of a TPU evaluates.

    `dataset.json` has the number of records in each file. Without it, or if it does not describe these files, the
    records are counted. Raises DataError or RemoteError if that fails.
    """
    if config.use_data == 'fake':
        return shares_of([1] * config.eval_images, hosts)
    source = config.source
    paths = source.find(VALIDATION)
    info = None if config.eval_files else dataset_info.read(config.data_dir)
    counts = info.validation_records_per_file if info else []
    if len(counts) != len(paths):
        logger.info('%s: counting the records of %s validation files', source.flag(VALIDATION), f'{len(paths):,}')
        counts = [each.records for each in source.contents(paths)]
    return shares_of(counts, hosts, config.eval_total_size)


def steps_for(images: Sequence[int], batch_size: int) -> int:
    """The number of evaluation steps that every host needs to feed its images; hosts that are done feed padding."""
    return -(-max(images) * len(images) // batch_size)


def evaluation_steps(config: Config) -> int:
    """The number of steps of an evaluation. A host with fewer images than another pads its last batches."""
    hosts = topology.hosts_of(config)
    images = images_of_hosts(config, hosts) if hosts > 1 else [config.eval_images]
    return steps_for(images, config.eval_batch_size)


class _ContextOfAllHosts(tpu_context._InternalTPUContext):
    """TPUEstimator's context, without its check that only one host feeds an evaluation."""

    _validates_evaluation = False

    @property
    def num_hosts(self) -> int:
        """The number of hosts. While an evaluation is validated, only that check reads it."""
        return 1 if self._validates_evaluation else super().num_hosts

    def _validate_tpu_configuration(self) -> None:
        self._validates_evaluation = self._assert_mode() == modes.ModeKeys.EVAL
        try:
            super()._validate_tpu_configuration()
        finally:
            self._validates_evaluation = False


def evaluate_on_all_hosts(estimator: tf.estimator.tpu.TPUEstimator) -> None:
    """Lets a TPUEstimator evaluate with an input pipeline on each of several hosts, as in training.

    TPUEstimator refuses this, because the data sets of the hosts may end at different steps. The data sets of
    `InputPipeline` end in endless padding, and `steps_for` gives the number of steps. TPUEstimator feeds training in
    the same way; all its other checks remain.
    """
    # TPUEstimator copies its context for each mode, so a method would have to be replaced in each copy. The context of
    # a single core has another class, and one host.
    if type(estimator._ctx) is tpu_context._InternalTPUContext:
        estimator._ctx.__class__ = _ContextOfAllHosts
