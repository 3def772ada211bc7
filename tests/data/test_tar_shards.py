"""Tar shards as a data set: made and shown by the command, found, and trained and evaluated from."""

import dataclasses
import io
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
from typing import Any, List

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from data import dataset_info, entries, records, tf_example
from data.fingerprint import SplitFingerprint, fingerprint
from data.tar import files as tar_files
from data.tar.shard import Shard
from inception_v3 import main
from inception_v3.config import Config, ConfigError
from inception_v3.metrics import PADDING_LABEL
from inception_v3.preflight import __main__ as preflight
from tests.support.photos import Photo, photo_example
from tests.support.pipelines import Host, labels_of, read
from tests.support.tar_files import write_tar

ROOT = pathlib.Path(__file__).parents[2]


def tar_shards(*arguments: Any, **others: Any) -> 'subprocess.CompletedProcess[str]':
    command = [sys.executable, '-W', 'ignore', '-m', 'data.tar_shards', *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, **others)


@pytest.fixture(scope='module')
def tar_dir(digits_dir: str, tmp_path_factory: Any) -> str:
    """The digits as tar shards."""
    target = str(tmp_path_factory.mktemp('digits') / 'tar')
    done = tar_shards('write', digits_dir, target)
    assert done.returncode == 0, done.stderr
    return target


def examples(path: str) -> List[tf.train.Example]:
    return [tf.train.Example.FromString(serialized) for serialized in tf.compat.v1.io.tf_record_iterator(path)]


# The command.


def test_records_become_tar_shards_and_the_same_records_again(
    digits_dir: str, tar_dir: str, tmp_path: pathlib.Path
) -> None:
    info, before = dataset_info.read(tar_dir), dataset_info.read(digits_dir)
    assert info and before
    parts = [SplitFingerprint(), SplitFingerprint()]
    for part, split in enumerate([records.TRAIN, records.VALIDATION]):
        for path in records.find_shards(digits_dir, split):
            for example in examples(path):
                feature = example.features.feature
                encoded = feature['image/encoded'].bytes_list.value[0]
                parts[part] = parts[part].with_image(feature['image/class/label'].int64_list.value[0], encoded)
    assert info == dataclasses.replace(before, fingerprint=fingerprint(*parts))

    done = tar_shards('write', tar_dir, tmp_path / 'again')
    assert done.returncode == 0, done.stderr
    assert dataset_info.read(str(tmp_path / 'again')) == info
    for file in pathlib.Path(digits_dir).glob('*-of-*'):
        assert (tmp_path / 'again' / file.name).read_bytes() == file.read_bytes()


def test_boxes_and_all_else_come_back(photo_dir: str, photos: List[Photo], tmp_path: pathlib.Path) -> None:
    assert tar_shards('write', photo_dir, tmp_path / 'tar').returncode == 0
    assert tar_shards('write', tmp_path / 'tar', tmp_path / 'again').returncode == 0
    paths = records.find_shards(str(tmp_path / 'again'), records.TRAIN)
    assert [example for path in paths for example in examples(path)] == [photo_example(photo) for photo in photos]


