"""Tests of the watchers of training, of their order among the hooks, and of the checkpoints after divergence."""

import dataclasses
import math
import os
import pathlib
from typing import Any, List
from unittest import mock

import numpy as np
import pytest

from compat import tf
from compat.errors import CommandError
from inception_v3.config import Config
from inception_v3.model_dir import check_undamaged, digest_of_values
from inception_v3.run import trainer
from inception_v3.run.failures import DivergedError
from inception_v3.run.hooks import saving
from inception_v3.run.hooks.saving import CheckpointFitsHook, CheckpointHook
from inception_v3.run.hooks.stopping import RecoveryLimitHook
from inception_v3.run.hooks.summaries import TrainingSummaries
from inception_v3.run.hooks.watchers import DivergenceWatcher, FirstStepsRecorder, StartRecorder, Step, StepHook
from inception_v3.run.starts import read_first_steps
from inception_v3.run.trainer_lock import TrainerLock
from tests.support.checkpoints import saved_variables
from tests.support.runs import execute, make_small_config


def run_steps(hooks: List[tf.estimator.SessionRunHook], losses: List[float], first: int = 0) -> None:
    """Runs one session call per loss; the global step starts at `first`."""
    with tf.Graph().as_default():
        step = tf.train.create_global_step()
        begin = tf.assign(step, first)
        loss = tf.gather(tf.constant(losses), tf.cast(step.read_value() - first, tf.int32))
        # Estimator adds the total loss to the collection last, after its parts.
        for each in (tf.constant(-1.0), loss):
            tf.add_to_collection(tf.GraphKeys.LOSSES, each)
        with tf.control_dependencies([loss]):
            update = tf.assign_add(step, 1).op
        scaffold = tf.train.Scaffold(init_op=tf.group(begin), ready_op=tf.constant([], tf.string))
        with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(scaffold), hooks=hooks) as session:
            for _ in losses:
                session.run(update)


def test_step_hook__gives_all_watchers_one_reading_after_the_update() -> None:
    both = mock.Mock()
    run_steps([StepHook([both.first, both.second])], [3.0, 2.0], first=7)
    methods = ['graph_built', 'session_began', 'step_done', 'step_done', 'session_ended']
    calls = [(name, arguments[1:]) for name, arguments, _ in both.mock_calls]
    assert [name for name, _ in calls] == [f'{name}.{method}' for method in methods for name in ('first', 'second')]
    assert all(one == other for (_, one), (_, other) in zip(calls[::2], calls[1::2]))
    _, began, *done, _ = [arguments for _, arguments in calls[::2]]
    assert (began[0], [(each.step, each.loss) for (each,) in done]) == (7, [(8, 3.0), (9, 2.0)])


def test_step_hook__calls_no_later_watcher_after_an_error() -> None:
    later = mock.Mock()
    with pytest.raises(DivergedError):
        run_steps([StepHook([DivergenceWatcher(10), later])], [1.0, float('nan')])
    assert [call[0][1].loss for call in later.step_done.call_args_list] == [1.0]
    assert not later.session_ended.called


def test_training__orders_its_hooks(tmp_path: pathlib.Path, one_layer: None, monkeypatch: Any) -> None:
    """The lock is taken before the first write, and divergence is checked before summaries and checkpoints."""
    order: List[str] = []

    def record_call(name: str, cls: Any, method: str) -> None:
        original = getattr(cls, method)

        def recorded(self: Any, *arguments: Any) -> Any:
            order.append(name)
            return original(self, *arguments)

        monkeypatch.setattr(cls, method, recorded)

    config = make_small_config('', use_data='fake', model_dir=str(tmp_path / 'model'), mode='train', train_steps=1)
    execute(config)
    record_call('lock', TrainerLock, 'after_run')
    record_call('fits', CheckpointFitsHook, 'begin')
    record_call('recovery', RecoveryLimitHook, 'after_create_session')
    record_call('start', StartRecorder, 'graph_built')
    record_call('first steps', FirstStepsRecorder, 'step_done')
    record_call('divergence', DivergenceWatcher, 'step_done')
    record_call('summaries', TrainingSummaries, 'step_done')
    record_call('checkpoint', CheckpointHook, 'after_run')
    execute(dataclasses.replace(config, train_steps=2, seed=1))
    assert order == ['fits', 'start', 'recovery', 'lock', 'first steps', 'divergence', 'summaries', 'checkpoint']


def record_steps(recorder: FirstStepsRecorder, begin: int, steps: List[int]) -> None:
    """Runs a session whose only variable holds the number of the step."""
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable('x', initializer=tf.constant(0.0), use_resource=True)
        recorder.graph_built()
        recorder.session_began(session, begin, 0.0)
        for step in steps:
            session.run(variable.initializer)
            variable.load(float(step), session)
            recorder.step_done(session, Step(step, step / 2, 0.0))


