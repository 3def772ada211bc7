"""A pytest plugin that records which lines each test executes, including those of its fixtures.

`sys.monitoring`, of Python 3.12 and later, reports only the lines of the program: it costs little, and no package.
"""

import inspect
import sys
from pathlib import Path
from typing import Any, Dict, Generator, List, NamedTuple, Set, Tuple

import pytest

from tests.support.cpu_time import cpu_seconds

Line = Tuple[str, int]  # A file, relative to the root of the tree, and the number of a line in it.
_TOOL = 4  # One of the two numbers that Python leaves to tools without a name.


class _Part(NamedTuple):
    """A part of a session: a test, or a fixture of a wider scope, which several tests use."""

    lines: Set[Line]
    seconds: List[float]


class LineMap:
    """The plugin: after `pytest.main`, `tests` has an entry for each test that has passed.

    An entry has the lines, the CPU-seconds of the test itself, and those of its wider fixtures by name.
    """

    def __init__(self, root: Path, files: Set[str]):
        self._paths = {str(root / file): file for file in files}
        self._own: Dict[str, _Part] = {}
        self._fixtures: Dict[str, _Part] = {}
        self._names: Dict[str, List[str]] = {}
        self._passed: Dict[str, bool] = {}
        self._stack: List[Set[Line]] = [set()]  # The first set holds the lines of imports, which no test needs.
        self._monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        self._monitoring.use_tool_id(_TOOL, 'line_map')
        events = self._monitoring.events
        self._monitoring.register_callback(_TOOL, events.PY_START, self._start)
        self._monitoring.register_callback(_TOOL, events.LINE, self._line)
        self._monitoring.set_events(_TOOL, events.PY_START)

    def _start(self, code: Any, offset: int) -> Any:
        """Requests the lines of a function of the program at its first call.

        The lines of modules and classes are executed by the first import, for all tests.
        """
        if code.co_filename in self._paths and code.co_flags & inspect.CO_OPTIMIZED:
            self._monitoring.set_local_events(_TOOL, code, self._monitoring.events.LINE)
        return self._monitoring.DISABLE

    def _line(self, code: Any, line: int) -> None:
        self._stack[-1].add((self._paths[code.co_filename], line))

    def _record(self, part: _Part) -> Generator[None, Any, None]:
        self._stack.append(part.lines)
        start = cpu_seconds()
        try:
            yield
        finally:
            part.seconds[0] += cpu_seconds() - start
            self._stack.pop()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, Any, None]:
        """Records the lines of a test and its own fixtures."""
        self._names[item.nodeid] = list(item.fixturenames)
        yield from self._record(self._own.setdefault(item.nodeid, _Part(set(), [0.0])))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, None]:
        """Records the lines of a wider fixture for all tests that use it, not only for the first one."""
        if fixturedef.scope == 'function':
            yield
        else:
            yield from self._record(self._fixtures.setdefault(fixturedef.argname, _Part(set(), [0.0])))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Notes whether a test passes."""
        self._passed[report.nodeid] = self._passed.get(report.nodeid, True) and report.passed

    @property
    def tests(self) -> Dict[str, Dict[str, Any]]:
        """The entries, by the name of the test."""
        entries = {}
        for name, own in self._own.items():
            if not self._passed.get(name):
                continue
            fixtures = {each: self._fixtures[each] for each in self._names[name] if each in self._fixtures}
            lines: Dict[str, List[int]] = {}
            for file, line in sorted(own.lines.union(*(part.lines for part in fixtures.values()))):
                lines.setdefault(file, []).append(line)
            # The first test of a session pays for the fixtures that it shares.
            wider = {each: part.seconds[0] for each, part in fixtures.items()}
            entries[name] = {'lines': lines, 'seconds': own.seconds[0], 'fixtures': wider}
        return entries
