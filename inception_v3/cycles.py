"""The course of a run: training, evaluation, both in turn, or following another run's checkpoints."""

import contextlib
import math
import os
import re
import time
from typing import Iterator, Optional

import tensorflow as tf
from absl import app

from console.errors import TerminatedError
from console.screen import Screen, logger
from data import records, remote
from data.formats import FORMATS
from inception_v3 import batch_norm, disk
from inception_v3.config import Config
from inception_v3.data_set import check_files, description_of, notes_on_files, splits_of
from inception_v3.estimator import make_estimator
from inception_v3.export import export_saved_model, remove_unfinished_export
from inception_v3.hooks.divergence import DivergedError, DivergenceHook
from inception_v3.hooks.progress import EvaluationProgress, StepLines, Throughput, TrainingProgress
from inception_v3.hooks.recovery import InterruptedTrainingError, RecoveryLimitHook, TrainingError, without_recovery
from inception_v3.hooks.saving import CheckpointFitsHook, CheckpointHook
from inception_v3.hooks.summaries import EvaluationSummaries, TrainingSummaries, unwritten_by_estimator
from inception_v3.hooks.termination import Termination
from inception_v3.input_pipeline import InputPipeline
from inception_v3.learning_rate import learning_rate
from inception_v3.model_dir import best_checkpoint
from inception_v3.model_dir.bad_records import BadRecords
from inception_v3.model_dir.checkpoints import (
    PASSED_OVER,
    CheckpointError,
    DamagedError,
    check_fits,
    check_holds_averages,
    check_sound,
    go_back,
    is_whole,
    latest_checkpoint,
    pass_over,
    step_before,
    step_of,
)
from inception_v3.model_dir.evaluations import Evaluation, append_evaluation, changed_since_training, read_evaluations
from inception_v3.model_dir.files import check_writable, now
from inception_v3.model_dir.first_steps import RecordFirstStepsHook
from inception_v3.model_dir.leftovers import remove_leftovers
from inception_v3.model_dir.starts import RecordStartHook
from inception_v3.model_dir.trainer_lock import TrainerLock
from inception_v3.model_fn import inception_model_fn
from inception_v3.moving_average import LoadEMAHook
from inception_v3.networks.registry import NETWORKS
from inception_v3.summary import summary_of
from inception_v3.tpu import topology
from inception_v3.tpu.emulation.estimator import notice

# Seconds between looks at whether checkpoints can still be read, while one is waited for.
_CHECK_INTERVAL = 60
# What TPUEstimator's check of the weights says.
_WEIGHTS_CHECK = re.compile(r'Gradient for \S+ is NaN')


