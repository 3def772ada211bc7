"""Ports of this machine for the processes of a test."""

import contextlib
import fcntl
import os
import socket
import tempfile
from typing import List

# Below the range from which the system takes ports for connections.
_PORTS = range(20_000, 32_000, 10)


def free_addresses(count: int) -> List[str]:
    """Up to nine addresses of this machine with adjacent ports; these and the next port are free, and of no other test.

    A lock keeps a block of ports from other processes of tests until this one ends.
    """
    for first in _PORTS:
        lock = os.open(os.path.join(tempfile.gettempdir(), f'inception-v3-ports-{first}.lock'), os.O_CREAT | os.O_RDWR)
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for port in range(first, first + count + 1):
                opened.enter_context(socket.socket()).bind(('127.0.0.1', port))
            return [f'127.0.0.1:{port}' for port in range(first, first + count)]
        os.close(lock)
    raise AssertionError('no free ports')
