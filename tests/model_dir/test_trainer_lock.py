"""One trainer at a time in a folder, whoever has been killed there before."""

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
    """A process that has the lock, and waits."""
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


@pytest.fixture(params=['of the system', 'without the lock of the system'])
def kind(request: Any, monkeypatch: Any) -> None:
    """Also as in a folder whose file system has no locks, and as in a remote one: there is the claim alone."""

    def refuse(*unused: Any) -> None:
        raise OSError('no locks available')

    if request.param != 'of the system':
        monkeypatch.setattr(fcntl, 'flock', refuse)


def test_the_second_is_refused_with_the_first_and_a_killed_one_does_not_stand_in_the_way(
    tmp_path: Any, kind: None
) -> None:
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


def test_it_is_released_however_a_run_ends(tmp_path: Any) -> None:
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


def test_another_machine_is_waited_for_as_long_as_it_is_said(tmp_path: Any) -> None:
    write_claim(tmp_path, renewed=time.time() - STALE_AFTER + 50)
    with pytest.raises(LockedError, match=r'process 1 on far, .* its claim to the folder ends in (49|50) seconds'):
        TrainerLock(str(tmp_path), SINCE).__enter__()
    assert claim_of(tmp_path)['host'] == 'far'
    write_claim(tmp_path, renewed=time.time() - STALE_AFTER - 1)
    with TrainerLock(str(tmp_path), SINCE):
        assert claim_of(tmp_path)['process'] == os.getpid()


@pytest.mark.parametrize('text', ['', '{"host": "f', '[1]', '{}'])
def test_a_claim_that_nobody_can_read_is_nobodys(tmp_path: Any, text: str) -> None:
    (tmp_path / CLAIM_FILE).write_text(text)
    with TrainerLock(str(tmp_path), SINCE):
        assert claim_of(tmp_path)['process'] == os.getpid()


def test_it_is_renewed_and_what_was_overtaken_ends(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(trainer_lock, '_RENEW_EVERY', 0.02)
    lock = TrainerLock(str(tmp_path), SINCE)
    with lock:
        first = claim_of(tmp_path)['renewed']
        wait_for(lambda: claim_of(tmp_path)['renewed'] > first)
        lock.check()
        # Between two renewals: one that is under way would write its own claim over this one.
        with lock._renewing:
            write_claim(tmp_path)
        wait_for(lambda: lock._overtaken_by)
        with pytest.raises(LockedError, match=r'process 1 on far, .*took over'):
            lock.check()
    # It is not ours to remove.
    assert claim_of(tmp_path)['host'] == 'far'


def test_a_renewal_under_way_leaves_nothing(tmp_path: Any, monkeypatch: Any) -> None:
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


def test_a_claim_of_another_machine_stands_until_it_is_void(tmp_path: Any) -> None:
    assert not trainer_lock.is_claimed_elsewhere(str(tmp_path))
    write_claim(tmp_path)
    assert trainer_lock.is_claimed_elsewhere(str(tmp_path))
    write_claim(tmp_path, renewed=time.time() - STALE_AFTER - 1)
    assert not trainer_lock.is_claimed_elsewhere(str(tmp_path))
    write_claim(tmp_path, machine=trainer_lock._machine())
    assert not trainer_lock.is_claimed_elsewhere(str(tmp_path))
    (tmp_path / CLAIM_FILE).write_text('{')
    assert not trainer_lock.is_claimed_elsewhere(str(tmp_path))
