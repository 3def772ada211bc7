"""Tests of the preflight's report: values, findings and verdict."""

import json

import pytest

from inception_v3.commands.preflight.report import Report


def test_text__has_sections_findings_and_the_verdict() -> None:
    report = Report('a title')
    report.add('of_a_core', 'key_name', 1234567)
    report.add('of_a_core', 'k', 3, 'three', 'a label')
    report.add('other', 'list', [1, 2], 'one or two')
    report.warn('careful')
    report.error('wrong')
    report.not_checked.append('the weather')
    assert report.text().splitlines() == [
        'a title',
        '',
        'of a core',
        '  key name  1,234,567',
        '  a label   three',
        '',
        'other',
        '  list      one or two',
        '',
        'findings',
        '  error    wrong',
        '  warning  careful',
        '',
        'not checked',
        '  the weather',
        '',
        'may not start: 1 problem',
    ]
    assert json.loads(report.json()) == {
        'of_a_core': {'key_name': 1234567, 'k': 3},
        'other': {'list': [1, 2]},
        'errors': ['wrong'],
        'warnings': ['careful'],
        'missing_flags': [],
        'not_checked': ['the weather'],
        'may_start': False,
    }


@pytest.mark.parametrize(
    ('errors', 'warnings', 'verdict'),
    [
        (0, 0, 'may start'),
        (0, 1, 'may start, 1 warning'),
        (0, 2, 'may start, 2 warnings'),
        (2, 1, 'may not start: 2 problems'),
    ],
)
def test_verdict__counts_problems_or_warnings(errors: int, warnings: int, verdict: str) -> None:
    report = Report('title')
    for _ in range(errors):
        report.error('wrong')
    for _ in range(warnings):
        report.warn('careful')
    assert report.verdict == verdict and report.may_start == (errors == 0)


def test_verdict__names_the_flags_that_the_run_still_needs() -> None:
    report = Report('title')
    report.need('--model_dir', 'not given')
    report.need('--tpu or --master', 'no TPU')
    assert report.verdict == 'may start with --model_dir, --tpu or --master, which this command line lacks, 2 warnings'
    assert report.may_start and json.loads(report.json())['missing_flags'] == ['--model_dir', '--tpu or --master']
    report.error('wrong')
    assert report.verdict == 'may not start: 1 problem'


def test_text__does_not_break_long_paths() -> None:
    report = Report('title')
    report.add('section', 'key', 0)
    path = '--model_dir=gs://bucket/' + 'a-long-path/' * 12
    report.error(f'{"word " * 18}{path}: cannot be written to')
    assert f'           {path}:' in report.text().splitlines()
