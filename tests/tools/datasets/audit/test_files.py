"""The audit of damaged, missing and foreign files, and of the description."""

import concurrent.futures
import gzip
import json
import os
import pathlib
import signal
import subprocess
import zlib
from multiprocessing import forkserver
from typing import Any, Callable, List

import pytest

from data import dataset_info, records
from data.sources import Source
from data.tf_example import Fields
from tests.support.photos import Photo, photo_example
from tests.tools.datasets.audit.data_sets import report_of, write, written
from tools.datasets.audit import report as audit_report
from tools.datasets.audit import shard
from tools.datasets.audit.report import audit
from tools.datasets.tar_shards import conversion as tar_shards


def damaged(data_dir: pathlib.Path, name: str, change: Callable[[bytes], bytes]) -> None:
    path = data_dir / name
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ('change', 'records_left', 'expected'),
    [
        (lambda content: content[:-1], 4, 'record 4: the file is damaged or truncated from here on'),
        (lambda content: content[:200] + b'?' + content[201:], 0, 'record 0: not a record file, or damaged'),
    ],
)
def test_a_damaged_file_is_named_and_the_others_are_read(
    change: Callable[[bytes], bytes], records_left: int, expected: str, pieces: List[Photo], tmp_path: pathlib.Path
) -> None:
    data_dir = written(tmp_path, pieces[:15], pieces[15:])
    damaged(data_dir, 'train-00001-of-00003', change)
    report = report_of(data_dir)
    assert not report['can_be_trained_on']
    (error,) = report['errors']
    assert f'train-00001-of-00003, {expected}' in error
    assert report['splits']['train']['records'] == 10 + records_left
    assert report['splits']['validation']['records'] == 5
    assert report['fingerprint']['agree'] is False
    assert f'train records: {10 + records_left}; dataset.json says 15.' in report['warnings']


