"""Tests of the lock that allows one trainer at a time in a model_dir."""

import fcntl
import json
import os
import signal
import socket
import threading
import time
from typing import Any, Dict

import pytest

from inception_v3.model_dir import trainer_lock
from inception_v3.model_dir.trainer_lock import CLAIM_FILE, STALE_AFTER, LockedError, TrainerLock
from tests.support.processes import wait_for

SINCE = '2026-11-21T15:00:00+00:00'


def claim_of(folder: Any) -> Dict[str, Any]:
    return json.loads((folder / CLAIM_FILE).read_text())


def write_claim(folder: Any, **values: Any) -> None:
    claim = {'host': 'far', 'process': 1, 'since': SINCE, 'machine': 'other', 'birth': '1', 'renewed': time.time()}
    (folder / CLAIM_FILE).write_text(json.dumps({**claim, **values}))


def other_process(folder: Any) -> int:
    """Starts a process that holds the lock and waits; returns its PID."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            TrainerLock(str(folder), SINCE).__enter__()
            os.write(write_end, b'.')
            time.sleep(60)
        finally:
            os._exit(1)
    assert os.read(read_end, 1)
    return child


@pytest.fixture(params=['flock', 'no flock'])
def kind(request: Any, monkeypatch: Any) -> None:
    """A file system with or without `flock`. Without it, as in a remote folder, only the claim file protects."""

    def refuse(*unused: Any) -> None:
        raise OSError('no locks available')

    if request.param == 'no flock':
        monkeypatch.setattr(fcntl, 'flock', refuse)


def test_lock__names_its_holder_and_ends_with_it(tmp_path: Any, kind: None) -> None:
    first = other_process(tmp_path)
    try:
        with pytest.raises(LockedError) as error, TrainerLock(str(tmp_path), 'now'):
            pass
        for part in (f'--model_dir={tmp_path}', f'process {first} on {socket.gethostname()}, since {SINCE}'):
            assert part in str(error.value)
        assert claim_of(tmp_path)['process'] == first
    finally:
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
    with TrainerLock(str(tmp_path), 'now'):
        assert claim_of(tmp_path)['process'] == os.getpid()
    assert os.listdir(str(tmp_path)) == []


def test_lock__is_released_after_errors_and_on_request(tmp_path: Any) -> None:
    with pytest.raises(ZeroDivisionError), TrainerLock(str(tmp_path), SINCE):
        raise ZeroDivisionError
    lock = TrainerLock(str(tmp_path), SINCE)
    with lock:
        with pytest.raises(LockedError), TrainerLock(str(tmp_path), SINCE):
            pass
        lock.release()
        with TrainerLock(str(tmp_path), SINCE):
            pass
    assert os.listdir(str(tmp_path)) == []


def test_lock_of_another_machine__expires(tmp_path: Any) -> None:
    write_claim(tmp_path, renewed=time.time() - STALE_AFTER + 50)
    with pytest.raises(LockedError, match=r'process 1 on far, .* its lock expires in (49|50) seconds'):
        TrainerLock(str(tmp_path), SINCE).__enter__()
    assert claim_of(tmp_path)['host'] == 'far'
    write_claim(tmp_path, renewed=time.time() - STALE_AFTER - 1)
    with TrainerLock(str(tmp_path), SINCE):
        assert claim_of(tmp_path)['process'] == os.getpid()


@pytest.mark.parametrize('text', ['', '{"host": "f', '[1]', '{}'])
def test_lock__ignores_a_damaged_claim(tmp_path: Any, text: str) -> None:
    (tmp_path / CLAIM_FILE).write_text(text)
    with TrainerLock(str(tmp_path), SINCE):
        assert claim_of(tmp_path)['process'] == os.getpid()


def test_lock__is_renewed_and_reports_its_loss(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(trainer_lock, '_RENEW_EVERY', 0.02)
    lock = TrainerLock(str(tmp_path), SINCE)
    with lock:
        first = claim_of(tmp_path)['renewed']
        wait_for(lambda: claim_of(tmp_path)['renewed'] > first)
        lock.check()
        # The lock prevents a renewal in progress from overwriting this claim.
        with lock._renewing:
            write_claim(tmp_path)
        wait_for(lambda: lock._overtaken_by)
        with pytest.raises(LockedError, match=r'process 1 on far, .*took over'):
            lock.check()
    # The other trainer's claim is not removed.
    assert claim_of(tmp_path)['host'] == 'far'


def test_release__waits_for_a_renewal_in_progress(tmp_path: Any, monkeypatch: Any) -> None:
    write, began, ended = trainer_lock.file_io.atomic_write_string_to_file, threading.Event(), threading.Event()

    def write_slowly(*arguments: Any) -> None:
        began.set()
        time.sleep(0.2)
        write(*arguments)
        ended.set()

    monkeypatch.setattr(trainer_lock, '_RENEW_EVERY', 0.02)
    with TrainerLock(str(tmp_path), SINCE):
        monkeypatch.setattr(trainer_lock.file_io, 'atomic_write_string_to_file', write_slowly)
        assert began.wait(10)
    assert ended.wait(10)
    assert os.listdir(str(tmp_path)) == []


def test_is_claimed_elsewhere__is_true_until_the_claim_expires(tmp_path: Any) -> None:
    assert not trainer_lock.is_claimed_elsewhere(str(tmp_path))
    write_claim(tmp_path)
    assert trainer_lock.is_claimed_elsewhere(str(tmp_path))
    write_claim(tmp_path, renewed=time.time() - STALE_AFTER - 1)
    assert not trainer_lock.is_claimed_elsewhere(str(tmp_path))
    write_claim(tmp_path, machine=trainer_lock._machine())
    assert not trainer_lock.is_claimed_elsewhere(str(tmp_path))
    (tmp_path / CLAIM_FILE).write_text('{')
    assert not trainer_lock.is_claimed_elsewhere(str(tmp_path))


def test_lock__takes_over_a_damaged_claim_of_this_machine(tmp_path: Any, kind: None) -> None:
    (tmp_path / CLAIM_FILE).write_text(json.dumps({'machine': trainer_lock._machine(), 'renewed': time.time()}))
    with TrainerLock(str(tmp_path), SINCE):
        assert claim_of(tmp_path)['process'] == os.getpid()
