"""Trains in cycles: one call of TPUEstimator.train per cycle, with the hooks that protect and watch it."""

import re
from typing import List, Optional

from console.log import logger
from console.screen import Screen
from console.tensorflow_versions import tf
from data.dataset_info import DatasetInfo
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline
from inception_v3.model_fn import inception_model_fn
from inception_v3.run import trained_data
from inception_v3.run.checkpoints import (
    check_fits,
    check_undamaged,
    latest_checkpoint,
    latest_step,
    skip_damaged,
    step_of,
)
from inception_v3.run.failures import (
    DivergedError,
    InterruptedTrainingError,
    check_reachable,
    diverged,
    refusals_explained,
)
from inception_v3.run.hooks.divergence import DivergenceWatcher
from inception_v3.run.hooks.profiler import ProfiledSteps, workers_of
from inception_v3.run.hooks.progress import StepLines, Throughput, TrainingProgress
from inception_v3.run.hooks.recording import FirstStepsRecorder, StartRecorder
from inception_v3.run.hooks.recovery import RecoveryLimitHook
from inception_v3.run.hooks.saving import CheckpointFitsHook, CheckpointHook
from inception_v3.run.hooks.skipped_steps import SkippedSteps
from inception_v3.run.hooks.step import StepHook
from inception_v3.run.hooks.summaries import TrainingSummaries
from inception_v3.run.hooks.termination import Termination
from inception_v3.run.leftovers import remove_leftovers
from inception_v3.run.trainer_lock import TrainerLock
from inception_v3.tpu import accelerator
from inception_v3.weights import sources
from inception_v3.weights.beginning import BeginHook, origin_of

# The message of TPUEstimator's own check of the weights, after each loop.
_NAN_WEIGHTS = re.compile(r'Gradient for \S+ is NaN')


