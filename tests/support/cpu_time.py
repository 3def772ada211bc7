"""A pytest plugin that counts each test's CPU time, its processes included.

    ./run pytest --max-cpu=5     fails each test that takes more, and lists the most expensive tests and fixtures

The limit grows with the load of a machine that runs more than two threads per core.

A fixture of a wider scope than one test counts on its own, not in the test that happens to be the first to use it.
"""

import os
from typing import Any, Dict, Generator, Iterator, List, Tuple

import pytest

# The number of tests and fixtures to list.
_LISTED = 15

# The property of a test's report that holds its CPU seconds. Reports travel from the workers of pytest-xdist.
_PROPERTY = 'cpu_seconds'


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
    """Counts the CPU time of tests.

    Args:
      limit: CPU seconds that a test may take.
    """

    def __init__(self, limit: float):
        self._limit = limit
        self._start = 0.0
        # CPU seconds of fixtures of wider scopes: in all, and of each since the current test began.
        self._shared_seconds = 0.0
        self._shared_at_start = 0.0
        self._fixtures: List[Tuple[str, float]] = []
        self._costs: Dict[str, float] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Counts a fixture of a wider scope, without the other fixtures that it requests."""
        start, inner = cpu_seconds(), self._shared_seconds
        yield
        if fixturedef.scope != 'function':
            own = cpu_seconds() - start - (self._shared_seconds - inner)
            self._shared_seconds += own
            self._fixtures.append((f'{fixturedef.baseid}: fixture {fixturedef.argname}', own))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        """Starts a test's count."""
        self._start, self._shared_at_start, self._fixtures = cpu_seconds(), self._shared_seconds, []
        yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self, item: Any) -> Generator[None, Any, None]:
        """Ends a test's count, and fails the test if it took too much."""
        outcome = yield
        seconds = cpu_seconds() - self._start - (self._shared_seconds - self._shared_at_start)
        item.user_properties.append((_PROPERTY, [(item.nodeid, seconds), *self._fixtures]))
        # Threads that compete for the cores of a busy machine take more CPU time for the same work.
        limit = self._limit * max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1)))
        if seconds > limit:
            message = f'{seconds:.1f} s of CPU time; at most {limit:.1f} s are allowed (--max-cpu)'
            outcome.force_exception(pytest.fail.Exception(message, pytrace=False))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Collects the counts, in the process that shows the results."""
        if report.when == 'teardown':
            for costs in (value for name, value in report.user_properties if name == _PROPERTY):
                for name, seconds in costs:
                    self._costs[name] = self._costs.get(name, 0.0) + seconds

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Lists what took the most CPU time."""
        terminalreporter.section(f'CPU time: {sum(self._costs.values()):.0f} s in all')
        for name, seconds in sorted(self._costs.items(), key=lambda cost: -cost[1])[:_LISTED]:
            terminalreporter.line(f'{seconds:7.1f} s  {name}')
