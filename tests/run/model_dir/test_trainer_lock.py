"""Tests of the lock that allows one trainer at a time in a model_dir; `test_damaged_files` damages its claim."""

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Dict, Iterator, List

import pytest

from compat import tf
from compat.errors import RetryableError
from inception_v3.run import trainer_lock
from inception_v3.run.trainer_lock import CLAIM_FILE, STALE_AFTER, TrainerLock
from tests.support.processes import wait_for

SINCE = '2026-11-21T15:00:00+00:00'


def claim_of(folder: Any) -> Dict[str, Any]:
    return json.loads((folder / CLAIM_FILE).read_text())


def write_claim(folder: Any, **values: Any) -> None:
    claim = {'host': 'far', 'process': 1, 'since': SINCE, 'machine': 'other', 'birth': '1', 'renewed': time.time()}
    (folder / CLAIM_FILE).write_text(json.dumps({**claim, **values}))


def check_taken_over(folder: Any) -> None:
    with TrainerLock(str(folder), SINCE):
        assert claim_of(folder)['process'] == os.getpid()
    assert os.listdir(str(folder)) == []


def refused(folder: Any) -> str:
    with pytest.raises(RetryableError) as error, TrainerLock(str(folder), SINCE):
        pass
    return str(error.value)


# Locks a folder as a trainer does, and waits until its standard input closes.
_HOLD = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def other_process(folder: Any) -> Iterator[int]:
    """Starts a process that holds the lock; yields its PID, and kills it."""
    command = [sys.executable, '-S', '-E', '-c', _HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            # Also returns if the process fails, with an empty line.
            assert process.stdout.readline()
            birth = trainer_lock._birth(process.pid)
            assert birth
            here = {'host': socket.gethostname(), 'machine': trainer_lock._machine()}
            write_claim(folder, **here, process=process.pid, birth=birth)
            yield process.pid
        finally:
            process.kill()


@pytest.fixture(params=['flock', 'no flock'])
def kind(request: Any, monkeypatch: Any) -> str:
    """A file system with or without `flock`. Without it, as in a remote folder, only the claim file protects."""

    def refuse(*unused: Any) -> None:
        raise OSError('no locks available')

    if request.param == 'no flock':
        monkeypatch.setattr(fcntl, 'flock', refuse)
    return request.param


def test_lock__names_its_holder_and_ends_with_it(tmp_path: Any, kind: str) -> None:
    with other_process(tmp_path) as first:
        message = refused(tmp_path)
        assert f'--model_dir={tmp_path}' in message
        assert f'process {first} on {socket.gethostname()}, since {SINCE}' in message
        assert claim_of(tmp_path)['process'] == first
    check_taken_over(tmp_path)


def test_lock__is_released_after_errors_and_on_request(tmp_path: Any) -> None:
    with pytest.raises(ZeroDivisionError), TrainerLock(str(tmp_path), SINCE):
        raise ZeroDivisionError
    with TrainerLock(str(tmp_path), SINCE) as lock:
        refused(tmp_path)
        lock.release()
        check_taken_over(tmp_path)


def test_lock_of_another_machine__outlives_90_seconds_and_expires_after_180(tmp_path: Any) -> None:
    assert not trainer_lock.is_claimed_elsewhere(str(tmp_path))
    write_claim(tmp_path, renewed=time.time() - STALE_AFTER + 50)
    assert trainer_lock.is_claimed_elsewhere(str(tmp_path))
    message = refused(tmp_path)
    assert 'process 1 on far, ' in message and 0 < int(message.split()[-2]) <= 50
    assert claim_of(tmp_path)['host'] == 'far'
    write_claim(tmp_path, renewed=time.time() - 181)
    assert not trainer_lock.is_claimed_elsewhere(str(tmp_path))
    check_taken_over(tmp_path)
    # The longest time without a renewal: one just before the outage, one that fails during it, and the next one.
    assert 2 * trainer_lock._RENEW_EVERY + 90 < STALE_AFTER == 180


@pytest.mark.parametrize('birth', ['1', 'of a live process'])
def test_lock__believes_file_lock_and_process_start_before_a_claim(tmp_path: Any, kind: str, birth: str) -> None:
    process = os.getppid()
    lives = birth != '1'
    values = {'process': process, 'birth': trainer_lock._birth(process) if lives else birth}
    write_claim(tmp_path, machine=trainer_lock._machine(), **values)
    assert not trainer_lock.is_claimed_elsewhere(str(tmp_path))
    if lives and kind == 'no flock':
        assert f'process {process} on far' in refused(tmp_path)
    else:
        check_taken_over(tmp_path)


def test_lock__yields_to_a_trainer_that_wrote_at_the_same_moment(tmp_path: Any, monkeypatch: Any) -> None:
    write = TrainerLock._write

    def write_before_the_other(self: TrainerLock) -> None:
        write(self)
        write_claim(tmp_path)

    monkeypatch.setattr(TrainerLock, '_write', write_before_the_other)
    assert 'process 1 on far' in refused(tmp_path)
    monkeypatch.undo()
    # The refused trainer has released the folder, and has left the other one's claim.
    assert claim_of(tmp_path)['host'] == 'far'
    os.remove(str(tmp_path / CLAIM_FILE))
    check_taken_over(tmp_path)


def test_lock__is_renewed_and_reports_its_loss(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(trainer_lock, '_RENEW_EVERY', 0.02)
    with TrainerLock(str(tmp_path), SINCE) as lock:
        first = claim_of(tmp_path)['renewed']
        wait_for(lambda: claim_of(tmp_path)['renewed'] > first)
        lock.after_run(None, None)
        # The lock prevents a renewal in progress from overwriting this claim.
        with lock._renewing:
            write_claim(tmp_path)
        wait_for(lambda: lock._overtaken_by)
        with pytest.raises(RetryableError, match=r'process 1 on far, .*took over'):
            lock.after_run(None, None)
    # The other trainer's claim is not removed.
    assert claim_of(tmp_path)['host'] == 'far'


def test_hook__ends_training_that_has_lost_the_lock_in_a_suspension(tmp_path: Any, monkeypatch: Any) -> None:
    lock = TrainerLock(str(tmp_path), SINCE)
    step = tf.train.get_or_create_global_step()
    advance = step.assign_add(1)
    with lock, tf.train.SingularMonitoredSession(hooks=[lock]) as session:
        write_claim(tmp_path)
        assert session.run(advance) == 1
        later = time.time() + STALE_AFTER + 1
        monkeypatch.setattr(trainer_lock.time, 'time', lambda: later)
        with pytest.raises(RetryableError, match=r'in use by process 1 on far, .*took over'):
            session.run(advance)


def test_release__waits_for_a_renewal_in_progress(tmp_path: Any, monkeypatch: Any) -> None:
    write, began = trainer_lock.write_whole, threading.Event()
    ended: List[float] = []

    def write_slowly(*arguments: Any) -> None:
        began.set()
        time.sleep(0.2)
        write(*arguments)
        ended.append(time.time())

    monkeypatch.setattr(trainer_lock, '_RENEW_EVERY', 0.02)
    with TrainerLock(str(tmp_path), SINCE):
        monkeypatch.setattr(trainer_lock, 'write_whole', write_slowly)
        assert began.wait(60)
    assert ended and os.listdir(str(tmp_path)) == []
