"""Tests of the guard of a run."""

import contextlib
import dataclasses
import io
import pathlib
from typing import Any, ContextManager, List
from unittest import mock

import pytest

from compat import tf
from compat.errors import CheckpointError, CommandError
from console.screen import Screen
from data import order
from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from inception_v3.local_estimator import LocalEstimator
from inception_v3.run.context import Context
from inception_v3.run.evaluations import RESULTS_FILE
from inception_v3.run.failures import DivergedError
from inception_v3.run.guard import guarded
from inception_v3.run.hooks.stopping import Termination
from inception_v3.run.starts import STARTS_FILE
from inception_v3.run.trainer_lock import CLAIM_FILE, TrainerLock
from inception_v3.run.workers import Workers
from tests.support.runs import execute


@pytest.fixture
def config(small_config: Config, tmp_path: Any) -> Config:
    return dataclasses.replace(small_config, model_dir=str(tmp_path / 'model'), keep_best=True)


def guard_of(config: Config) -> ContextManager[None]:
    termination = Termination(lambda error: None)
    lock, workers = TrainerLock(str(config.model_dir), 'now'), Workers(config, termination)
    estimator = make_estimator(config)
    return guarded(Context(config, Screen(io.StringIO()), termination, workers, lock, estimator, None))


@pytest.mark.parametrize('name', [RESULTS_FILE, STARTS_FILE])
def test_run_that_cannot_write_its_records__ends_before_training(
    name: str, one_layer: None, small_config: Config, tmp_path: Any
) -> None:
    (tmp_path / name).mkdir()
    message = f'{name}: cannot be written: it is a folder; only files are replaced. Move it away'
    with pytest.raises(CommandError, match=message):
        execute(dataclasses.replace(small_config, model_dir=str(tmp_path), train_steps=1))
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ('error', 'message'),
    [
        (DivergedError('The loss is no longer finite', 3, 3), 'The loss is no longer finite in step 3, at a learning'),
        (tf.errors.ResourceExhaustedError(None, None, 'f; No space left on device'), 'no space left on device'),
        (tf.errors.UnavailableError(None, None, 'gs://b/f: the store is away'), 'gs://b'),
        (tf.errors.InvalidArgumentError(None, None, f'IteratorGetNext: [a.tar] [{order.FEWER_RECORDS}]'), 'a.tar: '),
    ],
)
def test_guard__explains_a_failure_and_gives_back_what_it_holds(
    config: Config, error: Exception, message: str, monkeypatch: Any
) -> None:
    released: List[Any] = []
    monkeypatch.setattr(LocalEstimator, 'release', lambda self: released.append(self))
    claim = pathlib.Path(str(config.model_dir), CLAIM_FILE)
    with pytest.raises(CommandError, match=message), guard_of(config):
        assert claim.exists()
        # A kill during a write leaves such a file.
        claim.with_name('config.json.unfinished').write_text('{')
        raise error
    assert len(released) == 1 and not claim.exists()


def test_guard__refuses_a_damaged_best_checkpoint_before_training(config: Config) -> None:
    best = pathlib.Path(str(config.model_dir), 'best')
    best.mkdir(parents=True)
    (best / 'checkpoint').write_text('damaged')
    with pytest.raises(CheckpointError, match='best/checkpoint: lists no checkpoint'), guard_of(config):
        pytest.fail('the run began')


@pytest.mark.parametrize(
    ('values', 'is_locked'),
    [
        ({'mode': 'train'}, True),
        ({'mode': 'train_and_eval'}, True),
        ({'mode': 'eval'}, False),
        # A later worker writes nothing.
        ({'mode': 'train', 'worker_hosts': 'a:1,b:1', 'task_index': 1}, False),
    ],
)
def test_guard__locks_for_the_first_worker_that_trains(values: Any, is_locked: bool, config: Config) -> None:
    own = dataclasses.replace(config, **values)
    termination, workers = Termination(lambda error: None), mock.Mock(joined=contextlib.nullcontext)
    estimator, lock = make_estimator(config), TrainerLock(str(own.model_dir), 'now')
    context = Context(own, Screen(io.StringIO()), termination, workers, lock, estimator, None)
    with guarded(context):
        assert pathlib.Path(str(own.model_dir), CLAIM_FILE).exists() == is_locked
