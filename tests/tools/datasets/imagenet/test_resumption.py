"""Interrupted conversions of ImageNet: failures, kills and resumption."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Sequence

import pytest

from data import records, remote
from tests.support.commands import largest_file
from tests.tools.datasets.conftest import Told
from tests.tools.datasets.imagenet import archives as imagenet_archives
from tests.tools.datasets.imagenet.archives import (
    KIT,
    TRAIN,
    Archives,
    convert,
    convert_here,
    files_of,
    refusal,
    stored,
)
from tools.datasets.fingerprints import SplitFingerprint
from tools.datasets.imagenet import pipeline


def some_of(shards: Sequence[str], data_dir: str, work_dir: str, watch: Callable[[], None]) -> None:
    """Converts some of the shards, as an interrupted conversion does."""
    convert_here(shards[:2], data_dir, work_dir, watch)
    raise KeyboardInterrupt


def test_interrupted_conversion__resumes(archives: Archives, tmp_path: pathlib.Path, told: Told) -> None:
    with pytest.raises(KeyboardInterrupt):
        convert(archives, tmp_path / 'out', run=some_of)
    finished = {name: (tmp_path / 'out' / name).stat() for name in files_of(tmp_path / 'out')}
    assert len(finished) == 2
    assert not (tmp_path / 'out' / 'dataset.json').exists()
    said = convert(archives, tmp_path / 'out')
    assert said[0] == '2 of 5 record files are already finished'
    # The images in all, and after each file: first 8, 8; then 8, 4, 4.
    assert [number for what, number in told if what == 'converting images'] == [32, 8, 16, 16, 8, 12, 16]
    for name, before in finished.items():
        assert (tmp_path / 'out' / name).stat().st_mtime_ns == before.st_mtime_ns
    convert(archives, tmp_path / 'at once')
    assert files_of(tmp_path / 'out') == files_of(tmp_path / 'at once')
    for name in ('dataset.json', 'conversion.json'):
        assert (tmp_path / 'out' / name).read_text() == (tmp_path / 'at once' / name).read_text()


@pytest.mark.parametrize(
    ('name', 'length'),
    [
        ('train-00000-of-00003', 1000),
        ('conversion/train-00000-of-00003.report', 50),
    ],
)
def test_truncated_finished_file__is_made_again(
    archives: Archives, tmp_path: pathlib.Path, name: str, length: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        convert(archives, tmp_path / 'out', run=some_of)
    path = tmp_path / 'out' / name
    path.write_bytes(path.read_bytes()[:length])
    said = convert(archives, tmp_path / 'out')
    assert said[0] == '1 of 5 record files are already finished'
    convert(archives, tmp_path / 'at once')
    assert files_of(tmp_path / 'out') == files_of(tmp_path / 'at once')


def test_resuming__refuses_other_settings(archives: Archives, tmp_path: pathlib.Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        convert(archives, tmp_path / 'out', run=some_of)
    message = refusal(archives, tmp_path / 'out', shards={records.TRAIN: 5, records.VALIDATION: 2})
    assert f'{tmp_path / "out"}: was started with other settings: --train_shards was 3, and is 5.' in message
    # Boxes, which it had not; a file of the same size with other content; an archive of another size.
    (archives.folder / 'boxes').mkdir()
    boxes = str(archives.folder / 'boxes')
    assert f'--bounding_boxes was none, and is {boxes}.' in refusal(archives, tmp_path / 'out', bounding_boxes=[boxes])
    kit, train = archives.folder / KIT, archives.folder / TRAIN
    kit.write_bytes(kit.read_bytes()[:-1] + b'\1')
    assert '--validation_labels was ' in refusal(archives, tmp_path / 'out')
    train.write_bytes(train.read_bytes() + b'\0')
    assert f'--train was {train} (' in refusal(archives, tmp_path / 'out')


def test_unreadable_images__are_named_and_can_be_repaired(archives: Archives, tmp_path: pathlib.Path) -> None:
    archives.extract(archives.folder)
    options: Dict[str, Any] = {'train': 'train', 'validation': 'val'}
    images = {archives.folder / 'train' / 'n07920052' / name: content for name, content in archives.train['n07920052']}
    for each, content in images.items():
        each.write_bytes(content[: len(content) // 2])
    message = refusal(archives, tmp_path / 'all', **options)
    assert all(str(each) in message for each in images) and 'conversion.json' not in message
    for each, content in images.items():
        each.write_bytes(content)
    name, content = archives.train['n07920052'][0]
    # In an archive.
    train = {**archives.train, 'n07920052': [(name, content[:99]), *archives.train['n07920052'][1:]]}
    cut = archives._replace(folder=tmp_path / 'cut', train=train).write()
    assert f'and are left out: {name} in {cut.folder / TRAIN}. Repair' in refusal(cut, tmp_path / 'of archives')
    path = archives.folder / 'train' / 'n07920052' / name
    path.write_bytes(content[: len(content) // 2])
    message = refusal(archives, tmp_path / 'out', **options)
    assert '23 train images were written; 24 are expected. ' in message and '--train_images=23' in message
    assert f'1 images cannot be decoded, and are left out: {path}. Repair' in message
    assert len(files_of(tmp_path / 'out')) == 5
    # Either accept the lower number ...
    expected = {records.TRAIN: 23, records.VALIDATION: 8}
    subprocess.run(['cp', '-r', str(tmp_path / 'out'), str(tmp_path / 'without')], check=True)
    said = convert(archives, tmp_path / 'without', expected=expected, **options)
    assert said[0] == '4 of 5 record files are already finished'
    assert name not in stored(tmp_path / 'without', records.TRAIN)
    assert f'1 images cannot be decoded, and are left out: {path}' in said
    assert json.loads((tmp_path / 'without' / 'conversion.json').read_text())['unreadable'] == [str(path)]
    # ... or repair the image.
    path.write_bytes(content)
    said = convert(archives, tmp_path / 'out', **options)
    assert said[0] == '4 of 5 record files are already finished'
    assert stored(tmp_path / 'out', records.TRAIN)[name].encoded == content


def test_missing_image__ends_the_conversion_and_keeps_files(archives: Archives, tmp_path: pathlib.Path) -> None:
    archives.extract(archives.folder)
    name = archives.validation[0][0]

    def without(shards: Sequence[str], data_dir: str, work_dir: str, watch: Callable[[], None]) -> None:
        (archives.folder / 'val' / name).rename(archives.folder / name)
        convert_here(shards, data_dir, work_dir, watch)

    message = refusal(archives, tmp_path / 'out', train='train', validation='val', run=without)
    assert re.search(
        rf'validation-0000\d-of-00002 was not written: {archives.folder}/val/{name}: cannot be read', message
    )
    assert len(files_of(tmp_path / 'out')) in (3, 4)
    (archives.folder / name).rename(archives.folder / 'val' / name)
    convert(archives, tmp_path / 'out', train='train', validation='val')
    assert len(stored(tmp_path / 'out', records.VALIDATION)) == 8


def test_full_disk__gives_a_message_and_leaves_no_partial_files(archives: Archives, tmp_path: pathlib.Path) -> None:
    def limited(*arguments: Any) -> None:
        with largest_file(8000):
            convert_here(*arguments)

    message = refusal(archives, tmp_path / 'out', shards={records.TRAIN: 1, records.VALIDATION: 8}, run=limited)
    assert message.startswith('train-00000-of-00001 was not written: ') and 'File too large' in message
    assert not [name for name in os.listdir(tmp_path / 'out' / 'conversion') if name.endswith('unfinished')]
    convert(archives, tmp_path / 'out', shards={records.TRAIN: 1, records.VALIDATION: 8})
    assert len(stored(tmp_path / 'out', records.TRAIN)) == 24


def children(pid: int) -> List[int]:
    return [int(line) for line in subprocess.run(['pgrep', '-P', str(pid)], stdout=subprocess.PIPE).stdout.split()]


@pytest.mark.nightly
def test_killed_command_and_worker__leave_no_process_and_the_command_resumes(tmp_path: pathlib.Path) -> None:
    archives = imagenet_archives.make(tmp_path / 'in', per_class=20)
    archives.extract(archives.folder)
    # The conversion cannot end: an image is a pipe that nobody writes to.
    (archives.folder / 'val' / archives.validation[0][0]).unlink()
    os.mkfifo(archives.folder / 'val' / archives.validation[0][0])
    data_dir = tmp_path / 'out'
    arguments = [*archives.arguments(), '--train_shards=40', '--validation_shards=2', '--processes=2']
    arguments += [f'--train={archives.folder / "train"}', f'--validation={archives.folder / "val"}']

    def start(finished: int) -> 'subprocess.Popen[str]':
        command = [sys.executable, '-m', 'tools.datasets.imagenet', str(data_dir), *arguments]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 120
        while len([*(data_dir / 'conversion').glob('*.report')]) < finished:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        return process

    process = start(5)
    process.kill()
    _, said = process.communicate(timeout=60)
    assert 'Traceback' not in said
    time.sleep(1)
    finished = {name: (data_dir / name).stat().st_mtime_ns for name in files_of(data_dir)}
    assert 5 <= len(finished) < 42
    time.sleep(1)
    assert len(files_of(data_dir)) == len(finished), 'something still runs'

    process = start(len(finished) + 2)
    (beam,) = children(process.pid)
    # The other of two workers may not have started yet.
    shells = children(beam)
    # The shell may have replaced itself with the worker.
    os.kill((children(shells[0]) or shells)[0], signal.SIGKILL)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1 and not children(beam)
    assert re.search(r'^\d+ of 42 record files are already finished$', said, re.MULTILINE)
    assert 'Apache Beam failed: one of its processes was killed' in said and 'Traceback' not in said
    kept = [name for name, when in finished.items() if (data_dir / name).stat().st_mtime_ns == when]
    # The last files may have been renamed before their reports were written.
    assert len(kept) >= len(finished) - 2


def test_report__of_an_earlier_version_is_read(tmp_path: pathlib.Path) -> None:
    # It had no numbers of images by label.
    (tmp_path / 'train.report').write_text('[5, [2, "ff"], {"PNG": ["a"]}, ["b"], {"c": ["d"]}]')
    expected = pipeline.ShardReport(5, SplitFingerprint(2, 255), {'PNG': ['a']}, ['b'], {'c': ['d']})
    assert pipeline.read_report(str(tmp_path), 'train') == expected


def test_failure__keeps_its_kind_and_ends_the_other_conversions(tmp_path: pathlib.Path) -> None:
    for is_transient, kind in ((True, remote.UnreachableError), (False, records.DataError)):
        (tmp_path / 'failure').write_text(json.dumps([is_transient, 'the reason']))
        with pytest.raises(kind, match='the reason'):
            pipeline.raise_failure(str(tmp_path))
    # There is no plan of this shard, and nobody looks for it.
    pipeline.write_shard('train-00000-of-00001', str(tmp_path), str(tmp_path))
    assert 'the reason' in (tmp_path / 'failure').read_text()
    (tmp_path / 'failure').unlink()
    pipeline.write_shard('train-00000-of-00001', str(tmp_path), str(tmp_path))
    with pytest.raises(records.DataError, match=r'00001 was not written: .*: the plan of train-.* is missing'):
        pipeline.raise_failure(str(tmp_path))
