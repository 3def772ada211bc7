"""Tests of the course of a run: which steps it trains to, and which checkpoints it evaluates, without training."""

import dataclasses
import os
from typing import Any, List

import numpy as np
import pytest
from tensorflow.python.training import monitored_session

from compat import tf
from compat.errors import CheckpointError, RetryableError
from inception_v3.config import Config
from inception_v3.input.bad_records import BadRecords
from inception_v3.model_dir import latest_step, step_of
from inception_v3.run import trainer_lock
from inception_v3.run.evaluations import Evaluation, append_evaluation
from inception_v3.run.hooks.stopping import Termination
from inception_v3.train_and_evaluate import Run, most_accurate
from tests.support.checkpoints import save_step
from tests.support.evaluations import EVALUATION
from tests.support.runs import execute, make_small_config


@pytest.fixture
def config(digits_dir: str, tmp_path: Any) -> Config:
    return make_small_config(
        digits_dir, model_dir=str(tmp_path / 'model'), train_steps=10, train_steps_per_eval=4, moving_average=False
    )


@pytest.fixture
def course(monkeypatch: Any) -> List[Any]:
    """Replaces training and evaluation; each adds its step to this list, and evaluation the step where it began."""
    done: List[Any] = []

    def train(self: Run, until_step: int) -> None:
        if self.began_at is None:
            self.began_at = latest_step(self._model_dir)
        save_step(self._model_dir, until_step)
        done.append(f'train to {until_step}')

    def evaluate(self: Run, checkpoint: str) -> Evaluation:
        step = step_of(checkpoint)
        done.append(f'evaluate {step}' if self.began_at is None else f'evaluate {step} since {self.began_at}')
        evaluation = EVALUATION._replace(step=step, weights='raw')
        append_evaluation(self._model_dir, evaluation)
        return evaluation

    def is_finished(self: Run) -> bool:
        return latest_step(self._model_dir) >= self._config.train_steps

    monkeypatch.setattr(Run, 'train', train)
    monkeypatch.setattr(Run, '_is_finished', is_finished)
    monkeypatch.setattr(Run, 'evaluate', evaluate)
    monkeypatch.setattr(Run, 'recorded', lambda self, checkpoint: None)
    return done


@pytest.mark.parametrize(
    ('begin', 'expected'),
    [
        (0, 'train to 4, evaluate 4 since 0, train to 8, evaluate 8 since 0, train to 10, evaluate 10 since 0'),
        # A run that was killed within a cycle ends this cycle at the step where it would have ended.
        (6, 'train to 8, evaluate 8 since 6, train to 10, evaluate 10 since 6'),
        # A run that was killed after a cycle, before its evaluation.
        (8, 'evaluate 8, train to 10, evaluate 10 since 8'),
        (10, 'evaluate 10'),
        (12, 'evaluate 12'),
    ],
)
def test_course__ends_each_cycle_at_a_multiple_of_its_steps(
    config: Config, course: List[Any], begin: int, expected: str
) -> None:
    if begin:
        execute(dataclasses.replace(config, mode='train', train_steps=begin))
        course.clear()
    summary = execute(config)
    assert ', '.join(course) == expected
    assert f'of step {max(begin, 10)}' in summary


def test_run__protects_its_folder_while_it_trains(config: Config, course: List[Any], monkeypatch: Any) -> None:
    termination = Termination(lambda error: None)
    claims: List[bool] = []
    train = Run.train

    def look(self: Run, until_step: int) -> None:
        with pytest.raises(RetryableError), trainer_lock.TrainerLock(self._model_dir, 'now'):
            pass
        claims.append(True)
        # On a CPU, no worker can be lost.
        assert monitored_session._PREEMPTION_ERRORS == ()
        # SIGTERM that ends the process at once gives the folder to the next trainer.
        termination.release()
        with trainer_lock.TrainerLock(self._model_dir, 'now'):
            train(self, until_step)

    monkeypatch.setattr(Run, 'train', look)
    execute(dataclasses.replace(config, train_steps=3), termination)
    assert claims == [True]


def test_run__forgets_bad_records_first_and_logs_them_last(config: Config, course: List[Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(BadRecords, 'forget', lambda self: course.append('forget'))
    monkeypatch.setattr(BadRecords, 'log', lambda self: course.append('log'))
    execute(dataclasses.replace(config, train_steps=3))
    assert course == ['forget', 'train to 3', 'evaluate 3 since 0', 'log']


def test_run__refuses_a_checkpoint_that_is_not_finite_before_it_trains(config: Config, course: List[Any]) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        tf.get_variable('weights', initializer=np.float32('nan'))
        session.run(tf.global_variables_initializer())
        os.makedirs(str(config.model_dir))
        tf.train.Saver().save(session, os.path.join(str(config.model_dir), 'model.ckpt'), 4)
    with pytest.raises(CheckpointError, match='weights has values that are not finite'):
        execute(config)
    assert course == []


def test_most_accurate__considers_comparable_evaluations_of_earlier_commands(tmp_path: Any) -> None:
    last = EVALUATION._replace(step=7, top_1=0.25)
    # Evaluations of an earlier run in the folder, at the same and at later steps, are none of this one.
    for step, top_1, images in ((1, 1.0, 8), (9, 1.0, 8), (1, 0.5, 8), (2, 0.75, 8), (3, 0.75, 8), (4, 1.0, 5)):
        append_evaluation(str(tmp_path), last._replace(step=step, top_1=top_1, images=images))
    append_evaluation(str(tmp_path), last)
    assert most_accurate(str(tmp_path), last).step == 2
