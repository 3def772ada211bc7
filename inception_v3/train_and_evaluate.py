"""A run: training and evaluation in cycles, training alone, or evaluation of another run's checkpoints.

Each cycle trains `--train_steps_per_eval` steps, evaluates the last checkpoint, and keeps it if it is the best so far.
At the end, the run exports a SavedModel. The same command resumes an interrupted run.

`Run` has the loop, in a guard (`run.guard`); `run.trainer.Trainer` trains the steps of a cycle, and
`run.evaluator.Evaluator` evaluates a checkpoint.
"""

import time
from typing import TYPE_CHECKING, Any, Dict, NamedTuple, Optional, Tuple

from compat import tf
from compat.errors import CheckpointError
from compat.log import logger
from console.screen import Screen
from data.dataset_info import DatasetInfo
from inception_v3.config import Config
from inception_v3.data_set import check_data, description_of
from inception_v3.estimator import Device, find_device, make_estimator, refusals_explained
from inception_v3.input.bad_records import BadRecords
from inception_v3.model_dir import (
    DamagedError,
    check_fits_graph,
    check_undamaged,
    is_complete,
    latest_checkpoint,
    newest_checkpoint,
    now,
    step_of,
)
from inception_v3.model_fn import inception_model_fn
from inception_v3.moving_average import check_holds_averages
from inception_v3.run import best_checkpoint, evaluations
from inception_v3.run.context import Context
from inception_v3.run.evaluations import Evaluation
from inception_v3.run.evaluator import Evaluator
from inception_v3.run.guard import guarded
from inception_v3.run.hooks.stopping import Termination
from inception_v3.run.memory import check_fits
from inception_v3.run.summary import introduction_of, notes_of, summary_of
from inception_v3.run.trained_data import trained_data_of
from inception_v3.run.trainer import Trainer
from inception_v3.run.trainer_lock import TrainerLock
from inception_v3.run.workers import Workers

if TYPE_CHECKING:
    from inception_v3.machines.channel import Channel

# Seconds between checks that the list of checkpoints is readable, while the run waits for a new checkpoint.
_CHECK_INTERVAL = 60


class Seen(NamedTuple):
    """The surroundings of a run: its data set, None if that has no description; its device; and notes for its user."""

    data_set: Optional[DatasetInfo]
    device: Device
    notes: Tuple[str, ...]