class Training:
    """The training of one command, in as many cycles as it has.

    Args:
      config: of the run.
      estimator: of the run.
      data_set: the description of its data set.
      screen: shows the progress.
      lock: the lock of model_dir.
      termination: may end training early.

    Attributes:
      throughput: the images per second of all cycles.
      began_at: the step at which the first cycle began; None before.
    """

    def __init__(
        self,
        config: Config,
        estimator: tf.estimator.tpu.TPUEstimator,
        data_set: Optional[DatasetInfo],
        screen: Screen,
        lock: TrainerLock,
        termination: Termination,
    ):
        self._config = config
        self._data_set = data_set
        self._model_dir = str(config.model_dir)
        self._estimator = estimator
        self._screen = screen
        self._lock = lock
        self._termination = termination
        self.throughput = Throughput(graphs_in_pause=2 if config.use_tpu else 1)
        self.began_at: Optional[int] = None
        # These watchers keep their state over all cycles; the other hooks are created for each cycle.
        self._step_lines: Optional[StepLines] = None
        # The weights to begin from, until they are assigned.
        self._source: Optional[sources.Source] = None
        self._start = StartRecorder(config, data_set)
        self._summaries = TrainingSummaries(config, data_set.class_names if data_set else ())
        # Without emulation, a TPU's variables are too large to fetch after each step.
        has_digests = config.seed is not None and (not config.use_tpu or config.is_emulated)
        self._profiled = [ProfiledSteps(config, workers_of(config, estimator.config))] if config.profile_steps else []
        self._first_steps = [FirstStepsRecorder(self._model_dir)] if has_digests else []

    def prepare(self) -> None:
        """Removes the leftovers of a killed run from model_dir, and checks that the newest checkpoint is undamaged.

        Without a checkpoint, it reads the weights that `--init_from` names.

        Raises:
          ConfigError: the checkpoint has learned another data set, and `--allow_other_data_set` is not given.
          CheckpointError: the newest checkpoint is damaged; with `--skip_damaged_checkpoints`, all of them are; or the
            weights to begin from cannot be read.
        """
        remove_leftovers(self._model_dir)
        if self._config.skip_damaged_checkpoints:
            skip_damaged(self._model_dir)
        checkpoint = latest_checkpoint(self._model_dir)
        if checkpoint and not self._config.skip_damaged_checkpoints:
            check_undamaged(checkpoint)
        if checkpoint:
            trained_data.check(self._config, self._data_set, checkpoint)
        if self._config.init_from and checkpoint:
            logger.info('--init_from=%s: is not read, because the run has %s', self._config.init_from, checkpoint)
        elif self._config.init_from:
            self._source = sources.read(self._config.init_from)
            self._start.begins_from(origin_of(self._source, self._config))

    def is_finished(self) -> bool:
        """Whether the newest checkpoint has all steps.

        Raises:
          CheckpointError: the checkpoint does not fit the network. Training checks this itself, but no training follows
            here.
        """
        config = self._config
        checkpoint = latest_checkpoint(self._model_dir)
        if not checkpoint or step_of(checkpoint) < config.train_steps:
            return False
        with tf.Graph().as_default():
            images = tf.zeros([1, config.height, config.width, 3])
            inception_model_fn(images, None, tf.estimator.ModeKeys.PREDICT, {'config': config})
            check_fits(checkpoint)
        step = step_of(checkpoint)
        logger.info('%s is at step %d of %d: nothing is left to train', self._model_dir, step, config.train_steps)
        return True

    def train(self, until_step: int) -> None:
        """Trains from the newest checkpoint to a step, and saves it.

        Raises:
          TrainingError: the loss or the weights have diverged.
          InterruptedTrainingError: the TPU or a file server was lost.
          TerminatedError, InterruptedByUserError: SIGTERM or Ctrl-C came; the last step is saved.
        """
        is_first = self.began_at is None
        if is_first:
            self._begin()
        divergence = DivergenceWatcher(self._config.num_classes)
        hooks = self._hooks(divergence)
        self._screen.wait('building the graph of training')
        try:
            with refusals_explained():
                self._estimator.train(InputPipeline(True, self._config), hooks=hooks, max_steps=until_step)
        except DivergedError as error:
            raise diverged(error, self._config, self.began_at)
        except tf.errors.InvalidArgumentError as error:
            if not _NAN_WEIGHTS.search(error.message):
                raise
            done = divergence.steps_before
            last = min(done + self._config.iterations, until_step) - 1
            raise diverged(DivergedError('The weights are no longer finite', last, done), self._config, self.began_at)
        finally:
            self._source = None
            self._termination.steps_to_lose(False)
            for profiled in self._profiled:
                profiled.abandon()
            self._summaries.flush()
        self._check_end(until_step)

    def _begin(self) -> None:
        config = self._config
        self.began_at = latest_step(self._model_dir)
        if config.image_summaries:
            self._summaries.draw_images(self.began_at)
        if config.log_steps:
            self._step_lines = StepLines(
                'TPU:0' if config.use_tpu else 'GPU:0' if accelerator.on_gpu(config) else 'CPU:0',
                config.replicas,
                config.train_batch_size,
                config.num_train_images,
                self.began_at,
                config.log_steps,
            )

    def _hooks(self, divergence: DivergenceWatcher) -> List[tf.estimator.SessionRunHook]:
        """The hooks of a cycle. A session calls them in this order at each event."""
        config = self._config
        checkpoint = latest_checkpoint(self._model_dir)
        if checkpoint:
            logger.info('resuming from %s', checkpoint)
        watchers = [
            TrainingProgress(
                *(self._screen, self.throughput, config.train_steps, config.train_batch_size, self._step_lines),
                steps_per_eval=config.train_steps_per_eval if config.mode == 'train_and_eval' else 0,
                exports=bool(config.export_dir),
            ),
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
            self._lock.hook(),
            # Before the watchers and the first checkpoint.
            *self._beginning(),
            RecoveryLimitHook(lambda: check_reachable(config)),
            StepHook(watchers),
            # After the divergence watcher: a step that it refuses is not saved.
            CheckpointHook(
                self._model_dir,
                config.save_checkpoints_secs,
                steps_per_run=config.iterations if config.use_tpu else 1,
            ),
            # Last: there are steps to lose only after all hooks above have begun.
            self._termination.hook(),
        ]

    def _beginning(self) -> List[tf.estimator.SessionRunHook]:
        if not self._source:
            return []
        return [BeginHook(self._config, self._source, lambda: bool(latest_checkpoint(self._model_dir)))]

    def _check_end(self, until_step: int) -> None:
        step = latest_step(self._model_dir)
        if self._termination.request:
            raise self._termination.error(step, self._config.train_steps)
        if step < until_step:
            # TPUEstimator returns without an error when its TPU is preempted or a file server stays down.
            check_reachable(self._config)
            raise InterruptedTrainingError(
                f'Training was interrupted after step {step} of {until_step}. The same command resumes from there; '
                '--verbose shows the cause.'
            )
