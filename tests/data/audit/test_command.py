"""The command inception-v3 audit."""

import json
import pathlib
import sys
from typing import Any, List

import pytest

from data.audit import __main__ as audit
from tests.data.audit.data_sets import Report
from tests.support.bad_records import DAMAGES
from tests.support.commands import run


def test_json_needs_no_rich_and_the_table_does(good_dir: pathlib.Path, good: Report, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, 'rich', None)
    monkeypatch.delitem(sys.modules, 'data.audit.table', raising=False)
    done = run(audit.main, good_dir, '--json')
    assert (done.returncode, done.stderr) == (0, '')
    report = json.loads(done.stdout)
    assert (report['splits'], report['fingerprint']) == (good['splits'], good['fingerprint'])
    done = run(audit.main, good_dir)
    assert (done.returncode, done.stdout) == (2, '')
    assert "pip install 'inception-v3-tpu[data]', or print the report with --json" in done.stderr


def test_table__shows_content_and_problems(bad_dir: pathlib.Path) -> None:
    done = run(audit.main, bad_dir)
    assert (done.returncode, done.stderr) == (2, '')
    text = ' '.join(done.stdout.split())
    for expected in (
        'train validation',
        f'records {10 + len(DAMAGES) + 3} 5',
        '1 cat 2 ████',
        "(not dataset.json's)",
        'undecodable 4 0',
        'error train records that cannot be used: 8. Training stops at them, unless --max_bad_records',
        'cannot be trained on: 3 errors',
    ):
        assert expected in text, text


def test_tar_shards(tar_dir: pathlib.Path, bad_tar_dir: pathlib.Path) -> None:
    done = run(audit.main, tar_dir, '--data_format=tar')
    assert (done.returncode, done.stderr) == (0, '')
    assert "(dataset.json's)" in done.stdout and done.stdout.endswith('can be trained on\n')
    assert run(audit.main, bad_tar_dir, '--data_format=tar', '--num_classes=6').returncode == 2
    done = run(audit.main, tar_dir)
    assert (done.returncode, done.stdout) == (2, '') and '--data_format=tar reads tar files' in done.stderr


@pytest.mark.parametrize(
    ('arguments', 'expected'),
    [
        (['/no/such/folder'], '--data_dir=/no/such/folder: no such folder'),
        (['DIR', '--num_classes=1'], '--num_classes: 1: must be '),
        ([], 'name the folder of the data set'),
    ],
)
def test_usage_errors__give_a_message(arguments: List[str], expected: str) -> None:
    done = run(audit.main, *arguments)
    assert (done.returncode, done.stdout) == (2, '') and expected in done.stderr
