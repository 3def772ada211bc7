"""A run: training and evaluation in cycles, training alone, or evaluation of another run's checkpoints.

Each cycle trains `--train_steps_per_eval` steps, evaluates the checkpoint that it ends with, and keeps it if it is the
best so far. In the end, the run exports a SavedModel. A command that follows another goes on where that one ended.
"""

import contextlib
import math
import re
import time
from typing import Any, Dict, List, Optional

from compat import tf
from compat.errors import CommandError, RetryableError
from compat.log import logger
from console.screen import Screen
from data.records import VALIDATION, DataError
from inception_v3.config import Config
from inception_v3.data_set import check_data, description_of
from inception_v3.estimator import LocalEstimator, make_estimator, refusals_explained
from inception_v3.input.bad_records import BadRecords
from inception_v3.input_pipeline import InputPipeline
from inception_v3.model_fn import inception_model_fn
from inception_v3.moving_average import LoadEMAHook
from inception_v3.run import checkpoints, failures, history
from inception_v3.run.failures import DivergedError
from inception_v3.run.files import check_writable, now
from inception_v3.run.history import Evaluation
from inception_v3.run.hooks.progress import EvaluationProgress, StepLines, Throughput, TrainingProgress
from inception_v3.run.hooks.saving import CheckpointFitsHook, CheckpointHook
from inception_v3.run.hooks.stopping import RecoveryLimitHook, StepLimitHook, Termination, without_recovery
from inception_v3.run.hooks.summaries import EvaluationSummaries, TrainingSummaries, unwritten_by_estimator
from inception_v3.run.hooks.watchers import (
    DivergenceWatcher,
    FirstStepsRecorder,
    SkippedSteps,
    StartRecorder,
    StepHook,
    Watcher,
)
from inception_v3.run.memory import check_fits
from inception_v3.run.summary import introduction_of, notes_of, summary_of
from inception_v3.run.trainer_lock import TrainerLock
from inception_v3.run.workers import Workers
from inception_v3.tpu import slices, topology
from inception_v3.tpu.addresses import check_answers
from inception_v3.tpu.slices import images_of_hosts

# While the run waits for a new checkpoint: seconds between checks that the list of checkpoints is readable.
_CHECK_INTERVAL = 60
# The message of TPUEstimator's own check of the weights, after each loop.
_NAN_WEIGHTS = re.compile(r'Gradient for \S+ is NaN')


