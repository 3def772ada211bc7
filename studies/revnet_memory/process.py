"""Measures a process from outside: its memory and CPU time, as the kernel counts them."""

import contextlib
import os
import select
import subprocess
import tempfile
import time
from typing import IO, Any, Dict, NamedTuple, Optional, Sequence

from benchmarks.measurement import MeasurementError
from studies.revnet_memory.training import MARK

# Every large tensor gets pages of its own from the system and returns them when it is freed, so that resident memory is
# memory in use. TensorFlow's and the C library's allocators keep freed memory in pieces that may not fit the next
# tensor; and the C library raises its threshold for returning memory unless it is set.
ENVIRONMENT = {'TF_CPU_ALLOCATOR_USE_BFC': '0', 'MALLOC_MMAP_THRESHOLD_': str(64 << 10)}

# Seconds: between checks of the memory, and until a process counts as hung.
_POLL_INTERVAL = 0.02
_TIMEOUT = 1800
# Writing this to clear_refs resets the peak of the resident memory. See proc(5).
_RESET_PEAK = '5'


class OutOfMemoryError(MeasurementError):
    """A process that exceeded its memory limit."""


class Usage(NamedTuple):
    """The resources that a process has used.

    Attributes:
      resident: resident memory, in bytes.
      peak: peak of the resident memory, in bytes.
      cpu: CPU time in seconds, of all threads, user and system, to a hundredth.
      clock: time of the reading, in seconds.
    """

    resident: int
    peak: int
    cpu: float
    clock: float


class Watched:
    """A context manager for a process that stops at marks: it prints the line `mark`, and waits for a line of input.

    Args:
      command: the command to run.
      limit: bytes of memory above which the process is ended; None: no limit.

    Raises:
      MeasurementError: the process failed, or hangs.
      OutOfMemoryError: the process exceeded the limit.
    """

    def __init__(self, command: Sequence[str], limit: Optional[int] = None):
        self._command = command
        self._limit = limit

    def __enter__(self) -> 'Watched':
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command,
            env={**os.environ, **ENVIRONMENT},
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        return self

    def __exit__(self, *unused: Any) -> None:
        # Killing is safe: the caller owns the process's folder.
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def send(self, line: str) -> None:
        """Sends the line that the process waits for."""
        assert self._process.stdin
        # If the process has ended, `wait` reports the reason.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f'{line}\n'.encode())

    def wait(self) -> Usage:
        """Waits for the next mark, and returns the resources used until then."""
        stdout = self._process.stdout
        assert stdout
        deadline = time.monotonic() + _TIMEOUT
        while time.monotonic() < deadline:
            readable, _, _ = select.select([stdout], [], [], _POLL_INTERVAL)
            if not readable:
                self._check_memory()
                continue
            printed = stdout.readline()
            if printed == MARK:
                self._check_memory()
                return self.usage()
            if not printed:
                raise MeasurementError(self._reason())
        raise MeasurementError(f'timed out after {_TIMEOUT} seconds')

    def until_mark(self, line: str) -> Usage:
        """Sends a line, waits for the next mark, and returns the resources used until then."""
        self.send(line)
        return self.wait()

    def reset_peak(self) -> None:
        """Resets the peak of the resident memory to its current size."""
        with open(f'/proc/{self._process.pid}/clear_refs', 'w') as file:
            file.write(_RESET_PEAK)

    def usage(self) -> Usage:
        """The resources used so far."""
        clock, memory = time.monotonic(), self._memory()
        with open(f'/proc/{self._process.pid}/stat') as stat:
            # The program's name may contain spaces. After it, utime and stime are the fields 14 and 15 of proc(5).
            fields = stat.read().rpartition(')')[2].split()
        ticks = int(fields[11]) + int(fields[12])
        return Usage(memory['VmRSS'], memory['VmHWM'], ticks / os.sysconf('SC_CLK_TCK'), clock)

    def _check_memory(self) -> None:
        # The kernel reports no memory for a process that is ending.
        peak = self._memory().get('VmHWM', 0)
        if self._limit is not None and peak > self._limit:
            raise OutOfMemoryError(f'more than {self._limit / 1e6:,.0f} MB: {peak / 1e6:,.0f} MB')

    def _memory(self) -> Dict[str, int]:
        """Sizes in bytes, by their names in proc(5)."""
        with open(f'/proc/{self._process.pid}/status') as status:
            fields = dict(line.split(':', 1) for line in status)
        return {name: int(text.split()[0]) << 10 for name, text in fields.items() if name.startswith('Vm')}

    def _reason(self) -> str:
        code = self._process.wait()
        if code < 0:
            # The kernel kills a process when a container's memory is used up.
            return f'ended by signal {-code}'
        self._errors.seek(0)
        return [f'exit code {code}', *self._errors.read().decode(errors='replace').splitlines()][-1]
