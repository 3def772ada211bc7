"""A run: training and evaluation in cycles, training alone, or evaluation of another run's checkpoints.

Each cycle trains `--train_steps_per_eval` steps, evaluates the checkpoint that it ends with, and keeps it if it is the
best so far. In the end, the run exports a SavedModel. A command that follows another goes on where that one ended.

`Run` has the loop, in a guard; `Trainer` trains the steps of a cycle, and `Evaluator` evaluates a checkpoint.
"""

import math
import re
import time
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from compat import tf
from compat.errors import CheckpointError, CommandError, RetryableError
from compat.log import logger
from console.screen import Screen
from data.dataset_info import DatasetInfo
from data.records import VALIDATION, DataError
from inception_v3.config import Config
from inception_v3.data_set import check_data, description_of
from inception_v3.estimator import Device, find_device, make_estimator, refusals_explained
from inception_v3.input.bad_records import BadRecords
from inception_v3.input_pipeline import InputPipeline
from inception_v3.model_dir import (
    DamagedError,
    check_fits_graph,
    check_undamaged,
    digest_of_index,
    is_complete,
    latest_checkpoint,
    newest_checkpoint,
    now,
    step_of,
)
from inception_v3.model_fn import inception_model_fn
from inception_v3.moving_average import LoadEMAHook, check_holds_averages
from inception_v3.run import best_checkpoint, evaluations, failures
from inception_v3.run.evaluations import Evaluation
from inception_v3.run.failures import DivergedError
from inception_v3.run.guard import guarded
from inception_v3.run.hooks.progress import EvaluationProgress, StepLines, Throughput, TrainingProgress
from inception_v3.run.hooks.saving import CheckpointFitsHook, CheckpointHook
from inception_v3.run.hooks.stopping import RecoveryLimitHook, StepLimitHook, Termination
from inception_v3.run.hooks.summaries import EvaluationSummaries, TrainingSummaries, unwritten_by_estimator
from inception_v3.run.hooks.watchers import (
    DivergenceWatcher,
    FirstStepsRecorder,
    SkippedSteps,
    StartRecorder,
    StepHook,
)
from inception_v3.run.memory import check_fits
from inception_v3.run.starts import changed_surroundings
from inception_v3.run.summary import introduction_of, notes_of, summary_of
from inception_v3.run.trained_data import check_data_set, trained_data_of
from inception_v3.run.trainer_lock import TrainerLock
from inception_v3.run.workers import Workers
from inception_v3.tpu.slices import evaluation_steps

if TYPE_CHECKING:
    from inception_v3.machines.channel import Channel
    from inception_v3.run.hooks.profiler import ProfiledSteps

# While the run waits for a new checkpoint: seconds between checks that the list of checkpoints is readable.
_CHECK_INTERVAL = 60
# The message of TPUEstimator's own check of the weights, after each loop.
_NAN_WEIGHTS = re.compile(r'Gradient for \S+ is NaN')