class Run:
    """One command's run in its model_dir, which may be new, or hold a run to resume."""

    def __init__(
        self,
        config: Config,
        screen: Screen,
        termination: Optional[Termination] = None,
        channel: 'Optional[Channel]' = None,
    ):
        self._config = config
        self._model_dir = str(config.model_dir)
        self._screen = screen
        self._termination = termination or Termination(lambda error: None)
        self._workers = Workers(config, self._termination, channel)
        self._termination.agree = self._workers.agreed

    def check(self) -> Seen:
        """Checks the device, the data set and the memory. It writes nothing, and logs only warnings.

        Raises:
          ConfigError, DataError: the run cannot start.
        """
        config = self._config
        data_set = description_of(config)
        device = find_device(config)
        check_data(config)
        check_fits(config)
        return Seen(data_set, device, (*introduction_of(config, data_set).splitlines(), *notes_of(config)))

    def execute(self, until_step: Optional[int] = None) -> str:
        """Checks, then trains, evaluates or both, as `--mode` says, and exports; returns the summary.

        With `--mode=train`, `until_step` ends training before `train_steps`, on which some schedules depend.

        Raises:
          ConfigError, DataError: the run cannot start.
          CommandError: a record, a checkpoint, a folder or a device cannot be used; training diverged; or SIGTERM or
            Ctrl-C ended the run. The message names the checkpoint that is kept.
        """
        began, config, screen, workers = time.monotonic(), self._config, self._screen, self._workers
        seen = self.check()
        for note in seen.notes:
            logger.info(note)
        class_names = seen.data_set.class_names if seen.data_set else ()
        estimator = make_estimator(config, class_names, device=seen.device)
        lock = TrainerLock(self._model_dir, now())
        context = Context(config, screen, self._termination, workers, lock, estimator, seen.data_set)
        trainer, evaluator = Trainer(context), Evaluator(context)
        evaluation, export, best = None, None, None
        with guarded(context):
            if config.mode == 'eval':
                evaluation = self._follow(evaluator)
            else:
                trainer.read_weights()
                if config.mode == 'train_and_eval':
                    evaluation = self._train_and_evaluate(trainer, evaluator)
                elif not workers.share(self._is_finished):
                    trainer.train(until_step or config.train_steps)
            if config.export_dir and config.is_first:
                export = self._export(context, seen.device)
            if config.keep_best and config.is_first:
                best = best_checkpoint.read(self._model_dir)
        BadRecords(config, config.splits).log()
        if not config.is_first:
            return workers.summary()
        return summary_of(
            config,
            seen.data_set,
            evaluation,
            trainer.progress.images_per_second,
            export,
            best.evaluation if best else None,
            time.monotonic() - began if config.log_steps else None,
            evaluations.most_accurate(self._model_dir, evaluation) if config.log_steps and evaluation else None,
        )

    # The loop.

    def _train_and_evaluate(self, trainer: Trainer, evaluator: Evaluator) -> Optional[Evaluation]:
        """Trains `--train_steps_per_eval` steps and evaluates, in turn, starting where an earlier command ended."""
        config, evaluation = self._config, None
        step = self._workers.latest_step()
        if self._workers.share(self._is_finished) or (step and step % config.train_steps_per_eval == 0):
            evaluation = self._end_cycle_of_earlier_command(evaluator)
        while step < config.train_steps:
            end_of_cycle = (step // config.train_steps_per_eval + 1) * config.train_steps_per_eval
            trainer.train(min(end_of_cycle, config.train_steps))
            step = self._workers.latest_step()
            evaluation = evaluator.evaluate(self._workers.newest_checkpoint())
        return evaluation

    def _end_cycle_of_earlier_command(self, evaluator: Evaluator) -> Evaluation:
        """Evaluates the last checkpoint of a cycle, unless the earlier command has recorded its evaluation."""
        checkpoint = self._workers.newest_checkpoint()

        def recorded_values() -> Optional[Dict[str, Any]]:
            recorded = None if self._config.display_tensors else evaluator.recorded(checkpoint)
            return recorded._asdict() if recorded else None

        values = self._workers.share(recorded_values)
        if not values:
            return evaluator.evaluate(checkpoint)
        recorded = Evaluation(**{**values, 'changed': tuple(values['changed'])})
        # The earlier command may have been killed after it recorded the evaluation and before it kept the checkpoint.
        evaluator.keep(checkpoint, recorded)
        return recorded

    def _follow(self, evaluator: Evaluator) -> Optional[Evaluation]:
        """Evaluates the checkpoints of another run as they appear, up to the checkpoint of `--train_steps`."""
        config, evaluation = self._config, None

        def has_checkpoint() -> bool:
            try:
                return latest_checkpoint(self._model_dir) is not None
            except CheckpointError as error:
                if not config.skip_damaged_checkpoints:
                    raise
                logger.info('waiting for the next checkpoint: %s', error)
                return True

        def check_list() -> bool:
            # TensorFlow treats an unreadable list of checkpoints as unchanged; this call raises the error instead.
            has_checkpoint()
            return False

        if not has_checkpoint():
            logger.info('waiting for a first checkpoint in %s', config.model_dir)
        for checkpoint in tf.train.checkpoints_iterator(
            config.model_dir,
            min_interval_secs=config.min_eval_interval,
            timeout=_CHECK_INTERVAL if config.eval_timeout is None else config.eval_timeout,
            # Without a function, the iterator ends after the timeout. 2.21 also calls it after each checkpoint.
            timeout_fn=check_list if config.eval_timeout is None else None,
        ):
            evaluation = self._evaluate_if_there(evaluator, checkpoint) or evaluation
            if evaluation and evaluation.step >= config.train_steps:
                return evaluation
            last = f'{config.train_steps:,}'
            logger.info('waiting for the next checkpoint; the last is at step %s (--train_steps)', last)
        check_list()
        text = f'no new checkpoint in {config.model_dir} for {config.eval_timeout} seconds'
        if not evaluation:
            raise CheckpointError(f'--eval_timeout={config.eval_timeout}: {text}, and none was evaluated.')
        logger.info(text)
        return evaluation

    def _evaluate_if_there(self, evaluator: Evaluator, checkpoint: str) -> Optional[Evaluation]:
        """Evaluates another run's checkpoint; None if that run has removed it, or it is damaged and may be skipped."""
        try:
            check_undamaged(checkpoint)
            return evaluator.evaluate(checkpoint)
        except (tf.errors.OpError, CheckpointError, ValueError) as error:
            if not is_complete(checkpoint):
                # The trainer keeps the newest five, and has removed this one.
                self._screen.clear()
                logger.info('%s was removed before it was evaluated', checkpoint)
            elif self._config.skip_damaged_checkpoints and isinstance(error, DamagedError):
                logger.info('skipped: %s', error.fact)
            else:
                raise
        return None

    def _is_finished(self) -> bool:
        """Whether the newest checkpoint has all steps. If so, it must fit the network, as no training checks this."""
        config = self._config
        checkpoint = latest_checkpoint(self._model_dir)
        if not checkpoint or step_of(checkpoint) < config.train_steps:
            return False
        with tf.Graph().as_default():
            images = tf.zeros([1, config.height, config.width, 3])
            inception_model_fn(images, None, tf.estimator.ModeKeys.PREDICT, {'config': config})
            check_fits_graph(checkpoint)
        steps = f'{step_of(checkpoint):,} of {config.train_steps:,}'
        logger.info('%s is at step %s: nothing is left to train', self._model_dir, steps)
        return True

    def _export(self, context: Context, device: Device) -> str:
        from inception_v3.run.export.saved_model import export_saved_model

        checkpoint, estimator = newest_checkpoint(self._model_dir), context.estimator
        learned = trained_data_of(self._config, checkpoint)
        if self._config.moving_average:
            check_holds_averages(checkpoint)
        self._screen.update(f'exporting {checkpoint}')
        if learned.class_names != [*context.class_names]:
            estimator = make_estimator(self._config, learned.class_names, device=device)
        with refusals_explained():
            path = export_saved_model(estimator, self._config, checkpoint, learned)
        self._screen.clear()
        return path
