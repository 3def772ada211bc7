"""A run: training and evaluation in cycles, training alone, or evaluation of another run's checkpoints."""

import contextlib
import time
from typing import Optional

from console.log import logger
from console.screen import Screen
from console.tensorflow_versions import tf
from inception_v3.config import Config
from inception_v3.data_set import check_data, description_of
from inception_v3.estimator import make_estimator
from inception_v3.evaluation import Evaluating, most_accurate
from inception_v3.fitting import splits_of
from inception_v3.local_estimator import LocalEstimator
from inception_v3.run import best_checkpoint, checkpoints, failures, trained_data
from inception_v3.run.evaluations import Evaluation
from inception_v3.run.files import check_writable, now
from inception_v3.run.hooks.recovery import without_recovery
from inception_v3.run.hooks.termination import Termination
from inception_v3.run.memory.estimate import check_fits
from inception_v3.run.saved_model import export_saved_model, remove_unfinished_export
from inception_v3.run.skipped_records import BadRecords
from inception_v3.run.summary import introduction_of, notes_of, summary_of
from inception_v3.run.trainer_lock import TrainerLock
from inception_v3.tpu.addresses import check_answers
from inception_v3.training import Training

# While the run waits for a new checkpoint: seconds between checks that the list of checkpoints is readable.
_CHECK_INTERVAL = 60


