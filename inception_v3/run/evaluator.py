"""Evaluates a run's checkpoints, records the results, and keeps the best checkpoint."""

import math
import time
from typing import Any, Dict, Optional

from compat.errors import CommandError
from compat.log import logger
from data.records import VALIDATION, DataError
from inception_v3.estimator import refusals_explained
from inception_v3.input.bad_records import BadRecords
from inception_v3.input_pipeline import InputPipeline
from inception_v3.model_dir import digest_of_index, step_of
from inception_v3.moving_average import LoadEMAHook
from inception_v3.run import best_checkpoint, evaluations, failures
from inception_v3.run.context import Context
from inception_v3.run.evaluations import Evaluation
from inception_v3.run.failures import DivergedError
from inception_v3.run.hooks.progress import EvaluationProgress
from inception_v3.run.hooks.saving import CheckpointFitsHook
from inception_v3.run.hooks.stopping import RecoveryLimitHook, StepLimitHook
from inception_v3.run.hooks.summaries import EvaluationSummaries, unwritten_by_estimator
from inception_v3.run.trained_data import check_data_set
from inception_v3.tpu.slices import evaluation_steps


class Evaluator:
    """Evaluates checkpoints: every validation image exactly once, with the averages of the checkpoint itself."""

    def __init__(self, context: Context):
        self._context = context
        self._config = context.config
        self._summaries = EvaluationSummaries(context.config, context.class_names)

    def evaluate(self, checkpoint: str) -> Evaluation:
        """Evaluates a checkpoint, adds the result to `results.jsonl` and TensorBoard's curves, and keeps the best.

        Raises:
          ConfigError: the data set has other classes than the checkpoint.
          DataError: no validation image could be used.
          CommandError: the cross-entropy is not finite.
        """
        begun, config = time.monotonic(), self._config
        if config.mode == 'eval':
            check_data_set(config, self._context.data_set, checkpoint)
        digest = digest_of_index(checkpoint)
        metrics = self._metrics_of(checkpoint)
        seconds = time.monotonic() - begun
        evaluation = evaluations.evaluation_of(config, self._context.data_set, checkpoint, digest, metrics, seconds)
        self._context.screen.clear()
        if not config.is_first:
            return evaluation
        self._check(evaluation, checkpoint)
        evaluations.append_evaluation(self._context.model_dir, evaluation)
        self._summaries.write(evaluation)
        for line in evaluations.result_of(config, evaluation, BadRecords(config, config.splits).count(VALIDATION)):
            logger.info(line)
        self.keep(checkpoint, evaluation)
        return evaluation

    def recorded(self, checkpoint: str) -> Optional[Evaluation]:
        """The last recorded evaluation of a checkpoint with the same weights, images and settings, or None.

        An evaluation belongs to the digest of its checkpoint: a checkpoint of the same step may have other weights.
        """
        config = self._config
        fingerprint = self._context.data_set.fingerprint if self._context.data_set else ''
        changed = evaluations.changed_since_training(config, self._context.data_set, checkpoint)
        same = (digest_of_index(checkpoint), config.evaluated_weights, config.eval_images, fingerprint, changed)
        read = evaluations.read_evaluations(self._context.model_dir)
        matching = [each for each in read if each.digest and each.identity == same]
        return matching[-1] if matching else None

    def keep(self, checkpoint: str, evaluation: Evaluation) -> None:
        """Keeps a checkpoint with `--keep_best`, if it is the best so far."""
        if self._config.keep_best and self._config.is_first:
            best_checkpoint.keep(self._context.model_dir, checkpoint, evaluation)

    def _metrics_of(self, checkpoint: str) -> Dict[str, Any]:
        config = self._config
        self._context.screen.update(f'preparing to evaluate step {step_of(checkpoint):,}')
        batches = evaluation_steps(config)
        hooks = [
            # This hook comes before the session restores the checkpoint.
            CheckpointFitsHook(checkpoint),
            EvaluationProgress(self._context.screen, batches),
            # All machines take part in the same number of steps, with padding after their files.
            StepLimitHook(batches) if config.machines > 1 else None,
            RecoveryLimitHook(lambda: failures.check_reachable(config)),
            # This hook comes after the session has restored the weights, which the averages replace.
            LoadEMAHook(checkpoint) if config.moving_average else None,
        ]
        with unwritten_by_estimator(), refusals_explained():
            return self._context.estimator.evaluate(
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