class Seen(NamedTuple):
    """The surroundings of a run: its data set, None without a description; its device; and notes for its user."""

    data_set: Optional[DatasetInfo]
    device: Device
    notes: Tuple[str, ...]

    @property
    def class_names(self) -> Sequence[str]:
        """The names of the classes by label; empty if the data set does not name them."""
        return self.data_set.class_names if self.data_set else ()


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
        """Checks the device, the data set and the memory. It writes nothing, and logs warnings alone.

        Raises:
          ConfigError, DataError: the run cannot start.
        """
        config = self._config
        data_set = description_of(config)
        device = find_device(config)
        check_data(config)
        check_fits(config)
        warning = changed_surroundings(config) if config.mode != 'eval' else None
        notes = [f'warning: {warning}'] if warning else []
        notes += [*introduction_of(config, data_set).splitlines(), *notes_of(config)]
        return Seen(data_set, device, tuple(notes))

    def execute(self) -> str:
        """Checks, then trains, evaluates or both, as `--mode` says, and exports; returns the summary.

        Raises:
          ConfigError, DataError: the run cannot start.
          CommandError: a record, a checkpoint, a folder or a device cannot be used; training diverged; or SIGTERM or
            Ctrl-C ended it. The message names the checkpoint that is kept.
        """
        began, config, screen, workers = time.monotonic(), self._config, self._screen, self._workers
        seen = self.check()
        for note in seen.notes:
            logger.info(note)
        # This program's hooks save checkpoints and write summaries, instead of TPUEstimator's.
        estimator = make_estimator(config, seen.class_names, writes=False, device=seen.device)
        lock = TrainerLock(self._model_dir, now())
        trainer = Trainer(config, screen, self._termination, workers, lock, estimator, seen)
        evaluator = Evaluator(config, screen, estimator, seen)
        evaluation, export, best = None, None, None
        with guarded(config, screen, self._termination, workers, lock, estimator, seen.data_set):
            if config.mode == 'eval':
                evaluation = self._follow(evaluator)
            else:
                trainer.read_weights()
                if config.mode == 'train_and_eval':
                    evaluation = self._train_and_evaluate(trainer, evaluator)
                elif not workers.share(self._is_finished):
                    trainer.train(config.train_steps)
            if config.export_dir and config.is_first:
                export = self._export(estimator, seen)
            if config.keep_best and config.is_first:
                best = best_checkpoint.read(self._model_dir)
        BadRecords(config, config.splits).log()
        if not config.is_first:
            return workers.summary()
        return summary_of(
            config,
            seen.data_set,
            evaluation,
            trainer.throughput.images_per_second,
            export,
            best.evaluation if best else None,
            time.monotonic() - began if config.log_steps else None,
            evaluations.most_accurate(self._model_dir, evaluation) if config.log_steps and evaluation else None,
        )

    # The loop.

    def _train_and_evaluate(self, trainer: 'Trainer', evaluator: 'Evaluator') -> Optional[Evaluation]:
        """Trains `--train_steps_per_eval` steps and evaluates, in turn, starting where an earlier command ended."""
        config, evaluation = self._config, None
        step = self._workers.latest_step()
        if self._workers.share(self._is_finished) or (step and step % config.train_steps_per_eval == 0):
            evaluation = self._end_cycle_of_earlier_command(evaluator)
        while step < config.train_steps:
            end_of_cycle = (step // config.train_steps_per_eval + 1) * config.train_steps_per_eval
            trainer.train(min(end_of_cycle, config.train_steps))
            step = self._workers.latest_step()
            evaluation = evaluator.evaluate(newest_checkpoint(self._model_dir))
        return evaluation

    def _end_cycle_of_earlier_command(self, evaluator: 'Evaluator') -> Evaluation:
        """Evaluates the checkpoint that a cycle ended with, unless the earlier command has recorded its evaluation."""
        checkpoint = newest_checkpoint(self._model_dir)
        recorded = None if self._config.display_tensors else evaluator.recorded(checkpoint)
        if not self._workers.share(lambda: bool(recorded)) or not recorded:
            return evaluator.evaluate(checkpoint)
        # The earlier command may have been killed between recording and keeping.
        evaluator.keep(checkpoint, recorded)
        return recorded

    def _follow(self, evaluator: 'Evaluator') -> Optional[Evaluation]:
        """Evaluates the checkpoints of another run as they appear, up to the checkpoint of `--train_steps`."""
        config, evaluation = self._config, None
        if not latest_checkpoint(self._model_dir):
            logger.info('waiting for a first checkpoint in %s', config.model_dir)

        def check_list() -> bool:
            # TensorFlow treats an unreadable list of checkpoints as unchanged; this call raises the error instead.
            latest_checkpoint(self._model_dir)
            return False

        for checkpoint in tf.train.checkpoints_iterator(
            config.model_dir,
            min_interval_secs=config.min_eval_interval,
            timeout=_CHECK_INTERVAL if config.eval_timeout is None else config.eval_timeout,
            # Without a function, the iterator ends after the timeout. 2.21 calls it after each checkpoint, too.
            timeout_fn=check_list if config.eval_timeout is None else None,
        ):
            evaluation = self._evaluate_if_there(evaluator, checkpoint) or evaluation
            if evaluation and evaluation.step >= config.train_steps:
                return evaluation
            logger.info('waiting for the next checkpoint; the last is at step %d (--train_steps)', config.train_steps)
        check_list()
        text = f'no new checkpoint in {config.model_dir} for {config.eval_timeout} seconds'
        if not evaluation:
            raise CheckpointError(f'--eval_timeout={config.eval_timeout}: {text}, and none was evaluated.')
        logger.info(text)
        return evaluation

    def _evaluate_if_there(self, evaluator: 'Evaluator', checkpoint: str) -> Optional[Evaluation]:
        """Evaluates another run's checkpoint; None if that run has removed it, or it is damaged and may be skipped."""
        try:
            check_undamaged(checkpoint)
            return evaluator.evaluate(checkpoint)
        except (tf.errors.OpError, CheckpointError, ValueError) as error:
            if not is_complete(checkpoint):
                # The trainer keeps the newest five, and has removed this one.
                self._screen.clear()
                logger.info('%s was removed before it was evaluated: %s', checkpoint, error)
            elif self._config.skip_damaged_checkpoints and isinstance(error, DamagedError):
                logger.info('skipped: %s', error)
            else:
                raise
        return None

    def _is_finished(self) -> bool:
        """Whether the newest checkpoint has all steps. It must fit the network, which no training checks then."""
        config = self._config
        checkpoint = latest_checkpoint(self._model_dir)
        if not checkpoint or step_of(checkpoint) < config.train_steps:
            return False
        with tf.Graph().as_default():
            images = tf.zeros([1, config.height, config.width, 3])
            inception_model_fn(images, None, tf.estimator.ModeKeys.PREDICT, {'config': config})
            check_fits_graph(checkpoint)
        step = step_of(checkpoint)
        logger.info('%s is at step %d of %d: nothing is left to train', self._model_dir, step, config.train_steps)
        return True

    def _export(self, estimator: tf.estimator.tpu.TPUEstimator, seen: Seen) -> str:
        from inception_v3.run.export.saved_model import export_saved_model

        checkpoint = newest_checkpoint(self._model_dir)
        learned = trained_data_of(self._config, checkpoint)
        if self._config.moving_average:
            check_holds_averages(checkpoint)
        self._screen.update(f'exporting {checkpoint}')
        if learned.class_names != [*seen.class_names]:
            estimator = make_estimator(self._config, learned.class_names, writes=False, device=seen.device)
        with refusals_explained():
            path = export_saved_model(estimator, self._config, checkpoint, learned)
        self._screen.clear()
        return path


class Trainer:
    """Trains a run's steps, in cycles; its watchers keep their state over all of them, such as the `throughput`."""

    def __init__(
        self,
        config: Config,
        screen: Screen,
        termination: Termination,
        workers: Workers,
        lock: TrainerLock,
        estimator: tf.estimator.tpu.TPUEstimator,
        seen: Seen,
    ):
        self._config = config
        self._model_dir = str(config.model_dir)
        self._screen = screen
        self._termination = termination
        self._workers = workers
        self._lock = lock
        self._estimator = estimator
        # The step at which this command began to train.
        self._began_at: Optional[int] = None
        # Of the first cycle: assigns the weights of --init_from.
        self._begin_hook: Optional[tf.estimator.SessionRunHook] = None
        self.throughput = Throughput()
        self._step_lines: Optional[StepLines] = None
        self._start = StartRecorder(config, seen.data_set)
        self._summaries = TrainingSummaries(config, seen.class_names)
        # Without emulation, a TPU's variables are too large to fetch after each step.
        has_digests = config.is_first and config.seed is not None and (not config.use_tpu or config.is_emulated)
        self._first_steps = FirstStepsRecorder(self._model_dir) if has_digests else None
        self._profiled: Optional[ProfiledSteps] = None
        if config.profile_steps and config.is_first:
            from inception_v3.run.hooks import profiler

            self._profiled = profiler.ProfiledSteps(config, profiler.workers_of(config, estimator.config))

    def read_weights(self) -> None:
        """Reads the weights of `--init_from`, unless the run has a checkpoint."""
        config = self._config
        if not config.init_from or not config.is_first:
            return
        checkpoint = latest_checkpoint(self._model_dir)
        if checkpoint:
            logger.info('--init_from=%s: is not read, because the run has %s', config.init_from, checkpoint)
            return
        from inception_v3.weights import beginning, sources

        source = sources.read(config.init_from)
        self._start.weights = beginning.origin_of(source, config)
        has_checkpoint = lambda: latest_checkpoint(self._model_dir) is not None  # noqa: E731
        self._begin_hook = beginning.BeginHook(config, source, has_checkpoint)

    def train(self, until_step: int) -> None:
        """Trains from the newest checkpoint to a step, and saves it.

        Raises:
          DivergedError: the loss or the weights have diverged.
          CommandError: the TPU or a file server was lost.
          TerminatedError, InterruptedByUserError: SIGTERM or Ctrl-C came; the last step is saved.
        """
        is_first_cycle = self._began_at is None
        if is_first_cycle:
            self._begin()
        divergence = DivergenceWatcher(self._config.num_classes)
        hooks = self._hooks(divergence, is_first_cycle)
        self._screen.update('building the graph of training', at_once=True)
        try:
            with refusals_explained():
                pipeline = InputPipeline(is_training=True, config=self._config)
                self._estimator.train(pipeline, hooks=hooks, max_steps=until_step)
        except tf.errors.InvalidArgumentError as error:
            if not _NAN_WEIGHTS.search(error.message):
                raise
            done = divergence.steps_before
            last = min(done + self._config.iterations, until_step) - 1
            raise DivergedError('The weights are no longer finite', last, done)
        finally:
            self._termination.steps_to_lose(False)
            if self._profiled:
                self._profiled.abandon()
            self._summaries.flush()
        self._check_end(until_step)

    def _begin(self) -> None:
        config = self._config
        self._began_at = self._workers.latest_step()
        if config.image_summaries and config.is_first:
            self._summaries.draw_images(self._began_at)
        if config.log_steps:
            self._step_lines = StepLines(config, self._began_at)

    def _hooks(self, divergence: DivergenceWatcher, is_first_cycle: bool) -> List[tf.estimator.SessionRunHook]:
        """The hooks of a cycle. A session calls them in this order at each event."""
        config = self._config
        progress = TrainingProgress(self._screen, self.throughput, config, self._step_lines)
        recovery = RecoveryLimitHook(lambda: failures.check_reachable(config))
        together = self._workers.session_hook() if is_first_cycle else None
        if not config.is_first:
            # The first worker writes, and watches the loss for all.
            hooks = [together, recovery, StepHook([progress]), self._termination]
            return [hook for hook in hooks if hook]
        checkpoint = latest_checkpoint(self._model_dir)
        if checkpoint:
            logger.info('resuming from %s', checkpoint)
        watchers = [
            progress,
            # Records when the graph is built: after the check that the checkpoint fits, before the session begins.
            self._start,
            # Before the divergence watcher stops training: provenance --verify compares a diverged step, too.
            self._first_steps,
            # Before the summaries, whose curves would be scaled by a loss of 1e30.
            divergence,
            SkippedSteps(),
            self._summaries,
            # Last: its pauses, to start and to write a profile, come after the work of the others.
            self._profiled,
        ]
        hooks = [
            # Before everything that writes: a checkpoint of another network leaves model_dir as it is.
            CheckpointFitsHook(checkpoint) if checkpoint else None,
            # Before everything that writes: model_dir may belong to another trainer by now.
            self._lock,
            # Before the watchers and the first checkpoint.
            self._begin_hook if is_first_cycle else None,
            recovery,
            StepHook([watcher for watcher in watchers if watcher]),
            # After the divergence watcher: a step that it refuses is not saved.
            CheckpointHook(
                self._model_dir, config.save_checkpoints_secs, steps_per_run=config.iterations if config.use_tpu else 1
            ),
            # After the first checkpoint, which other workers restore.
            together,
            # Last: there are steps to lose only after all hooks above have begun.
            self._termination,
        ]
        return [hook for hook in hooks if hook]

    def _check_end(self, until_step: int) -> None:
        step = self._workers.latest_step()
        if self._termination.request:
            raise self._termination.error(step, self._config.train_steps)
        if step < until_step:
            # TPUEstimator returns without an error when its TPU is preempted or a file server stays down.
            failures.check_reachable(self._config)
            raise RetryableError(
                f'Training was interrupted after step {step} of {until_step}. The same command resumes from there; '
                '--verbose shows the cause.'
            )


class Evaluator:
    """Evaluates checkpoints: every validation image exactly once, with the averages of the checkpoint itself."""

    def __init__(self, config: Config, screen: Screen, estimator: tf.estimator.tpu.TPUEstimator, seen: Seen):
        self._config = config
        self._model_dir = str(config.model_dir)
        self._screen = screen
        self._estimator = estimator
        self._data_set = seen.data_set
        self._summaries = EvaluationSummaries(config, seen.class_names)

    def evaluate(self, checkpoint: str) -> Evaluation:
        """Evaluates a checkpoint, adds the result to `results.jsonl` and TensorBoard's curves, and keeps the best.

        Raises:
          ConfigError: the data set has other classes than the checkpoint.
          DataError: no validation image could be used.
          CommandError: the cross-entropy is not finite.
        """
        begun, config = time.monotonic(), self._config
        if config.mode == 'eval':
            check_data_set(config, self._data_set, checkpoint)
        digest = digest_of_index(checkpoint)
        metrics = self._metrics_of(checkpoint)
        seconds = time.monotonic() - begun
        evaluation = evaluations.evaluation_of(config, self._data_set, checkpoint, digest, metrics, seconds)
        self._screen.clear()
        if not config.is_first:
            return evaluation
        self._check(evaluation, checkpoint)
        evaluations.append_evaluation(self._model_dir, evaluation)
        self._summaries.write(evaluation)
        for line in evaluations.result_of(config, evaluation, BadRecords(config, config.splits).count(VALIDATION)):
            logger.info(line)
        self.keep(checkpoint, evaluation)
        return evaluation

    def recorded(self, checkpoint: str) -> Optional[Evaluation]:
        """The last recorded evaluation of a checkpoint with the same weights, images and settings; None without any.

        An evaluation belongs to the digest of its checkpoint: a checkpoint of the same step may have other weights.
        """
        config = self._config
        fingerprint = self._data_set.fingerprint if self._data_set else ''
        changed = evaluations.changed_since_training(config, self._data_set, checkpoint)
        same = (digest_of_index(checkpoint), config.evaluated_weights, config.eval_images, fingerprint, changed)
        read = evaluations.read_evaluations(self._model_dir)
        matching = [each for each in read if each.digest and each.identity == same]
        return matching[-1] if matching else None

    def keep(self, checkpoint: str, evaluation: Evaluation) -> None:
        """Keeps a checkpoint with `--keep_best`, if it is the best so far."""
        if self._config.keep_best and self._config.is_first:
            best_checkpoint.keep(self._model_dir, checkpoint, evaluation)

    def _metrics_of(self, checkpoint: str) -> Dict[str, Any]:
        config = self._config
        self._screen.update(f'preparing to evaluate step {step_of(checkpoint)}')
        batches = evaluation_steps(config)
        hooks = [
            # Before the session restores the checkpoint.
            CheckpointFitsHook(checkpoint),
            EvaluationProgress(self._screen, batches),
            # Of several machines, all take part in as many steps, with padding after their files.
            StepLimitHook(batches) if config.machines > 1 else None,
            RecoveryLimitHook(lambda: failures.check_reachable(config)),
            # After the session has restored the weights, which the averages replace.
            LoadEMAHook(checkpoint) if config.moving_average else None,
        ]
        with unwritten_by_estimator(), refusals_explained():
            return self._estimator.evaluate(
                InputPipeline(is_training=False, config=config),
                # A CPU evaluates until the files end, however many images they hold. A TPU needs a number of steps.
                steps=batches if config.use_tpu else None,
                hooks=[hook for hook in hooks if hook],
                checkpoint_path=checkpoint,
            )

    def _check(self, evaluation: Evaluation, checkpoint: str) -> None:
        config = self._config
        if not evaluation.images:
            raise DataError(f'{config.source.flag(VALIDATION)}: no validation image can be used.')
        if math.isfinite(evaluation.cross_entropy):
            return
        if config.mode == 'eval':
            raise CommandError(f'{checkpoint}: its cross-entropy is {evaluation.cross_entropy}; training has diverged.')
        what = f'The cross-entropy of the validation images is {evaluation.cross_entropy}'
        raise failures.diverged(DivergedError(what, evaluation.step - 1, evaluation.step), config)
