"""Tests of the names of modules and the first words of docstrings."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ('console', 'preprocessing', 'data', 'inception_v3', 'studies', 'benchmarks', 'examples', 'inception_v3_tpu')
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob('*.py'))]

DRAWERS = {'utils', 'util', 'common', 'helpers', 'helper', 'misc'}


def name_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_module_is_a_drawer() -> None:
    assert not [name_of(path) for path in FILES if path.stem in DRAWERS or path.parent.name in DRAWERS]


@pytest.mark.parametrize('path', [*FILES, *sorted((ROOT / 'tests').rglob('*.py'))], ids=name_of)
def test_docstrings_name_their_subject(path: pathlib.Path) -> None:
    nodes = ast.walk(ast.parse(path.read_text()))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = [ast.get_docstring(node) or '' for node in nodes if isinstance(node, documented)]
    assert not [text.splitlines()[0] for text in texts if re.match(r'(What|How|Where)\b', text)]
