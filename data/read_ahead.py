"""Prepares files in threads while their user works on those before them."""

import collections
import concurrent.futures
from typing import Callable, Deque, Iterator, Sequence, TypeVar

from console.processes import usable_cores

_Prepared = TypeVar('_Prepared')


def in_order(prepare: Callable[[str], _Prepared], paths: Sequence[str], ahead: int) -> Iterator[_Prepared]:
    """Prepares the paths in threads, at most `ahead` of them in advance, and yields the results in order."""
    with concurrent.futures.ThreadPoolExecutor(usable_cores()) as threads:
        waiting: Deque[concurrent.futures.Future] = collections.deque()
        try:
            for path in paths:
                waiting.append(threads.submit(prepare, path))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
