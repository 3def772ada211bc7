"""Finding and checking the tar shards of a data set."""

import contextlib
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
from typing import Any, List

import pytest

from data import checks, records
from data.formats import FORMATS
from data.sources import Source
from data.tar import shard
from data.tf_example import Fields
from tests.data.tar.readers import END, header
from tests.support.tar_files import write_tar
from tools.datasets.audit.shard import of_tar
from tools.datasets.tar_shards.conversion import list_samples

PHOTO = b'a picture'


@pytest.mark.parametrize(
    ('names', 'missing'),
    [
        (['train-00000.tar', 'train-00001.tar'], []),
        (['train-000000.tar', 'train-000002.tar'], ['train-000001.tar']),
        (['train-00000-of-00003.tar', 'train-00002-of-00003.tar'], ['train-00001-of-00003.tar']),
        (['train-02.tar'], ['train-00.tar', 'train-01.tar']),
        # The number may be up to a thousand times the files; a larger one is a mistake.
        (['train-000-of-1000.tar'], [f'train-{number:03d}-of-1000.tar' for number in range(1, 1000)]),
        (['train-000-of-1001.tar'], []),
    ],
)
def test_shards_are_found_by_their_names(names: List[str], missing: List[str], tmp_path: pathlib.Path) -> None:
    for name in [*names, 'train-00000-of-00001', 'train-00000.tar.gz', 'validation-00000.tar', 'train-x.tar']:
        (tmp_path / name).touch()
    paths = FORMATS['tar'].find_shards(str(tmp_path), 'train')
    assert paths == [str(tmp_path / name) for name in names]
    assert checks.missing(Source(str(tmp_path), 'tar'), 'train', paths) == missing