def test_first_steps_recorder__records_ten_steps_over_all_cycles(tmp_path: Any) -> None:
    recorder = FirstStepsRecorder(str(tmp_path))
    record_steps(recorder, 0, [1, 2, 3])
    record_steps(recorder, 3, [*range(4, 13)])
    found = read_first_steps(str(tmp_path))
    assert [(each.step, each.loss) for each in found] == [(step, step / 2) for step in range(1, 11)]
    assert found[6].digest == digest_of_values({'x': np.float32(7)})


def test_first_steps_recorder__records_nothing_of_a_resumed_run(tmp_path: Any) -> None:
    recorder = FirstStepsRecorder(str(tmp_path))
    record_steps(recorder, 5, [6, 7])
    assert read_first_steps(str(tmp_path)) == []
    # A session that was lost and began again, with the initial variables.
    record_steps(recorder, 0, [1, 2])
    record_steps(recorder, 0, [1])
    assert [each.step for each in read_first_steps(str(tmp_path))] == [1]


def make_config(data_dir: str, tmp_path: Any, **changes: Any) -> Config:
    values = {'mode': 'train', 'optimizer': 'sgd', 'seed': 1, 'intra_op_threads': 1, 'train_steps': 40, **changes}
    return make_small_config(data_dir, model_dir=str(tmp_path / 'model'), **values)


def steps_listed(config: Config) -> List[int]:
    state = tf.train.get_checkpoint_state(config.model_dir)
    return [int(path.rpartition('-')[2]) for path in state.all_model_checkpoint_paths]


@pytest.fixture
def saving_every_step(monkeypatch: Any) -> None:
    """Saves a checkpoint after every session call, as if each took `save_checkpoints_secs`."""

    class EveryCallHook(saving.CheckpointHook):
        def __init__(self, *arguments: Any, **options: Any):
            super().__init__(*arguments, **options)
            self._timer = tf.estimator.SecondOrStepTimer(every_steps=1)

    monkeypatch.setattr(trainer, 'CheckpointHook', EveryCallHook)


def test_divergence_watcher__allows_10000_times_the_loss_of_guessing() -> None:
    watcher = DivergenceWatcher(11)
    watcher.session_began(None, 5, 0.0)
    # 10,000 * ln 11 = 23,978.95.
    watcher.step_done(None, Step(7, 23_978.0, 0.0))
    for loss, what in (
        (23_980.0, 'exploded to 2.4e+04'),
        (math.inf, 'no longer finite'),
        (math.nan, 'no longer finite'),
    ):
        with pytest.raises(DivergedError) as error:
            watcher.step_done(None, Step(9, loss, 0.0))
        assert what in str(error.value)
        # Steps are counted from 0.
        assert (error.value.step, error.value.steps_before) == (8, 7)
    watcher.session_began(None, 3, 0.0)
    assert watcher.steps_before == 3


def test_divergence__sets_aside_the_checkpoint_of_the_bad_loss(
    tmp_path: Any, one_layer: None, saving_every_step: None
) -> None:
    config = make_config('', tmp_path, use_data='fake', learning_rate=1e5)
    with pytest.raises(CommandError, match=r'The loss has exploded .*training stops above 23,979') as error:
        execute(config)
    newest = steps_listed(config)[-1]
    bad = newest + 1
    assert f'in step {bad}, ' in str(error.value)
    assert f'The checkpoint of step {bad}, which led to it, was moved into {config.model_dir}/passed_over' in str(
        error.value
    )
    assert f'model.ckpt-{bad}.index' in os.listdir(os.path.join(str(config.model_dir), 'passed_over'))
    check_undamaged(os.path.join(str(config.model_dir), 'passed_over', f'model.ckpt-{bad}'))


@pytest.mark.program
def test_checkpoint_hook__never_lists_weights_that_are_not_finite(
    digits_dir: str, tmp_path: Any, one_layer: None
) -> None:
    # The loss of the only step is computed with the initial weights. A batch of 1024 multiplies the rate by 4, and
    # 4e38 overflows float32.
    config = make_config(digits_dir, tmp_path, learning_rate=1e38, train_batch_size=1024, train_steps=1)
    with pytest.raises(CommandError, match=r'The weights are no longer finite in step 0'):
        execute(config)
    assert steps_listed(config) == [0]
    assert not [name for name in os.listdir(str(config.model_dir)) if name.startswith('model.ckpt-1')]
    assert all(np.isfinite(value).all() for value in saved_variables(str(config.model_dir)).values())