@pytest.mark.parametrize('compress', [gzip.compress, zlib.compress])
def test_compressed_file__has_the_same_entries(
    compress: Callable[[bytes], bytes], good_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    path = records.find_shards(str(good_dir), records.TRAIN)[0]
    content = pathlib.Path(path).read_bytes()
    (tmp_path / 'file').write_bytes(compress(content))
    plain, other = ([entry[:2] for entry in shard.of_records(each, 6)] for each in (path, f'{tmp_path}/file'))
    assert plain == other and len(plain) == 5
    shifted = [entry.label for entry in shard.of_records(path, 7, Fields(label_offset=1))]
    assert shifted == [(label or 0) + 1 for _, label in plain]
    (tmp_path / 'file').write_bytes(compress(content) + compress(content))
    with pytest.raises(records.DataError, match='damaged or truncated from here on'):
        [*shard.of_records(f'{tmp_path}/file', 6)]


def test_missing_and_foreign_files_are_named(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    data_dir = written(tmp_path, pieces[:15], pieces[15:])
    os.remove(data_dir / 'train-00002-of-00003')
    (data_dir / 'train-00000-of-00003.bak').write_bytes(b'')
    (data_dir / 'conversion.json').write_bytes(b'{}')
    report = report_of(data_dir)
    assert report['can_be_trained_on']
    assert report['splits']['train']['missing_files'] == ['train-00002-of-00003']
    assert report['other_files'] == ['train-00000-of-00003.bak']
    missing, count, other_data, others = report['warnings']
    assert missing.startswith('the data set is incomplete: 1 of 3 train files are missing, the first is train-00002-of')
    assert count == 'train records: 10; dataset.json says 15.'
    assert other_data.startswith('dataset.json has the fingerprint of other data')
    assert others == 'other files, which are not read: 1: train-00000-of-00003.bak'


@pytest.mark.parametrize(('data_format', 'ending'), [('tfrecord', '-of-00001'), ('tar', '.tar')])
def test_pipe_with_the_name_of_a_file__is_an_error(
    data_format: str, ending: str, pieces: List[Photo], tmp_path: pathlib.Path
) -> None:
    (tmp_path / 'in').mkdir()
    write(tmp_path / 'in', records.VALIDATION, [photo_example(photo) for photo in pieces[15:]], 1)
    data_dir = tmp_path / 'in'
    if data_format == 'tar':
        data_dir = tmp_path / 'tar'
        tar_shards.convert(str(tmp_path / 'in'), str(data_dir), 0, print)
        (data_dir / 'validation-00000-of-00001.tar').rename(data_dir / 'validation-00000.tar')
    pipe = data_dir / f'train-00000{ending}'
    os.mkfifo(str(pipe))
    report = report_of(data_dir, data_format=data_format)
    assert report['errors'][0] == f'{pipe}, record 0: cannot be read: it is a named pipe.'
    assert report['splits']['validation']['records'] == 5


def test_a_split_without_files_and_one_without_records_are_errors(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    data_dir = written(tmp_path, pieces[:15], pieces[15:])
    write(data_dir, records.VALIDATION, [], 2)
    report = report_of(data_dir)
    assert report['errors'] == ['the validation files have no records.']
    for name in ('validation-00000-of-00002', 'validation-00001-of-00002', 'dataset.json'):
        os.remove(data_dir / name)
    report = report_of(data_dir, num_classes=6)
    assert not report['can_be_trained_on']
    assert ['no validation files' in error for error in report['errors']] == [True]
    assert report['splits']['validation']['records'] == 0
    assert report['splits']['validation']['width'] == {'min': None, 'median': None, 'max': None}


def test_descriptions_of_other_data_and_invalid_ones_are_named(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    data_dir = written(tmp_path, pieces[:15], pieces[15:])
    info = dataset_info.read(str(data_dir))
    assert info
    write(data_dir, records.TRAIN, [photo_example(photo) for photo in pieces[1:15]], 3)
    report = report_of(data_dir)
    assert report['can_be_trained_on']
    assert report['warnings'] == [
        'train records: 14; dataset.json says 15.',
        f'dataset.json has the fingerprint of other data: {info.fingerprint}.',
    ]
    (data_dir / 'dataset.json').write_text('{"name": "half of')
    (data_dir / 'train-00000-of-00007').write_bytes(b'')
    report = report_of(data_dir)
    assert not report['can_be_trained_on'] and report['num_classes'] == 1001
    several, invalid = report['errors']
    assert 'several data sets' in several and 'not a valid description of a data set' in invalid
    assert report['splits']['validation']['records'] == 5


def test_counts_of_classes__are_compared_with_the_records(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    data_dir = written(tmp_path, pieces[:15], pieces[15:])
    description = json.loads((data_dir / 'dataset.json').read_text())
    for counts, agree in (([0, 3, 3, 3, 3, 3], True), ([0, 3, 3, 3, 2, 4], False)):
        (data_dir / 'dataset.json').write_text(json.dumps({**description, 'train_images_per_class': counts}))
        report = report_of(data_dir)
        assert report['counts_agree'] is agree
        assert agree == (report['warnings'] == [])
    (warning,) = report['warnings']
    assert 'dataset.json has other numbers of training images of the classes, train_images_per_class' in warning
    # Of some files, which are named, they would be others.
    some = Source(str(data_dir), train_files='train-00000*')
    report = audit(some, None, 1, lambda what, total: lambda done: None)
    # A run counts the records of named files.
    assert (report['counts_agree'], report['is_counted']) == (None, True)


def test_audit__says_that_a_process_was_killed(good_dir: pathlib.Path, monkeypatch: Any) -> None:
    def kill(done: int) -> None:
        server = str(forkserver._forkserver._forkserver_pid)  # type: ignore[attr-defined]
        for pid in subprocess.run(['pgrep', '-P', server], stdout=subprocess.PIPE, check=False).stdout.split():
            os.kill(int(pid), signal.SIGKILL)

    class Pool(concurrent.futures.ProcessPoolExecutor):
        def __init__(self, *arguments: Any):
            super().__init__(*arguments)
            pools.append(arguments)

    pools: List[Any] = []
    monkeypatch.setattr(concurrent.futures, 'ProcessPoolExecutor', Pool)
    # Before it has read anything.
    monkeypatch.setattr(audit_report, '_POLL_SECONDS', 0.001)
    with pytest.raises(records.DataError, match='A process that read the files was killed, perhaps because memory'):
        audit(Source(str(good_dir)), None, 1, lambda what, total: kill)
    # The other processes stop, too.
    ((*_, (*_, read)),) = pools
    assert read.value == shard.STOP


def test_missing_description__names_the_flags_to_pass(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    data_dir = written(tmp_path, pieces[:15], pieces[15:])
    os.remove(data_dir / 'dataset.json')
    report = report_of(data_dir, num_classes=6)
    assert report['fingerprint']['agree'] is None
    (warning,) = report['warnings']
    assert warning.endswith(' label is 5. Pass --num_train_images=15 --num_eval_images=5 --num_classes=6.')
    write(data_dir, records.VALIDATION, [], 2)
    (warning,) = (w for w in report_of(data_dir, num_classes=6)['warnings'] if '--num_' in w)
    assert warning.endswith(' Pass --num_train_images=15 --num_classes=6.')