class Run:
    """One command's run in its model_dir, which may be new, or hold a run to resume.

    Attributes:
      began_at: the step at which this command began to train; None before.
    """

    def __init__(self, config: Config, screen: Screen, termination: Optional[Termination] = None):
        self._config = config
        self._model_dir = str(config.model_dir)
        self._screen = screen
        self._termination = termination or Termination(lambda error: None)
        self._workers = Workers(config, self._termination)
        self._termination.agree = self._workers.agreed
        self.began_at: Optional[int] = None

    def check(self) -> None:
        """Checks the device, the data set and the memory, and logs what the run will be. It writes nothing.

        Raises:
          ConfigError, DataError: the run cannot start.
        """
        config = self._config
        self._data_set = description_of(config)
        self._class_names = self._data_set.class_names if self._data_set else ()
        # This program's hooks save checkpoints and write summaries, instead of TPUEstimator's.
        self._estimator = make_estimator(config, self._class_names, writes=False)
        self._lock = TrainerLock(self._model_dir, now())
        self._bad_records = BadRecords(config, config.splits)
        self._evaluation_summaries = EvaluationSummaries(config, self._class_names)
        self._best: Any = None
        if config.keep_best and config.is_first:
            from inception_v3.run import best_checkpoint

            self._best = best_checkpoint
        # Watchers that keep their state over all cycles; the other hooks are made for each cycle.
        self._throughput = Throughput()
        self._step_lines: Optional[StepLines] = None
        # Of the first cycle: assigns the weights of --init_from.
        self._begin_hooks: List[tf.estimator.SessionRunHook] = []
        self._session_hook: List[tf.estimator.SessionRunHook] = []
        self._start = StartRecorder(config, self._data_set)
        self._summaries = TrainingSummaries(config, self._class_names)
        self._profiled: List[Any] = []
        if config.profile_steps and config.is_first:
            from inception_v3.run.hooks import profiler

            workers = profiler.workers_of(config, self._estimator.config)
            self._profiled = [profiler.ProfiledSteps(config, workers)]
        # Without emulation, a TPU's variables are too large to fetch after each step.
        has_digests = config.is_first and config.seed is not None and (not config.use_tpu or config.is_emulated)
        self._first_steps = [FirstStepsRecorder(self._model_dir)] if has_digests else []
        check_data(config)
        check_fits(config)
        warning = history.changed_surroundings(config) if config.mode != 'eval' else None
        if warning:
            logger.info('warning: %s', warning)
        for note in (*introduction_of(config, self._data_set).splitlines(), *notes_of(config)):
            logger.info(note)

    def execute(self) -> str:
        """Checks, then trains, evaluates or both, as `--mode` says, and exports; returns the summary.

        Raises:
          ConfigError, DataError: the run cannot start.
          CommandError: a record, a checkpoint, a folder or a device cannot be used; training diverged; or SIGTERM or
            Ctrl-C ended it. The message names the checkpoint that is kept.
        """
        began, config = time.monotonic(), self._config
        self.check()
        if config.is_first:
            check_writable('model_dir', self._model_dir)
            if config.export_dir:
                check_writable('export_dir', config.export_dir)
        check_answers(self._estimator.config.master)
        evaluation, export = None, None
        with self._workers.joined(self._data_set), contextlib.ExitStack() as protection:
            self._protect(protection)
            with failures.bad_records_explained(config, config.splits, self._screen):
                if config.mode == 'train':
                    if not self._workers.share(self._is_finished):
                        self.train(config.train_steps)
                elif config.mode == 'eval':
                    evaluation = self._follow()
                else:
                    evaluation = self._train_and_evaluate()
            if config.export_dir and config.is_first:
                export = self._export()
            best = self._best.read(self._model_dir) if self._best else None
        self._bad_records.log()
        if not config.is_first:
            return self._workers.summary()
        return summary_of(
            config,
            self._data_set,
            evaluation,
            self._throughput.images_per_second,
            export,
            best.evaluation if best else None,
            time.monotonic() - began if config.log_steps else None,
            most_accurate(self._model_dir, evaluation) if config.log_steps and evaluation else None,
        )

    # The loop.

    def _train_and_evaluate(self) -> Optional[Evaluation]:
        """Trains `--train_steps_per_eval` steps and evaluates, in turn, starting where an earlier command ended."""
        config, evaluation = self._config, None
        step = self._latest_step()
        if self._workers.share(self._is_finished) or (step and step % config.train_steps_per_eval == 0):
            evaluation = self._end_cycle_of_earlier_command()
        while step < config.train_steps:
            end_of_cycle = (step // config.train_steps_per_eval + 1) * config.train_steps_per_eval
            self.train(min(end_of_cycle, config.train_steps))
            step = self._latest_step()
            evaluation = self.evaluate(checkpoints.newest_checkpoint(self._model_dir))
        return evaluation

    def _latest_step(self) -> int:
        """The step of the newest checkpoint; of several workers, the first knows when it is saved."""
        return int(self._workers.share(lambda: checkpoints.latest_step(self._model_dir)))

    def _end_cycle_of_earlier_command(self) -> Evaluation:
        """Evaluates the checkpoint that a cycle ended with, unless the earlier command has recorded its evaluation."""
        checkpoint = checkpoints.newest_checkpoint(self._model_dir)
        recorded = None if self._config.display_tensors else self.recorded(checkpoint)
        if not self._workers.share(lambda: bool(recorded)) or not recorded:
            return self.evaluate(checkpoint)
        # The earlier command may have been killed between recording and keeping.
        if self._best:
            self._best.keep(self._model_dir, checkpoint, recorded)
        return recorded

    def _follow(self) -> Optional[Evaluation]:
        """Evaluates the checkpoints of another run as they appear, up to the checkpoint of `--train_steps`."""
        config, evaluation = self._config, None
        if not checkpoints.latest_checkpoint(self._model_dir):
            logger.info('waiting for a first checkpoint in %s', config.model_dir)

        def check_list() -> bool:
            # TensorFlow treats an unreadable list of checkpoints as unchanged; this call raises the error instead.
            checkpoints.latest_checkpoint(self._model_dir)
            return False

        for checkpoint in tf.train.checkpoints_iterator(
            config.model_dir,
            min_interval_secs=config.min_eval_interval,
            timeout=_CHECK_INTERVAL if config.eval_timeout is None else config.eval_timeout,
            # Without a function, the iterator ends after the timeout. 2.21 calls it after each checkpoint, too.
            timeout_fn=check_list if config.eval_timeout is None else None,
        ):
            evaluation = self._evaluate_if_there(checkpoint) or evaluation
            if evaluation and evaluation.step >= config.train_steps:
                return evaluation
            logger.info('waiting for the next checkpoint; the last is at step %d (--train_steps)', config.train_steps)
        check_list()
        text = f'no new checkpoint in {config.model_dir} for {config.eval_timeout} seconds'
        if not evaluation:
            raise checkpoints.CheckpointError(f'--eval_timeout={config.eval_timeout}: {text}, and none was evaluated.')
        logger.info(text)
        return evaluation

    def _evaluate_if_there(self, checkpoint: str) -> Optional[Evaluation]:
        """Evaluates another run's checkpoint; None if that run has removed it, or it is damaged and may be skipped."""
        try:
            checkpoints.check_undamaged(checkpoint)
            return self.evaluate(checkpoint)
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

    # Training.

    def train(self, until_step: int) -> None:
        """Trains from the newest checkpoint to a step, and saves it.

        Raises:
          CommandError: the loss or the weights have diverged.
          CommandError: the TPU or a file server was lost.
          TerminatedError, InterruptedByUserError: SIGTERM or Ctrl-C came; the last step is saved.
        """
        if self.began_at is None:
            self._begin()
            self._session_hook = self._workers.session_hook()
        divergence = DivergenceWatcher(self._config.num_classes)
        hooks = self._training_hooks(divergence)
        self._screen.update('building the graph of training', at_once=True)
        try:
            with refusals_explained():
                self._estimator.train(
                    InputPipeline(is_training=True, config=self._config), hooks=hooks, max_steps=until_step
                )
        except DivergedError as error:
            raise failures.diverged(error, self._config, self.began_at)
        except tf.errors.InvalidArgumentError as error:
            if not _NAN_WEIGHTS.search(error.message):
                raise
            done = divergence.steps_before
            last = min(done + self._config.iterations, until_step) - 1
            not_finite = DivergedError('The weights are no longer finite', last, done)
            raise failures.diverged(not_finite, self._config, self.began_at)
        finally:
            self._begin_hooks = []
            self._termination.steps_to_lose(False)
            for profiled in self._profiled:
                profiled.abandon()
            self._summaries.flush()
        self._check_end(until_step)

    def _begin(self) -> None:
        config = self._config
        self.began_at = self._latest_step()
        if config.image_summaries and config.is_first:
            self._summaries.draw_images(self.began_at)
        if config.log_steps:
            self._step_lines = StepLines(config, self.began_at)

    def _training_hooks(self, divergence: DivergenceWatcher) -> List[tf.estimator.SessionRunHook]:
        """The hooks of a cycle. A session calls them in this order at each event."""
        config = self._config
        progress = TrainingProgress(self._screen, self._throughput, config, self._step_lines)
        recovery = RecoveryLimitHook(lambda: failures.check_reachable(config))
        together, self._session_hook = self._session_hook, []
        if not config.is_first:
            # The first worker writes, and watches the loss for all.
            return [*together, recovery, StepHook([progress]), self._termination]
        checkpoint = checkpoints.latest_checkpoint(self._model_dir)
        if checkpoint:
            logger.info('resuming from %s', checkpoint)
        watchers: List[Watcher] = [
            progress,
            # Records when the graph is built: after the check that the checkpoint fits, before the session begins.
            self._start,
            # Before the divergence watcher stops training: provenance --verify compares a diverged step, too.
            *self._first_steps,
            # Before the summaries, whose curves would be scaled by a loss of 1e30.
            divergence,
            SkippedSteps(),
            self._summaries,
            # Last: its pauses, to start and to write a profile, come after the work of the others.
            *self._profiled,
        ]
        return [
            # Before everything that writes: a checkpoint of another network leaves model_dir as it is.
            *([CheckpointFitsHook(checkpoint)] if checkpoint else []),
            # Before everything that writes: model_dir may belong to another trainer by now.
            self._lock,
            # Before the watchers and the first checkpoint.
            *self._begin_hooks,
            recovery,
            StepHook(watchers),
            # After the divergence watcher: a step that it refuses is not saved.
            CheckpointHook(
                self._model_dir, config.save_checkpoints_secs, steps_per_run=config.iterations if config.use_tpu else 1
            ),
            # After the first checkpoint, which other workers restore.
            *together,
            # Last: there are steps to lose only after all hooks above have begun.
            self._termination,
        ]

    def _check_end(self, until_step: int) -> None:
        step = self._latest_step()
        if self._termination.request:
            raise self._termination.error(step, self._config.train_steps)
        if step < until_step:
            # TPUEstimator returns without an error when its TPU is preempted or a file server stays down.
            failures.check_reachable(self._config)
            raise RetryableError(
                f'Training was interrupted after step {step} of {until_step}. The same command resumes from there; '
                '--verbose shows the cause.'
            )

    def _is_finished(self) -> bool:
        """Whether the newest checkpoint has all steps. It must fit the network, which no training checks then."""
        config = self._config
        checkpoint = checkpoints.latest_checkpoint(self._model_dir)
        if not checkpoint or checkpoints.step_of(checkpoint) < config.train_steps:
            return False
        with tf.Graph().as_default():
            images = tf.zeros([1, config.height, config.width, 3])
            inception_model_fn(images, None, tf.estimator.ModeKeys.PREDICT, {'config': config})
            checkpoints.check_fits(checkpoint)
        step = checkpoints.step_of(checkpoint)
        logger.info('%s is at step %d of %d: nothing is left to train', self._model_dir, step, config.train_steps)
        return True

    # Evaluation: every validation image exactly once, with the averages of the checkpoint itself.

    def evaluate(self, checkpoint: str) -> Evaluation:
        """Evaluates a checkpoint, adds the result to `results.jsonl` and TensorBoard's curves, and keeps the best.

        Raises:
          ConfigError: the data set has other classes than the checkpoint.
          DataError: no validation image could be used.
          CommandError: the cross-entropy is not finite.
        """
        begun, config = time.monotonic(), self._config
        if config.mode == 'eval':
            history.check_data_set(config, self._data_set, checkpoint)
        digest = history.digest_of_index(checkpoint)
        metrics = self._metrics_of(checkpoint)
        evaluation = history.evaluation_of(
            config, self._data_set, checkpoint, digest, metrics, time.monotonic() - begun
        )
        self._screen.clear()
        if not config.is_first:
            return evaluation
        self._check_evaluation(evaluation, checkpoint)
        history.append_evaluation(self._model_dir, evaluation)
        self._evaluation_summaries.write(evaluation)
        self._log(evaluation)
        if self._best:
            self._best.keep(self._model_dir, checkpoint, evaluation)
        return evaluation

    def _metrics_of(self, checkpoint: str) -> Dict[str, Any]:
        config = self._config
        self._screen.update(f'preparing to evaluate step {checkpoints.step_of(checkpoint)}')
        # A host with fewer images than another pads its last batches.
        hosts = topology.hosts_of(config)
        images = images_of_hosts(config, hosts) if hosts > 1 else [config.eval_images]
        batches = slices.steps_for(images, config.eval_batch_size)
        hooks = [
            # Before the session restores the checkpoint.
            CheckpointFitsHook(checkpoint),
            EvaluationProgress(self._screen, batches),
            # Of several machines, all take part in as many steps, with padding after their files.
            *([StepLimitHook(batches)] if config.machines > 1 else []),
            RecoveryLimitHook(lambda: failures.check_reachable(config)),
            # After the session has restored the weights, which the averages replace.
            *([LoadEMAHook(checkpoint)] if config.moving_average else []),
        ]
        with unwritten_by_estimator(), refusals_explained():
            return self._estimator.evaluate(
                InputPipeline(is_training=False, config=config),
                # A CPU evaluates until the files end, however many images they hold. A TPU needs a number of steps.
                steps=batches if config.use_tpu else None,
                hooks=hooks,
                checkpoint_path=checkpoint,
            )

    def _check_evaluation(self, evaluation: Evaluation, checkpoint: str) -> None:
        config = self._config
        if not evaluation.images:
            raise DataError(f'{config.source.flag(VALIDATION)}: no validation image can be used.')
        if math.isfinite(evaluation.cross_entropy):
            return
        if config.mode == 'eval':
            raise CommandError(f'{checkpoint}: its cross-entropy is {evaluation.cross_entropy}; training has diverged.')
        what = f'The cross-entropy of the validation images is {evaluation.cross_entropy}'
        raise failures.diverged(DivergedError(what, evaluation.step - 1, evaluation.step), config, self.began_at)

    def _log(self, evaluation: Evaluation) -> None:
        config = self._config
        logger.info(
            'step %d: top-1 %.2f %%%s, cross-entropy %.4f, %d images, %s weights',
            evaluation.step,
            100 * evaluation.top_1,
            f', top-5 {100 * evaluation.top_5:.2f} %' if history.shows_top_5(config.num_classes) else '',
            evaluation.cross_entropy,
            evaluation.images,
            evaluation.weights,
        )
        if evaluation.changed:
            logger.info('settings that differ from those of the training: %s', '; '.join(evaluation.changed))
        missed = history.shortfall(config, evaluation, self._bad_records.count(VALIDATION))
        if missed:
            logger.info('warning: %s', missed)

    def recorded(self, checkpoint: str) -> Optional[Evaluation]:
        """The last recorded evaluation of a checkpoint with the same weights, images and settings; None without any.

        An evaluation belongs to the digest of its checkpoint: a checkpoint of the same step may have other weights.
        """
        config = self._config
        fingerprint = self._data_set.fingerprint if self._data_set else ''
        changed = history.changed_since_training(config, self._data_set, checkpoint)
        same = (history.digest_of_index(checkpoint), config.evaluated_weights, config.eval_images, fingerprint, changed)
        matching = [each for each in history.read_evaluations(self._model_dir) if each.digest and each.identity == same]
        return matching[-1] if matching else None

    # Beginning and end.

    def _protect(self, protection: contextlib.ExitStack) -> None:
        """Locks model_dir, explains failures from now on, and makes sure that the run can resume from its folder."""
        config = self._config
        protection.enter_context(failures.remote_failures_explained(config, self._screen))
        if not config.use_tpu or config.is_emulated:
            protection.enter_context(without_recovery())
        if isinstance(self._estimator, LocalEstimator):
            protection.callback(self._estimator.release)
        if not config.is_first:
            return
        if config.mode != 'eval':
            protection.enter_context(self._lock)
            self._termination.release = self._lock.release
        # Within the lock: after a failure, half-written files are removed.
        protection.enter_context(failures.disk_failures_explained(config, self._screen))
        history.check_places(self._model_dir)
        if config.mode != 'eval':
            self._prepare_folder()
            if config.export_dir:
                from inception_v3.run.export.saved_model import remove_unfinished_export

                remove_unfinished_export(config)
        if self._best:
            # A damaged best checkpoint is reported now, not after hours of training.
            self._best.read(self._model_dir)
        self._bad_records.forget()

    def _prepare_folder(self) -> None:
        """Removes the leftovers of a killed run from model_dir, and checks that the newest checkpoint is undamaged.

        The checkpoint must have learned the same data set. Without one, the weights that `--init_from` names are read.
        """
        config = self._config
        checkpoints.remove_leftovers(self._model_dir)
        if config.skip_damaged_checkpoints:
            checkpoints.skip_damaged(self._model_dir)
        checkpoint = checkpoints.latest_checkpoint(self._model_dir)
        if checkpoint and not config.skip_damaged_checkpoints:
            checkpoints.check_undamaged(checkpoint)
        if checkpoint:
            history.check_data_set(config, self._data_set, checkpoint)
        if config.init_from and checkpoint:
            logger.info('--init_from=%s: is not read, because the run has %s', config.init_from, checkpoint)
        elif config.init_from:
            from inception_v3.weights import beginning, sources

            source = sources.read(config.init_from)
            self._start.weights = beginning.origin_of(source, config)
            has_checkpoint = lambda: checkpoints.latest_checkpoint(self._model_dir) is not None  # noqa: E731
            self._begin_hooks = [beginning.BeginHook(config, source, has_checkpoint)]

    def _export(self) -> str:
        from inception_v3.run.export.saved_model import export_saved_model

        checkpoint = checkpoints.newest_checkpoint(self._model_dir)
        if self._config.moving_average:
            checkpoints.check_holds_averages(checkpoint)
        self._screen.update(f'exporting {checkpoint}')
        estimator, names = self._estimator, history.trained_data_of(self._config, checkpoint).class_names
        if [*names] != [*self._class_names]:
            estimator = make_estimator(self._config, names, writes=False)
        with refusals_explained():
            path = export_saved_model(estimator, self._config, checkpoint, names)
        self._screen.clear()
        return path


def most_accurate(model_dir: str, last: Evaluation) -> Evaluation:
    """The first recorded evaluation with the best top-1 among those that can be compared with the last one."""
    # Checkpoints of an earlier run in this folder may have had the same steps, or later ones.
    of_step = {each.step: each for each in history.read_evaluations(model_dir) if each.step <= last.step}
    comparable = [each for each in of_step.values() if not last.differences_of_kind(each)]
    return max(comparable, key=lambda each: each.top_1, default=last)
