"""Tests of a worker's part in a run that needs no other process."""

import concurrent.futures
import contextlib
import dataclasses
import glob
import os
import signal
import socket
import threading
from typing import Any, Callable, Dict, List

import pytest

from compat import tf
from compat.errors import CommandError, RetryableError, TerminatedError
from inception_v3.config import Config
from inception_v3.machines import channel, cluster
from inception_v3.model_dir import digest_of_index
from inception_v3.run import workers as workers_module
from inception_v3.run.hooks.stopping import Termination
from inception_v3.run.workers import Workers
from tests.support.checkpoints import save_step
from tests.support.evaluations import DIGITS
from tests.support.ports import free_addresses


def test_joined__leaves_telling_an_early_error_to_the_opener(small_config: Config, tmp_path: Any) -> None:
    addresses = free_addresses(2)
    hosts = {'worker_hosts': ','.join(addresses), 'task_index': 0, 'model_dir': str(tmp_path)}
    config: Any = dataclasses.replace(small_config, **hosts)
    opened = channel.of(cluster.Place(tuple(addresses), 0, 30), lambda ending: None)
    with socket.socket() as other:
        other.bind(('', cluster.host_and_port(addresses[0])[1]))
        other.listen()
        workers = Workers(config, Termination(lambda error: None), opened)
        with pytest.raises(channel.PortInUseError), workers.joined(None):
            pass
    assert not opened._has_left
    opened.leave(at_once=True)


def test_joined__tells_an_early_error_over_its_own_connection(small_config: Config, tmp_path: Any) -> None:
    addresses = free_addresses(2)

    def error_of(number: int) -> str:
        own: Dict[str, Any] = {'worker_hosts': ','.join(addresses), 'task_index': number, 'model_dir': str(tmp_path)}
        workers = Workers(dataclasses.replace(small_config, **own), Termination(lambda error: None))
        with pytest.raises(CommandError) as error, workers.joined(None):
            pass
        return str(error.value)

    with socket.socket() as other, concurrent.futures.ThreadPoolExecutor(2) as pool:
        other.bind(('', cluster.host_and_port(addresses[0])[1]))
        other.listen()
        first, second = pool.map(error_of, (0, 1))
    assert 'is in use' in first and first in second


