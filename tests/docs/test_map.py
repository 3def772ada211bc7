"""The map from the guide to the code names files, symbols and tests that exist."""

import ast
import dataclasses
import functools
import re
from typing import List, NamedTuple, Set

import pytest

from inception_v3.config import Config
from inception_v3_tpu.__main__ import COMMANDS, PROGRAM
from tests.docs.pages import ROOT, read

_ROW = re.compile(r'\| (?P<concept>[^|]+) \| `(?P<code>[^`|]+)` \| `(?P<test>[^`|]+)` \|')


class Row(NamedTuple):
    """A row of the map: a concept, `file:symbol`, and `file::test`."""

    concept: str
    code: str
    test: str


def rows_of(page: str) -> List[Row]:
    """The rows of the map's tables in a page."""
    return [Row(**match.groupdict()) for match in map(_ROW.fullmatch, read(page).splitlines()) if match]


@functools.lru_cache(maxsize=None)
def symbols_of(path: str) -> Set[str]:
    """The names that a module defines: functions, classes, constants, and `Class.method`."""
    tree = ast.parse(read(path))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    names: Set[str] = set()
    for prefix, body in [('', tree.body), *((f'{node.name}.', node.body) for node in classes)]:
        for statement in body:
            targets = getattr(statement, 'targets', [getattr(statement, 'target', None)])
            found = [getattr(statement, 'name', None), *(getattr(target, 'id', None) for target in targets)]
            names.update(f'{prefix}{name}' for name in found if name)
    return names


@pytest.mark.parametrize('row', rows_of('docs/map.md'), ids=lambda row: row.concept)
def test_map__names_code_and_a_test_that_exist(row: Row) -> None:
    path, _, symbol = row.code.partition(':')
    assert (ROOT / path).is_file()
    assert not symbol or symbol in symbols_of(path)
    test_file, _, test = row.test.partition('::')
    assert (ROOT / test_file).is_file()
    assert test.startswith('test_') and test in symbols_of(test_file)


def names_of(page: str) -> List[List[str]]:
    """The cells of the table of names in the documents."""
    lines = read(page).partition('## Names in the documents')[2].splitlines()
    return [line.strip('| ').split(' | ') for line in lines if line.startswith('| ')][1:]


@pytest.mark.parametrize('row', names_of('docs/map.md'), ids=lambda row: row[0])
def test_names__have_files_symbols_flags_and_commands_that_exist(row: List[str]) -> None:
    _, _, here = row
    flags = {field.name for field in dataclasses.fields(Config)}
    for item in re.findall('`([^`]+)`', here):
        name, _, symbol = item.partition(':' if '/' in item else '=')
        if item.startswith('--'):
            assert {name[2:], name[4:] if name.startswith('--no') else ''} & flags
        elif item.startswith(f'{PROGRAM} '):
            assert item.split()[1] in COMMANDS
        elif item not in ('dataset.json', 'tf.function', 'tf.switch_case'):
            assert (ROOT / name).is_file()
            assert not symbol or symbol in symbols_of(name)


def test_japanese_readme__has_symbols_that_exist_and_the_published_figures() -> None:
    text = read('README.ja.md')
    symbols = re.findall(r'`([\w/]+\.py):(\w+)`', text)
    assert len(symbols) >= 15
    assert not [each for each in symbols if each[1] not in symbols_of(each[0])]
    number = re.compile(r'\d+(?:[.,]\d+)*(?:e-\d+)?')
    table = text.partition('## 公表値')[2].partition('\n## ')[0].partition('|---')[2]
    assert len(number.findall(table)) >= 40
    assert set(number.findall(table)) <= set(number.findall(read('docs/published.md')))


def test_map__is_read_whole() -> None:
    lines = read('docs/map.md').partition('## Names in the documents')[0].splitlines()
    assert len(names_of('docs/map.md')) >= 30
    rows = [line for line in lines if line.startswith('|') and not line.startswith(('| concept', '|---'))]
    assert len(rows_of('docs/map.md')) == len(rows) >= 50


def test_readme__names_the_modules_to_read_with_their_lengths() -> None:
    found = re.findall(r'^\d+\. `(.+?)` \((\d+) lines\)', read('README.md'), re.MULTILINE)
    assert len(found) >= 8
    for path, lines in found:
        assert int(lines) == pytest.approx(len(read(path).splitlines()), rel=0.15), path
