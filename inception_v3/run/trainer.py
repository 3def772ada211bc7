"""Training of a run's steps, from the newest checkpoint, with the hooks that save, record and stop."""

import re
from typing import TYPE_CHECKING, List, Optional

from compat import tf
from compat.errors import RetryableError
from compat.log import logger
from inception_v3.estimator import refusals_explained
from inception_v3.input_pipeline import InputPipeline
from inception_v3.model_dir import latest_checkpoint, latest_step
from inception_v3.run import failures
from inception_v3.run.context import Context
from inception_v3.run.failures import DivergedError
from inception_v3.run.hooks.progress import TrainingProgress
from inception_v3.run.hooks.saving import CheckpointFitsHook, CheckpointHook
from inception_v3.run.hooks.stopping import RecoveryLimitHook
from inception_v3.run.hooks.summaries import TrainingSummaries
from inception_v3.run.hooks.watchers import (
    DivergenceWatcher,
    FirstStepsRecorder,
    SkippedSteps,
    StartRecorder,
    StepHook,
)

if TYPE_CHECKING:
    from inception_v3.run.hooks.profiler import ProfiledSteps

# The message of TPUEstimator's own check of the weights, after each loop.
_NAN_WEIGHTS = re.compile(r'Gradient for \S+ is NaN')


class Trainer:
    """Trains a run's steps, in cycles; its watchers, such as `progress`, keep their state over all cycles."""

    def __init__(self, context: Context):
        config = context.config
        self._context = context
        self._config = config
        self._is_first_cycle = True
        # A hook of the first cycle, which assigns the weights of --init_from.
        self._begin_hook: Optional[tf.estimator.SessionRunHook] = None
        self.progress = TrainingProgress(context.screen, config)
        self._start = StartRecorder(config, context.data_set)
        self._summaries = TrainingSummaries(config, context.class_names)
        # Without emulation, a TPU's variables are too large to fetch after each step.
        has_digests = config.is_first and config.seed is not None and (not config.use_tpu or config.is_emulated)
        self._first_steps = FirstStepsRecorder(context.model_dir) if has_digests else None
        self._profiled: Optional[ProfiledSteps] = None
        if config.profile_steps and config.is_first:
            from inception_v3.run.hooks import profiler

            self._profiled = profiler.ProfiledSteps(config, profiler.workers_of(config, context.estimator.config))

    def read_weights(self) -> None:
        """Reads the weights of `--init_from`, unless the run has a checkpoint."""
        config = self._config
        if not config.init_from or not config.is_first:
            return
        checkpoint = latest_checkpoint(self._context.model_dir)
        if checkpoint:
            logger.info('--init_from=%s: is not read, because the run has %s', config.init_from, checkpoint)
            return
        from inception_v3.weights import beginning, sources

        source = sources.read(config.init_from)
        self._start.weights = beginning.origin_of(source, config)
        has_checkpoint = lambda: latest_checkpoint(self._context.model_dir) is not None  # noqa: E731
        self._begin_hook = beginning.BeginHook(config, source, has_checkpoint)

    def train(self, until_step: int) -> None:
        """Trains from the newest checkpoint to a step, and saves it.

        Raises:
          DivergedError: the loss or the weights have diverged.
          CommandError: the TPU or a file server was lost.
          TerminatedError, InterruptedByUserError: SIGTERM or Ctrl-C arrived; the last step is saved.
        """
        config = self._config
        if self._is_first_cycle and config.image_summaries and config.is_first:
            self._summaries.draw_images(latest_step(self._context.model_dir))
        divergence = DivergenceWatcher(config.num_classes)
        hooks = self._hooks(divergence)
        self._is_first_cycle = False
        self._context.screen.update('building the graph of training', at_once=True)
        try:
            with refusals_explained():
                pipeline = InputPipeline(is_training=True, config=config)
                self._context.estimator.train(pipeline, hooks=hooks, max_steps=until_step)
        except tf.errors.InvalidArgumentError as error:
            if not _NAN_WEIGHTS.search(error.message):
                raise
            done = divergence.steps_before
            last = min(done + config.iterations, until_step) - 1
            raise DivergedError('The weights are no longer finite', last, done)
        finally:
            self._context.termination.steps_to_lose(False)
            if self._profiled:
                self._profiled.abandon()
            self._summaries.flush()
        self._check_end(until_step)

    def _hooks(self, divergence: DivergenceWatcher) -> List[tf.estimator.SessionRunHook]:
        """The hooks of a cycle. A session calls them in this order at each event."""
        config = self._config
        recovery = RecoveryLimitHook(lambda: failures.check_reachable(config))
        together = self._context.workers.session_hook() if self._is_first_cycle else None
        if not config.is_first:
            # The first worker writes, and watches the loss for all workers.
            hooks = [together, recovery, StepHook([self.progress]), self._context.termination]
            return [hook for hook in hooks if hook]
        checkpoint = latest_checkpoint(self._context.model_dir)
        if checkpoint:
            logger.info('resuming from %s', checkpoint)
        watchers = [
            self.progress,
            # Records when the graph is built: after the check that the checkpoint fits, before the session begins.
            self._start,
            # Before the divergence watcher stops training: provenance --verify compares a diverged step, too.
            self._first_steps,
            # Before the summaries, whose curves would be scaled by a loss of 1e30.
            divergence,
            SkippedSteps(),
            self._summaries,
            # Last: its pauses, to start and to write a profile, come after the work of the other watchers.
            self._profiled,
        ]
        hooks = [
            # Before everything that writes: a checkpoint of another network leaves model_dir as it is.
            CheckpointFitsHook(checkpoint) if checkpoint else None,
            # Before everything that writes: model_dir may belong to another trainer by now.
            self._context.lock,
            # Before the watchers and the first checkpoint.
            self._begin_hook if self._is_first_cycle else None,
            recovery,
            StepHook([watcher for watcher in watchers if watcher]),
            # After the divergence watcher: a step that it refuses is not saved.
            CheckpointHook(
                self._context.model_dir,
                config.save_checkpoints_secs,
                steps_per_run=config.iterations if config.use_tpu else 1,
                written=self._start.checkpoint_written,
            ),
            # After the first checkpoint, which other workers restore.
            together,
            # Last: there are steps to lose only after all hooks above have begun.
            self._context.termination,
        ]
        return [hook for hook in hooks if hook]

    def _check_end(self, until_step: int) -> None:
        step = self._context.workers.latest_step()
        if self._context.termination.request:
            raise self._context.termination.error(step, self._config.train_steps)
        if step < until_step:
            # TPUEstimator returns without an error when its TPU is preempted or a file server stays down.
            failures.check_reachable(self._config)
            raise RetryableError(
                f'Training was interrupted after step {step:,} of {until_step:,}. The same command resumes from there; '
                '--verbose shows the cause.'
            )
