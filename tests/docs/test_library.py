"""The blocks of the page "As a library" run, and print what their comments show."""

import contextlib
import io
import os
import pathlib
import re
from typing import Any, List

import pytest

from tests.docs.pages import read

BLOCKS = {
    section.partition('\n')[0]: re.findall(r'```python\n(.*?)```', section, re.DOTALL)
    for section in read('docs/as-a-library.md').split('\n## ')[1:]
}
# Building the network takes seconds.
DEAR = ('Network', 'Model function')
CASES = [pytest.param(name, marks=pytest.mark.program if name in DEAR else ()) for name in BLOCKS]


def printed(code: str) -> List[str]:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(code, 'docs/as-a-library.md', 'exec'), {})
    return output.getvalue().splitlines()


@pytest.mark.parametrize('name', CASES)
def test_block__prints_what_its_comments_say(
    name: str, digits_dir: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    (code,) = BLOCKS[name]
    if name == 'Model function':
        # Saves time: three blocks are built like all of them.
        request.getfixturevalue('few_blocks')
    (tmp_path / 'runs').mkdir()
    os.symlink(digits_dir, str(tmp_path / 'runs' / 'digits_data'))
    monkeypatch.chdir(tmp_path)
    lines = printed(code)
    assert lines
    for line in re.findall(r'print\(.*\)  # prints (.*)', code):
        assert line in lines


def test_page__has_a_block_for_each_part() -> None:
    parts = re.findall(r'^\| \[[^]]+\]\(#([^)]+)\)', read('docs/as-a-library.md'), re.MULTILINE)
    assert [name.lower().replace(' ', '-') for name in BLOCKS] == parts
