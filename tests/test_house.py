"""Tests of the sizes of files, classes and functions, and of the names and first words of modules."""

import ast
import pathlib
import re
from typing import Dict, List

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ('console', 'preprocessing', 'data', 'inception_v3', 'studies', 'benchmarks', 'examples', 'inception_v3_tpu')
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob('*.py'))]

MAX_FILE_LINES, MAX_CLASS_LINES, MAX_FUNCTION_LINES = 400, 200, 60
# The documented program alone, and with its rooms.
MAX_PROGRAM_LINES, MAX_PACKAGE_LINES = 2700, 20000
DRAWERS = {'utils', 'util', 'common', 'helpers', 'helper', 'misc'}


def lines_of(path: pathlib.Path) -> List[str]:
    return path.read_text().splitlines()


def too_long(path: pathlib.Path) -> Dict[str, int]:
    """The classes and functions of a module with too many lines. Python 3.7 does not record the end of a node."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            lines = [line for line in (getattr(each, 'lineno', 0) for each in ast.walk(node)) if line]
            limit = MAX_CLASS_LINES if isinstance(node, ast.ClassDef) else MAX_FUNCTION_LINES
            if max(lines) - min(lines) >= limit:
                found[node.name] = max(lines) - min(lines) + 1
    return found


def name_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize('path', FILES, ids=name_of)
def test_files_classes_and_functions_are_small(path: pathlib.Path) -> None:
    assert len(lines_of(path)) <= MAX_FILE_LINES
    assert not too_long(path)


def test_the_program_is_small() -> None:
    top = [path for path in FILES if path.parent == ROOT / 'inception_v3']
    package = [path for path in FILES if ROOT / 'inception_v3' in path.parents]
    assert sum(len(lines_of(path)) for path in top) <= MAX_PROGRAM_LINES
    assert sum(len(lines_of(path)) for path in package) < MAX_PACKAGE_LINES


def test_no_module_is_a_drawer() -> None:
    assert not [name_of(path) for path in FILES if path.stem in DRAWERS or path.parent.name in DRAWERS]


@pytest.mark.parametrize('path', [*FILES, *sorted((ROOT / 'tests').rglob('*.py'))], ids=name_of)
def test_docstrings_name_their_subject(path: pathlib.Path) -> None:
    nodes = ast.walk(ast.parse(path.read_text()))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = [ast.get_docstring(node) or '' for node in nodes if isinstance(node, documented)]
    assert not [text.splitlines()[0] for text in texts if re.match(r'(What|How|Where)\b', text)]
