"""Where trials run: what a sweep asks of such a place, and this machine, where they are processes."""

import abc
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Callable, Optional, Sequence

from inception_v3.model_dir.files import now
from studies.sweep import trials
from studies.sweep.trials import Outcome, Trial

# Bytes of a log's end in which the reason of a failure is looked for.
_LOG_END = 1 << 16
_POLL_INTERVAL = 0.25

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Running(abc.ABC):
    """A trial that has been started."""

    @abc.abstractmethod
    def poll(self) -> Optional[Outcome]:
        """The outcome, which is written when the trial has ended; None before."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Asks the trial to save its last step and to end."""

    @abc.abstractmethod
    def kill(self) -> None:
        """Ends the trial at once."""


class Place(abc.ABC):
    """Where trials run, while it is open."""

    def __enter__(self) -> 'Place':
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    @property
    @abc.abstractmethod
    def slots(self) -> int:
        """Trials that can run at a time, now."""

    @abc.abstractmethod
    def start(self, trial: Trial) -> Running:
        """Starts a trial.

        Raises:
          OSError: its folder cannot be written to, or it cannot be started.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Ends what else there is to end, when no trial runs any more."""


class ThisMachine(Place):
    """Trials as processes of this machine. They share its cores as any processes do.

    A trial's share is not fixed: on the number of threads of an operation depend the last bits of its results, and
    the command line alone is to decide those.

    Args:
      workers: trials at a time.
      program: the command before their arguments; `python` is this Python.
    """

    def __init__(self, workers: int, program: Sequence[str]):
        self._workers = workers
        self._program = program

    @property
    def slots(self) -> int:
        """As many as there are workers."""
        return self._workers

    def start(self, trial: Trial) -> 'Process':
        """Starts a process."""
        return Process(trial, self._program)

    def close(self) -> None:
        """There is nothing but the trials."""


class Process(Running):
    """A trial that runs, as a process of this machine.

    It has a session of its own, so that Ctrl-C at a terminal is not for it; and it dies with the thread that has
    started it, however that ends: what is left over would be in the way of the sweep that goes on.

    Args:
      trial: what to run.
      program: the command before its arguments; `python` is this Python.

    Raises:
      OSError: its folder cannot be written to, or the process cannot be started.
    """

    def __init__(self, trial: Trial, program: Sequence[str]):
        self._trial = trial
        self._start = now()
        os.makedirs(trial.folder, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(trial.folder, trials.OUTCOME_FILE))
        script = os.path.join(trial.folder, trials.COMMAND_FILE)
        with open(script, 'w', encoding='utf-8') as file:
            file.write(trials.script(program, trial))
        os.chmod(script, 0o755)
        words = [sys.executable if word == 'python' else word for word in program]
        with open(trial.log, 'ab') as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*words, *trial.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_dies_with(os.getpid()),
            )

    def poll(self) -> Optional[Outcome]:
        """The outcome, if the process has ended."""
        code = self._process.poll()
        if code is None:
            return None
        reason = ''
        if code < 0:
            reason = f'ended by {signal.Signals(-code).name}'
        elif code:
            reason = trials.reason_in(self._printed()) or f'exit code {code}'
        outcome = Outcome(code, reason, self._start, now(), socket.gethostname())
        outcome.write(self._trial.folder)
        return outcome

    def _printed(self) -> str:
        with open(self._trial.log, 'rb') as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, end - _LOG_END))
            return file.read().decode(errors='replace')

    def stop(self) -> None:
        """Asks the trial to save its last step and to end."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends the trial at once."""
        self._process.kill()


def _dies_with(parent: int) -> Callable[[], None]:
    """What a new process does first, so that it is killed when the thread that has started it ends."""

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # It may have ended before.
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def run(trial: Trial, program: Sequence[str]) -> Outcome:
    """Runs a trial to its end; an interruption asks it to save its last step."""
    process = Process(trial, program)
    while True:
        try:
            outcome = process.poll()
            if outcome:
                return outcome
            time.sleep(_POLL_INTERVAL)
        except KeyboardInterrupt:
            process.stop()
