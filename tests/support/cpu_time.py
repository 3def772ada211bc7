"""A pytest plugin that counts each test's CPU time, its processes included.

    ./run pytest --max-cpu=5     fails each test that takes more

The limit grows with the load of a machine that runs more than two threads per core.

A fixture of a wider scope than one test counts on its own, not in the test that happens to be the first to use it.
"""

import os
from typing import Any, Generator, Iterator

import pytest


def pytest_addoption(parser: Any) -> None:
    """Adds --max-cpu."""
    parser.addoption('--max-cpu', type=float, help='fail each test that takes more CPU seconds than this')


def pytest_configure(config: Any) -> None:
    """Starts counting if --max-cpu is given."""
    if config.getoption('max_cpu') is not None:
        config.pluginmanager.register(CpuTime(config.getoption('max_cpu')))


def cpu_seconds() -> float:
    """CPU seconds of this process, its threads, and those of its child processes that it has waited for."""
    return sum(os.times()[:4])


class CpuTime:
    """Counts the CPU time of tests, each of which may take a number of seconds."""

    def __init__(self, limit: float):
        self._limit = limit
        # CPU seconds of fixtures of wider scopes than a test.
        self._shared = 0.0

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Counts a fixture of a wider scope, without the other fixtures that it requests."""
        start, inner = cpu_seconds(), self._shared
        yield
        if fixturedef.scope != 'function':
            self._shared = inner + cpu_seconds() - start

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        """Starts a test's count."""
        self._start = cpu_seconds() - self._shared
        yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self, item: Any) -> Generator[None, Any, None]:
        """Ends a test's count, and fails the test if it took too much."""
        outcome = yield
        seconds = cpu_seconds() - self._shared - self._start
        # Threads that compete for the cores of a busy machine take more CPU time for the same work.
        limit = self._limit * max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1)))
        if seconds > limit:
            message = f'{seconds:.1f} s of CPU time; at most {limit:.1f} s are allowed (--max-cpu)'
            outcome.force_exception(pytest.fail.Exception(message, pytrace=False))