@pytest.mark.parametrize(
    ('names', 'message'),
    [
        ([], 'no train files, which are named like train-00000.tar; it is empty'),
        (['train-00000.tar', 'train-00000-of-00002.tar'], 'belong to several data sets'),
        (['train-00000.tar', 'train-000001.tar'], 'belong to several data sets'),
        (['train-00000.tar.gz'], r'it holds train-\*\.tar\.gz'),
    ],
)
def test_folders_without_complete_shards_are_refused(names: List[str], message: str, tmp_path: pathlib.Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(records.DataError, match=message):
        FORMATS['tar'].find_shards(str(tmp_path), 'train')


def test_check_not_empty__refuses_empty_shards(tmp_path: pathlib.Path) -> None:
    empty = write_tar(tmp_path / 'train-00000.tar', [])
    with pytest.raises(records.DataError, match='no records'):
        checks.check_not_empty('tar', [empty])
    (tmp_path / 'train-00001.tar').write_bytes(gzip.compress(os.urandom(2000)))
    with pytest.raises(records.DataError, match=r'train-00001\.tar: not a tar file, .* must be unpacked'):
        checks.check_not_empty('tar', [empty, str(tmp_path / 'train-00001.tar')])
    with pytest.raises(records.DataError, match='the shard is damaged or compressed'):
        next(of_tar(str(tmp_path / 'train-00001.tar'), 11))


@pytest.mark.parametrize(
    ('files', 'label_key', 'problem'),
    [
        (['1.img.jpg', '1.cls'], 'cls', '1: no image: .* at the first dot'),
        (['1.jpg', '2.jpg', '1.cls', '2.cls'], 'cls', '1: no label: beside the image'),
        (['1.jpg', '1.txt'], 'cls', '1: no label: .* or that of --label_key'),
        (['1.jpg', '1.txt'], 'txt', ''),
        (['README', '._1.jpg', '1.jpg', '._1.cls', 'a.b/c', '1.cls'], 'cls', ''),
        (['', '1.jpg', '1.cls'], 'cls', ''),
    ],
)
def test_check_keys__names_the_problem(
    files: List[str], label_key: str, problem: str, tmp_path: pathlib.Path, caplog: Any
) -> None:
    path = write_tar(tmp_path / 'train-00000.tar', [(name, b'1') for name in files])
    checks.check_not_empty('tar', [path])
    fields = Fields(label=label_key)
    refused = pytest.raises(records.DataError, match=f'{path}, record 0: {problem}')
    with refused if problem else contextlib.nullcontext():
        shard.check_keys(path, fields)
    (entry, *_) = [each for each in of_tar(path, 11, fields) if each.left_out is None]
    found = dict(entry.problems).get('bad_fields', '')
    assert re.match(problem.partition(': ')[2], found) and bool(found) == bool(problem)
    notes = [f'{path}: left out 4 files of no sample, such as README, ._1.jpg, ._1.cls']
    notes = [f'{path}: left out 1 file of no sample, such as '] if '' in files else notes
    assert caplog.messages == (notes if {'', 'README'} & {*files} else [])


def test_sample_checker__describes_samples_without_decoding_them(tmp_path: pathlib.Path) -> None:
    files = [('1.jpg', b'1'), ('1.cls', b'6'), ('2.jpg', b'2'), ('3.jpg', b'3'), ('3.cls', b'cat')]
    path = write_tar(tmp_path / 'train-00000.tar', files)
    checker = shard.SampleChecker(6, False, Fields())
    problems = [checker.problem(record) for record in checker.records(path)]
    for problem, begin in zip(problems, ('1: label 6 is not in 0 to 5', '2: no label: ', '3: ')):
        assert problem and problem.startswith(begin)
    assert len(problems) == 3


@pytest.mark.parametrize(('size', 'problem'), [(1 << 20, 'NONE'), ((1 << 20) + 1, 'DAMAGED')])
def test_extension__has_a_mebibyte_at_most(size: int, problem: str, tmp_path: pathlib.Path) -> None:
    path = write_tar(tmp_path / 'train-00000.tar', [('1.jpg', b'1'), ('1.cls', b'1')])
    comment = b'%d comment=' % size
    content = comment + b'c' * (size - len(comment) - 1) + b'\n'
    extension = header('x', b'%011o\0' % size, content, tarfile.XHDTYPE)
    pathlib.Path(path).write_bytes(extension + pathlib.Path(path).read_bytes())
    with shard.Shard(path) as found:
        assert [sample.problem.name for sample in found.samples()] == [problem]


def test_sizes_in_pax_headers_alone__are_refused(tmp_path: pathlib.Path) -> None:
    path, zero = str(tmp_path / 'train-00000.tar'), b'%011o\0' % 0
    extension = header('pax', b'%011o\0' % 9, b'9 size=5\n', tarfile.XHDTYPE)
    pathlib.Path(path).write_bytes(extension + header('1.jpg', zero, b'image') + header('1.cls', zero, b'1') + END)
    with pytest.raises(records.DataError, match='no image: '):
        shard.check_keys(path, Fields())
    found = of_tar(path, 11)
    assert 'no image' in dict(next(found).problems)['bad_fields']
    with pytest.raises(records.DataError, match='or sizes in pax headers alone'):
        next(found)


def test_there_are_more_samples_than_may_be_skipped(tar_dir: str) -> None:
    paths = FORMATS['tar'].find_shards(tar_dir, 'train')
    samples = sum(FORMATS['tar'].count_records(paths))
    checks.check_not_empty('tar', paths, samples - 1)
    with pytest.raises(records.DataError, match=f': {samples} records, and --max_bad_records={samples} allows'):
        checks.check_not_empty('tar', paths, samples)


def test_shards_of_two_gibibytes_are_refused_where_they_are_loaded_whole(
    tar_dir: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, path = FORMATS['tar'].find_shards(tar_dir, 'train')[0], str(tmp_path / 'train-00000.tar')
    shutil.copy(small, path)
    message = r'2,147,483,648 bytes; from s3:// the input pipeline reads shards of up to 2,147,483,647\.'
    # A shard may end in any number of zeros, and these take no disk space.
    with monkeypatch.context() as patched:
        patched.setattr(shard, 'is_read_whole', lambda path: True)
        os.truncate(path, (1 << 31) - 1)
        assert next(of_tar(path, 11)).problems == ()
        checks.check_not_empty('tar', [small, path])
    os.truncate(path, 1 << 31)
    checks.check_not_empty('tar', [small, path])
    assert next(of_tar(path, 11)).problems == ()
    monkeypatch.setattr(shard, 'is_read_whole', lambda path: True)
    with pytest.raises(records.DataError, match=f'{path}: {message}'):
        checks.check_not_empty('tar', [small, path])
    with pytest.raises(records.DataError, match=message):
        next(of_tar(path, 11))


def test_problem_after_the_last_sample__is_not_a_sample(tmp_path: pathlib.Path) -> None:
    path = write_tar(tmp_path / 'train-00000.tar', [('1.jpg', b'one'), ('1.cls', b'1')])
    with open(path, 'ab') as file:
        file.write(b'more')
    checks.check_not_empty('tar', [path])
    with pytest.raises(records.DataError, match=': 1 records, and --max_bad_records=1 allows'):
        checks.check_not_empty('tar', [path], 1)


def test_a_missing_part_is_explained_with_the_command_that_packs_rightly(tmp_path: pathlib.Path, capsys: Any) -> None:
    files = tmp_path / 'files'
    files.mkdir()
    for number in (1, 2):
        (files / f'{number}.cls').write_text(f'{number}')
        (files / f'{number}.jpg').write_bytes(PHOTO)
    (files / '3.cls').write_text('3')
    # The same picture, once more.
    os.link(str(files / '2.jpg'), str(files / '3.jpg'))
    # Both files are links, of which the first is named.
    for old, new in (('1.jpg', '4.jpg'), ('1.cls', '4.cls')):
        os.link(str(files / old), str(files / new))
    path = str(tmp_path / 'train 0.tar')
    order = ['1.jpg', '2.jpg', '1.cls', '2.cls', '3.cls', '3.jpg', '4.jpg', '4.cls']
    subprocess.run(['tar', '-cf', path, '-C', str(files), *order], check=True)
    with shard.Shard(path) as packed:
        reasons = [sample.reason for sample in packed.samples()]
    apart = 'its files do not follow each other'
    links = [f'{number}.jpg is a hard link, whose content is not here' for number in (3, 4)]
    kinds = ['no label', 'no label', *['no image'] * 4]
    for reason, kind, cause in zip(reasons, kinds, [apart] * 4 + links):
        assert reason[3:].startswith(kind) and f' Cause: {cause}. Pack the shard again, with GNU tar: mkdir ' in reason
    assert len(reasons) == 6
    # The checks of a run, the audit and the list show the command.
    command = reasons[0].partition('GNU tar: ')[2]
    with pytest.raises(records.DataError, match=re.escape(command)):
        shard.check_keys(path, Fields())
    assert command in dict(next(of_tar(path, 11)).problems)['bad_fields']
    assert not list_samples([path], Fields().label, 0) and capsys.readouterr().out.count(command) == 6
    subprocess.run(command, shell=True, check=True, cwd=str(tmp_path))
    with shard.Shard(str(tmp_path / 'NEW.tar')) as again:
        samples = [*again.samples()]
        assert [(sample.problem, sample.label) for sample in samples] == [(0, 1), (0, 2), (0, 3), (0, 1)]
        assert all(again.read(s.image.start, s.image.size) == PHOTO for s in samples if s.image)


def test_a_part_that_no_sample_has_is_not_explained(tmp_path: pathlib.Path) -> None:
    path = write_tar(tmp_path / 'train-00000.tar', [('1.jpg', b'x'), ('2.jpg', b'x'), ('2.cls', b'2'), ('1.json', b'')])
    with shard.Shard(path) as packed:
        assert [sample.cause for sample in packed.samples()][1:] == ['']
    (sample, _) = shard.Shard(write_tar(tmp_path / 'train-00001.tar', [('1.jpg', b'x'), ('2.cls', b'2')])).samples()
    assert sample.reason.endswith('or that of --label_key.')


def test_read__takes_what_is_read_ahead_from_memory(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'train-00000.tar'
    path.write_bytes(b'12345678')
    with shard.Shard(str(path)) as packed:
        assert packed.read(2, 2) == b'34'
    path.unlink()
    assert (packed.read(2, 6), packed.read(4, 2)) == (b'345678', b'56')
    # Bytes before those that were read ahead.
    with pytest.raises(Exception, match='train-00000'):
        packed.read(1, 2)


def test_long_name__is_joined_from_both_fields_of_a_header(tmp_path: pathlib.Path) -> None:
    name = f'{"a" * 60}/{"b" * 60}/1.jpg'
    with shard.Shard(write_tar(tmp_path / 'train-00000.tar', [(name, b'x')])) as packed:
        assert [member.name for sample in packed.everything() for member in sample.members] == [name.encode()]
