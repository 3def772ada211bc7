"""Evaluates checkpoints: every validation image exactly once, with the averages of the checkpoint itself."""

import math
import os
import time
from typing import Any, Dict, Optional

from console.log import logger
from console.screen import Screen
from console.tensorflow_versions import tf
from data import records
from data.dataset_info import DatasetInfo
from data.sources import source_of
from inception_v3.config import Config
from inception_v3.input.evaluation_shares import images_of_hosts
from inception_v3.input_pipeline import InputPipeline
from inception_v3.moving_average import LoadEMAHook
from inception_v3.run import best_checkpoint, digests, trained_data
from inception_v3.run.checkpoints import step_of
from inception_v3.run.evaluations import (
    Evaluation,
    append_evaluation,
    changed_since_training,
    read_evaluations,
    shows_top_5,
)
from inception_v3.run.failures import DivergedError, TrainingError, check_reachable, diverged, refusals_explained
from inception_v3.run.files import now
from inception_v3.run.hooks.progress import EvaluationProgress
from inception_v3.run.hooks.recovery import RecoveryLimitHook
from inception_v3.run.hooks.saving import CheckpointFitsHook
from inception_v3.run.hooks.summaries import EvaluationSummaries, unwritten_by_estimator
from inception_v3.run.skipped_records import BadRecords
from inception_v3.tpu import slices, topology


def evaluation_of(
    config: Config,
    data_set: Optional[DatasetInfo],
    checkpoint: str,
    digest: str,
    metrics: Dict[str, Any],
    seconds: float,
) -> Evaluation:
    """The record of an evaluation that ends now.

    Args:
      config: of the evaluation.
      data_set: the description of its data set.
      checkpoint: the path of the evaluated checkpoint.
      digest: `digests.of_index` of the checkpoint, taken before the evaluation.
      metrics: the values of `metrics.evaluation_metrics`, by name.
      seconds: the duration of the evaluation.
    """
    return Evaluation(
        step=step_of(checkpoint),
        checkpoint=os.path.basename(checkpoint),
        weights=config.evaluated_weights,
        top_1=float(metrics['top_1']),
        top_5=float(metrics['top_5']),
        cross_entropy=float(metrics['cross_entropy']),
        images=int(metrics['images']),
        seconds=round(seconds, 3),
        time=now(),
        changed=changed_since_training(config, data_set, checkpoint),
        data_set=data_set.name if data_set else '',
        fingerprint=data_set.fingerprint if data_set else '',
        digest=digest,
    )