class Run:
    """A run in its model_dir, which may be a new one or go on from its last checkpoint.

    Args:
      config: what to run.
      screen: where its progress is shown.
      termination: what may end it early.

    Raises:
      ConfigError, DataError: the run cannot start.
    """

    def __init__(self, config: Config, screen: Screen, termination: Optional[Termination] = None):
        self._config = config
        self._screen = screen
        self._data_set = description_of(config)
        class_names = self._data_set.class_names if self._data_set else ()
        # Hooks save and write summaries, and are better at it.
        self._estimator = make_estimator(config, class_names, writes=False)
        self._model_dir = str(config.model_dir)
        self._lock = TrainerLock(self._model_dir, now())
        self._termination = termination or Termination(lambda: None)
        self._began_at: Optional[int] = None
        self._throughput = Throughput()
        self._step_lines: Optional[StepLines] = None
        self._made_at = time.monotonic()
        self._training_summaries = TrainingSummaries(config, class_names)
        self._evaluation_summaries = EvaluationSummaries(config, class_names)
        self._recording = [RecordStartHook(config, self._data_set)]
        if config.seed is not None and (not config.use_tpu or config.is_emulated):
            self._recording.append(RecordFirstStepsHook(self._model_dir))
        splits = splits_of(config)
        self._bad_records = BadRecords(config, splits, screen)
        if config.use_data == 'real':
            for split in splits:
                self._check_shards(split)
        if config.is_emulated:
            logger.warning(notice(topology.emulated(str(config.tpu))))
        if config.mode != 'eval':
            logger.info('batch normalization: %s', batch_norm.description(config))
        head_size = NETWORKS[config.network].auxiliary_head_min_size
        if config.mode != 'eval' and config.auxiliary_head and head_size and not config.has_auxiliary_head:
            logger.info(
                'the auxiliary head is left out: it needs images of at least %d pixels on both sides', head_size
            )

    def _check_shards(self, split: str) -> None:
        paths = FORMATS[self._config.data_format].find_shards(self._config.data_dir, split)
        check_files(self._config, split, paths)
        for note in notes_on_files(self._config, split, paths):
            logger.info('%s', note)

    def execute(self) -> str:
        """Does what `mode` says, and exports if that is asked for.

        Returns:
          The summary to show.

        Raises:
          DataError: a record cannot be used.
          CheckpointError: model_dir holds a checkpoint that does not fit.
          RemoteError: a remote file is refused, or cannot be reached.
          DiskError: a disk is full, or model_dir has vanished.
          LockedError: another process trains in model_dir.
          TerminatedError: it was asked to end, and the last step is saved.
        """
        config = self._config
        check_writable('model_dir', self._model_dir)
        if config.export_dir:
            check_writable('export_dir', config.export_dir)
        with contextlib.ExitStack() as whole_run:
            whole_run.enter_context(self._remote_failures_explained())
            if config.mode != 'eval':
                whole_run.enter_context(self._lock)
                self._termination.release = self._lock.release
            whole_run.enter_context(self._disk_failures_explained())
            if config.mode != 'eval':
                self._begin_soundly()
            if config.keep_best:
                # What is spoilt there is told before hours are spent.
                best_checkpoint.read(self._model_dir)
            if not config.use_tpu or config.is_emulated:
                whole_run.enter_context(without_recovery())
            self._bad_records.forget()
            with self._bad_records.explained():
                evaluation = {
                    'train': self._train_only,
                    'eval': self._follow,
                    'train_and_eval': self._train_and_evaluate,
                }[config.mode]()
            export = self._export()
            best = best_checkpoint.read(self._model_dir) if config.keep_best else None
        skipped = [*self._bad_records.skipped()]
        if skipped:
            logger.info('%d records could not be used:', len(skipped))
        for bad_record in skipped:
            logger.info('skipped %s', bad_record)
        return summary_of(
            config,
            self._data_set,
            evaluation,
            self._throughput.images_per_second,
            export,
            best.evaluation if best else None,
            time.monotonic() - self._made_at if config.step_lines else None,
            self._most_accurate(evaluation) if config.step_lines and evaluation else None,
        )

    @contextlib.contextmanager
    def _remote_failures_explained(self) -> Iterator[None]:
        """Says of a remote file's failure what it means, and how far the run is.

        Raises:
          RemoteError: instead of the failure.
        """
        try:
            yield
        except (tf.errors.OpError, remote.RemoteError) as error:
            if isinstance(error, remote.RemoteError):
                kind, text = type(error), str(error)
            else:
                kind, text = remote.kind_of(error), remote.explain_if_remote(error, self._model_dir) or ''
            if not text:
                raise
            self._screen.clear()
            raise kind(f'{text} {self._what_is_kept()}')

    @contextlib.contextmanager
    def _disk_failures_explained(self) -> Iterator[None]:
        """Says of a failure of this machine's disks what it means, and takes back what was being written.

        Raises:
          DiskError: instead of the failure.
        """
        config = self._config
        try:
            yield
        except (tf.errors.OpError, OSError, ValueError) as error:
            text = (
                None if isinstance(error, app.UsageError) else disk.explain(error, self._model_dir, config.export_dir)
            )
            if not text:
                raise
            self._screen.clear()
            if config.mode != 'eval':
                remove_leftovers(self._model_dir)
            raise disk.DiskError(f'{text} {self._what_is_kept()}' if os.path.isdir(self._model_dir) else text)

    def _begin_soundly(self) -> None:
        """Removes what a killed run has left, and makes sure that the newest checkpoint is one to go on from."""
        remove_leftovers(self._model_dir)
        if self._config.export_dir:
            remove_unfinished_export(self._config)
        if self._config.skip_damaged_checkpoints:
            go_back(self._model_dir)
            return
        checkpoint = latest_checkpoint(self._model_dir)
        if checkpoint:
            check_sound(checkpoint)

    def _what_is_kept(self) -> str:
        try:
            step = self._step()
        except (tf.errors.OpError, app.UsageError):
            return 'What is in --model_dir is kept, and the same command goes on from there.'
        if not step:
            return 'There is no checkpoint yet.'
        return f'The checkpoint of step {step} is kept, and the same command goes on from it.'

    def _train_only(self) -> None:
        if not self._nothing_is_left():
            self._train(self._config.train_steps)

    def _nothing_is_left(self) -> bool:
        """Whether the last step is done. If so, no graph is built that could show that the checkpoint does not fit."""
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

    def _train_and_evaluate(self) -> Optional[Evaluation]:
        """Trains and evaluates in turn, from wherever an earlier command was interrupted."""
        config = self._config
        step, evaluation = self._step(), None
        if self._nothing_is_left() or (step and step % config.train_steps_per_eval == 0):
            # The end of a cycle. The command that trained it may have been stopped before it had evaluated it.
            recorded = None if config.display_tensors else self._last_evaluation_of(step)
            if recorded:
                # Nor may it have got as far as this.
                self._keep_if_best(self._checkpoint(), recorded)
            evaluation = recorded or self._evaluate(self._checkpoint())
        while step < config.train_steps:
            cycles = step // config.train_steps_per_eval + 1
            self._train(min(cycles * config.train_steps_per_eval, config.train_steps))
            step, evaluation = self._step(), self._evaluate(self._checkpoint())
        return evaluation

    def _last_evaluation_of(self, step: int) -> Optional[Evaluation]:
        """What an earlier command recorded of a step, if it evaluated the same weights in the same way."""
        config = self._config
        fingerprint = self._data_set.fingerprint if self._data_set else ''
        changed = changed_since_training(config, self._checkpoint())
        same = (step, self._weights, config.eval_images, fingerprint, changed)
        recorded = [
            e
            for e in read_evaluations(self._model_dir)
            if (e.step, e.weights, e.images, e.fingerprint, e.changed) == same
        ]
        return recorded[-1] if recorded else None

    def _keep_if_best(self, checkpoint: str, evaluation: Evaluation) -> None:
        if self._config.keep_best:
            best_checkpoint.keep(self._model_dir, checkpoint, evaluation)

    def _most_accurate(self, evaluation: Evaluation) -> Evaluation:
        """The first of those with the best top-1 that this run has recorded, and that can be compared with the last."""
        recorded = read_evaluations(self._model_dir)
        comparable = [each for each in recorded if not best_checkpoint.differences_of_kind(evaluation, each)]
        return max(comparable, key=lambda each: each.top_1, default=evaluation)

    @property
    def _weights(self) -> str:
        return 'average' if self._config.moving_average else 'raw'

    def _checkpoint(self) -> str:
        checkpoint = latest_checkpoint(self._model_dir)
        if not checkpoint:
            raise CheckpointError(f'--model_dir={self._model_dir}: there is no checkpoint in it.')
        return checkpoint

    def _step(self) -> int:
        checkpoint = latest_checkpoint(self._model_dir)
        return step_of(checkpoint) if checkpoint else 0

    def _train(self, until_step: int) -> None:
        config = self._config
        is_first = self._began_at is None
        if is_first:
            self._began_at = self._step()
            if config.image_summaries:
                self._training_summaries.draw_images(self._began_at)
            if config.step_lines:
                device = 'TPU:0' if config.use_tpu else 'CPU:0'
                images = (config.train_batch_size, config.num_train_images)
                self._step_lines = StepLines(device, config.replicas, *images, self._began_at)
        progress = TrainingProgress(
            self._screen, self._throughput, config.train_steps, config.train_batch_size, self._step_lines
        )
        hooks = [progress, *self._recording, RecoveryLimitHook(self._check_files)]
        divergence = DivergenceHook(config.num_classes)
        # What they object to is not saved.
        hooks += [self._lock.hook(), divergence, self._training_summaries]
        steps_per_run = config.iterations if config.use_tpu else 1
        # The graph is the same each time.
        hooks.append(CheckpointHook(self._model_dir, config.save_checkpoints_secs, steps_per_run, is_first))
        hooks.append(self._termination.hook())
        checkpoint = latest_checkpoint(self._model_dir)
        if checkpoint:
            hooks.insert(0, CheckpointFitsHook(checkpoint))
            logger.info('going on from %s', checkpoint)
        try:
            self._estimator.train(InputPipeline(True, config), hooks=hooks, max_steps=until_step)
        except DivergedError as error:
            raise self._diverged(error)
        except tf.errors.InvalidArgumentError as error:
            # TPUEstimator's own check of the weights, after each loop.
            if not _WEIGHTS_CHECK.search(error.message):
                raise
            done = divergence.steps_before
            last = min(done + config.iterations, until_step) - 1
            raise self._diverged(DivergedError('The weights are not finite any more', last, done))
        finally:
            self._termination.steps_to_lose(False)
            self._training_summaries.flush()
        step = self._step()
        if self._termination.requested:
            raise TerminatedError(
                f'ended by SIGTERM after step {step} of {config.train_steps}, which is saved; the same command goes on'
            )
        if step < until_step:
            # TPUEstimator ends so, and without an error, when its TPU is taken away, or a file server unavailable.
            self._check_files()
            raise InterruptedTrainingError(
                f'Training was interrupted after step {step} of {until_step}. The same command goes on from there; '
                '--verbose shows what interrupted it.'
            )

    def _diverged(self, error: DivergedError) -> TrainingError:
        """What there is to say of training that has diverged; passes a last checkpoint over that is no good."""
        config = self._config
        passed_over = ''
        if self._is_doubtful(error.steps_before):
            pass_over(self._model_dir, error.steps_before)
            passed_over = (
                f'The checkpoint of step {error.steps_before}, which gave it, was moved into '
                f'{os.path.join(self._model_dir, PASSED_OVER)}. '
            )
        return TrainingError(
            f'{error.what} in step {error.step}, at a learning rate of {learning_rate(error.step, config):.4g}. '
            f'{passed_over}The checkpoint of step {self._step()} is kept. A lower --learning_rate, or '
            '--use_learning_rate_warmup, keeps the loss finite.'
        )

    def _is_doubtful(self, step: int) -> bool:
        """Whether the newest checkpoint is of this step, where all was last fine, and may be what made the loss bad.

        On a TPU, which shows the loss of the last step of a loop, that need not be; then a checkpoint with which this
        command has begun is not blamed.
        """
        return (
            self._step() == step
            and not (self._config.use_tpu and step == self._began_at)
            and step_before(self._model_dir, step) is not None
        )

    def _check_files(self) -> None:
        """Makes sure that records can be read, and checkpoints written."""
        if self._config.use_data == 'real':
            find_shards = FORMATS[self._config.data_format].find_shards
            for split in splits_of(self._config):
                remote.check_readable(find_shards(self._config.data_dir, split)[0])
        check_writable('model_dir', self._model_dir)

    def _evaluate(self, checkpoint: str) -> Evaluation:
        config = self._config
        start = time.monotonic()
        step = step_of(checkpoint)
        batches = -(-config.eval_images // config.eval_batch_size)
        hooks = [
            CheckpointFitsHook(checkpoint),
            EvaluationProgress(self._screen, batches),
            RecoveryLimitHook(self._check_files),
        ]
        if config.moving_average:
            hooks.append(LoadEMAHook(checkpoint))
        self._screen.update(f'preparing to evaluate step {step}')
        with unwritten_by_estimator():
            metrics = self._estimator.evaluate(
                InputPipeline(False, config),
                # A CPU evaluates to the end of the files, however many images they hold. A TPU must be told.
                steps=batches if config.use_tpu else None,
                hooks=hooks,
                checkpoint_path=checkpoint,
            )
        evaluation = Evaluation(
            step=step,
            checkpoint=os.path.basename(checkpoint),
            weights=self._weights,
            top_1=float(metrics['top_1']),
            top_5=float(metrics['top_5']),
            cross_entropy=float(metrics['cross_entropy']),
            images=int(metrics['images']),
            seconds=round(time.monotonic() - start, 3),
            time=now(),
            changed=changed_since_training(config, checkpoint),
            data_set=self._data_set.name if self._data_set else '',
            fingerprint=self._data_set.fingerprint if self._data_set else '',
        )
        self._screen.clear()
        if not evaluation.images:
            raise records.DataError(f'--data_dir={config.data_dir}: not one validation image could be used.')
        if not math.isfinite(evaluation.cross_entropy):
            if config.mode != 'eval':
                what = f'The cross-entropy of the validation images is {evaluation.cross_entropy}'
                raise self._diverged(DivergedError(what, step - 1, step))
            raise TrainingError(
                f'{checkpoint}: its cross-entropy is {evaluation.cross_entropy}; training has diverged.'
            )
        append_evaluation(self._model_dir, evaluation)
        self._evaluation_summaries.write(evaluation)
        logger.info(
            'step %d: top-1 %.2f %%, top-5 %.2f %%, cross-entropy %.4f, %d images, %s weights',
            step,
            100 * evaluation.top_1,
            100 * evaluation.top_5,
            evaluation.cross_entropy,
            evaluation.images,
            evaluation.weights,
        )
        if evaluation.changed:
            logger.info('that was evaluated otherwise than it was trained: %s', '; '.join(evaluation.changed))
        if evaluation.images + self._bad_records.count(records.VALIDATION) != config.eval_images:
            logger.info('that is not the %d images that were expected (--num_eval_images)', config.eval_images)
        self._keep_if_best(checkpoint, evaluation)
        return evaluation

    def _follow(self) -> Optional[Evaluation]:
        """Evaluates the checkpoints of another run as they appear, until that of the last step."""
        config = self._config
        evaluation = None
        if not latest_checkpoint(self._model_dir):
            logger.info('waiting for a first checkpoint in %s', config.model_dir)

        def nothing_came() -> bool:
            # TensorFlow takes a list of checkpoints that may not be read any more for one that has not changed.
            latest_checkpoint(self._model_dir)
            return config.eval_timeout is not None

        checkpoints = tf.train.checkpoints_iterator(
            config.model_dir,
            min_interval_secs=config.min_eval_interval,
            timeout=_CHECK_INTERVAL if config.eval_timeout is None else config.eval_timeout,
            timeout_fn=nothing_came,
        )
        for checkpoint in checkpoints:
            try:
                check_sound(checkpoint)
                evaluation = self._evaluate(checkpoint)
                done = evaluation.step >= config.train_steps
            except (tf.errors.OpError, CheckpointError, ValueError) as error:
                if is_whole(checkpoint):
                    if not (config.skip_damaged_checkpoints and isinstance(error, DamagedError)):
                        raise
                    logger.info('passed over: %s', error)
                    continue
                # The trainer keeps the newest few, and this one was overtaken before it was read.
                self._screen.clear()
                logger.info('%s vanished before it was evaluated: %s', checkpoint, error)
                continue
            if done:
                return evaluation
            logger.info('waiting for a later checkpoint, until that of step %d (--train_steps)', config.train_steps)
        text = f'no new checkpoint in {config.model_dir} for {config.eval_timeout} seconds'
        if not evaluation:
            raise CheckpointError(f'--eval_timeout={config.eval_timeout}: {text}, and none was evaluated.')
        logger.info(text)
        return evaluation

    def _export(self) -> Optional[str]:
        if not self._config.export_dir:
            return None
        checkpoint = self._checkpoint()
        if self._config.moving_average:
            check_holds_averages(checkpoint)
        self._screen.update(f'exporting {checkpoint}')
        path = export_saved_model(self._estimator, self._config, checkpoint)
        self._screen.clear()
        return path
