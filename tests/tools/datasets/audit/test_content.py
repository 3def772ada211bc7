"""The audit of records and tar shards: content, duplicates, boxes, and every kind of bad record at its position."""

import multiprocessing
import os
import pathlib
from typing import Any, List

import numpy as np
import PIL.Image
import pytest

from data import records
from data.formats import FORMATS
from data.record_checker import RecordChecker
from data.tar.shard import SampleChecker
from data.tf_example import CORNERS, Fields
from tests.data.written_records import fingerprint_of
from tests.support.bad_records import DAMAGES
from tests.support.images import saved, with_bytes, with_orientation
from tests.support.photos import Photo, photo_example, set_boxes
from tests.tools.datasets.audit.data_sets import NAMES, Report, places, report_of, write, written
from tools.datasets.audit import report as audit_report
from tools.datasets.audit import shard
from tools.datasets.audit.findings import _about_duplicates, judge
from tools.datasets.audit.shard import ShardAuditor
from tools.datasets.fingerprints import fingerprint


def test_good_data_set__is_measured_and_can_be_trained_on(
    good_dir: pathlib.Path, good: Report, pieces: List[Photo]
) -> None:
    assert good['can_be_trained_on'] is True and good['name'] == 'pieces' and good['is_counted'] is False
    assert good['errors'] == good['warnings'] == good['other_files'] == []
    for split, part in (('train', pieces[:15]), ('validation', pieces[15:])):
        described = good['splits'][split]
        assert described['files'] == {'train': 3, 'validation': 2}[split]
        assert described['records'] == described['images'] == len(part)
        assert described['formats'] == {'JPEG': len(part)}
        sizes = np.array([(*photo.pixels.shape[:2], len(photo.encoded)) for photo in part])
        for name, values in zip(('height', 'width', 'encoded_bytes'), sizes.T):
            found = described[name]
            assert [found['min'], found['median'], found['max']] == [values.min(), np.median(values), values.max()]
        assert described['encoded_bytes']['total'] == sizes[:, 2].sum()
        boxes = sum(len(photo.boxes) for photo in part)
        assert described['boxes'] == {'boxes': boxes, 'outside': 0}
        assert described['fields']['image/encoded'] == described['fields']['image/object/bbox/xmax'] == len(part)
    found = [(c['label'], c['name'], c['train'], c['validation']) for c in good['classes']]
    assert found == [(0, 'background', 0, 0), *((label, NAMES[label], 3, 1) for label in range(1, 6))]
    taken = fingerprint(fingerprint_of(pieces[:15]), fingerprint_of(pieces[15:]))
    assert good['fingerprint'] == {'taken': taken, 'dataset_json': taken, 'agree': True}


def test_bad_records__are_found_at_their_positions(bad_dir: pathlib.Path) -> None:
    report = report_of(bad_dir)
    assert not report['can_be_trained_on']
    kinds = [*DAMAGES]
    undecodable = [10 + kinds.index(kind) for kind in ('a JPEG cut short', 'random bytes')]
    bad_boxes = [10 + kinds.index(kind) for kind in kinds if 'boxes' in kind]
    bad_fields = sorted({*range(10, 10 + len(kinds) + 1)} - {*undecodable, *bad_boxes})
    train = report['splits']['train']
    assert (places(train['bad_fields']), places(train['bad_boxes'])) == (bad_fields, bad_boxes)
    undecodable.append(10 + len(kinds) + 1)
    assert places(train['undecodable']) == undecodable
    # Labels beyond the classes have no names.
    unknown = [(each['label'], each['name']) for each in report['classes'] if not 0 <= each['label'] < 6]
    assert unknown == [(-1, None), (6, None)]
    assert all(place['path'].endswith('train-00000-of-00001') for place in train['bad_fields']['first'])
    assert train['records'] == 10 + len(kinds) + 2
    assert report['splits']['validation']['bad_fields']['count'] == 0
    fields, images, boxes = report['errors']
    assert fields.startswith(f'train records that cannot be used: {len(bad_fields)}. ')
    assert images.startswith('train images that cannot be decoded')
    assert f'record {undecodable[0]}: the image (5,000 bytes) cannot be decoded' in images
    assert f'boxes cannot be used: {len(bad_boxes)}. With --use_annotated_bbox, training' in boxes
    path = records.shard_path(str(bad_dir), records.TRAIN, 0, 1)
    by_run = {bad.position: bad.problem for bad in RecordChecker(6).search([path], print)}
    listed = [place for kind in ('undecodable', 'bad_fields', 'bad_boxes') for place in train[kind]['first']]
    assert {place['position']: place['problem'] for place in listed} == by_run