def of_two(
    config: Config, tmp_path: Any, call: Callable[[Workers], Any], data_set: Any = None, **of_second: Any
) -> List[Any]:
    """Returns the results of a call at each of two workers after they have agreed, or the errors that end them."""
    addresses = free_addresses(2)
    found: Dict[int, Any] = {}

    def run(number: int) -> None:
        own: Dict[str, Any] = {'worker_hosts': ','.join(addresses), 'task_index': number, 'model_dir': str(tmp_path)}
        changed = dataclasses.replace(config, **{**own, **(of_second if number else {})})
        opened = channel.of(cluster.Place(tuple(addresses), number, 30), lambda ending: None)
        workers = Workers(changed, Termination(lambda error: None), opened)
        try:
            with workers.joined(data_set if number else DIGITS):
                found[number] = call(workers)
        except CommandError as error:
            found[number] = error
        with contextlib.suppress(OSError):
            opened.leave(at_once=True)

    threads = [threading.Thread(target=run, args=[number], daemon=True) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return [found[number] for number in (0, 1)]


def test_joined__workers_share_steps_signals_and_values(small_config: Config, tmp_path: Any) -> None:
    save_step(str(tmp_path), 3)

    def call(workers: Workers) -> Any:
        number = workers._number
        shared = [workers.share(lambda: ['of', number]), workers.latest_step()]
        signals = [
            workers.agreed(own[number])
            for own in ((None, None), (None, signal.SIGTERM), (signal.SIGINT, None), (signal.SIGINT, signal.SIGTERM))
        ]
        hook: Any = workers.session_hook()
        with tf.Graph().as_default(), tf.Session() as session:
            # A later worker may initialize it, or restore it from an older checkpoint.
            step = tf.train.create_global_step()
            tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
            hook.begin()
            session.run(step.initializer)
            hook.after_create_session(session, None)
            assert session.run(step) == (3 if number else 0)
            assert workers.newest_checkpoint() == os.path.join(workers._model_dir, 'model.ckpt-3')
        return shared, signals, workers.summary()

    signals = [None, signal.SIGTERM, signal.SIGINT, signal.SIGTERM]
    # A file of weights may be elsewhere on each machine.
    weighted = dataclasses.replace(small_config, class_weights='a/w.csv=1,2')
    (tmp_path / 'mounted').symlink_to(tmp_path)
    elsewhere = {'class_weights': 'b/w.csv=1,2', 'model_dir': str(tmp_path / 'mounted')}
    found = of_two(weighted, tmp_path, call, DIGITS, **elsewhere)
    assert [each[:2] for each in found] == [([['of', 0], 3], signals)] * 2
    first, second = found[1][2].partition(' is done; ')[::2]
    assert first.startswith('worker 1 (127.0.0.1:') and second.startswith('worker 0 (127.0.0.1:')
    assert found[1][2].endswith(') has the results')
    # The file by which both have compared their folders is gone.
    assert not any('.workers-' in name for name in os.listdir(str(tmp_path)))


def test_visible_checkpoint__waits_for_the_files_that_the_first_has_saved(
    small_config: Config, tmp_path: Any, monkeypatch: Any
) -> None:
    save_step(str(tmp_path), 3, value=1.0)
    own = dataclasses.replace(small_config, model_dir=str(tmp_path), worker_hosts='a:1,b:1', worker_timeout=20)
    workers = Workers(dataclasses.replace(own, worker_hosts=''), Termination(lambda error: None))
    path, digest = str(tmp_path / 'model.ckpt-3'), digest_of_index(str(tmp_path / 'model.ckpt-3'))
    assert workers.newest_checkpoint() == workers._visible_checkpoint('model.ckpt-3', digest) == path
    assert workers._visible_checkpoint(path, digest) == path
    for name in ('index', 'data-00000-of-00001'):
        (late,) = glob.glob(f'{path}.{name}')
        os.rename(late, str(tmp_path / 'late'))
        timer = threading.Timer(0.3, os.rename, [str(tmp_path / 'late'), late])
        timer.start()
        assert workers._visible_checkpoint('model.ckpt-3', digest) == path and os.path.exists(late)
    with monkeypatch.context() as patched:
        patched.setattr(workers_module, 'digest_of_index', lambda checkpoint: checkpoint)
        patched.setattr(workers_module, 'data_files', lambda checkpoint: ['data'])
        stored = 'gs://bucket/model.ckpt-3'
        assert workers._visible_checkpoint(stored, stored) == stored
    # Another checkpoint of the same step.
    save_step(str(tmp_path), 3, value=2.0)
    workers._config, workers._addresses = dataclasses.replace(own, worker_timeout=2), ('a:1', 'b:1')
    with pytest.raises(RetryableError, match=r'model.ckpt-3: is not seen here as worker 0 \(a:1\) has saved it'):
        workers._visible_checkpoint('model.ckpt-3', digest)


def test_joined__an_error_after_an_agreed_stop_ends_the_others(small_config: Config, tmp_path: Any) -> None:
    def stop(workers: Workers, error: CommandError) -> Any:
        assert workers.agreed(signal.SIGTERM) == signal.SIGTERM
        if workers._number == 0:
            raise error
        return workers.latest_step()

    full = of_two(small_config, tmp_path, lambda workers: stop(workers, CommandError('no space')), DIGITS)
    assert [str(error).partition('ended: ')[2] or str(error) for error in full] == ['no space', 'no space']
    # The first has ended, and a later worker still waits for it.
    left = of_two(small_config, tmp_path, lambda workers: stop(workers, TerminatedError('saved')), DIGITS)
    assert str(left[0]) == 'saved' and ') has ended this run' in str(left[1])


def test_joined__ends_workers_with_other_flags_data_or_folders(
    small_config: Config, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(workers_module, '_VISIBLE_WITHIN', 0.2)
    other = tmp_path / 'other'
    other.mkdir()
    changes: Dict[str, Any] = {
        'model_dir': str(other),
        'train_steps': 99,
        'export_dir': 'elsewhere',
        'log_device_placement': True,
    }
    changes['class_weights'] = 'w.csv=1,2'
    errors = of_two(small_config, tmp_path, lambda workers: None, None, **changes)
    assert str(errors[0]) == str(errors[1]) and {each.exit_code for each in errors} == {2}
    folder, steps, weights, fingerprint = str(errors[0]).splitlines()
    assert folder.startswith(f'--model_dir={tmp_path}: worker 0 (127.0.0.1:')
    assert f' does not see it as {other}. All workers need one folder' in folder
    assert (
        steps.startswith(f'--train_steps: {small_config.train_steps} at worker 0 (') and ', 99 at worker 1 (' in steps
    )
    assert steps.endswith('). It must be the same for all workers.')
    assert weights.startswith('the weights of classes: none at worker 0 (')
    assert fingerprint.startswith(f'the fingerprint of the data set: {DIGITS.fingerprint} at worker 0 (')


def test_problems__name_a_worker_that_says_nothing(small_config: Config, tmp_path: Any) -> None:
    hosts = {'worker_hosts': 'a:1,b:2,c:3', 'task_index': 0, 'model_dir': str(tmp_path)}
    config = dataclasses.replace(small_config, **hosts)
    workers = Workers(dataclasses.replace(config, worker_hosts='', task_index=None), Termination(lambda error: None))
    workers._addresses = cluster.addresses_in(config.worker_hosts)
    facts = {'TensorFlow': '2', '--seed': 1}
    answers = {
        1: {'facts': facts, 'seen': 'content'},
        2: {'facts': {'TensorFlow': '1', 'new': 5, '--seed': 1}, 'seen': 'content'},
    }
    assert workers._problems(facts, 'content', answers).splitlines() == [
        f'{name}: {one} at worker 0 (a:1), {other} at worker 2 (c:3). It must be the same for all workers.'
        for name, one, other in (('TensorFlow', 2, 1), ('new', None, 5))
    ]
    wrong: Any
    for wrong in (None, [], {}, {'facts': [], 'seen': 'content'}):
        assert workers._problems(facts, 'content', {1: wrong}) == (
            'worker 1 (b:2): says nothing of itself; it runs another version of the program.'
        )


def test_one_worker__decides_alone(small_config: Config, tmp_path: Any) -> None:
    save_step(str(tmp_path), 7)
    alone = Workers(dataclasses.replace(small_config, model_dir=str(tmp_path)), Termination(lambda error: None))
    with alone.joined(None):
        assert (alone.share(lambda: 5), alone.agreed(signal.SIGINT), alone.agreed(None)) == (5, signal.SIGINT, None)
        assert (alone.latest_step(), alone.session_hook()) == (7, None)
