"""Tests of the course of a run, without training: the steps of its cycles, and the checkpoints that it evaluates."""

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
from inception_v3.run.evaluator import Evaluator
from inception_v3.run.hooks.stopping import Termination
from inception_v3.run.trainer import Trainer
from inception_v3.train_and_evaluate import Run
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
    """Replaces training and evaluation; each adds its steps to this list."""
    done: List[Any] = []

    def train(self: Trainer, until_step: int) -> None:
        done.append(f'train from {latest_step(self._context.model_dir)} to {until_step}')
        save_step(self._context.model_dir, until_step)

    def evaluate(self: Evaluator, checkpoint: str) -> Evaluation:
        step = step_of(checkpoint)
        done.append(f'evaluate {step}')
        evaluation = EVALUATION._replace(step=step, weights='raw')
        append_evaluation(self._context.model_dir, evaluation)
        return evaluation

    def is_finished(self: Run) -> bool:
        return latest_step(self._model_dir) >= self._config.train_steps

    monkeypatch.setattr(Trainer, 'train', train)
    monkeypatch.setattr(Run, '_is_finished', is_finished)
    monkeypatch.setattr(Evaluator, 'evaluate', evaluate)
    monkeypatch.setattr(Evaluator, 'recorded', lambda self, checkpoint: None)
    return done


@pytest.mark.parametrize(
    ('begin', 'expected'),
    [
        (0, 'train from 0 to 4, evaluate 4, train from 4 to 8, evaluate 8, train from 8 to 10, evaluate 10'),
        # A run that was killed within a cycle ends this cycle at its regular last step.
        (6, 'train from 6 to 8, evaluate 8, train from 8 to 10, evaluate 10'),
        # A run that was killed after a cycle, before its evaluation.
        (8, 'evaluate 8, train from 8 to 10, evaluate 10'),
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
    train = Trainer.train

    def look(self: Trainer, until_step: int) -> None:
        with pytest.raises(RetryableError, match=': in use by process'), trainer_lock.TrainerLock(
            self._context.model_dir, 'now'
        ):
            pass
        claims.append(True)
        # On a CPU, no worker can be lost.
        assert monitored_session._PREEMPTION_ERRORS == ()
        # If SIGTERM ends the process at once, the next trainer gets the folder.
        termination.release()
        with trainer_lock.TrainerLock(self._context.model_dir, 'now'):
            train(self, until_step)

    monkeypatch.setattr(Trainer, 'train', look)
    execute(dataclasses.replace(config, train_steps=3), termination)
    assert claims == [True]


def test_run__forgets_bad_records_first_and_logs_them_last(config: Config, course: List[Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(BadRecords, 'forget', lambda self: course.append('forget'))
    monkeypatch.setattr(BadRecords, 'log', lambda self: course.append('log'))
    execute(dataclasses.replace(config, train_steps=3))
    assert course == ['forget', 'train from 0 to 3', 'evaluate 3', 'log']


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