def test_labels_out_of_range_follow_the_flag_and_are_counted(good_dir: pathlib.Path) -> None:
    report = report_of(good_dir, num_classes=5)
    assert report['splits']['train']['bad_fields']['count'] == 3
    assert report['splits']['validation']['bad_fields']['count'] == 1
    assert report['classes'][5] == {'label': 5, 'name': 'half a cat', 'train': 3, 'validation': 1}
    assert report['fingerprint']['agree'] is True


def test_images_of_the_background_are_an_error_as_in_training(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    shifted = [piece._replace(label=piece.label - 1) for piece in pieces[15:]]
    data_dir = written(tmp_path / 'data', pieces[:15], shifted)
    (error,) = report_of(data_dir)['errors']
    assert error.startswith('images with label 0, the background in dataset.json') and '--label_offset=1,' in error
    # Without a description, nothing says that there is a background.
    (data_dir / 'dataset.json').unlink()
    assert not report_of(data_dir)['errors']


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
    report = report_of(written(tmp_path, train, validation))
    duplicates = report['duplicates']
    # Two duplicates of pieces[0], one of pieces[1], and one of pieces[3] in validation.
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
        [('train-00000', 0, 1), ('train-00002', 2, 1), ('train-00002', 3, 1), ('validation-00001', 3, 1)],
        [('train-00000', 1, 2), ('train-00002', 4, 5)],
        [('train-00000', 3, 4), ('validation-00001', 1, 4), ('validation-00001', 2, 4)],
    ]
    assert report['can_be_trained_on']


