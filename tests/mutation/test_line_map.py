"""Tests of the map of lines that tests execute."""

import importlib.util
import pathlib
import sys
from typing import Any

import pytest

if sys.version_info < (3, 12):
    pytest.skip('sys.monitoring came with Python 3.12', allow_module_level=True)

from tests.mutation import line_map


def test_lines__are_those_of_functions_and_not_of_an_import(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'module.py'
    path.write_text('class Class:\n    value = 2\n\n    def method(self):\n        return self.value\n')
    plugin = line_map.LineMap(tmp_path, {'module.py'})
    try:
        part = line_map._Part(set(), [0.0])
        test: Any = plugin._record(part)
        next(test)
        # The first import of a module within a test.
        spec: Any = importlib.util.spec_from_file_location('module', str(path))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.Class().method() == 2
        assert next(test, None) is None
    finally:
        plugin._monitoring.set_events(line_map._TOOL, 0)
        plugin._monitoring.free_tool_id(line_map._TOOL)
    assert part.lines == {('module.py', 5)}
