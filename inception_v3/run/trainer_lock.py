"""Locks a model_dir for one trainer at a time: two would overwrite each other's checkpoints.

The trainer writes a claim, the file `trainer.json`, and renews it while it runs. A trainer on the same machine may take
over the claim when the process that wrote it has ended; a trainer on another machine, after `STALE_AFTER` seconds
without a renewal. The clocks of the machines must agree to within a minute. A trainer that was suspended and has lost
its claim ends before its next save. In a local folder, a file lock of the operating system also decides between two
trainers that start at the same moment. The package filelock is not used: it makes one more file, and locks no bucket.
"""

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
from typing import Any, NamedTuple, Optional

from compat import tf
from compat.errors import RetryableError
from compat.log import logger
from compat.messages import shown
from console.json_content import from_json, record
from data import remote
from data.files import write_whole

CLAIM_FILE = 'trainer.json'
# Seconds between renewals, and from the last renewal until the claim expires. A store may be unreachable for 90 s.
_RENEW_EVERY = 30.0
STALE_AFTER = 180.0


class Claim(NamedTuple):
    """The content of `trainer.json`: host, PID and start of the trainer, and the time of the last renewal.

    `machine` is the scope in which the PID is unique (`_machine`), and `birth` the start of the process (`_birth`).
    """

    host: str = ''
    process: int = 0
    since: str = ''
    machine: str = ''
    birth: Optional[str] = None
    renewed: float = 0.0


def _machine() -> str:
    """Identifies the scope in which a PID is unique: this boot of this machine, and this container."""
    with contextlib.suppress(OSError), open('/proc/sys/kernel/random/boot_id') as file:
        return f'{file.read().strip()} {os.readlink("/proc/self/ns/pid")}'
    return ''


def _birth(process: int) -> Optional[str]:
    """The start of a process in ticks since boot; None if it has ended. Distinguishes processes with the same PID."""
    try:
        with open(f'/proc/{process}/stat') as file:
            # The program's name precedes these fields, in parentheses, and may contain spaces.
            return file.read().rpartition(')')[2].split()[19]
    except OSError:
        return None


def is_claimed_elsewhere(model_dir: str) -> bool:
    """Whether a folder has an unexpired claim of another machine; its process may have ended."""
    claim = _claim_in(os.path.join(model_dir, CLAIM_FILE))
    return claim is not None and claim.machine != _machine() and time.time() < claim.renewed + STALE_AFTER


def _claim_in(path: str) -> Optional[Claim]:
    """The claim in a file; None if there is none, or if it is damaged, so that the next claim replaces it."""
    content = remote.read(path)
    try:
        return from_json(content, lambda values: record(Claim, values)) if content else None
    except ValueError as error:
        logger.info('%s: is damaged, and names no process that trains here: %s', path, shown(error))
        return None


class TrainerLock(tf.estimator.SessionRunHook):
    """Locks an existing folder for training while the context is open, or raises RetryableError."""

    def __init__(self, model_dir: str, since: str):
        self._model_dir = model_dir
        self._path = os.path.join(model_dir, CLAIM_FILE)
        process = os.getpid()
        self._claim = Claim(socket.gethostname(), process, since, _machine(), _birth(process))
        self._descriptor: Optional[int] = None
        self._overtaken_by: Optional[Claim] = None
        self._known_at = 0.0
        self._released = threading.Event()
        # Held during a renewal. A renewal during the release would write the claim again, or leave an incomplete file.
        self._renewing = threading.Lock()

    def __enter__(self) -> 'TrainerLock':
        try:
            if not remote.is_remote(self._model_dir):
                self._lock_folder()
            other = self._foreign_claim()
            if other:
                self._refuse_unless_expired(other)
            self._write()
            # If two trainers write at the same moment, the last one wins.
            other = self._foreign_claim()
            if other:
                raise self._in_use(other)
        except BaseException:
            self._unlock_folder()
            raise
        threading.Thread(target=self._renew, daemon=True).start()
        return self

    def __exit__(self, *unused: Any) -> None:
        self.release()

    def _lock_folder(self) -> None:
        # The package filelock would lock a file of its own, and be a further requirement of a run.
        self._descriptor = os.open(self._model_dir, os.O_RDONLY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._in_use(self._foreign_claim())
        except OSError:
            # Network file systems may not support such locks.
            self._unlock_folder()

    def _unlock_folder(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _foreign_claim(self) -> Optional[Claim]:
        claim = _claim_in(self._path)
        return claim if claim and claim._replace(renewed=0.0) != self._claim else None

    def _refuse_unless_expired(self, claim: Claim) -> None:
        if claim.machine == self._claim.machine:
            # A file lock on a local folder has already excluded all other trainers, even in the same process.
            if self._descriptor is None and claim.birth and _birth(claim.process) == claim.birth:
                raise self._in_use(claim)
            return
        left = claim.renewed + STALE_AFTER - time.time()
        if left > 0:
            ended = f' If that process has ended, remove {self._path}, or wait: its lock expires in {left:.0f} seconds.'
            raise self._in_use(claim, ended)

    def _in_use(self, claim: Optional[Claim], more: str = '') -> RetryableError:
        who = f'process {claim.process} on {shown(claim.host)}, since {shown(claim.since)}' if claim else 'a process'
        where = f'--model_dir={self._model_dir}: in use by {who}'
        return RetryableError(f'{where}. Wait until it ends, or use another folder.{more}')

    def _write(self) -> None:
        now = time.time()
        write_whole(self._path, json.dumps(self._claim._replace(renewed=now)._asdict()) + '\n')
        self._known_at = now

    def _renew(self) -> None:
        while not self._released.wait(_RENEW_EVERY):
            # A failed renewal is retried the next time. If the folder stays unreachable, training itself fails.
            with contextlib.suppress(tf.errors.OpError, remote.RemoteError), self._renewing:
                if self._released.is_set():
                    return
                self._overtaken_by = self._foreign_claim()
                if self._overtaken_by:
                    return
                self._write()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Ends training if another process has taken over the lock.

        Usually the thread that renews the lock notices. After a suspension, it may not have checked yet.
        """
        if not self._overtaken_by and time.time() - self._known_at > STALE_AFTER:
            self._known_at = time.time()
            with contextlib.suppress(tf.errors.OpError, remote.RemoteError):
                self._overtaken_by = self._foreign_claim()
        if self._overtaken_by:
            raise self._in_use(self._overtaken_by, ' It took over the lock, which this run did not renew in time.')

    def release(self) -> None:
        """Releases the lock. May be called from any thread, and more than once."""
        if self._released.is_set():
            return
        self._released.set()
        with contextlib.suppress(tf.errors.OpError, remote.RemoteError), self._renewing:
            if not self._foreign_claim():
                tf.io.gfile.remove(self._path)
        self._unlock_folder()
