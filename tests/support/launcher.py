"""Starts the program with a network of one layer again and again, without importing TensorFlow each time.

A process of its own imports the program and forks for each start. It runs nothing itself, so it has no threads that a
fork would lose.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from typing import Any, Iterator, List, Optional

from tests.support.one_layer_program import run


class Program:
    """A program that a launcher started."""

    def __init__(self, launcher: 'subprocess.Popen[str]'):
        self._launcher = launcher
        self.pid = int(self._line(60) or 0)
        assert self.pid, 'the launcher does not answer'
        self.returncode: Optional[int] = None

    def _line(self, seconds: float) -> Optional[str]:
        assert self._launcher.stdout
        ready, _, _ = select.select([self._launcher.stdout], [], [], max(0.0, seconds))
        return self._launcher.stdout.readline() if ready else None

    def wait(self, seconds: float) -> Optional[int]:
        """Waits for the end; returns the exit code, negative after a signal, or None if the program still runs."""
        if self.returncode is None:
            line = self._line(seconds)
            self.returncode = None if line is None else int(line)
        return self.returncode

    def kill(self) -> None:
        """Kills the program if it still runs."""
        if self.wait(0) is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(60)


class Launcher:
    """Starts programs, one at a time."""

    def __init__(self) -> None:
        command = [sys.executable, '-u', '-m', 'tests.support.launcher']
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def start(self, arguments: List[str], log: str) -> Program:
        """Starts the program with arguments; its output goes into the file `log`."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([log, arguments]) + '\n')
        return Program(self._process)

    def close(self) -> None:
        """Ends the launcher."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def launcher() -> Iterator[Launcher]:
    """Context manager of a launcher."""
    opened = Launcher()
    try:
        yield opened
    finally:
        opened.close()


def _start(log: str, arguments: List[str]) -> int:
    """Forks a process that runs the program; returns its PID."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        output: Any = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(0)
        code = run(['main', *arguments])
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _serve() -> None:
    for line in sys.stdin:
        child = _start(*json.loads(line))
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)


if __name__ == '__main__':
    _serve()
