"""The command inception-v3 tar-shards."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
from typing import Any, List, Tuple

import numpy as np
import pytest

from compat import tf
from data import dataset_info, records
from data.dataset_info import DatasetInfo
from data.formats import FORMATS
from data.record_checker import UNREADABLE
from data.tar.shard import Sample, Shard
from tests.data.written_records import examples, fingerprint_of, stored
from tests.support.commands import Done, run
from tests.support.images import saved, with_orientation
from tests.support.photos import Photo, photo_example
from tests.support.records import write_records
from tests.support.spellings import spellings
from tests.support.tar_files import write_tar
from tools.datasets import image_example
from tools.datasets.fingerprints import fingerprint
from tools.datasets.tar_shards import __main__ as tar_shards_command


def tar_shards(*arguments: Any) -> Done:
    """Runs the command in this process."""
    return run(tar_shards_command.main, *arguments)


def samples_in(path: str) -> List[Sample]:
    with Shard(path) as shard:
        return [*shard.samples()]


def write_splits(folder: pathlib.Path, files: List[Tuple[str, bytes]]) -> None:
    """Writes the same tar shard for both splits."""
    folder.mkdir()
    for split in (records.TRAIN, records.VALIDATION):
        write_tar(folder / f'{split}-00000.tar', files)


def test_records_become_tar_shards_and_the_same_records_again(
    few_digits_dir: str, tar_dir: str, tmp_path: pathlib.Path
) -> None:
    info, before = dataset_info.read(tar_dir), dataset_info.read(few_digits_dir)
    assert info and before
    parts = [fingerprint_of(stored(few_digits_dir, split)) for split in (records.TRAIN, records.VALIDATION)]
    assert info == dataclasses.replace(before, fingerprint=fingerprint(*parts))

    # The keys of a split are numbered over all of its shards.
    for split, count, images in ((records.TRAIN, 8, 40), (records.VALIDATION, 4, 73)):
        paths = FORMATS['tar'].find_shards(tar_dir, split)
        keys = [sample.key for path in paths for sample in samples_in(path)]
        assert (len(paths), keys) == (count, [f'{number:08d}' for number in range(images)])

    done = tar_shards('write', tar_dir, tmp_path / 'again')
    assert done.returncode == 0, done.stderr
    assert dataset_info.read(str(tmp_path / 'again')) == info
    for file in pathlib.Path(few_digits_dir).glob('*-of-*'):
        assert (tmp_path / 'again' / file.name).read_bytes() == file.read_bytes()


def test_round_trip__keeps_boxes_and_all_fields(photo_dir: str, photos: List[Photo], tmp_path: pathlib.Path) -> None:
    assert tar_shards('write', photo_dir, tmp_path / 'tar').returncode == 0
    assert tar_shards('write', tmp_path / 'tar', tmp_path / 'again').returncode == 0
    for path in (tmp_path / 'tar').glob('*.tar'):
        # The magic of POSIX, which every program reads.
        assert path.read_bytes()[257:263] == b'ustar\0'
    paths = records.find_shards(str(tmp_path / 'again'), records.TRAIN)
    assert [example for path in paths for example in examples(path)] == [photo_example(photo) for photo in photos]


def test_source__is_no_target_under_any_name(tmp_path: pathlib.Path) -> None:
    source = tmp_path / 'tar'
    write_splits(source, [('1.jpg', b'x'), ('1.cls', b'1')])
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    for target in (str(source), *spellings(str(source), tmp_path)):
        done = tar_shards('write', source, target)
        assert done.returncode == 2 and f'{target}: exists already. Name a new folder.' in done.stderr
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before


def test_foreign_shards__become_records(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    pixels = photos[3].pixels
    ppm = b'P6 %d %d 255\n' % pixels.shape[1::-1] + pixels.tobytes()
    # The name of an image is without its folder.
    files = [('x/1.jpg', photos[0].encoded), ('x/1.cls', b'1'), ('x/1.json', b'[]'), ('2.ppm', ppm), ('2.cls', b'2')]
    files.append(('2.json', b'[' * 100_000))
    write_splits(tmp_path / 'tar', files)
    done = tar_shards('write', tmp_path / 'tar', tmp_path / 'records')
    assert done.returncode == 0, done.stderr
    first, second = examples(str(tmp_path / 'records' / 'train-00000-of-00001'))
    assert first == image_example.make_example(photos[0].encoded, 'JPEG', 1, '', 300, 451, '1.jpg')
    feature = second.features.feature
    assert feature['image/format'].bytes_list.value[:] == [b'PNG']
    with tf.Session() as session:
        decoded = session.run(tf.image.decode_png(feature['image/encoded'].bytes_list.value[0]))
    np.testing.assert_array_equal(decoded, pixels)
    assert 'no dataset.json was written: it needs that of the source' in done.stderr
    assert dataset_info.read(str(tmp_path / 'records')) is None


def test_unusable_images__stop_the_conversion_or_are_left_out(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    source = tmp_path / 'source'
    source.mkdir()
    write_tar(
        source / 'train-00000.tar', [('a.jpg', photos[0].encoded), ('a.cls', b'1'), ('b.jpg', b'no'), ('b.cls', b'1')]
    )
    done = tar_shards('write', source, tmp_path / 'target')
    assert done.returncode == 2
    assert re.search(r'train-00000\.tar, record 1: b: the image \(2 bytes\) cannot be decoded', done.stderr)
    assert not (tmp_path / 'target').exists()
    DatasetInfo('d', '', 2, 0, 2, ['background', 'cat']).write(str(source))
    done = tar_shards('write', source, tmp_path / 'target', '--max_bad_records=1')
    assert done.returncode == 0
    for part in ('left out', 'record 1: b:', '1 train image '):
        assert part in done.stderr
    # The source has as many images as it says, of which one is left.
    assert 'warning' not in done.stderr
    info = dataset_info.read(str(tmp_path / 'target'))
    assert info and (info.train_images, info.train_images_per_class) == (1, [0, 1])
    assert len(examples(str(tmp_path / 'target' / 'train-00000-of-00001'))) == 1
    # The limit is that of both splits.
    shutil.copy(str(source / 'train-00000.tar'), str(source / 'validation-00000.tar'))
    done = tar_shards('write', source, tmp_path / 'again', '--max_bad_records=1')
    assert done.returncode == 2 and 'validation-00000.tar, record 1: b: ' in done.stderr


def test_records_that_a_shard_cannot_hold__are_left_out(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    good = photo_example(photos[0]).SerializeToString()
    # TensorFlow reads a record whose fields have names that are not UTF-8; Python does not.
    garbled = good.replace(b'image/filename', b'image/file\xffame')
    gif = photo_example(photos[0]._replace(encoded=saved(photos[0].pixels, 'GIF'))).SerializeToString()
    (tmp_path / 'records').mkdir()
    write_records(tmp_path / 'records', records.TRAIN, [gif, garbled, good])
    done = tar_shards('write', tmp_path / 'records', tmp_path / 'tar', '--max_bad_records=2')
    assert done.returncode == 0, done.stderr
    assert 'record 0: not a JPEG or PNG image, the formats of tar shards.' in done.stderr
    assert f'record 1: {UNREADABLE}' in done.stderr
    (sample,) = samples_in(str(tmp_path / 'tar' / 'train-00000-of-00001.tar'))
    assert sample.key == '00000000'


@pytest.mark.parametrize(('first', 'counts'), [('background', []), ('cat', [1, 2, 0])])
def test_counts_of_classes__are_of_the_described_labels(
    photos: List[Photo], tmp_path: pathlib.Path, first: str, counts: List[int]
) -> None:
    samples = [
        part
        for number, label in enumerate([b'0', b'1', b'1'])
        for part in ((f'{number}.jpg', photos[number].encoded), (f'{number}.cls', label))
    ]
    write_splits(tmp_path / 'tar', samples)
    DatasetInfo('d', '', 3, 3, 3, [first, 'dog', 'cup']).write(str(tmp_path / 'tar'))
    assert tar_shards('write', tmp_path / 'tar', tmp_path / 'target').returncode == 0
    info = dataset_info.read(str(tmp_path / 'target'))
    # Under a background, a run adds 1 to these labels.
    assert info and info.train_images_per_class == counts


def test_damaged_and_rotated_images__are_kept_and_named(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    whole = photos[0].encoded
    images = [whole[: len(whole) * 3 // 4] + b'\xff\xd9', with_orientation(photos[1].encoded, 3), photos[2].encoded]
    samples = [
        part for number, image in enumerate(images) for part in ((f'{number}.jpg', image), (f'{number}.cls', b'1'))
    ]
    write_splits(tmp_path / 'tar', samples)
    done = tar_shards('write', tmp_path / 'tar', tmp_path / 'target')
    assert done.returncode == 0, done.stderr
    path = tmp_path / 'tar' / 'train-00000.tar'
    assert f'2 images with damaged pixels, kept as they are: {path}, record 0 (Corrupt JPEG data' in done.stderr
    assert f'2 images with an EXIF orientation, which training ignores: {path}, record 1, ' in done.stderr
    assert len(examples(str(tmp_path / 'target' / 'train-00000-of-00001'))) == 3


def test_labels_outside_of_the_described_classes__are_refused(
    photo_dir: str, photos: List[Photo], tmp_path: pathlib.Path
) -> None:
    source = pathlib.Path(shutil.copytree(photo_dir, str(tmp_path / 'source')))
    path = records.find_shards(str(source), records.VALIDATION)[0]
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(photo_example(photos[0]._replace(label=6)).SerializeToString())
    done = tar_shards('write', source, tmp_path / 'target')
    assert done.returncode == 2 and not (tmp_path / 'target').exists()
    assert (
        f'{path}, record 0: label 6 is not in 0 to 5, the classes' in done.stderr
        and 'Nothing was written.' in done.stderr
    )


def test_list_shows_samples_and_problems(tmp_path: pathlib.Path) -> None:
    files = [('x/a.jpg', b'12345'), ('x/a.cls', b'7'), ('about.txt', b'me'), ('b.png', b'1234')]
    path = write_tar(tmp_path / 'a.tar', files)
    done = tar_shards('list', path)
    assert done.returncode == 2
    shard, first, left_out, second = done.stdout.splitlines()
    assert shard == path
    assert first.split() == ['0', 'x/a', 'label', '7', 'jpg', '5', 'cls', '1']
    # It is no record, and has no position.
    assert left_out == '-  about  txt 2  belongs to no sample: it is left out.'
    assert second.startswith('1  b  png 4  no label')
    assert tar_shards('list', path, write_tar(tmp_path / 'b.tar', [('b.jpg', b'1'), ('b.cls', b'7')])).returncode == 2
    assert tar_shards('list', tmp_path / 'b.tar').returncode == 0
    other = write_tar(tmp_path / 'c.tar', [('c.jpg', b'1'), ('c.json', b'{"n": 7}')])
    done = tar_shards('list', other, '--label_key=json:n', '--label_offset=-2')
    assert done.returncode == 0 and ' label 5 ' in done.stdout
    assert 'must be the extension of a file' in tar_shards('list', other, '--label_key=image/label').stderr


def test_fields_of_the_source__become_the_documented_ones(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    flags = ['--image_key=jpg', '--label_key=n', '--label_offset=1']
    example = photo_example(photos[0])
    feature = example.features.feature
    feature['jpg'].CopyFrom(feature.pop('image/encoded'))
    feature['n'].CopyFrom(feature.pop('image/class/label'))
    label = feature['n'].int64_list.value[0]
    (tmp_path / 'records').mkdir()
    write_records(tmp_path / 'records', records.TRAIN, [example.SerializeToString()])
    done = tar_shards('write', tmp_path / 'records', tmp_path / 'tar', *flags)
    assert done.returncode == 0, done.stderr
    with Shard(str(tmp_path / 'tar' / 'train-00000-of-00001.tar')) as shard:
        (sample,) = shard.samples()
        (fields,) = (shard.read(each.start, each.size) for each in sample.members if each.extension == 'json')
    assert sample.label == label + 1
    # The image and the label are not among the other fields.
    others = {*photo_example(photos[0]).features.feature} - {'image/encoded', 'image/class/label'}
    assert {*json.loads(fields)['features']['feature']} == others
    # From tar, the label of another file, and an offset.
    path = write_tar(tmp_path / 'tar' / 'train-00000-of-00001.tar', [('1.jpg', photos[0].encoded), ('1.txt', b'3')])
    done = tar_shards('write', os.path.dirname(path), tmp_path / 'again', '--label_key=txt', '--label_offset=-1')
    assert done.returncode == 0, done.stderr
    (again,) = examples(str(tmp_path / 'again' / 'train-00000-of-00001'))
    assert again.features.feature['image/class/label'].int64_list.value[:] == [2]
    done = tar_shards('write', tmp_path / 'tar', tmp_path / 'x', '--label_key=txt', '--label_offset=-4')
    assert done.returncode == 2 and 'label -1 is below 0' in done.stderr
    done = tar_shards('write', tmp_path / 'tar', tmp_path / 'x', *flags)
    assert '--image_key=jpg: is for TFRecord files' in done.stderr


def test_training_images_alone__keep_their_description(few_digits_dir: str, tmp_path: pathlib.Path) -> None:
    source = shutil.copytree(few_digits_dir, str(tmp_path / 'records'))
    for path in records.find_shards(source, records.VALIDATION):
        os.remove(path)
    done = tar_shards('write', source, tmp_path / 'tar')
    assert done.returncode == 0, done.stderr
    info = dataset_info.read(str(tmp_path / 'tar'))
    assert info and (info.train_images, info.validation_images) == (40, 0)


def one_of_each(data_dir: pathlib.Path, photos: List[Photo]) -> pathlib.Path:
    """A data set of record files with one photograph per split."""
    for split in (records.TRAIN, records.VALIDATION):
        write_records(data_dir, split, [photo_example(photos[0]).SerializeToString()])
    return data_dir


def test_foreign_tar_file__does_not_change_the_direction(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    source = one_of_each(tmp_path / 'records', photos)
    (source / 'backup.tar').touch()
    done = tar_shards('write', source, tmp_path / 'tar')
    assert done.returncode == 0, done.stderr
    assert '1 train image in 1 tar file' in done.stderr and (tmp_path / 'tar' / 'train-00000-of-00001.tar').exists()
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'empty' / 'backup.tar').touch()
    done = tar_shards('write', tmp_path / 'empty', tmp_path / 'target')
    assert done.returncode == 2 and 'it holds backup.tar.' in done.stderr and '--data_format' not in done.stderr


def test_pipe_with_the_name_of_a_file__is_refused(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    source = one_of_each(tmp_path / 'records', photos)
    pipe = source / 'train-00000-of-00001'
    pipe.unlink()
    for path in (pipe, tmp_path / 'tar' / 'train-00000.tar'):
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(str(path))
        done = tar_shards('write', path.parent, tmp_path / 'target')
        assert done.returncode == 2
        assert f'{path}: cannot be read: it has the name of a data set file, but is a named pipe' in done.stderr
        assert not (tmp_path / 'target').exists()


def test_a_source_that_lacks_a_file__is_said(few_digits_dir: str, tmp_path: pathlib.Path) -> None:
    source = shutil.copytree(few_digits_dir, str(tmp_path / 'records'))
    info, (first, *others) = dataset_info.read(source), records.find_shards(source, records.VALIDATION)
    assert info and others
    os.remove(first)
    done = tar_shards('write', source, tmp_path / 'tar')
    assert done.returncode == 0
    assert f'warning: {source}: the data set is incomplete: 1 of {len(others) + 1} validation files' in done.stderr
    assert f'; dataset.json says {info.validation_images:,}.' in done.stderr
    assert 'train records' not in done.stderr


@pytest.mark.parametrize('arguments', [('write', '/nowhere', '/nowhere/target'), ('list', '/nowhere.tar'), ()])
def test_usage_errors__give_a_message(arguments: Any) -> None:
    done = tar_shards(*arguments)
    assert done.returncode == 2 and 'error: ' in done.stderr
