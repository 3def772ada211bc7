"""What a server of remote files was asked, and the refusals that it is told to give."""

import dataclasses
import re
import threading
from typing import List, NamedTuple, Optional, Sequence

# What is done to a file or a bucket, in the words of both stores.
BUCKET, LIST, STAT, READ, WRITE, DELETE = OPERATIONS = ('bucket', 'list', 'stat', 'read', 'write', 'delete')


class Access(NamedTuple):
    """A request, and the HTTP status that it was answered with.

    Attributes:
      operation: one of `OPERATIONS`.
      path: `BUCKET/OBJECT`, or `BUCKET/PREFIX` of a listing.
      status: the answer.
    """

    operation: str
    path: str
    status: int


@dataclasses.dataclass
class _Rule:
    status: int
    pattern: str
    operations: Sequence[str]
    after: int
    times: Optional[int]

    def applies(self, operation: str, path: str) -> bool:
        if operation not in self.operations or not re.search(self.pattern, path) or self.times == 0:
            return False
        if self.after:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """The log of a server, and its orders to refuse."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: List[_Rule] = []
        self._log: List[Access] = []

    def add(
        self,
        status: int,
        pattern: str,
        operations: Sequence[str] = OPERATIONS,
        after: int = 0,
        times: Optional[int] = None,
    ) -> None:
        """Orders an answer.

        Args:
          status: the HTTP status, such as 403.
          pattern: regular expression, looked for in `BUCKET/OBJECT`.
          operations: which ones are refused.
          after: how many that match are let through before.
          times: how many are refused; None for all.
        """
        with self._lock:
            self._rules.append(_Rule(status, pattern, operations, after, times))

    def clear(self) -> None:
        """Takes all orders back, and empties the log."""
        with self._lock:
            self._rules.clear()
            self._log.clear()

    def status(self, operation: str, path: str) -> Optional[int]:
        """The status to refuse a request with; None if it is to be served."""
        with self._lock:
            return next((rule.status for rule in self._rules if rule.applies(operation, path)), None)

    def record(self, operation: str, path: str, status: int) -> None:
        """Notes a request and its answer."""
        with self._lock:
            self._log.append(Access(operation, path, status))

    def log(self, pattern: str = '', operation: Optional[str] = None, status: Optional[int] = None) -> List[Access]:
        """The requests so far whose path has the pattern, in order; of one operation or status, if given."""
        with self._lock:
            return [
                access
                for access in self._log
                if re.search(pattern, access.path)
                and operation in (None, access.operation)
                and status in (None, access.status)
            ]
