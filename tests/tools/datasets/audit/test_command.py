"""The command inception-v3 audit, and its tables."""

import copy
import json
import pathlib
from typing import List

import pytest

from tests.support.bad_records import DAMAGES
from tests.support.commands import run
from tests.tools.datasets.audit.data_sets import Report
from tools.datasets.audit import __main__ as audit


def test_json__is_the_report(good_dir: pathlib.Path, good: Report) -> None:
    done = run(audit.main, good_dir, '--json')
    assert (done.returncode, done.stderr) == (0, '')
    report = json.loads(done.stdout)
    assert (report['splits'], report['fingerprint']) == (good['splits'], good['fingerprint'])


def test_flags_of_the_source__choose_files_and_labels(good_dir: pathlib.Path, good: Report) -> None:
    done = run(audit.main, good_dir, '--json', '--train_files=train-00000*', '--label_offset=1', '--num_classes=9')
    report = json.loads(done.stdout)
    assert 0 < report['splits']['train']['records'] < good['splits']['train']['records']
    counts, shifted = ([each['validation'] for each in found['classes']] for found in (good, report))
    assert any(counts) and shifted[: len(counts) + 1] == [0, *counts]


def test_table__shows_content_and_problems(bad_dir: pathlib.Path) -> None:
    done = run(audit.main, bad_dir, '--croissant')
    assert (done.returncode, done.stderr) == (2, '')
    assert not (bad_dir / 'croissant.json').exists(), 'the data set has errors'
    text = ' '.join(done.stdout.split())
    for expected in ('train validation', f'records {10 + len(DAMAGES) + 2} 5', '1 cat 2 1', 'undecodable 3 0'):
        assert expected in text, text
    assert "(not dataset.json's)" in text and 'cannot be trained on: 3 errors' in text, text


def test_audit__reads_tar_shards_and_names_their_flag(
    tar_dir: pathlib.Path, bad_tar_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    hostile = tmp_path / 'a\n\x1b[0m'
    hostile.symlink_to(tar_dir)
    done = run(audit.main, hostile, '--data_format=tar')
    assert (done.returncode, done.stderr) == (0, '')
    assert done.stdout.startswith(f'pieces, {tmp_path}/a\\n\\x1b[0m\n')
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
        (['.', '--train_files=a', '--train_files=b'], '--train_files: given 2 times'),
    ],
)
def test_usage_errors__give_a_message(arguments: List[str], expected: str) -> None:
    done = run(audit.main, *arguments)
    assert (done.returncode, done.stdout) == (2, '') and expected in done.stderr


def lines_of(report: Report) -> List[str]:
    return [' '.join(line.split()) for line in audit.lines_of(report)]


def test_table__is_complete_with_the_fewest_and_the_most_images(good: Report) -> None:
    report = copy.deepcopy(good)
    classes = [{'label': n, 'name': f'[{n}]', 'train': n, 'validation': 0} for n in range(1, 31)]
    # The background has images here.
    report['classes'] = [{'label': 0, 'name': 'background', 'train': 0, 'validation': 5}, *classes]
    # It has no name.
    report['classes'][1]['name'] = None
    none = {'min': None, 'median': None, 'max': None}
    report['splits']['train'].update(
        missing_files=['train-00003-of-00004'],
        width={'min': 1, 'median': 20.5, 'max': 3000},
        height={'min': 4, 'median': 5.0, 'max': 6000},
        encoded_bytes={'min': 500, 'median': 1234.0, 'max': 5_678_900, 'total': 12_345_678},
        formats={'PNG': 1, 'JPEG': 1400},
        boxes={'boxes': 1020, 'outside': 3},
    )
    report['splits']['validation'].update(
        width=none,
        height=none,
        encoded_bytes={**none, 'total': 0},
        formats={'GIF': 5},
        boxes={'boxes': 6, 'outside': 0},
    )
    report['duplicates'].update(train=1, validation=2, between=3)
    report['fingerprint'] = {'taken': 'abc', 'agree': None}
    report.update(name=None, data_dir='/data', seconds=2.5, records_per_second=1234)
    assert lines_of(report) == [
        *('/data', '', 'train validation', 'files 3 of 4 2', 'records 15 5'),
        *('width, px: min, median, max 1 20 3,000 -', 'height, px 4 5 6,000 -', 'image, kB 0.5 1.2 5,678.9 -'),
        *('all images, MB 12.3 0.0', 'GIF 0 5', 'JPEG 1,400 0', 'PNG 1 0', 'bounding boxes 1,020 6'),
        *('bad files 0 0', 'bad fields 0 0', 'undecodable 0 0', 'bad boxes 0 0', 'left out 0 0', 'damaged 0 0'),
        *('rotated 0 0', '', 'class train validation', '0 background 0 5'),
        *('1 1 0', *(f'{n} [{n}] {n} 0' for n in range(2, 12))),
        '… 7 classes between',
        *(f'{n} [{n}] {n} 0' for n in range(19, 31)),
        *('', 'fingerprint abc (dataset.json has none)'),
        'copies 1 within train, 2 within validation, 3 between them',
        *('read in 2.5 s, 1,234 records/s', 'can be trained on'),
    ]


def test_table__lists_findings(good: Report) -> None:
    report = copy.deepcopy(good)
    report['splits']['train']['bad_fields']['count'] = 1030
    report.update(can_be_trained_on=False, errors=['a', '[b]'], warnings=['c'])
    lines = lines_of(report)
    assert lines[0] == f'pieces, {report["data_dir"]}' and 'bad fields 1,030 0' in lines
    assert not [line for line in lines if 'background' in line]
    assert [line for line in lines if line.startswith(('error ', 'warning '))] == ['error a', 'error [b]', 'warning c']
    assert lines[-1] == 'cannot be trained on: 2 errors, 1 warning'
    report['croissant'] = {'path': 'croissant.json', 'checked': True, 'not_given': []}
    assert 'croissant croissant.json (valid, says mlcroissant)' in lines_of(report)
    report.update(can_be_trained_on=True, errors=[], warnings=['c', 'd'])
    assert lines_of(report)[-1] == 'can be trained on: 2 warnings'
    report['splits']['validation']['files'] = 0
    assert lines_of(report)[-1] == 'train files alone: can be trained on: 2 warnings'


def test_validation_files_alone__have_no_verdict_on_training(good_dir: pathlib.Path) -> None:
    done = run(audit.main, f'--eval_files={good_dir}/validation-*', '--num_classes=6', '--processes=1')
    assert done.returncode == 0 and done.stdout.endswith('validation files alone: can be evaluated: 1 warning\n')
    assert 'without training images' not in done.stdout
    done = run(audit.main, f'--eval_files={good_dir}/validation-*', '--num_classes=2', '--processes=1', '--json')
    assert done.returncode == 2 and json.loads(done.stdout)['can_be_trained_on'] is None
