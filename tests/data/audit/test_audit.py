"""The audit: real data sets with every defect at a known place, beside what was put there."""

import functools
import io
import json
import os
import pathlib
import subprocess
import sys
import zlib
from typing import Any, Callable, Dict, List, Sequence

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from data import dataset_info, records, tar_shards, writing
from data.audit import __main__ as audit_command
from data.audit import duplicates
from data.audit.report import audit
from data.dataset_info import DatasetInfo
from data.fingerprint import SplitFingerprint, fingerprint
from data.formats import FORMATS
from data.record_checker import RecordChecker
from preprocessing.decoding import decode_image
from tests.support.bad_records import DAMAGES
from tests.support.photos import Photo, encode_jpeg, photo_example, set_boxes
from tests.support.tar_files import write_tar

Report = Dict[str, Any]
NAMES = ['background', 'cat', 'astronaut', 'coffee', 'rocket', 'half a cat']


def report_of(data_dir: Any, decode: bool = False, num_classes: Any = None, data_format: str = 'tfrecord') -> Report:
    told: List[int] = []
    report = audit(str(data_dir), num_classes, decode, 2, told.append, data_format)
    assert told[-1] == sum(split['records'] for split in report['splits'].values())
    return json.loads(json.dumps(report))


def write(data_dir: Any, split: str, examples: Sequence[Any], shards: int) -> None:
    makers: List[Callable[[], Any]] = [functools.partial(lambda example: example, example) for example in examples]
    writing.write_shards(str(data_dir), split, makers, shards)


def of_photos(photos: Sequence[Photo]) -> SplitFingerprint:
    split = SplitFingerprint()
    for photo in photos:
        split = split.with_image(photo.label, photo.encoded)
    return split


@pytest.fixture(scope='module')
def pieces(photos: List[Photo]) -> List[Photo]:
    """Twenty different pieces of the photographs, labelled 1 to 5 in turn, each of 96 x 64 pixels and more."""
    found = []
    for index in range(20):
        photo = photos[index % 5]
        pixels = np.ascontiguousarray(photo.pixels[5 * index : 5 * index + 64 + index, 3 * index : 3 * index + 96])
        found.append(Photo(pixels, encode_jpeg(pixels), photo.label, photo.boxes))
    return found


def written(data_dir: pathlib.Path, train: Sequence[Photo], validation: Sequence[Photo]) -> pathlib.Path:
    """A data set of photographs, described as it is."""
    data_dir.mkdir(exist_ok=True)
    write(data_dir, records.TRAIN, [photo_example(photo) for photo in train], 3)
    write(data_dir, records.VALIDATION, [photo_example(photo) for photo in validation], 2)
    taken = fingerprint(of_photos(train), of_photos(validation))
    DatasetInfo('pieces', 'scikit-image', len(train), len(validation), 6, NAMES, taken).write(str(data_dir))
    return data_dir


# A data set without fault.


@pytest.fixture(scope='module')
def good_dir(pieces: List[Photo], tmp_path_factory: Any) -> pathlib.Path:
    return written(tmp_path_factory.mktemp('good') / 'data', pieces[:15], pieces[15:])


@pytest.fixture(scope='module')
def good(good_dir: pathlib.Path) -> Report:
    return report_of(good_dir)


def test_a_data_set_without_fault_can_be_trained_on(good: Report) -> None:
    assert good['can_be_trained_on'] is True
    assert good['errors'] == good['warnings'] == good['other_files'] == []
    assert good['name'] == 'pieces'


def test_records_and_images_are_measured(good: Report, pieces: List[Photo]) -> None:
    for split, part in (('train', pieces[:15]), ('validation', pieces[15:])):
        described = good['splits'][split]
        assert described['files'] == {'train': 3, 'validation': 2}[split]
        assert described['records'] == described['images'] == described['formats']['JPEG'] == len(part)
        assert set(described['formats']) == {'JPEG'}
        sizes = np.array([photo.pixels.shape for photo in part])
        for name, values in (
            ('height', sizes[:, 0]),
            ('width', sizes[:, 1]),
            ('encoded_bytes', [len(photo.encoded) for photo in part]),
        ):
            found = described[name]
            expected = [np.min(values), np.median(values), np.max(values)]
            assert [found['min'], found['median'], found['max']] == expected, name
        assert described['encoded_bytes']['total'] == sum(len(photo.encoded) for photo in part)
        boxes = sum(len(photo.boxes) for photo in part)
        assert described['boxes'] == {'boxes': boxes, 'in_pixels': 0, 'empty': 0, 'out_of_range': 0}
        assert described['fields']['image/encoded'] == described['fields']['image/object/bbox/xmax'] == len(part)