def test_duplicates__are_named_with_their_first_places(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    train = [pieces[0]] * 30 + [pieces[0]._replace(label=3)]
    data_dir = written(tmp_path, train, [pieces[0]._replace(label=2), *pieces[15:], pieces[15]])
    report = report_of(data_dir)
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


def test_duplicates__without_a_listed_place_are_counted() -> None:
    copies = {'of_several_labels': 1, 'between': 0, 'train': 2000, 'validation': 0, 'first': []}
    found = ['images under several labels: 1', 'train images that are copies of others: 2,000']
    assert [*_about_duplicates(copies)] == found


def test_bad_boxes_are_counted_by_kind(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    data_dir = written(tmp_path, pieces[:15], pieces[15:])
    boxes = {
        # In pixels; swapped corners; without area; outside; beyond the edge; good, on the edge.
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
    assert report['splits']['train']['boxes'] == {'boxes': 6, 'outside': 5}
    unusable = photo_example(pieces[15])
    set_boxes(unusable, ymin=[0.1], xmin=[float('nan')], ymax=[0.5], xmax=[0.6])
    write(data_dir, records.VALIDATION, [unusable, *map(photo_example, pieces[16:])], 2)
    changed = report_of(data_dir)
    assert changed['errors'] == []
    (warning,) = (text for text in changed['warnings'] if text.startswith('validation '))
    assert warning.startswith('validation records whose boxes cannot be used: 1. Evaluation ignores boxes. ')
    (outside,) = report['warnings']
    assert outside.startswith('train boxes that extend beyond their image, or have no area in it: 5 of 6.')


def test_formats_and_fields__are_reported(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    photo = PIL.Image.fromarray(pieces[0].pixels)
    kinds = [('PNG', 'RGB'), ('JPEG', 'CMYK'), ('GIF', 'P'), ('BMP', 'RGB'), ('WEBP', 'RGB')]
    images = [*(pieces[0]._replace(encoded=saved(photo.convert(mode), kind)) for kind, mode in kinds), pieces[1]]
    examples = [photo_example(photo) for photo in images]
    del examples[5].features.feature['image/filename']
    for corner in CORNERS:
        del examples[5].features.feature[f'image/object/bbox/{corner}']
    data_dir = written(tmp_path, images, pieces[15:])
    write(data_dir, records.TRAIN, examples, 3)
    train = report_of(data_dir)['splits']['train']
    assert train['formats'] == {'PNG': 1, 'JPEG, CMYK': 1, 'GIF': 1, 'unknown': 2, 'JPEG': 1}
    # Two records per file.
    assert [place['path'][-14:] for place in train['undecodable']['first']] == ['00001-of-00003', '00002-of-00003']
    assert places(train['undecodable']) == [1, 0]
    lacking = {'image/filename', *(f'image/object/bbox/{corner}' for corner in CORNERS)}
    assert train['fields'] == {name: 5 if name in lacking else 6 for name in examples[0].features.feature}


def test_damaged_and_rotated_images_are_counted_as_warnings(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
    rotated = pieces[1]._replace(encoded=with_orientation(pieces[1].encoded, 6))
    whole = pieces[0].encoded
    # The end of the scan is missing, and the end marker is there.
    damaged = pieces[0]._replace(encoded=whole[: len(whole) * 3 // 4] + b'\xff\xd9')
    # A second header within the scan: pixels are missing before it, and the decoder stops at it. It counts once.
    second = pieces[19]._replace(encoded=with_bytes(pieces[19].encoded, len(pieces[19].encoded) // 2, b'\xff\xc0'))
    found = report_of(written(tmp_path / 'data', [damaged, rotated, *pieces[2:15]], [*pieces[15:19], second]))
    train, validation = found['splits']['train'], found['splits']['validation']
    assert [(train[key]['count'], places(train[key])) for key in ('damaged', 'rotated')] == [(1, [0]), (1, [1])]
    assert [validation[key]['count'] for key in ('undecodable', 'damaged', 'rotated')] == [1, 0, 0]
    assert 'Corrupt JPEG data' in train['damaged']['first'][0]['problem']
    assert train['rotated']['first'][0]['problem'] == 'EXIF orientation 6.'
    assert [error.partition(':')[0] for error in found['errors']] == ['validation images that cannot be decoded']
    assert any('train images with damaged pixels: 1.' in warning for warning in found['warnings'])
    assert any('train images with an EXIF orientation: 1. Training ignores it' in w for w in found['warnings'])


def test_progress__counts_every_record_and_stops(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    progress: Any = multiprocessing.get_context('spawn').Value('q', 0)
    auditor = ShardAuditor('tfrecord', Fields(), 6, progress)
    write(tmp_path, records.TRAIN, [photo_example(photo) for photo in photos] * 50, 1)
    (path,) = records.find_shards(str(tmp_path), records.TRAIN)
    content = auditor.audit(path)
    assert content.records == progress.value == 250
    images = content.images[:5]
    assert images['size'].tolist() == [[photo.pixels.shape[1], photo.pixels.shape[0]] for photo in photos]
    assert images['label'].tolist() == [1, 2, 3, 4, 5] and images['position'].tolist() == [0, 1, 2, 3, 4]
    assert images['bytes'].tolist() == [len(photo.encoded) for photo in photos]
    progress.value = shard.STOP
    with pytest.raises(InterruptedError):
        auditor.audit(path)
    assert progress.value == shard.STOP


def test_findings__name_three_and_count_the_rest(good: Report) -> None:
    # ImageNet's classes with the background, and the limit that the documentation of the report names.
    assert audit_report.DOCUMENTED_CLASSES == 1001 and shard.LISTED_AT_MOST == 1000
    places = [{'path': 'train', 'position': n, 'problem': 'no label.'} for n in range(5)]
    train = {**good['splits']['train'], 'bad_fields': {'count': 1001, 'first': places}}
    changed = {**good, 'splits': {**good['splits'], 'train': train}, 'other_files': ['a', 'b', 'c', 'd', 'e']}
    (error,), (warning,) = judge(changed)
    assert error.startswith('train records that cannot be used: 1,001. ')
    assert 'record 2: no label; and 998 more' in error and 'record 3' not in error
    assert warning == 'other files, which are not read: 5: a, b, c and 2 more'


def test_findings__say_what_differs_from_the_description(good: Report) -> None:
    train, validation = (good['splits'][split] for split in ('train', 'validation'))
    fields = {**train['fields'], 'image/class/text': 14, 'image/object/bbox/xmin': 1}
    splits = {'train': {**train, 'fields': fields}, 'validation': {**validation, 'records_expected': 0}}
    background, *others = good['classes']
    classes = [
        *({**background, 'validation': 1}, *others),
        # Beyond the classes: its images are bad records.
        {'label': 6, 'name': None, 'train': 0, 'validation': 2},
    ]
    errors, warnings = judge({**good, 'splits': splits, 'classes': classes, 'label_offset': 1})
    assert len(errors) == 1 and 'give --label_offset=2, which is added' in errors[0]
    assert warnings == [
        'fields that some of the 15 train records lack: image/class/text (14)',
        'validation records: 5; dataset.json says 0.',
    ]
    unnamed = [{**background, 'name': '', 'validation': 1}, *others]
    assert judge({**good, 'classes': unnamed})[0][0].startswith('images with label 0, the background in dataset.json')
    # The largest label of an image, which is not that of the classes that are assumed.
    undescribed = {**good, 'name': None, 'classes': [*good['classes'], {**background, 'label': 1000}]}
    undescribed['fingerprint'] = {**good['fingerprint'], 'agree': None}
    for is_counted, assumed, flags in (
        (False, 'the sizes of ImageNet', '--num_train_images=15 --num_eval_images=5 --num_classes=6'),
        (True, "ImageNet's 1,001 classes", '--num_classes=6'),
    ):
        assert judge({**undescribed, 'is_counted': is_counted}) == (
            [],
            [f'no readable dataset.json: a run assumes {assumed}. The largest label is 5. Pass {flags}.'],
        )
    # At least two classes, the background and another, and the question what label 0 is.
    alone = {**undescribed, 'is_counted': True, 'classes': [{**background, 'name': None, 'train': 15, 'validation': 5}]}
    _, (assumed, label_0) = judge(alone)
    assert assumed.endswith('The largest label is 0. Pass --num_classes=2.')
    assert label_0.startswith('images with label 0, which is the background: 20. If it is a class, and the network')
    assert len(judge({**alone, 'label_offset': 1})[1]) == 1


def test_tar_shards__give_the_same_report_as_records(tar_dir: pathlib.Path, good: Report) -> None:
    report = report_of(tar_dir, data_format='tar')
    for key in ('name', 'fingerprint', 'classes', 'can_be_trained_on', 'errors', 'warnings', 'other_files'):
        assert report[key] == good[key], key
    assert report['fingerprint']['agree'] is True
    path = FORMATS['tar'].find_shards(str(tar_dir), records.TRAIN)[0]
    plain, shifted = (
        [entry.label for entry in shard.of_tar(path, 7, Fields(label_offset=offset))] for offset in (0, 1)
    )
    assert any(plain) and shifted == [(label or 0) + 1 for label in plain]
    for split, described in report['splits'].items():
        own = {'fields': {'cls': described['records'], 'image': described['records'], 'json': described['records']}}
        no_boxes = {'boxes': {'boxes': 0, 'outside': 0}}
        assert described == {**good['splits'][split], **own, **no_boxes}


def test_bad_samples__are_the_same_as_in_a_run(bad_tar_dir: pathlib.Path) -> None:
    report = report_of(bad_tar_dir, 6, 'tar')
    assert not report['can_be_trained_on']
    train = report['splits']['train']
    # 06 has two images, 07 none, 08 no label. README and the files of 09 belong to no sample.
    assert places(train['undecodable']) == [2, 3]
    assert places(train['bad_fields']) == [4, 5, 6, 7, 8]
    assert [(place['path'][-9:], place['position']) for place in train['bad_files']['first']] == [
        ('00001.tar', 0),
        ('00003.tar', 1),
    ]
    assert (train['records'], report['splits']['validation']['records']) == (10, 1)
    left_out = [(place['position'], place['problem']) for place in train['left_out']['first']]
    assert left_out == [(9, 'README.'), (9, '09.json.'), (9, '09.txt.')] and train['left_out']['count'] == 3
    warning = 'files in the train shards that belong to no sample, and are left out: 3. '
    assert [warned[-15:] for warned in report['warnings'] if warned.startswith(warning)] == ['ecord 9: 09.txt']
    assert train['missing_files'] == ['train-00002.tar']
    # The image of a sample without a valid label is not decoded; the label of 05 is 6.
    assert train['formats'] == {'JPEG': 3, 'PPM': 2, 'unknown': 1}
    assert (train['height']['min'], train['height']['max']) == (64, 65)
    found = sorted(
        tuple(place.values()) for kind in ('undecodable', 'bad_fields', 'bad_files') for place in train[kind]['first']
    )
    paths = FORMATS['tar'].find_shards(str(bad_tar_dir), records.TRAIN)
    checker = SampleChecker(6, False, Fields())
    assert found == [tuple(bad) for bad in checker.search(paths, print)]
    assert [problem for path, position, problem in found if path == paths[0] and position in (2, 5)] == [
        '02: the image (99 bytes) cannot be decoded: damaged, of more than 100 million pixels, or neither JPEG, PNG '
        'nor GIF.',
        '05: label 6 is not in 0 to 5 (--num_classes=6). Labels that begin at another number need --label_offset=N, '
        'which is added to each.',
    ]
