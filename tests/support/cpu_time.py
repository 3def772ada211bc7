"""A pytest plugin that limits the CPU time of a test, including its child processes but not its fixtures.

    ./run pytest --max-cpu=5     fails each test that takes more seconds

The limit grows with the load of a machine that runs more than two threads per core.
"""

import os
from typing import Any, Generator

import pytest


def pytest_addoption(parser: Any) -> None:
    """Adds --max-cpu."""
    parser.addoption('--max-cpu', type=float, help='fail each test that takes more CPU seconds than this')


def cpu_seconds() -> float:
    """CPU seconds of this process, including its threads and the child processes that it has waited for."""
    return sum(os.times()[:4])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, Any, None]:
    """Fails a test that takes more than --max-cpu."""
    start = cpu_seconds()
    outcome = yield
    seconds, limit = cpu_seconds() - start, item.config.getoption('max_cpu')
    # Threads that compete for the cores of a busy machine take more CPU time for the same work.
    load = max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1)))
    if limit is not None and seconds > limit * load and not outcome.excinfo:
        message = f'{seconds:.1f} s of CPU time; at most {limit * load:.1f} s are allowed (--max-cpu)'
        outcome.force_exception(pytest.fail.Exception(message, pytrace=False))