class Evaluating:
    """The evaluations of one command.

    Args:
      config: of the run.
      estimator: of the run.
      data_set: the description of its data set.
      screen: shows the progress.
      bad_records: the records that were skipped.
    """

    def __init__(
        self,
        config: Config,
        estimator: tf.estimator.tpu.TPUEstimator,
        data_set: Optional[DatasetInfo],
        screen: Screen,
        bad_records: BadRecords,
    ):
        self._config = config
        self._model_dir = str(config.model_dir)
        self._estimator = estimator
        self._data_set = data_set
        self._screen = screen
        self._bad_records = bad_records
        self._summaries = EvaluationSummaries(config, data_set.class_names if data_set else ())

    def evaluate(self, checkpoint: str, began_at: Optional[int] = None) -> Evaluation:
        """Evaluates a checkpoint, and adds the result to `results.jsonl` and to TensorBoard's curves.

        Args:
          checkpoint: its path.
          began_at: the step at which this command began to train; tells whether this command's training diverged or the
            checkpoint existed before.

        Raises:
          ConfigError: the data set has other classes than the checkpoint.
          DataError: no validation image could be used.
          TrainingError: the cross-entropy is not finite.
        """
        start = time.monotonic()
        if self._config.mode == 'eval':
            trained_data.check(self._config, self._data_set, checkpoint)
        digest = digests.of_index(checkpoint)
        metrics = self._metrics_of(checkpoint)
        evaluation = evaluation_of(self._config, self._data_set, checkpoint, digest, metrics, time.monotonic() - start)
        self._screen.clear()
        self._check(evaluation, checkpoint, began_at)
        append_evaluation(self._model_dir, evaluation)
        self._summaries.write(evaluation)
        self._log(evaluation)
        self.keep_if_best(checkpoint, evaluation)
        return evaluation

    def _metrics_of(self, checkpoint: str) -> Dict[str, Any]:
        config = self._config
        self._screen.update(f'preparing to evaluate step {step_of(checkpoint)}')
        # A host with fewer images than another pads its last batches.
        hosts = topology.hosts_of(config)
        images = images_of_hosts(config, hosts) if hosts > 1 else [config.eval_images]
        batches = slices.steps_for(images, config.eval_batch_size)
        hooks = [
            # Before the session restores the checkpoint.
            CheckpointFitsHook(checkpoint),
            EvaluationProgress(self._screen, batches),
            RecoveryLimitHook(lambda: check_reachable(config)),
            # After the session has restored the weights, which the averages replace.
            *([LoadEMAHook(checkpoint)] if config.moving_average else []),
        ]
        with unwritten_by_estimator(), refusals_explained():
            return self._estimator.evaluate(
                InputPipeline(False, config),
                # A CPU evaluates until the files end, however many images they hold. A TPU needs a number of steps.
                steps=batches if config.use_tpu else None,
                hooks=hooks,
                checkpoint_path=checkpoint,
            )

    def _check(self, evaluation: Evaluation, checkpoint: str, began_at: Optional[int]) -> None:
        config = self._config
        if not evaluation.images:
            raise records.DataError(f'{source_of(config).flag(records.VALIDATION)}: no validation image can be used.')
        if math.isfinite(evaluation.cross_entropy):
            return
        if config.mode == 'eval':
            raise TrainingError(
                f'{checkpoint}: its cross-entropy is {evaluation.cross_entropy}; training has diverged.'
            )
        what = f'The cross-entropy of the validation images is {evaluation.cross_entropy}'
        raise diverged(DivergedError(what, evaluation.step - 1, evaluation.step), config, began_at)

    def _log(self, evaluation: Evaluation) -> None:
        logger.info(
            'step %d: top-1 %.2f %%%s, cross-entropy %.4f, %d images, %s weights',
            evaluation.step,
            100 * evaluation.top_1,
            f', top-5 {100 * evaluation.top_5:.2f} %' if shows_top_5(self._config.num_classes) else '',
            evaluation.cross_entropy,
            evaluation.images,
            evaluation.weights,
        )
        if evaluation.changed:
            logger.info('settings that differ from those of the training: %s', '; '.join(evaluation.changed))
        if evaluation.images + self._bad_records.count(records.VALIDATION) != self._config.eval_images:
            flag = 'eval_total_size' if self._config.eval_total_size else 'num_eval_images'
            logger.info('%d images were expected (--%s)', self._config.eval_images, flag)

    def keep_if_best(self, checkpoint: str, evaluation: Evaluation) -> None:
        """With `--keep_best`, keeps the checkpoint if it has the best top-1 so far."""
        if self._config.keep_best:
            best_checkpoint.keep(self._model_dir, checkpoint, evaluation)

    def recorded(self, checkpoint: str) -> Optional[Evaluation]:
        """The last recorded evaluation of a checkpoint with the same weights, images and settings; None without any.

        An evaluation belongs to the digest of its checkpoint: a checkpoint of the same step may have other weights.
        """
        config = self._config
        fingerprint = self._data_set.fingerprint if self._data_set else ''
        changed = changed_since_training(config, self._data_set, checkpoint)
        same = (digests.of_index(checkpoint), config.evaluated_weights, config.eval_images, fingerprint, changed)
        matching = [each for each in read_evaluations(self._model_dir) if each.digest and each.identity == same]
        return matching[-1] if matching else None


def most_accurate(model_dir: str, last: Evaluation) -> Evaluation:
    """The first recorded evaluation with the best top-1 among those that can be compared with the last one."""
    # Checkpoints of an earlier run in this folder may have had the same steps, or later ones.
    of_step = {each.step: each for each in read_evaluations(model_dir) if each.step <= last.step}
    comparable = [each for each in of_step.values() if not best_checkpoint.differences_of_kind(last, each)]
    return max(comparable, key=lambda each: each.top_1, default=last)
