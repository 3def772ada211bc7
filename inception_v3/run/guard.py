"""The guard of a run: nothing else trains in its folder, failures are explained, and the run can be resumed."""

import contextlib
import os
from typing import Iterator, Optional

from compat.log import logger
from console import outputs
from data.dataset_info import DatasetInfo
from inception_v3.config import Config
from inception_v3.input.bad_records import BadRecords
from inception_v3.local_estimator import LocalEstimator
from inception_v3.model_dir import check_undamaged, check_writable, latest_checkpoint
from inception_v3.run import best_checkpoint, checkpoints, failures
from inception_v3.run.context import Context
from inception_v3.run.evaluations import RESULTS_FILE
from inception_v3.run.hooks.stopping import without_recovery
from inception_v3.run.starts import FIRST_STEPS_FILE, STARTS_FILE, changed_surroundings
from inception_v3.run.trained_data import check_data_set
from inception_v3.tpu.addresses import check_answers


@contextlib.contextmanager
def guarded(context: Context) -> Iterator[None]:
    """Guards a run while the context is open; at the end, releases the lock and the estimator's sessions.

    First, it checks that the run's folders can be written to, that its TPU answers, and that all workers agree. The
    first worker then locks model_dir for training, removes the leftovers of a killed run, and checks that the run can
    resume.

    Raises:
      CommandError: one of these checks fails; or the run fails in a way that can be explained.
    """
    config, model_dir, estimator = context.config, context.model_dir, context.estimator
    trains = config.is_first and config.mode != 'eval'
    if config.is_first:
        check_writable('model_dir', model_dir)
        if config.export_dir:
            check_writable('export_dir', config.export_dir)
    check_answers(estimator.config.master)
    with context.workers.joined(context.data_set), contextlib.ExitStack() as stack:
        stack.enter_context(failures.remote_failures_explained(config, context.screen))
        if not config.use_tpu or config.is_emulated:
            stack.enter_context(without_recovery())
        if isinstance(estimator, LocalEstimator):
            stack.callback(estimator.release)
        if trains:
            stack.enter_context(context.lock)
            context.termination.release = context.lock.release
        if config.is_first:
            # Within the lock: after a failure, half-written files are removed.
            stack.enter_context(failures.disk_failures_explained(config, context.screen))
            _check_places(model_dir)
        if trains:
            _prepare_to_train(config, context.data_set)
            stack.enter_context(failures.divergence_explained(config))
        if config.is_first:
            if config.keep_best:
                # A damaged best checkpoint is reported now, not after hours of training.
                best_checkpoint.read(model_dir)
            BadRecords(config, config.splits).forget()
        stack.enter_context(failures.bad_records_explained(config, config.splits, context.screen))
        yield


def _check_places(model_dir: str) -> None:
    """Raises CommandError, before hours of training, if one of the files that a run writes is a folder."""
    for name in (STARTS_FILE, FIRST_STEPS_FILE, RESULTS_FILE):
        outputs.replaceable(os.path.join(model_dir, name))


def _prepare_to_train(config: Config, data_set: Optional[DatasetInfo]) -> None:
    """Removes the leftovers of a killed run, and checks that the newest checkpoint is undamaged.

    The checkpoint must have been trained on the same data set.
    """
    model_dir = str(config.model_dir)
    checkpoints.remove_leftovers(model_dir)
    if config.skip_damaged_checkpoints:
        checkpoints.skip_damaged(model_dir)
    checkpoint = latest_checkpoint(model_dir)
    if checkpoint and not config.skip_damaged_checkpoints:
        check_undamaged(checkpoint)
    if checkpoint:
        check_data_set(config, data_set, checkpoint)
        warning = changed_surroundings(config, checkpoint)
        if warning:
            logger.info('warning: %s', warning)
    if config.export_dir:
        from inception_v3.run.export.saved_model import remove_unfinished_exports

        remove_unfinished_exports(config)
