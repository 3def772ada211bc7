"""Small text files: written whole, and a JSON object per line."""

import json
import os
import pathlib
from typing import Any, Dict, List, NamedTuple, Optional

import pytest

from compat import tf
from console import json_content
from data import files, remote


def test_write_whole__keeps_the_old_content_until_the_new_is_complete(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    path, work_dir = tmp_path / 'file', tmp_path / 'work'
    work_dir.mkdir()
    path.write_bytes(b'old')
    rename = tf.io.gfile.rename

    def check_and_rename(unfinished: str, *others: Any, **options: Any) -> None:
        assert path.read_bytes() == b'old'
        assert pathlib.Path(unfinished).read_bytes() == b'new' and os.path.dirname(unfinished) == str(work_dir)
        rename(unfinished, *others, **options)

    monkeypatch.setattr(tf.io.gfile, 'rename', check_and_rename)
    files.write_whole(str(path), b'new', str(work_dir))
    assert path.read_bytes() == b'new' and os.listdir(str(work_dir)) == []


def test_append_line__adds_an_object_per_line_after_half_a_line(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'a.jsonl'
    files.append_line(str(path), {'a': 1})
    files.append_line(str(path), {'b': [2, None], 'c': 'x\ny'})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{'a': 1}, {'b': [2, None], 'c': 'x\ny'}]
    path.write_text('{"a": 1}\n{"a": ')
    files.append_line(str(path), {'b': 2})
    assert path.read_text() == '{"a": 1}\n{"a": \n{"b": 2}\n'


def test_append_line__rewrites_a_remote_file(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    path = tmp_path / 'a.jsonl'
    path.write_text('{"a": 1}\n')
    modes = []
    opened = tf.io.gfile.GFile

    def open_file(path: str, mode: str) -> Any:
        modes.append(mode)
        return opened(path, mode)

    monkeypatch.setattr(remote, 'is_remote', lambda path: True)
    monkeypatch.setattr(remote, 'read', lambda path: pathlib.Path(path).read_bytes())
    monkeypatch.setattr(tf.io.gfile, 'GFile', open_file)
    files.append_line(str(path), {'b': 2})
    assert modes == ['w'] and path.read_text() == '{"a": 1}\n{"b": 2}\n'


def test_read_lines__skips_and_counts_damaged_lines(tmp_path: pathlib.Path, caplog: Any) -> None:
    path = tmp_path / 'a.jsonl'
    path.write_bytes(b'{"a": 1}\n\n{"a": \n[1]\n{"b": 3}\n\xff\xfe\n{"a": "4"}\n' + b'[' * 100_000 + b'\n{"a": 5}')
    found = files.read_lines(str(path), lambda values: int(values.get('a') or 'none'))
    assert found == [1, 4, 5]
    assert f'{path}: skipped 5 of 8 lines, which are damaged' in caplog.text


def test_read_lines__of_a_missing_file_is_empty(tmp_path: pathlib.Path, caplog: Any) -> None:
    assert files.read_lines(str(tmp_path / 'none'), int) == []
    assert files.text_of(str(tmp_path / 'none')) == ''
    assert not caplog.records


class _Fields(NamedTuple):
    number: int
    share: float
    name: str
    parts: Dict[str, List[int]]
    free: Any
    other: Optional[str] = None


GOOD = '{"number": 1, "share": 2, "name": "n", "parts": {"a": [3]}, "free": [1, "x"]}'


def test_record__has_the_declared_types() -> None:
    values = json_content.from_json(GOOD.encode(), lambda values: json_content.record(_Fields, values))
    assert values == _Fields(1, 2, 'n', {'a': [3]}, [1, 'x'], None)


@pytest.mark.parametrize(
    'content',
    [
        *('', '{', '[]', 'null', '3', '"text"', '{}', '[' * 100_000, '{"a":' * 100_000),
        *(b'\xff{}', b'\x00', GOOD.replace('2', '1' + '0' * 400), GOOD.replace('1', '1' + '0' * 40, 1)),
        *(GOOD.replace('1', each, 1) for each in ('true', '1.0', 'null', '"1"', 'NaN', '9223372036854775808')),
        *(GOOD.replace('2', each) for each in ('"2"', 'null', '[2]', 'true')),
        *(GOOD.replace('[3]', each) for each in ('3', '["3"]', '{}', '[null]')),
        *(GOOD.replace('"n"', each) for each in ('1', 'null', '["n"]')),
        *(GOOD.replace('"n"', '"n", "other": 1'), GOOD.replace('"n"', '"n", "unknown": 1')),
    ],
    ids=lambda content: repr(content[-40:]),
)
def test_from_json__any_other_content_is_a_value_error(content: Any) -> None:
    with pytest.raises(ValueError):
        json_content.from_json(content, lambda values: json_content.record(_Fields, values))