def test_the_images_of_each_class_are_counted(good: Report) -> None:
    found = [(c['label'], c['name'], c['train'], c['validation']) for c in good['classes']]
    assert found == [(0, 'background', 0, 0), *((label, NAMES[label], 3, 1) for label in range(1, 6))]


def test_the_fingerprint_is_taken_of_the_images(good: Report, pieces: List[Photo]) -> None:
    taken = fingerprint(of_photos(pieces[:15]), of_photos(pieces[15:]))
    assert good['fingerprint'] == {'taken': taken, 'dataset_json': taken, 'agree': True}


def test_decoding_all_finds_the_same(good_dir: pathlib.Path, good: Report) -> None:
    decoded = report_of(good_dir, decode=True)
    changing = ('seconds', 'records_per_second', 'decoded')
    assert {k: v for k, v in decoded.items() if k not in changing} == {
        k: v for k, v in good.items() if k not in changing
    }
    assert (good['decoded'], decoded['decoded']) == (False, True)


# One with every fault of a record.


def broken_inside(photo: Photo, checksum: bool) -> bytes:
    """A PNG with another byte in its pixels, with its checksum or not. TensorFlow decodes most JPEGs that are so."""
    file = io.BytesIO()
    PIL.Image.fromarray(photo.pixels[:64, :64]).save(file, 'PNG')
    png = bytearray(file.getvalue())
    start = png.index(b'IDAT')
    end = start + 4 + int.from_bytes(png[start - 4 : start], 'big')
    png[(start + end) // 2] ^= 1
    if checksum:
        png[end : end + 4] = zlib.crc32(png[start:end]).to_bytes(4, 'big')
    return bytes(png)


@pytest.fixture(scope='module')
def bad_dir(photos: List[Photo], pieces: List[Photo], tmp_path_factory: Any) -> pathlib.Path:
    """In the one training file: ten good pieces, one of each kind of `DAMAGES`, no Example, two PNGs broken inside."""
    data_dir = written(tmp_path_factory.mktemp('bad') / 'data', pieces[:10], pieces[15:])
    for path in records.find_shards(str(data_dir), records.TRAIN):
        os.remove(path)
    with tf.io.TFRecordWriter(records.shard_path(str(data_dir), records.TRAIN, 0, 1)) as writer:
        for photo in pieces[:10]:
            writer.write(photo_example(photo).SerializeToString())
        for spoil, _ in DAMAGES.values():
            example = photo_example(photos[1])
            spoil(example)
            writer.write(example.SerializeToString())
        writer.write(b'\xff\xff no protocol buffer')
        for checksum in (False, True):
            inside = photos[2]._replace(encoded=broken_inside(photos[2], checksum))
            writer.write(photo_example(inside).SerializeToString())
    return data_dir


def places(found: Report) -> List[int]:
    assert found['count'] == len(found['first'])
    return [place['position'] for place in found['first']]


@pytest.mark.parametrize('decode', [False, True])
def test_every_bad_record_is_found_at_its_place(bad_dir: pathlib.Path, decode: bool) -> None:
    report = report_of(bad_dir, decode)
    assert not report['can_be_trained_on']
    kinds = [*DAMAGES]
    undecodable = [10 + kinds.index(kind) for kind in ('a JPEG cut short', 'random bytes')]
    bad_boxes = [10 + kinds.index(kind) for kind in kinds if 'boxes' in kind]
    bad_fields = sorted({*range(10, 10 + len(kinds) + 1)} - {*undecodable, *bad_boxes})
    train = report['splits']['train']
    assert places(train['bad_fields']) == bad_fields
    assert places(train['bad_boxes']) == bad_boxes
    # Of what is broken in the middle, and has a checksum that says otherwise, only the decoder knows.
    undecodable.append(10 + len(kinds) + 1)
    assert places(train['undecodable']) == undecodable + [10 + len(kinds) + 2] * decode
    assert all(place['path'].endswith('train-00000-of-00001') for place in train['bad_fields']['first'])
    assert train['records'] == 10 + len(kinds) + 3
    assert any(f'train records that cannot be used: {len(bad_fields)}. ' in error for error in report['errors'])
    first = f'record {undecodable[0]}: the image (5000 bytes) cannot be decoded'
    assert any(first in error and 'train images that cannot be decoded' in error for error in report['errors'])
    assert report['splits']['validation']['bad_fields']['count'] == 0


def test_the_audit_and_a_run_agree_on_every_record(bad_dir: pathlib.Path) -> None:
    path = records.shard_path(str(bad_dir), records.TRAIN, 0, 1)
    by_run = {bad.position: bad.problem for bad in RecordChecker(6, decode_image).search([path], lambda text: None)}
    train = report_of(bad_dir, decode=True)['splits']['train']
    first = [place for kind in ('undecodable', 'bad_fields', 'bad_boxes') for place in train[kind]['first']]
    assert {place['position']: place['problem'] for place in first} == by_run


def test_labels_out_of_range_follow_the_flag_and_are_counted(good_dir: pathlib.Path) -> None:
    report = report_of(good_dir, num_classes=5)
    assert report['splits']['train']['bad_fields']['count'] == 3
    assert report['splits']['validation']['bad_fields']['count'] == 1
    assert report['classes'][5] == {'label': 5, 'name': 'half a cat', 'train': 3, 'validation': 1}
    assert report['fingerprint']['agree'] is True


# Files.


def damaged(data_dir: pathlib.Path, name: str, change: Callable[[bytes], bytes]) -> None:
    path = data_dir / name
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ('change', 'records_left', 'expected'),
    [
        (lambda content: content[:-1], 4, 'record 4: the file is damaged or truncated from here on'),
        (lambda content: content[:200] + b'?' + content[201:], 0, 'record 0: not a record file, or damaged'),
        (lambda content: b'a text, and not records', 0, 'record 0: not a record file, or damaged'),
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


def test_missing_and_foreign_files_are_named(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    data_dir = written(tmp_path, pieces[:15], pieces[15:])
    os.remove(data_dir / 'train-00002-of-00003')
    (data_dir / 'train-00000-of-00003.bak').write_bytes(b'')
    (data_dir / 'notes').mkdir()
    # What the conversions of this program leave is known.
    (data_dir / 'conversion.json').write_bytes(b'{}')
    report = report_of(data_dir)
    assert report['can_be_trained_on']
    assert report['splits']['train']['missing_files'] == ['train-00002-of-00003']
    assert report['other_files'] == ['notes', 'train-00000-of-00003.bak']
    missing, count, other_data, others = report['warnings']
    assert missing == 'missing train files: 1 of 3: train-00002-of-00003'
    assert count == 'train records: 10; dataset.json says 15.'
    assert other_data.startswith('dataset.json has the fingerprint of other data')
    assert others == 'other files, which are not read: 2: notes, train-00000-of-00003.bak'


@pytest.mark.parametrize(('data_format', 'ending'), [('tfrecord', '-of-00001'), ('tar', '.tar')])
def test_a_pipe_that_is_named_like_a_file_is_an_error(
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
    assert report['errors'][0] == f'{pipe}, record 0: cannot be read: it is a pipe or a device.'
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


def test_files_of_two_data_sets_are_an_error(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    data_dir = written(tmp_path, pieces[:15], pieces[15:])
    (data_dir / 'train-00000-of-00007').write_bytes(b'')
    report = report_of(data_dir)
    assert any('several data sets' in error for error in report['errors'])
    assert report['splits']['validation']['records'] == 5


def test_a_folder_without_a_data_set_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'readme.txt').touch()
    with pytest.raises(records.DataError, match=r'no train files.*it holds readme\.txt'):
        report_of(tmp_path)
    with pytest.raises(records.DataError, match='no such folder'):
        report_of(tmp_path / 'nowhere')


# The description.


def test_a_description_of_other_data_is_told(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
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


def test_a_description_that_cannot_be_read_is_an_error_and_the_rest_is_told(
    pieces: List[Photo], tmp_path: pathlib.Path
) -> None:
    data_dir = written(tmp_path, pieces[:15], pieces[15:])
    (data_dir / 'dataset.json').write_text('{"name": "half of')
    report = report_of(data_dir)
    assert not report['can_be_trained_on']
    assert 'not a valid description of a data set' in report['errors'][0]
    assert report['splits']['train']['records'] == 15
    assert report['num_classes'] == 1001


def test_without_a_description_the_flags_to_give_are_told(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    data_dir = written(tmp_path, pieces[:15], pieces[15:])
    os.remove(data_dir / 'dataset.json')
    report = report_of(data_dir, num_classes=6)
    assert report['fingerprint']['agree'] is None
    (warning,) = report['warnings']
    assert warning.endswith(' Pass --num_train_images=15 --num_eval_images=5 and --num_classes.')
    write(data_dir, records.VALIDATION, [], 2)
    (warning,) = (w for w in report_of(data_dir, num_classes=6)['warnings'] if '--num_' in w)
    assert warning.endswith(' Pass --num_train_images=15 and --num_classes.')
    write(data_dir, records.TRAIN, [], 3)
    (warning,) = report_of(data_dir, num_classes=6)['warnings']
    assert warning.endswith(' Pass --num_classes.')


# Classes, copies, boxes, and what records say.


def test_classes_that_miss_images_are_named(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    def of(*labels: int) -> List[Photo]:
        return [photo for photo in pieces if photo.label in labels]

    report = report_of(written(tmp_path, of(1, 2), of(3)))
    texts = '\n'.join(report['warnings'])
    assert 'classes with validation images and without training images: 1: 3 (coffee)' in texts
    assert 'classes without images: 2: 4 (rocket), 5 (half a cat)' in texts
    assert 'classes without validation images: 2: 1 (cat), 2 (astronaut)' in texts


def test_copies_within_and_between_splits_are_found(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    train = [*pieces[:10], pieces[0], pieces[0], pieces[1]._replace(label=5)]
    validation = [*pieces[10:15], pieces[3], pieces[3], pieces[0]]
    data_dir = written(tmp_path, train, validation)
    report = report_of(data_dir)
    duplicates = report['duplicates']
    # Of pieces[0] two beyond the first, of pieces[1] one; of pieces[3] one in validation.
    assert {name: duplicates[name] for name in ('train', 'validation', 'between', 'of_several_labels')} == {
        **{'train': 3, 'validation': 1},
        **{'between': 3, 'of_several_labels': 1},
    }
    # write_shards: 13 records as 4, 4, 5; 8 as 4, 4.
    found = [
        [(os.path.basename(place['path'])[: -len('-of-00003')], place['position'], place['label']) for place in group]
        for group in duplicates['first']
    ]
    assert found == [
        [('train-00000', 1, 2), ('train-00002', 4, 5)],
        [('train-00000', 0, 1), ('train-00002', 2, 1), ('train-00002', 3, 1), ('validation-00001', 3, 1)],
        [('train-00000', 3, 4), ('validation-00001', 1, 4), ('validation-00001', 2, 4)],
    ]
    assert report['can_be_trained_on']
    texts = '\n'.join(report['warnings'])
    assert 'validation images that are also training images, which overstates the accuracy: 3, such as ' in texts
    first = f'{data_dir}/train-00000-of-00003, record 1 = {data_dir}/train-00002-of-00003, record 4'
    assert f'images under several labels: 1, such as {first}\n' in texts
    assert 'train images that are copies of others: 3, such as ' in texts


def test_copies_are_told_by_places_that_show_them(
    pieces: List[Photo], tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    # More copies than are listed, and what differs comes after them.
    monkeypatch.setattr(duplicates, 'LISTED_AT_MOST', 8)
    train = [pieces[0]] * 30 + [pieces[0]._replace(label=3)]
    data_dir = written(tmp_path, train, [pieces[0]._replace(label=2), *pieces[15:], pieces[15]])
    report = report_of(data_dir)
    listed = [(place['split'], place['position'], place['label']) for place in report['duplicates']['first'][0]]
    assert listed == [*(('train', n, 1) for n in range(6)), ('train', 10, 3), ('validation', 0, 2)]
    first, second = f'{data_dir}/train-00000-of-00003, record', f'{data_dir}/validation-0000'
    other = f'{data_dir}/train-00002-of-00003, record 10'
    assert report['warnings'][-4:] == [
        f'images under several labels: 1, such as {first} 0 = {other} = {second}0-of-00002, record 0',
        f'validation images that are also training images, which overstates the accuracy: 1, such as {first} 0 = '
        f'{second}0-of-00002, record 0',
        f'train images that are copies of others: 30, such as {first} 0 = {first} 1 = {first} 2',
        f'validation images that are copies of others: 1, such as {second}0-of-00002, record 1 = '
        f'{second}1-of-00002, record 3',
    ]


def test_bad_boxes_are_counted_by_kind(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    data_dir = written(tmp_path, pieces[:15], pieces[15:])
    boxes = {
        # In pixels; upside down; a line; outside; over the edge; good.
        'ymin': [10.0, 0.6, 0.1, 1.1, -0.01, 0.0],
        'xmin': [20.0, 0.1, 0.2, 0.2, 0.50, 0.0],
        'ymax': [60.0, 0.2, 0.1, 1.2, 0.50, 1.0],
        'xmax': [90.0, 0.3, 0.3, 0.3, 1.01, 1.0],
    }
    examples = [photo_example(photo._replace(boxes=photo.boxes[:0])) for photo in pieces[:15]]
    set_boxes(examples[7], **boxes)
    write(data_dir, records.TRAIN, examples, 3)
    report = report_of(data_dir)
    assert report['can_be_trained_on']
    assert report['splits']['train']['boxes'] == {'boxes': 6, 'in_pixels': 1, 'empty': 3, 'out_of_range': 1}
    in_pixels, over_the_edge = report['warnings']
    assert in_pixels.startswith('train boxes in pixels instead of fractions of the image: 1 of 6; without area: 3.')
    assert over_the_edge.startswith('train boxes that extend beyond their image')


def test_boxes_that_cannot_be_used_stop_only_training_that_uses_them(
    pieces: List[Photo], tmp_path: pathlib.Path
) -> None:
    data_dir = written(tmp_path, pieces[:15], pieces[15:])
    nan = float('nan')
    for split, part, shards in ((records.TRAIN, pieces[:15], 3), (records.VALIDATION, pieces[15:], 2)):
        examples = [photo_example(photo) for photo in part]
        set_boxes(examples[0], ymin=[0.1, 0.2], xmin=[0.1], ymax=[0.5], xmax=[0.6])
        set_boxes(examples[1], ymin=[0.1], xmin=[nan], ymax=[0.5], xmax=[0.6])
        write(data_dir, split, examples, shards)
    report = report_of(data_dir)
    assert not report['can_be_trained_on']
    (error,), (warning,) = report['errors'], report['warnings']
    assert error.startswith(
        'train records whose boxes cannot be used: 2. With --use_annotated_bbox, training stops at them, unless '
        f'--max_bad_records allows as many. {data_dir}/train-00000-of-00003, record 0: bounding boxes with corners '
        'missing: image/object/bbox/* differ in length; '
    )
    assert warning.startswith('validation records whose boxes cannot be used: 2. Evaluation ignores boxes. ')
    assert [split['bad_fields']['count'] for split in report['splits'].values()] == [0, 0]


def test_formats_and_what_records_say_otherwise_are_told(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    def saved(kind: str, mode: str) -> bytes:
        file = io.BytesIO()
        PIL.Image.fromarray(pieces[0].pixels).convert(mode).save(file, kind)
        return file.getvalue()

    kinds = [('PNG', 'RGB'), ('JPEG', 'CMYK'), ('GIF', 'P'), ('BMP', 'RGB'), ('WEBP', 'RGB')]
    images = [pieces[0]._replace(encoded=saved(kind, mode)) for kind, mode in kinds]
    data_dir = written(tmp_path, [*images, pieces[1]], pieces[15:])
    examples = [photo_example(photo) for photo in [*images, pieces[1]]]
    examples[1].features.feature['image/height'].int64_list.value[:] = [1]
    del examples[5].features.feature['image/filename']
    write(data_dir, records.TRAIN, examples, 3)
    train = report_of(data_dir)['splits']['train']
    assert train['formats'] == {'PNG': 1, 'JPEG, CMYK': 1, 'GIF': 1, 'BMP': 1, 'WebP': 1, 'JPEG': 1}
    # Two records a file.
    assert [place['path'][-14:] for place in train['undecodable']['first']] == ['00001-of-00003', '00002-of-00003']
    assert places(train['undecodable']) == [1, 0]
    assert [place['problem'] for place in train['contradictions']['first']] == [
        "its fields say 'JPEG'; the image is a PNG.",
        'its fields say 96 x 1 pixels; the image has 96 x 64.',
        "its fields say 'JPEG'; the image is a GIF.",
    ]
    assert train['fields']['image/filename'] == 5


# Tar shards.


@pytest.fixture(scope='module')
def tar_dir(good_dir: pathlib.Path, tmp_path_factory: Any) -> pathlib.Path:
    """The data set without fault as tar shards."""
    target = tmp_path_factory.mktemp('tar') / 'data'
    tar_shards.convert(str(good_dir), str(target), 0, print)
    return target


def test_the_same_images_are_the_same_as_tar_shards(tar_dir: pathlib.Path, good: Report) -> None:
    report = report_of(tar_dir, data_format='tar')
    for key in ('name', 'fingerprint', 'classes', 'can_be_trained_on', 'errors', 'warnings', 'other_files'):
        assert report[key] == good[key], key
    assert report['fingerprint']['agree'] is True
    for split, described in report['splits'].items():
        own = {'fields': {'cls': described['records'], 'image': described['records'], 'json': described['records']}}
        no_boxes = {'boxes': {'boxes': 0, 'in_pixels': 0, 'empty': 0, 'out_of_range': 0}}
        assert described == {**good['splits'][split], **own, **no_boxes}


def ppm_of(photo: Photo) -> bytes:
    height, width, _ = photo.pixels.shape
    return b'P6\n# %d pixels\n%d %d\n255\n' % (height * width, width, height) + photo.pixels.tobytes()


@pytest.fixture(scope='module')
def bad_tar_dir(pieces: List[Photo], tmp_path_factory: Any) -> pathlib.Path:
    """Training files: good samples and every fault of one, one that is no tar file, and one that is cut short."""
    data_dir = tmp_path_factory.mktemp('tar') / 'bad'
    data_dir.mkdir()
    jpeg, ppm = pieces[0].encoded, ppm_of(pieces[1])
    images = [('00.jpg', jpeg), ('01.ppm', ppm), ('02.jpg', jpeg[:99]), ('03.ppm', ppm[:99]), ('04.png', b'')]
    images += [('05.jpg', jpeg), ('06.jpg', jpeg), ('06.png', jpeg), ('07.json', b'{}'), ('08.png', jpeg)]
    labels = {name[:2]: b'1' for name, _ in images if name[:2] != '08'}
    labels['05'] = b'6'
    files = [*images, *((f'{key}.cls', label) for key, label in labels.items()), ('README', b'?')]
    write_tar(data_dir / 'train-00000.tar', sorted(files))
    (data_dir / 'train-00001.tar').write_bytes(b'a text' * 99)
    path = pathlib.Path(write_tar(data_dir / 'train-00003.tar', [('a.jpg', jpeg), ('a.cls', b'2'), ('b.jpg', jpeg)]))
    path.write_bytes(path.read_bytes()[: 3 * 512 + 2 * len(jpeg)])
    write_tar(data_dir / 'validation-00000.tar', [('a.jpg', pieces[2].encoded), ('a.cls', b'3')])
    return data_dir


@pytest.mark.parametrize('decode', [False, True])
def test_every_bad_sample_of_a_tar_shard_is_found_as_a_run_finds_it(bad_tar_dir: pathlib.Path, decode: bool) -> None:
    report = report_of(bad_tar_dir, decode, 6, 'tar')
    assert not report['can_be_trained_on']
    train = report['splits']['train']
    # 06 has two images, 07 none, 08 no label, and README is no sample's.
    assert places(train['undecodable']) == [2, 3]
    assert places(train['bad_fields']) == [4, 5, 6, 7, 8, 9]
    assert [(place['path'][-9:], place['position']) for place in train['bad_files']['first']] == [
        ('00001.tar', 0),
        ('00003.tar', 1),
    ]
    assert (train['records'], report['splits']['validation']['records']) == (11, 1)
    assert train['missing_files'] == ['train-00002.tar']
    # Of those whose label is not known, the image is not looked at; 05's is 6.
    assert train['formats'] == {'JPEG': 3, 'PPM': 2, 'unknown': 1}
    assert (train['height']['min'], train['height']['max']) == (64, 65)
    found = sorted(
        tuple(place.values()) for kind in ('undecodable', 'bad_fields', 'bad_files') for place in train[kind]['first']
    )
    paths = FORMATS['tar'].find_shards(str(bad_tar_dir), records.TRAIN)
    checker = FORMATS['tar'].checker(6, decode_image, False)
    assert found == [tuple(bad) for bad in checker.search(paths, print)]
    assert [problem for path, position, problem in found if path == paths[0] and position in (2, 5)] == [
        '02: the image (99 bytes) cannot be decoded: damaged, of more than 100 million pixels, or neither JPEG, PNG '
        'nor GIF.',
        '05: label 6 is not in 0 to 5 (--num_classes=6).',
    ]


def test_copies_and_wrong_names_in_tar_shards_are_told(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    ppm = ppm_of(pieces[1])
    for split in ('train', 'validation'):
        files = [('a.jpg', pieces[0].encoded), ('a.cls', b'1'), ('b.PPM', ppm), ('b.cls', b'2')]
        write_tar(tmp_path / f'{split}-00000.tar', [*files, ('c.png', pieces[2].encoded), ('c.cls', b'3')])
    report = report_of(tmp_path, num_classes=4, data_format='tar')
    assert report['can_be_trained_on']
    assert report['duplicates']['between'] == 3
    train = report['splits']['train']
    assert (train['formats'], train['undecodable']['count']) == ({'JPEG': 2, 'PPM': 1}, 0)
    (contradiction,) = train['contradictions']['first']
    assert contradiction['problem'] == "c: its fields say 'png'; the image is a JPEG."
    assert report['fingerprint']['taken'] == fingerprint(
        *[of_photos([pieces[0]._replace(label=1), Photo(pieces[1].pixels, ppm, 2, []), pieces[2]._replace(label=3)])]
        * 2
    )


# The program.


@pytest.fixture
def run(monkeypatch: Any, capsys: Any) -> Callable[..., Any]:
    """Runs the program here; returns its exit code, and what it printed and complained of."""

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
    assert "pip install '.[data]', or print the report with --json" in complaints


def test_the_table_says_what_is_there_and_what_is_wrong(bad_dir: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, '-m', 'data.audit', str(bad_dir)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (2, '')
    text = ' '.join(done.stdout.split())
    for expected in (
        'train validation',
        f'records {10 + len(DAMAGES) + 3} 5',
        '1 cat 2 ████',
        "(not dataset.json's)",
        'undecodable 3 0',
        'error train records that cannot be used: 8. Training stops at them, unless --max_bad_records',
        'cannot be trained on: 3 errors',
    ):
        assert expected in text, done.stdout


def test_the_program_audits_tar_shards(
    tar_dir: pathlib.Path, bad_tar_dir: pathlib.Path, run: Callable[..., Any]
) -> None:
    code, printed, complaints = run(str(tar_dir), '--data_format=tar')
    assert (code, complaints) == (0, '')
    assert "(dataset.json's)" in printed
    assert printed.endswith('can be trained on, according to image headers (--decode checks the whole images)\n')
    code, printed, complaints = run(str(tar_dir), '--data_format=tar', '--decode')
    assert printed.endswith('can be trained on\n')
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
def test_mistakes_are_told_in_a_line(arguments: List[str], expected: str, run: Callable[..., Any]) -> None:
    code, printed, complaints = run(*arguments)
    assert (code, printed) == (2, '')
    assert expected in complaints
