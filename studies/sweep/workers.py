"""Places where trials run, and this machine, where each trial is a process."""

import abc
import ctypes
import os
import signal
import socket
import subprocess
import time
from typing import Callable, List, NamedTuple, Optional, Sequence

from console import outputs, processes
from data.files import write_whole
from inception_v3.run.files import now
from studies.sweep import trials
from studies.sweep.trials import Outcome, Trial

# Bytes at the end of a log that are searched for the reason of a failure.
_LOG_END = 1 << 16
_POLL_INTERVAL = 0.25

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class RunningTrial(abc.ABC):
    """A trial that has been started."""

    @abc.abstractmethod
    def poll(self) -> Optional[Outcome]:
        """The outcome, once the trial has ended and it is written; None before."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Asks the trial to save a checkpoint and end."""

    @abc.abstractmethod
    def kill(self) -> None:
        """Ends the trial at once."""


class Place(NamedTuple):
    """A place where trials run."""

    # The number of trials that can run at the same time now.
    slots: Callable[[], int]
    # Raises OSError if the trial's folder cannot be written to, or it cannot be started.
    start: Callable[[Trial], RunningTrial]


def this_machine(workers: int, program: Sequence[str]) -> Place:
    """This machine, with a number of trials at a time as processes.

    Trials are not pinned to cores: this would change their number of threads, and with it the last bits of their
    results, which may depend on the command line only.
    """
    return Place(lambda: workers, lambda trial: Process(trial, program))


class Process(RunningTrial):
    """A trial as a process of this machine.

    The process has a session of its own, so that Ctrl-C at a terminal does not reach it. The kernel kills it when the
    thread that started it ends: a leftover process would block a resumed sweep. The word `python` of the program means
    this interpreter.
    """

    def __init__(self, trial: Trial, program: Sequence[str]):
        self._trial = trial
        self._start = now()
        os.makedirs(trial.folder, exist_ok=True)
        trials.remove_outcome(trial)
        script = os.path.join(trial.folder, trials.COMMAND_FILE)
        write_whole(script, trials.script(program, trial))
        os.chmod(script, 0o755)
        words = processes.module(*program[2:]) if [*program[:2]] == ['python', '-m'] else program
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            # The parent may have ended before the call.
            if os.getppid() != parent:
                os._exit(1)

        with open(outputs.replaceable(trial.log), 'ab') as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*words, *trial.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def poll(self) -> Optional[Outcome]:
        """The outcome, if the process has ended; None before."""
        code = self._process.poll()
        if code is None:
            return None
        reason = ''
        if code < 0:
            reason = f'ended by {signal.Signals(-code).name}'
        elif code:
            with open(self._trial.log, 'rb') as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._log_start, end - _LOG_END))
                reason = trials.reason_in(file.read().decode(errors='replace')) or f'exit code {code}'
        outcome = Outcome(code, reason, self._start, now(), socket.gethostname())
        outcome.write(self._trial.folder)
        return outcome

    def stop(self) -> None:
        """Asks the trial to save a checkpoint and end."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends the trial at once."""
        self._process.kill()


def run(trial: Trial, program: Sequence[str]) -> Outcome:
    """Runs a trial to its end; SIGINT, even during its start, asks it to save a checkpoint and end."""
    interrupts: List[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        process = Process(trial, program)
        while True:
            if interrupts:
                interrupts.pop()
                process.stop()
            outcome = process.poll()
            if outcome:
                return outcome
            time.sleep(_POLL_INTERVAL)
    finally:
        signal.signal(signal.SIGINT, handler)
