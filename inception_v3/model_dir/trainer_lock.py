"""One trainer at a time in a model_dir: two would overwrite each other's checkpoints.

The trainer's claim is a file in the folder that says who it is, and that it renews. Whoever finds one that is not
renewed any more takes it over; on the same machine as soon as the process is gone, and elsewhere after `STALE_AFTER`,
which takes clocks that agree to a minute. What was suspended for so long, and overtaken, ends before its next save.
In a folder of this machine, the system's lock on the folder also decides between two that start at the same moment.
"""

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
from typing import Any, Dict, Optional

import tensorflow as tf
from tensorflow.python.lib.io import file_io

from console.errors import RetryableError
from data import remote

CLAIM_FILE = 'trainer.json'
# Seconds between renewals, and after the last one until a claim is void: a store may be out of reach for 90 seconds.
_RENEW_EVERY = 30.0
STALE_AFTER = 180.0


class LockedError(RetryableError):
    """A model_dir that another process trains in."""


def _machine() -> str:
    """What a process's number means anything on: this boot of this machine, and this container of it."""
    with contextlib.suppress(OSError), open('/proc/sys/kernel/random/boot_id') as file:
        return f'{file.read().strip()} {os.readlink("/proc/self/ns/pid")}'
    return ''


def _birth(process: int) -> Optional[str]:
    """When a process of this machine began, in ticks since the boot; None if it is gone. Numbers are used again."""
    try:
        with open(f'/proc/{process}/stat') as file:
            # The name before it, in parentheses, may have spaces.
            return file.read().rpartition(')')[2].split()[19]
    except OSError:
        return None


def is_claimed_elsewhere(model_dir: str) -> bool:
    """Whether there is a claim of another machine in a folder that is not void yet: its process may be gone."""
    try:
        claim = json.loads(remote.read(os.path.join(model_dir, CLAIM_FILE)) or b'null')
    except ValueError:
        return False
    if not isinstance(claim, dict) or claim.get('machine') == _machine():
        return False
    return time.time() < claim.get('renewed', 0) + STALE_AFTER


class TrainerLock:
    """The right to train in a folder, while it is open.

    Args:
      model_dir: the folder, which is there.
      since: when the run began, as text.

    Raises:
      LockedError: another process has it.
    """

    def __init__(self, model_dir: str, since: str):
        self._model_dir = model_dir
        self._path = os.path.join(model_dir, CLAIM_FILE)
        process = os.getpid()
        self._claim: Dict[str, Any] = {'host': socket.gethostname(), 'process': process, 'since': since}
        self._claim.update(machine=_machine(), birth=_birth(process))
        self._folder: Optional[int] = None
        self._overtaken_by: Optional[Dict[str, Any]] = None
        self._released = threading.Event()
        # A renewal that is under way when the run ends would write the claim again, or leave half of it.
        self._renewing = threading.Lock()

    def __enter__(self) -> 'TrainerLock':
        if not remote.is_remote(self._model_dir):
            self._lock_folder()
        try:
            other = self._other()
            if other:
                self._refuse_if_alive(other)
            self._write()
            # Of two that write at the same moment, the last one has it.
            other = self._other()
            if other:
                raise LockedError(self._refusal(other))
        except BaseException:
            self._unlock_folder()
            raise
        threading.Thread(target=self._renew, daemon=True).start()
        return self

    def __exit__(self, *unused: Any) -> None:
        self.release()

    def _lock_folder(self) -> None:
        self._folder = os.open(self._model_dir, os.O_RDONLY)
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._unlock_folder()
            raise LockedError(self._refusal(self._other()))
        except OSError:
            # A file system of another machine may not have such locks.
            self._unlock_folder()

    def _unlock_folder(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None

    def _other(self) -> Optional[Dict[str, Any]]:
        """The claim in the folder, if it is of another process."""
        try:
            claim = json.loads(remote.read(self._path) or b'null')
        except ValueError:
            return None
        if not isinstance(claim, dict) or all(claim.get(key) == value for key, value in self._claim.items()):
            return None
        return claim

    def _refuse_if_alive(self, claim: Dict[str, Any]) -> None:
        if claim.get('machine') == self._claim['machine']:
            # In a folder of this machine the system's lock has told already, within this process, too.
            if self._folder is not None or _birth(claim['process']) != claim['birth']:
                return
            raise LockedError(self._refusal(claim))
        left = claim.get('renewed', 0) + STALE_AFTER - time.time()
        if left > 0:
            raise LockedError(
                f'{self._refusal(claim)} If that process is gone, its claim to the folder ends in {left:.0f} seconds.'
            )

    def _refusal(self, claim: Optional[Dict[str, Any]]) -> str:
        who = 'another process'
        if claim:
            who = f'process {claim.get("process")} on {claim.get("host")}, since {claim.get("since")}'
        return f'--model_dir={self._model_dir}: is being trained in by {who}. Wait for its end, or name another folder.'

    def _write(self) -> None:
        claim = json.dumps({**self._claim, 'renewed': time.time()}) + '\n'
        with remote.explained(self._path, remote.WRITE):
            file_io.atomic_write_string_to_file(self._path, claim)

    def _renew(self) -> None:
        while not self._released.wait(_RENEW_EVERY):
            # What cannot be reached now may be by the next time; and training itself fails if it stays so.
            with contextlib.suppress(tf.errors.OpError, remote.RemoteError), self._renewing:
                if self._released.is_set():
                    return
                self._overtaken_by = self._other()
                if self._overtaken_by:
                    return
                self._write()

    def hook(self) -> tf.estimator.SessionRunHook:
        """A hook that ends training which another process has overtaken."""
        return _LockHook(self)

    def check(self) -> None:
        """Makes sure that the right is still there.

        Raises:
          LockedError: another process has taken it.
        """
        if self._overtaken_by:
            raise LockedError(f'{self._refusal(self._overtaken_by)} It took over what this run did not renew in time.')

    def release(self) -> None:
        """Ends the right; it may be called from any thread, and more than once."""
        if self._released.is_set():
            return
        self._released.set()
        with contextlib.suppress(tf.errors.OpError, remote.RemoteError), self._renewing:
            if not self._other():
                tf.io.gfile.remove(self._path)
        self._unlock_folder()


class _LockHook(tf.estimator.SessionRunHook):
    def __init__(self, lock: TrainerLock):
        self._lock = lock

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._lock.check()
