"""Tests of the calls of TPUEstimator by training and evaluation, with a replacement that trains nothing."""

import dataclasses
import io
from typing import Any, Dict, List, Optional

import pytest

from compat import tf
from compat.errors import CommandError, RetryableError
from console.screen import Screen
from data.records import DataError
from inception_v3.config import Config
from inception_v3.model_dir import digest_of_index, latest_step
from inception_v3.moving_average import LoadEMAHook
from inception_v3.run.context import Context
from inception_v3.run.evaluations import append_evaluation, read_evaluations
from inception_v3.run.evaluator import Evaluator
from inception_v3.run.failures import DivergedError
from inception_v3.run.hooks.progress import EvaluationProgress
from inception_v3.run.hooks.saving import CheckpointFitsHook, CheckpointHook
from inception_v3.run.hooks.stopping import RecoveryLimitHook, Termination
from inception_v3.run.hooks.summaries import TrainingSummaries
from inception_v3.run.trainer import Trainer
from inception_v3.run.trainer_lock import TrainerLock
from inception_v3.run.workers import Workers
from tests.support.checkpoints import save_step
from tests.support.evaluations import EVALUATION
from tests.support.runs import make_small_config


class Estimator:
    """Records the arguments of its calls. Training reaches `reached`, or raises an error."""

    config = None

    def __init__(self, model_dir: str, reached: int = 0, error: Any = None, **metrics: Any):
        self.calls: List[Dict[str, Any]] = []
        self._model_dir, self._reached, self._error, self._metrics = model_dir, reached, error, metrics

    def train(self, pipeline: Any, **arguments: Any) -> None:
        self.calls.append({'pipeline': pipeline, **arguments})
        if self._error:
            raise self._error
        if self._reached:
            save_step(self._model_dir, self._reached)

    def evaluate(self, pipeline: Any, **arguments: Any) -> Dict[str, float]:
        self.calls.append({'pipeline': pipeline, **arguments})
        return {'top_1': 0.5, 'top_5': 0.75, 'cross_entropy': 1.5, 'images': 359, **self._metrics}


@pytest.fixture
def config(digits_dir: str, tmp_path: Any) -> Config:
    (tmp_path / 'model').mkdir()
    return make_small_config(digits_dir, model_dir=str(tmp_path / 'model'), train_steps=9)


def context_of(config: Config, estimator: Any) -> Context:
    termination = Termination(lambda error: None)
    lock, workers = TrainerLock(str(config.model_dir), ''), Workers(config, termination)
    return Context(config, Screen(io.StringIO()), termination, workers, lock, estimator, None)


def trainer_of(config: Config, estimator: Any) -> Trainer:
    return Trainer(context_of(config, estimator))


def evaluator_of(config: Config, estimator: Any) -> Evaluator:
    return Evaluator(context_of(config, estimator))


def types_of(hooks: List[Any]) -> List[Any]:
    return [type(hook) for hook in hooks]


def test_training__goes_to_the_end_of_the_cycle_and_no_further(config: Config) -> None:
    model_dir = str(config.model_dir)
    save_step(model_dir, 2)
    estimator = Estimator(model_dir, reached=4)
    trainer = trainer_of(config, estimator)
    trainer.train(4)
    (call,) = estimator.calls
    assert call['max_steps'] == 4 and call['pipeline']._is_training
    assert types_of(call['hooks'])[0] == CheckpointFitsHook and RecoveryLimitHook in types_of(call['hooks'])
    estimator._reached = 8
    trainer.train(8)
    with pytest.raises(RetryableError, match='interrupted after step 8 of 9'):
        trainer.train(9)


def test_training__explains_weights_that_the_estimator_finds_not_finite(config: Config) -> None:
    # A loop of up to 100 steps ended at step 4: its last step has the number 3.
    error = tf.errors.InvalidArgumentError(None, None, 'Gradient for a/b:0 is NaN')
    with pytest.raises(DivergedError, match=r'The weights are no longer finite') as raised:
        trainer_of(config, Estimator(str(config.model_dir), error=error)).train(4)
    assert raised.value.step == 3
    other = tf.errors.InvalidArgumentError(None, None, 'another cause')
    with pytest.raises(tf.errors.InvalidArgumentError, match='another cause'):
        trainer_of(config, Estimator(str(config.model_dir), error=other)).train(4)


@pytest.mark.parametrize('changes', [{}, {'save_checkpoints_secs': 7, 'log_steps': 3, 'profile_steps': '2,3'}])
def test_training__has_hooks_with_the_values_of_the_flags(config: Config, changes: Dict[str, Any]) -> None:
    estimator = Estimator(str(config.model_dir), reached=4)
    trainer = trainer_of(dataclasses.replace(config, **changes), estimator)
    trainer.train(4)
    (saving,) = [hook for hook in estimator.calls[0]['hooks'] if isinstance(hook, CheckpointHook)]
    assert saving._timer._every_secs == changes.get('save_checkpoints_secs', 1000)
    trainer.progress.session_began(None, 0, 0.0)
    assert bool(trainer.progress._step_lines) == bool(trainer._profiled) == bool(changes)


