"""Log of the requests to a fake store, and injected errors."""

import dataclasses
import re
import threading
from typing import Any, List, NamedTuple, Optional, Sequence

# The operations on files and buckets, for both stores.
BUCKET, LIST, STAT, READ, WRITE, DELETE = OPERATIONS = ('bucket', 'list', 'stat', 'read', 'write', 'delete')

# In place of an HTTP status, for s3://: the content of another file is written.
MIXED_UP = 1


class Access(NamedTuple):
    """A request on `BUCKET/OBJECT`, or `BUCKET/PREFIX` of a listing, and the HTTP status of its response."""

    operation: str
    path: str
    status: int


@dataclasses.dataclass
class _Rule:
    status: int
    pattern: str
    operations: Sequence[str]
    times: Optional[int]

    def applies(self, operation: str, path: str) -> bool:
        if operation not in self.operations or not re.search(self.pattern, path) or self.times == 0:
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """The log of a server's requests, and the rules by which requests fail."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: List[_Rule] = []
        self._log: List[Access] = []

    def add(self, status: int, pattern: str, operations: Sequence[str] = OPERATIONS, times: Any = None) -> None:
        """Makes requests fail whose `BUCKET/OBJECT` matches a pattern: `times` of them, or all for None."""
        with self._lock:
            self._rules.append(_Rule(status, pattern, operations, times))

    def clear(self) -> None:
        """Removes all rules, and empties the log."""
        with self._lock:
            self._rules.clear()
            self._log.clear()

    def status(self, operation: str, path: str) -> Optional[int]:
        """The injected error status for a request; None if the request is not to fail."""
        with self._lock:
            return next((rule.status for rule in self._rules if rule.applies(operation, path)), None)

    def record(self, operation: str, path: str, status: int) -> None:
        """Logs a request and its status."""
        with self._lock:
            self._log.append(Access(operation, path, status))

    def log(self, pattern: str = '', operation: Optional[str] = None, status: Optional[int] = None) -> List[Access]:
        """The requests whose path matches, in order; if given, only those with an operation or a status."""
        with self._lock:
            return [
                access
                for access in self._log
                if re.search(pattern, access.path)
                and operation in (None, access.operation)
                and status in (None, access.status)
            ]
