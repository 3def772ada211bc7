"""The command inception-v3 audit."""

import json
import pathlib
import sys
from typing import Any, Callable, List

import pytest

from data.audit import __main__ as audit_command
from tests.data.audit.data_sets import Report
from tests.support.bad_records import DAMAGES


@pytest.fixture
def run(monkeypatch: Any, capsys: Any) -> Callable[..., Any]:
    """Runs the command in this process, and returns its exit code, standard output and standard error."""

    def run(*arguments: str) -> Any:
        monkeypatch.setattr(sys, 'argv', ['audit', *arguments])
        with pytest.raises(SystemExit) as end:
            sys.exit(audit_command.main())
        return (end.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def without_rich(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, 'rich', None)
    monkeypatch.delitem(sys.modules, 'data.audit.table', raising=False)


def test_the_program_prints_json_without_rich(
    good_dir: pathlib.Path, good: Report, run: Callable[..., Any], without_rich: None
) -> None:
    code, printed, complaints = run(str(good_dir), '--json')
    assert (code, complaints) == (0, '')
    report = json.loads(printed)
    assert (report['splits'], report['fingerprint']) == (good['splits'], good['fingerprint'])


def test_the_table_needs_rich(good_dir: pathlib.Path, run: Callable[..., Any], without_rich: None) -> None:
    code, printed, complaints = run(str(good_dir))
    assert (code, printed) == (2, '')
    assert "pip install 'inception-v3-tpu[data]', or print the report with --json" in complaints


def test_table__shows_content_and_problems(bad_dir: pathlib.Path, run: Callable[..., Any]) -> None:
    code, printed, complaints = run(str(bad_dir))
    assert (code, complaints) == (2, '')
    text = ' '.join(printed.split())
    for expected in (
        'train validation',
        f'records {10 + len(DAMAGES) + 3} 5',
        '1 cat 2 ████',
        "(not dataset.json's)",
        'undecodable 4 0',
        'error train records that cannot be used: 8. Training stops at them, unless --max_bad_records',
        'cannot be trained on: 3 errors',
    ):
        assert expected in text, printed


def test_the_program_audits_tar_shards(
    tar_dir: pathlib.Path, bad_tar_dir: pathlib.Path, run: Callable[..., Any]
) -> None:
    code, printed, complaints = run(str(tar_dir), '--data_format=tar')
    assert (code, complaints) == (0, '')
    assert "(dataset.json's)" in printed
    assert printed.endswith('can be trained on\n')
    code, printed, complaints = run(str(tar_dir), '--data_format=tar', '--nodecode')
    assert printed.endswith(
        'can be trained on, according to image headers (without --nodecode, whole images are checked)\n'
    )
    assert run(str(bad_tar_dir), '--data_format=tar', '--num_classes=6')[0] == 2
    code, printed, complaints = run(str(tar_dir))
    assert (code, printed) == (2, '')
    assert '--data_format=tar reads tar files' in complaints


@pytest.mark.parametrize(
    ('arguments', 'expected'),
    [
        (['/no/such/folder'], '--data_dir=/no/such/folder: no such folder'),
        (['DIR', '--num_classes=1'], '--num_classes=1: must be at least 2'),
        (['DIR', '--processes=0'], '--processes=0: must be at least 1'),
        ([], 'data_dir'),
    ],
)
def test_usage_errors__are_one_line(arguments: List[str], expected: str, run: Callable[..., Any]) -> None:
    code, printed, complaints = run(*arguments)
    assert (code, printed) == (2, '')
    assert expected in complaints
