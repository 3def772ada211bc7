"""Tests of SIGTERM and Ctrl-C with real signals, and of sessions that are interrupted again and again."""

import dataclasses
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any, Callable, List

import pytest

from compat import tf
from compat.errors import CommandError, InterruptedByUserError, TerminatedError
from inception_v3.config import Config
from inception_v3.run.hooks import stopping
from inception_v3.run.hooks.stopping import RecoveryLimitHook, Termination, without_recovery
from inception_v3.run.trainer_lock import CLAIM_FILE
from tests.support.processes import wait_for
from tests.support.runs import execute, make_small_config
from tests.support.tiers import further

EMULATED = {'use_tpu': True, 'tpu': 'emulated:2', 'num_shards': 2, 'iterations': 3}


def terminate(number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.fixture
def ended() -> List[CommandError]:
    """The errors that ended a run at once."""
    return []


def when(condition: Callable[[], bool], action: Callable[[], None]) -> None:
    """Calls a function once a condition is true, on a thread of its own."""
    threading.Thread(target=lambda: (wait_for(condition), action()), daemon=True).start()


def endless_config(data_dir: str, tmp_path: Any, **changes: Any) -> Config:
    values = {'mode': 'train', 'train_steps': 10**6, 'learning_rate': 1e-3, **changes}
    return make_small_config(data_dir, model_dir=str(tmp_path / 'model'), **values)


@pytest.mark.parametrize('changes', [{}, further(EMULATED)])
def test_termination__saves_the_last_step_and_training_resumes(
    tmp_path: Any, one_layer: None, ended: List[CommandError], changes: Any
) -> None:
    config = endless_config('', tmp_path, use_data='fake', **changes)
    handler = signal.getsignal(signal.SIGTERM)
    with Termination(ended.append) as termination, pytest.raises(CommandError) as error:
        when(lambda: termination._has_steps_to_lose, terminate)
        execute(config, termination)
    assert not ended
    step = int(tf.train.latest_checkpoint(config.model_dir).rpartition('-')[2])
    assert (
        str(error.value) == f'ended by SIGTERM after step {step} of 1,000,000, which is saved; the same command resumes'
    )
    assert error.value.exit_code == 75
    assert step > 0 and step % (config.iterations if config.use_tpu else 1) == 0
    assert not os.path.exists(os.path.join(str(config.model_dir), CLAIM_FILE))
    assert signal.getsignal(signal.SIGTERM) == handler
    if not changes:
        execute(dataclasses.replace(config, train_steps=step + 1))
        assert tf.train.latest_checkpoint(config.model_dir).endswith(f'-{step + 1}')


@pytest.mark.parametrize(('number', 'code'), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_termination__ends_at_once_without_steps_to_lose(
    ended: List[CommandError], number: signal.Signals, code: int
) -> None:
    released = threading.Event()
    ended_within_operation: List[bool] = []
    queue = tf.queue.FIFOQueue(1, tf.int32)
    operation, end_operation = queue.dequeue(), queue.enqueue(0)

    def send_signal() -> None:
        terminate(number)
        wait_for(lambda: bool(ended))
        ended_within_operation.append(True)
        session.run(end_operation)

    with Termination(ended.append) as termination, tf.Session() as session:
        termination.release = released.set
        timer = threading.Timer(0.2, send_signal)
        timer.start()
        # Python runs no signal handler while the main thread is in this call.
        session.run(operation)
        timer.join()
    assert ended_within_operation == [True]
    assert released.is_set() and not termination.request
    assert [error.exit_code for error in ended] == [code]
    assert str(ended[0]).endswith('the same command resumes from the last checkpoint')


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_termination__own_signal_after_anothers_is_no_second_one(
    ended: List[CommandError], monkeypatch: Any, number: signal.Signals
) -> None:
    name, kind, _ = stopping._SIGNALS[number]
    monkeypatch.setitem(stopping._SIGNALS, number, (name, kind, 0.1))
    with Termination(ended.append) as termination:
        termination.agree = lambda request: signal.SIGTERM
        termination.steps_to_lose(True)
        termination.after_run(SimpleNamespace(request_stop=lambda: None), None)
        # The first worker may still be saving when this machine gets its own signal.
        time.sleep(0.2)
        terminate(number)
        wait_for(lambda: termination._received_at is not None)
        time.sleep(0.2)
        assert not ended
        terminate(number)
        wait_for(lambda: bool(ended))


@pytest.mark.parametrize('first', [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ('second', 'error'), [(signal.SIGTERM, TerminatedError), (signal.SIGINT, InterruptedByUserError)]
)
def test_termination__ends_at_once_on_a_later_second_signal(
    ended: List[CommandError], monkeypatch: Any, first: signal.Signals, second: signal.Signals, error: Any
) -> None:
    # A launcher forwards the signal that its whole process group has received; a person presses Ctrl-C again.
    name, kind, seconds = stopping._SIGNALS[second]
    assert seconds <= (0.5 if second == signal.SIGINT else 60)
    monkeypatch.setitem(stopping._SIGNALS, second, (name, kind, 60.0))
    with Termination(ended.append) as termination:
        termination.steps_to_lose(True)
        terminate(first)
        wait_for(lambda: termination.request == first)
        terminate(second)
        time.sleep(0.2)
        assert not ended
        monkeypatch.setitem(stopping._SIGNALS, second, (name, kind, 0.0))
        terminate(second)
        wait_for(lambda: bool(ended))
    assert isinstance(ended[0], error)


@pytest.mark.both
@pytest.mark.program
def test_termination__of_a_program_saves_its_step_and_exits_with_75(digits_dir: str, tmp_path: Any) -> None:
    model_dir = str(tmp_path / 'model')
    arguments = ['--preset=digits', f'--data_dir={digits_dir}', f'--model_dir={model_dir}', '--train_steps=1000000']
    program = subprocess.Popen(
        [sys.executable, '-m', 'tests.support.one_layer_program', *arguments, f'--export_dir={tmp_path}/export'],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: os.path.exists(f'{model_dir}/model.ckpt-0.index'))
        time.sleep(0.5)
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=60)
    finally:
        program.kill()
    assert program.returncode == 130, err
    assert 'finishing and saving the current step' in err or 'ended by' in err
    assert 'Traceback' not in err and 'the same command resumes' in err
    assert not os.path.exists(f'{model_dir}/{CLAIM_FILE}')


@pytest.mark.program
@pytest.mark.both
def test_disk_failures__name_a_folder_that_vanishes(digits_dir: str, tmp_path: Any, one_layer: None) -> None:
    config = endless_config(digits_dir, tmp_path, save_checkpoints_secs=1)
    # The list is written after the first checkpoint.
    listed = f'{config.model_dir}/checkpoint'
    when(lambda: os.path.exists(listed), lambda: shutil.rmtree(str(config.model_dir)))
    with pytest.raises(CommandError, match=r'--model_dir=\S+: the folder has vanished since the run began\.'):
        execute(config)
    assert not os.path.exists(str(config.model_dir))


class Interruption(tf.estimator.SessionRunHook):
    """Interrupts each of some steps a number of times, like an unavailable file server."""

    def __init__(self, steps: Any, times: float = math.inf):
        self._left = dict.fromkeys(steps, times)
        self.count = 0

    def before_run(self, run_context: Any) -> None:
        step = int(run_context.session.run(tf.train.get_global_step()))
        if self._left.get(step, 0) > 0:
            self._left[step] -= 1
            self.count += 1
            raise tf.errors.AbortedError(None, None, 'All 10 retry attempts failed.')


def train_interrupted(model_dir: Any, interruption: Interruption, check: Any = lambda: None) -> int:
    """Trains until step 5, with a checkpoint after each step; returns the last step."""
    step = tf.train.get_or_create_global_step()
    advance = tf.assign_add(step, 1)
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=str(model_dir),
        save_checkpoint_steps=1,
        save_checkpoint_secs=None,
        hooks=[RecoveryLimitHook(check), interruption, tf.estimator.StopAtStepHook(last_step=5)],
    ) as session:
        while not session.should_stop():
            reached = session.run(advance)
    return int(reached)


def test_recovery_limit_hook__stops_after_repeated_interruptions_of_one_step(tmp_path: Any) -> None:
    interruption = Interruption([2])
    with pytest.raises(CommandError, match='interrupted 3 times after step 2'):
        train_interrupted(tmp_path, interruption)
    # The session that reached step 2, and three that started from its checkpoint.
    assert interruption.count == 4


def test_without_recovery__makes_an_interruption_an_error(tmp_path: Any) -> None:
    interruption = Interruption([2])
    with pytest.raises(tf.errors.AbortedError, match='All 10 retry attempts failed'), without_recovery():
        train_interrupted(tmp_path, interruption)
    assert interruption.count == 1
    # Recovery is enabled again after the `with` block.
    with pytest.raises(CommandError, match='interrupted 3 times'), tf.Graph().as_default():
        train_interrupted(tmp_path, interruption)


def test_recovery_limit_hook__checks_the_files_first(tmp_path: Any) -> None:
    def failing_check() -> None:
        raise CommandError('gs://b/f: cannot be reached')

    with pytest.raises(CommandError, match='gs://b/f'):
        train_interrupted(tmp_path, Interruption([0]), failing_check)


def test_recovery_limit_hook__allows_transient_interruptions(tmp_path: Any) -> None:
    # Two interruptions at each of five steps: the limit of three applies to each step alone.
    transient = Interruption(range(5), 2)
    assert train_interrupted(tmp_path, transient) == 5
    assert transient.count == 10


def test_step_limit_hook__ends_a_session_after_its_steps() -> None:
    step, count = tf.constant(0), 0
    with tf.train.MonitoredSession(hooks=[stopping.StepLimitHook(3)]) as session:
        while not session.should_stop() and count < 9:
            session.run(step)
            count += 1
    assert count == 3
