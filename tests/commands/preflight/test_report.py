"""Tests of the preflight's report: values, findings and verdict."""

import json

from inception_v3.commands.preflight.report import Report


def test_report__has_sections_findings_and_the_verdict() -> None:
    report = Report('a title')
    report.add('of_a_core', key_bytes=3 << 20, hosts=[3, 1200])
    report.add('of_a_core', 'three', k=3.14159)
    report.warn('careful')
    path = '--model_dir=gs://bucket/' + 'a-long-path/' * 12
    report.error(f'{"word " * 18}{path}: cannot be written to')
    report.not_checked.append('the weather')
    lines = report.text().splitlines()
    assert lines[2:6] == [
        'of a core',
        '  key bytes  3,145,728 (3.0 MiB)',
        '  hosts      3 to 1,200',
        '  k          3.14, three',
    ]
    assert f'{path}: cannot' in lines[-7], 'long paths are not broken'
    assert lines[-6:] == ['  warning  careful', '', 'not checked', '    the weather', '', 'may not start: 1 problem']
    assert json.loads(report.json()) == {
        'of_a_core': {'key_bytes': 3 << 20, 'hosts': [3, 1200], 'k': 3.14159},
        'errors': report.errors,
        'warnings': ['careful'],
        'not_checked': ['the weather'],
        'may_start': False,
    }