def test_training__draws_the_images_of_the_step_where_it_begins(config: Config, monkeypatch: Any) -> None:
    save_step(str(config.model_dir), 2)
    drawn: List[int] = []
    monkeypatch.setattr(TrainingSummaries, 'draw_images', lambda self, step: drawn.append(step))
    trainer = trainer_of(dataclasses.replace(config, image_summaries=1), Estimator(str(config.model_dir), reached=4))
    trainer.train(4)
    # Later cycles belong to the same start.
    trainer.train(4)
    assert drawn == [2]


# The variables of a TPU that is not emulated are too large to fetch after each step.
@pytest.mark.parametrize(('tpu', 'can'), [(None, True), ('emulated:8', True), ('node', False)])
def test_training__records_first_steps_only_with_a_seed(config: Config, tpu: Optional[str], can: bool) -> None:
    for seed, expected in ((1, can), (None, False)):
        changed = dataclasses.replace(config, seed=seed, use_tpu=tpu is not None, tpu=tpu)
        assert bool(trainer_of(changed, None)._first_steps) == expected


@pytest.mark.parametrize('average', [True, False])
def test_evaluation__reads_the_given_checkpoint_to_the_end_of_the_files(config: Config, average: bool) -> None:
    model_dir = str(config.model_dir)
    save_step(model_dir, 3)
    save_step(model_dir, 5)
    config = dataclasses.replace(config, moving_average=average)
    estimator = Estimator(model_dir)
    evaluation = evaluator_of(config, estimator).evaluate(f'{model_dir}/model.ckpt-3')
    (call,) = estimator.calls
    assert (call['checkpoint_path'], call['steps']) == (f'{model_dir}/model.ckpt-3', None)
    assert not call['pipeline']._is_training
    assert types_of(call['hooks']) == [
        *(CheckpointFitsHook, EvaluationProgress, RecoveryLimitHook),
        *([LoadEMAHook] if average else []),
    ]
    assert (evaluation.step, evaluation.top_1, evaluation.top_5, evaluation.cross_entropy) == (3, 0.5, 0.75, 1.5)
    assert (evaluation.images, evaluation.weights) == (359, 'average' if average else 'raw')
    assert read_evaluations(model_dir) == [evaluation]


def test_evaluation__on_a_tpu_has_a_step_for_the_last_images(config: Config) -> None:
    save_step(str(config.model_dir), 3)
    on_tpu = dataclasses.replace(config, use_tpu=True, tpu='emulated:8', eval_batch_size=128)
    estimator = Estimator(str(config.model_dir))
    evaluator_of(on_tpu, estimator).evaluate(f'{config.model_dir}/model.ckpt-3')
    # 359 images in batches of 128.
    assert estimator.calls[0]['steps'] == 3


@pytest.mark.parametrize(
    ('metrics', 'mode', 'error', 'message'),
    [
        ({'images': 0}, 'eval', DataError, 'no validation image can be used'),
        ({'cross_entropy': float('nan')}, 'eval', CommandError, r'model\.ckpt-3: its cross-entropy is nan'),
        ({'cross_entropy': float('inf')}, 'train_and_eval', CommandError, r'cross-entropy .* is inf in step 2'),
    ],
)
def test_evaluation__records_no_useless_result(
    config: Config, metrics: Dict[str, Any], mode: str, error: Any, message: str
) -> None:
    save_step(str(config.model_dir), 3)
    evaluator = evaluator_of(dataclasses.replace(config, mode=mode), Estimator(str(config.model_dir), **metrics))
    with pytest.raises(error, match=message):
        evaluator.evaluate(f'{config.model_dir}/model.ckpt-3')
    assert read_evaluations(str(config.model_dir)) == []
    # The only checkpoint stays.
    assert latest_step(str(config.model_dir)) == 3


def test_recorded_evaluation__has_the_same_digest_weights_and_images(config: Config) -> None:
    model_dir = str(config.model_dir)
    save_step(model_dir, 7)
    recorded = EVALUATION._replace(images=359, digest=digest_of_index(f'{model_dir}/model.ckpt-7'))
    others: List[Dict[str, Any]] = [{'weights': 'raw'}, {'images': 8}, {'fingerprint': 'f'}]
    # Other weights of the same step, and an evaluation by a version that recorded no digests.
    others += [{'digest': 'd'}, {'digest': ''}]
    for other in (*others, {'changed': ('width: 1 -> 2',)}):
        append_evaluation(model_dir, recorded._replace(**other))
    evaluating = evaluator_of(config, None)
    assert evaluating.recorded(f'{model_dir}/model.ckpt-7') is None
    append_evaluation(model_dir, recorded)
    assert evaluating.recorded(f'{model_dir}/model.ckpt-7') == recorded
    raw = evaluator_of(dataclasses.replace(config, moving_average=False), None)
    assert raw.recorded(f'{model_dir}/model.ckpt-7') == recorded._replace(weights='raw')