class Run:
    """One command's run in its model_dir, which may be new, or hold a run to resume.

    Args:
      config: of the run.
      screen: shows the progress.
      termination: may end training early.

    Raises:
      ConfigError, DataError: the run cannot start.
    """

    def __init__(self, config: Config, screen: Screen, termination: Optional[Termination] = None):
        self._made_at = time.monotonic()
        self._config = config
        self._model_dir = str(config.model_dir)
        self._screen = screen
        self._data_set = description_of(config)
        self._class_names = self._data_set.class_names if self._data_set else ()
        # This program's hooks save checkpoints and write summaries, instead of TPUEstimator's.
        self._estimator = make_estimator(config, self._class_names, writes=False)
        self._lock = TrainerLock(self._model_dir, now())
        self._termination = termination or Termination(lambda error: None)
        self._bad_records = BadRecords(config, splits_of(config))
        self._training = Training(config, self._estimator, self._data_set, screen, self._lock, self._termination)
        self._evaluating = Evaluating(config, self._estimator, self._data_set, screen, self._bad_records)
        check_data(config)
        check_fits(config)
        for note in (*introduction_of(config, self._data_set).splitlines(), *notes_of(config)):
            logger.info(note)

    def execute(self) -> str:
        """Trains, evaluates or both, as `--mode` says, exports with `--export_dir`, and returns the summary to print.

        Raises:
          CommandError: a record, a checkpoint, a folder or a device cannot be used; training diverged; or SIGTERM or
            Ctrl-C ended it. The message names the checkpoint that is kept.
        """
        config, evaluation, export = self._config, None, None
        check_writable('model_dir', self._model_dir)
        if config.export_dir:
            check_writable('export_dir', config.export_dir)
        check_answers(self._estimator.config.master)
        with contextlib.ExitStack() as protection:
            self._protect(protection)
            with failures.bad_records_explained(config, splits_of(config), self._screen):
                if config.mode == 'train':
                    self._train()
                elif config.mode == 'eval':
                    evaluation = self._follow()
                else:
                    evaluation = self._train_and_evaluate()
            if config.export_dir:
                export = self._export()
            best = best_checkpoint.read(self._model_dir) if config.keep_best else None
        self._bad_records.log()
        return summary_of(
            config,
            self._data_set,
            evaluation,
            self._training.throughput.images_per_second,
            export,
            best.evaluation if best else None,
            time.monotonic() - self._made_at if config.log_steps else None,
            most_accurate(self._model_dir, evaluation) if config.log_steps and evaluation else None,
        )

    def _protect(self, protection: contextlib.ExitStack) -> None:
        """Locks model_dir, explains failures from now on, and makes sure that the run can resume from its folder."""
        config = self._config
        protection.enter_context(failures.remote_failures_explained(config, self._screen))
        if config.mode != 'eval':
            protection.enter_context(self._lock)
            self._termination.release = self._lock.release
        # Within the lock: after a failure, half-written files are removed.
        protection.enter_context(failures.disk_failures_explained(config, self._screen))
        if config.mode != 'eval':
            self._training.prepare()
            if config.export_dir:
                remove_unfinished_export(config)
        if config.keep_best:
            # A damaged best checkpoint is reported now, not after hours of training.
            best_checkpoint.read(self._model_dir)
        if not config.use_tpu or config.is_emulated:
            protection.enter_context(without_recovery())
        if isinstance(self._estimator, LocalEstimator):
            protection.callback(self._estimator.release)
        self._bad_records.forget()

    def _train(self) -> None:
        if not self._training.is_finished():
            self._training.train(self._config.train_steps)

    def _train_and_evaluate(self) -> Optional[Evaluation]:
        """Trains `--train_steps_per_eval` steps and evaluates, in turn, starting where an earlier command ended."""
        config, evaluation = self._config, None
        step = checkpoints.latest_step(self._model_dir)
        if self._training.is_finished() or (step and step % config.train_steps_per_eval == 0):
            evaluation = self._evaluate_end_of_cycle()
        while step < config.train_steps:
            end_of_cycle = (step // config.train_steps_per_eval + 1) * config.train_steps_per_eval
            self._training.train(min(end_of_cycle, config.train_steps))
            step = checkpoints.latest_step(self._model_dir)
            evaluation = self._evaluating.evaluate(
                checkpoints.newest_checkpoint(self._model_dir), self._training.began_at
            )
        return evaluation

    def _evaluate_end_of_cycle(self) -> Evaluation:
        """Evaluates the checkpoint that a cycle ended with, unless an earlier command has recorded its evaluation."""
        checkpoint = checkpoints.newest_checkpoint(self._model_dir)
        recorded = None if self._config.display_tensors else self._evaluating.recorded(checkpoint)
        if not recorded:
            return self._evaluating.evaluate(checkpoint)
        # The earlier command may have been killed between recording and keeping.
        self._evaluating.keep_if_best(checkpoint, recorded)
        return recorded

    def _follow(self) -> Optional[Evaluation]:
        """Evaluates the checkpoints of another run as they appear, up to the checkpoint of `--train_steps`."""
        config, evaluation = self._config, None
        if not checkpoints.latest_checkpoint(self._model_dir):
            logger.info('waiting for a first checkpoint in %s', config.model_dir)

        def on_timeout() -> bool:
            # TensorFlow treats an unreadable list of checkpoints as unchanged; this call raises the error instead.
            checkpoints.latest_checkpoint(self._model_dir)
            return config.eval_timeout is not None

        for checkpoint in tf.train.checkpoints_iterator(
            config.model_dir,
            min_interval_secs=config.min_eval_interval,
            timeout=_CHECK_INTERVAL if config.eval_timeout is None else config.eval_timeout,
            timeout_fn=on_timeout,
        ):
            evaluation = self._evaluate_if_there(checkpoint) or evaluation
            if evaluation and evaluation.step >= config.train_steps:
                return evaluation
            logger.info('waiting for the next checkpoint; the last is at step %d (--train_steps)', config.train_steps)
        text = f'no new checkpoint in {config.model_dir} for {config.eval_timeout} seconds'
        if not evaluation:
            raise checkpoints.CheckpointError(f'--eval_timeout={config.eval_timeout}: {text}, and none was evaluated.')
        logger.info(text)
        return evaluation

    def _evaluate_if_there(self, checkpoint: str) -> Optional[Evaluation]:
        """Evaluates another run's checkpoint; None if that run has removed it, or it is damaged and may be skipped."""
        try:
            checkpoints.check_undamaged(checkpoint)
            return self._evaluating.evaluate(checkpoint)
        except (tf.errors.OpError, checkpoints.CheckpointError, ValueError) as error:
            if not checkpoints.is_complete(checkpoint):
                # The trainer keeps the newest five, and has removed this one.
                self._screen.clear()
                logger.info('%s was removed before it was evaluated: %s', checkpoint, error)
            elif self._config.skip_damaged_checkpoints and isinstance(error, checkpoints.DamagedError):
                logger.info('skipped: %s', error)
            else:
                raise
        return None

    def _export(self) -> str:
        checkpoint = checkpoints.newest_checkpoint(self._model_dir)
        if self._config.moving_average:
            checkpoints.check_holds_averages(checkpoint)
        self._screen.update(f'exporting {checkpoint}')
        estimator, names = self._estimator, trained_data.of_checkpoint(self._config, checkpoint).class_names
        if [*names] != [*self._class_names]:
            estimator = make_estimator(self._config, names, writes=False)
        with failures.refusals_explained():
            path = export_saved_model(estimator, self._config, checkpoint, names)
        self._screen.clear()
        return path