def test_shards_of_others_become_records(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    pixels = photos[3].pixels
    ppm = b'P6 %d %d 255\n' % pixels.shape[1::-1] + pixels.tobytes()
    for split in ('train', 'validation'):
        files = [('1.jpg', photos[0].encoded), ('1.cls', b'1'), ('1.json', b'[]'), ('2.ppm', ppm), ('2.cls', b'2')]
        (tmp_path / 'tar').mkdir(exist_ok=True)
        write_tar(tmp_path / 'tar' / f'{split}-000000.tar', files)
    done = tar_shards('write', tmp_path / 'tar', tmp_path / 'records')
    assert done.returncode == 0, done.stderr
    first, second = examples(str(tmp_path / 'records' / 'train-00000-of-00001'))
    assert first == tf_example.make_example(photos[0].encoded, 'JPEG', 1, '', 300, 451, '1.jpg')
    feature = second.features.feature
    assert feature['image/format'].bytes_list.value[:] == [b'PNG']
    with tf.compat.v1.Session() as session:
        decoded = session.run(tf.image.decode_png(feature['image/encoded'].bytes_list.value[0]))
    np.testing.assert_array_equal(decoded, pixels)
    info = dataset_info.read(str(tmp_path / 'records'))
    assert info and (info.train_images, info.validation_images, info.class_names) == (2, 2, ['background', '1', '2'])


def test_images_that_cannot_be_used_stop_the_conversion_or_are_left_out_and_named(
    photos: List[Photo], tmp_path: pathlib.Path
) -> None:
    source = tmp_path / 'source'
    source.mkdir()
    write_tar(
        source / 'train-00000.tar', [('a.jpg', photos[0].encoded), ('a.cls', b'1'), ('b.jpg', b'no'), ('b.cls', b'1')]
    )
    done = tar_shards('write', source, tmp_path / 'target')
    assert done.returncode == 2
    assert re.search(r'train-00000\.tar, record 1: b: the image \(2 bytes\) cannot be decoded', done.stderr)
    assert not (tmp_path / 'target').exists()
    done = tar_shards('write', source, tmp_path / 'target', '--max_bad_records=1')
    assert done.returncode == 0
    assert 'left out' in done.stderr and 'record 1: b:' in done.stderr and '1 train images' in done.stderr
    assert len(examples(str(tmp_path / 'target' / 'train-00000-of-00001'))) == 1


@pytest.mark.parametrize('label', [1_000_000, 10**17])
def test_without_a_description_labels_have_a_bound(label: int, photos: List[Photo], tmp_path: pathlib.Path) -> None:
    encoded = photos[0].encoded
    (tmp_path / 'tar').mkdir()
    (tmp_path / 'records').mkdir()
    samples = [('a.jpg', encoded), ('a.cls', b'1'), ('b.jpg', encoded), ('b.cls', b'%d' % label)]
    for split in (records.TRAIN, records.VALIDATION):
        write_tar(tmp_path / 'tar' / f'{split}-00000.tar', samples)
        with tf.io.TFRecordWriter(str(tmp_path / 'records' / f'{split}-00000-of-00001')) as writer:
            writer.write(tf_example.make_example(encoded, 'JPEG', label, '', 300, 451, 'b.jpg').SerializeToString())
    expected = f'label {label} is not in 0 to 999,999, the labels allowed in a source without dataset.json.'
    for source, where in (
        ('tar', 'train-00000.tar, record 1: b: '),
        ('records', 'train-00000-of-00001, record 0: '),
    ):
        done = tar_shards('write', tmp_path / source, tmp_path / 'target')
        assert done.returncode == 2
        assert f'{tmp_path / source / where}{expected} Nothing was written.' in done.stderr
        assert not (tmp_path / 'target').exists()
    done = tar_shards('write', tmp_path / 'tar', tmp_path / 'target', '--max_bad_records=2')
    assert done.returncode == 0, done.stderr
    info = dataset_info.read(str(tmp_path / 'target'))
    assert info and (info.train_images, info.class_names) == (1, ['background', '1'])


def test_the_largest_label_without_a_description_is_a_class(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    (tmp_path / 'tar').mkdir()
    for split in (records.TRAIN, records.VALIDATION):
        write_tar(tmp_path / 'tar' / f'{split}-0.tar', [('a.jpg', photos[0].encoded), ('a.cls', b'999999')])
    assert tar_shards('write', tmp_path / 'tar', tmp_path / 'target').returncode == 0
    info = dataset_info.read(str(tmp_path / 'target'))
    assert info and (info.num_classes, info.class_names[-1]) == (1_000_000, '999999')


def test_images_of_the_background_alone_are_no_data_set(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    (tmp_path / 'tar').mkdir()
    for split in (records.TRAIN, records.VALIDATION):
        write_tar(tmp_path / 'tar' / f'{split}-0.tar', [('a.jpg', photos[0].encoded), ('a.cls', b'0')])
    done = tar_shards('write', tmp_path / 'tar', tmp_path / 'target')
    assert done.returncode == 2
    assert (
        f'{tmp_path / "tar"}: cannot be described in dataset.json: both splits must have images, and there must be a '
        'class besides the background. Its largest label is 0, and 0 is the background. Nothing was written.'
    ) in done.stderr
    assert os.listdir(tmp_path) == ['tar']


def test_list_shows_samples_and_problems(tmp_path: pathlib.Path) -> None:
    path = write_tar(tmp_path / 'a.tar', [('x/a.jpg', b'12345'), ('x/a.cls', b'7'), ('b.png', b'1234')])
    done = tar_shards('list', path)
    assert done.returncode == 2
    shard, first, second = done.stdout.splitlines()
    assert shard == path
    assert first.split() == ['0', 'x/a', 'label', '7', 'jpg', '5', 'cls', '1']
    assert second.startswith('1  b  png 4  no label')
    assert tar_shards('list', tmp_path / 'none.tar').returncode == 2


def one_of_each(data_dir: pathlib.Path, photos: List[Photo]) -> pathlib.Path:
    """A data set of records of a photograph for each split."""
    data_dir.mkdir()
    for split in (records.TRAIN, records.VALIDATION):
        with tf.io.TFRecordWriter(records.shard_path(str(data_dir), split, 0, 1)) as writer:
            writer.write(photo_example(photos[0]).SerializeToString())
    return data_dir


@pytest.mark.parametrize('form', ['records', 'tar'])
def test_a_full_disk_is_a_message(form: str, photos: List[Photo], tmp_path: pathlib.Path) -> None:
    source = one_of_each(tmp_path / 'records', photos)
    if form == 'tar':
        assert tar_shards('write', source, tmp_path / 'tar').returncode == 0
        source = tmp_path / 'tar'

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))

    done = tar_shards('write', source, tmp_path / 'target', preexec_fn=limit)
    assert done.returncode == 2 and 'Traceback' not in done.stderr
    assert 'error: ' in done.stderr and 'File too large' in done.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {'records', 'tar'}


def test_a_foreign_tar_file_does_not_turn_the_conversion_around(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    source = one_of_each(tmp_path / 'records', photos)
    (source / 'backup.tar').touch()
    done = tar_shards('write', source, tmp_path / 'tar')
    assert done.returncode == 0, done.stderr
    assert '1 train images in 1 tar files' in done.stderr and (tmp_path / 'tar' / 'train-00000-of-00001.tar').exists()
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'empty' / 'backup.tar').touch()
    done = tar_shards('write', tmp_path / 'empty', tmp_path / 'target')
    assert done.returncode == 2 and 'it holds backup.tar.' in done.stderr and '--data_format' not in done.stderr


def test_a_pipe_that_is_named_like_a_file_is_refused(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    source = one_of_each(tmp_path / 'records', photos)
    pipe = source / 'train-00000-of-00001'
    pipe.unlink()
    for path in (pipe, tmp_path / 'tar' / 'train-00000.tar'):
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(str(path))
        done = tar_shards('write', path.parent, tmp_path / 'target')
        assert done.returncode == 2
        assert f'{path}: cannot be read: it has the name of a data set file, but is a pipe or a device' in done.stderr
        assert not (tmp_path / 'target').exists()


def test_images_have_their_own_format_and_not_that_of_their_name(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    (tmp_path / 'tar').mkdir()
    kinds = ['GIF', 'PNG', 'JPEG']
    files = []
    for number, kind in enumerate(kinds):
        content = io.BytesIO()
        PIL.Image.fromarray(photos[0].pixels).save(content, kind)
        files += [(f'{number}.jpg', content.getvalue()), (f'{number}.cls', b'1')]
    write_tar(tmp_path / 'tar' / 'train-00000.tar', files)
    done = tar_shards('write', tmp_path / 'tar', tmp_path / 'records')
    assert done.returncode == 0, done.stderr
    found = examples(str(tmp_path / 'records' / 'train-00000-of-00001'))
    formats = [example.features.feature['image/format'].bytes_list.value[0].decode() for example in found]
    assert formats == kinds


def test_fewer_bad_records_than_none_are_refused(tmp_path: pathlib.Path) -> None:
    done = tar_shards('write', tmp_path, tmp_path / 'target', '--max_bad_records=-1')
    assert done.returncode == 2 and 'error: --max_bad_records=-1: must be at least 0.\n' in done.stderr


@pytest.mark.parametrize('arguments', [('write', 'nowhere', 'target'), ('list', 'nowhere.tar'), ('list',), ()])
def test_a_mistake_gets_a_message(arguments: Any, tmp_path: pathlib.Path) -> None:
    done = tar_shards(*[str(tmp_path / a) if a in ('nowhere', 'nowhere.tar', 'target') else a for a in arguments])
    assert done.returncode == 2
    assert 'error: ' in done.stderr and 'Traceback' not in done.stderr


# Finding shards.


@pytest.mark.parametrize(
    ('names', 'missing'),
    [
        (['train-00000.tar', 'train-00001.tar'], []),
        (['train-000000.tar', 'train-000002.tar'], ['train-000001.tar']),
        (['train-00000-of-00003.tar', 'train-00002-of-00003.tar'], ['train-00001-of-00003.tar']),
    ],
)
def test_shards_are_found_by_their_names(names: List[str], missing: List[str], tmp_path: pathlib.Path) -> None:
    for name in [*names, 'train-00000-of-00001', 'train-00000.tar.gz', 'validation-00000.tar', 'train-x.tar']:
        (tmp_path / name).touch()
    paths = tar_files.find_shards(str(tmp_path), 'train')
    assert paths == [str(tmp_path / name) for name in names]
    assert tar_files.missing_shards(str(tmp_path), 'train', paths) == missing


@pytest.mark.parametrize(
    ('names', 'message'),
    [
        ([], 'no train files, which are named like train-00000.tar; it is empty'),
        (['train-00000.tar', 'train-00000-of-00002.tar'], 'belong to several data sets'),
        (['train-00000.tar', 'train-000001.tar'], 'belong to several data sets'),
    ],
)
def test_other_folders_are_refused(names: List[str], message: str, tmp_path: pathlib.Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(records.DataError, match=message):
        tar_files.find_shards(str(tmp_path), 'train')


def test_records_are_looked_for_and_tar_shards_found(tar_dir: str) -> None:
    with pytest.raises(records.DataError, match='--data_format=tar reads'):
        records.find_shards(tar_dir, 'train')


def test_emptiness_is_told(tmp_path: pathlib.Path) -> None:
    empty = write_tar(tmp_path / 'train-00000.tar', [])
    with pytest.raises(records.DataError, match='no records'):
        tar_files.check_not_empty([empty])
    (tmp_path / 'train-00001.tar').write_bytes(b'\x1f\x8b' * 2000)
    with pytest.raises(records.DataError, match=r'train-00001\.tar: not a tar file'):
        tar_files.check_not_empty([empty, str(tmp_path / 'train-00001.tar')])


def test_there_are_more_samples_than_may_be_skipped(tar_dir: str, tmp_path: pathlib.Path) -> None:
    paths = tar_files.find_shards(tar_dir, 'train')
    samples = sum(tar_files.count_samples(paths))
    tar_files.check_not_empty(paths, samples - 1)
    with pytest.raises(records.DataError, match=f': {samples} records, and --max_bad_records={samples} allows'):
        tar_files.check_not_empty(paths, samples)
    (tmp_path / 'train-00009.tar').mkdir()
    (tmp_path / 'train-00008.tar').symlink_to(tmp_path / 'nowhere')
    for name, what in (('train-00009.tar', 'a directory'), ('train-00008.tar', 'a broken link')):
        with pytest.raises(
            records.DataError, match=f'{name}: cannot be read: it has the name of a data set file, but is {what}'
        ):
            tar_files.check_not_empty([*paths, str(tmp_path / name)])


def test_shards_of_two_gibibytes_are_refused_by_run_and_audit(tar_dir: str, tmp_path: pathlib.Path) -> None:
    small, path = tar_files.find_shards(tar_dir, 'train')[0], str(tmp_path / 'train-00000.tar')
    shutil.copy(small, path)
    message = r'2,147,483,648 bytes, and the input pipeline reads shards of up to 2,147,483,647\.'
    # The zeros at its end may be as many as one likes; they take no room on the disk.
    os.truncate(path, (1 << 31) - 1)
    assert next(entries.of_tar(path, 11)).problem is None
    tar_files.check_not_empty([small, path])
    os.truncate(path, 1 << 31)
    with pytest.raises(records.DataError, match=f'{path}: {message}'):
        tar_files.check_not_empty([small, path])
    with pytest.raises(records.DataError, match=message):
        next(entries.of_tar(path, 11))


# The input pipeline, and runs.


@pytest.fixture
def config(small_config: Config, tar_dir: str) -> Config:
    return dataclasses.replace(small_config, data_dir=tar_dir, data_format='tar')


def test_evaluation_reads_the_same_from_both_formats(config: Config, small_config: Config) -> None:
    of_tar, of_records = read(config, False, 64), read(small_config, False, 64)
    assert len(of_tar) == len(of_records) == 6
    for (images, labels), (same_images, same_labels) in zip(of_tar, of_records):
        np.testing.assert_array_equal(images, same_images)
        np.testing.assert_array_equal(labels, same_labels)
    (*_, last) = read(dataclasses.replace(config, eval_total_size=100), False, 64)
    assert (last[1] != PADDING_LABEL).sum() == 36


def test_hosts_read_shares_and_training_goes_round(config: Config) -> None:
    shares = [labels_of(read(config, False, 64, context=Host(index, 2))) for index in range(2)]
    assert sum(label != PADDING_LABEL for share in shares for label in share) == 359
    one_epoch = dataclasses.replace(config, followup_shuffle_buffer_size=1, num_files_infeed=1)
    labels = labels_of(read(one_epoch, True, 719, batches=4))
    assert sorted(labels[:1438]) == sorted(labels[1438:]) and labels[:1438] != labels[1438:]


def test_there_are_no_boxes_to_crop_around(config: Config) -> None:
    with pytest.raises(ConfigError, match='--data_format=tar has no bounding boxes'):
        dataclasses.replace(config, use_annotated_bbox=True)


SMALL = [
    *('--use_tpu=False', '--data_format=tar', '--height=75', '--width=75', '--depth_multiplier=0.01'),
    *('--num_parallel_calls=2', '--train_batch_size=8', '--eval_batch_size=64', '--learning_rate=0.0001'),
]


def spoil(tar_dir: str, folder: pathlib.Path) -> str:
    """The shards with one validation shard that is cut short within its last sample, and one without two labels."""
    shutil.copytree(tar_dir, str(folder))
    shards = tar_files.find_shards(str(folder), records.VALIDATION)
    with Shard(shards[0]) as shard:
        *_, last = shard.samples()
    assert last.image
    os.truncate(shards[0], last.image.start + 100)
    content = bytearray(pathlib.Path(shards[1]).read_bytes())
    with Shard(shards[1]) as shard:
        for sample in [*shard.samples()][3:5]:
            label = next(member for member in sample.members if member.extension == 'cls')
            content[label.start : label.start + 1] = b'x'
    pathlib.Path(shards[1]).write_bytes(content)
    return str(folder)


def test_a_run_counts_and_names_what_it_skips_or_stops(
    tar_dir: str, one_layer: None, tmp_path: pathlib.Path, capsys: Any
) -> None:
    data_dir = spoil(tar_dir, tmp_path / 'data')
    flags = [*SMALL, f'--data_dir={data_dir}', f'--model_dir={tmp_path / "model"}', '--train_steps=2']
    assert main.main(['main', *flags]) == 2
    said = capsys.readouterr().err
    assert '--max_bad_records=0 records may be skipped, and these cannot be used:' in said
    assert re.search(r'validation-00000-of-00004.tar, record \d+: \d{8}: the shard is cut short', said)
    assert re.search(r'validation-00001-of-00004.tar, record 3: \d{8}: no label: the file cls must hold', said)
    assert main.main(['main', *flags, '--max_bad_records=2']) == 2
    capsys.readouterr()
    assert main.main(['main', *flags, '--max_bad_records=3']) == 0
    out, said = capsys.readouterr()
    assert '356 images' in out and '3 records could not be used' in said
    assert len(re.findall(r'skipped .*validation-0000[01]-of-00004.tar, record \d+: \d{8}: ', said)) == 3
    assert main.main(['main', *flags, '--max_bad_records=2', '--mode=eval']) == 2


def test_preflight_reads_the_first_shards_and_finds_no_python_in_the_input(
    tar_dir: str, one_layer: None, tmp_path: pathlib.Path, capsys: Any
) -> None:
    flags = ['--topology=v2-8', '--master=grpc://127.0.0.1:8470', '--height=75', '--width=75', '--data_format=tar']
    flags += ['--json', f'--model_dir={tmp_path / "model"}']
    assert preflight.main(['preflight', *flags, f'--data_dir={tar_dir}']) == 0
    report = json.loads(capsys.readouterr().out)
    assert report['may_start'] and report['errors'] == []
    assert report['training']['files_per_host'] == [8, 8] and report['evaluation']['files_per_host'] == [4, 4]

    data_dir = spoil(tar_dir, tmp_path / 'data')
    assert preflight.main(['preflight', *flags, f'--data_dir={data_dir}']) == 2
    (error,) = json.loads(capsys.readouterr().out)['errors']
    assert re.search(r'validation-00000-of-00004.tar, record \d+: \d{8}: the shard is cut short', error)
