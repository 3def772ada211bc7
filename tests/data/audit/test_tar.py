"""The audit of tar shards."""

import pathlib
from typing import List

import pytest

from data import records
from data.fingerprint import fingerprint
from data.formats import FORMATS
from data.tar.shard import SampleChecker
from data.tf_example import Fields
from preprocessing.decoding import decode_image
from tests.data.audit.data_sets import Report, of_photos, places, ppm_of, report_of
from tests.support.photos import Photo
from tests.support.tar_files import write_tar


def test_tar_shards__give_the_same_report_as_records(tar_dir: pathlib.Path, good: Report) -> None:
    report = report_of(tar_dir, data_format='tar')
    for key in ('name', 'fingerprint', 'classes', 'can_be_trained_on', 'errors', 'warnings', 'other_files'):
        assert report[key] == good[key], key
    assert report['fingerprint']['agree'] is True
    for split, described in report['splits'].items():
        own = {'fields': {'cls': described['records'], 'image': described['records'], 'json': described['records']}}
        no_boxes = {'boxes': {'boxes': 0, 'in_pixels': 0, 'empty': 0, 'out_of_range': 0}}
        assert described == {**good['splits'][split], **own, **no_boxes}


@pytest.mark.parametrize('decode', [False, True])
def test_bad_samples__are_the_same_as_in_a_run(bad_tar_dir: pathlib.Path, decode: bool) -> None:
    report = report_of(bad_tar_dir, decode, 6, 'tar')
    assert not report['can_be_trained_on']
    train = report['splits']['train']
    # 06 has two images, 07 none, 08 no label. README belongs to no sample.
    assert places(train['undecodable']) == [2, 3]
    assert places(train['bad_fields']) == [4, 5, 6, 7, 8]
    assert [(place['path'][-9:], place['position']) for place in train['bad_files']['first']] == [
        ('00001.tar', 0),
        ('00003.tar', 1),
    ]
    assert (train['records'], report['splits']['validation']['records']) == (10, 1)
    (left_out,) = train['left_out']['first']
    assert (left_out['position'], left_out['problem'], train['left_out']['count']) == (8, 'README.', 1)
    warning = 'files in the train shards that belong to no sample, and are left out: 1. '
    assert [warned[-15:] for warned in report['warnings'] if warned.startswith(warning)] == ['ecord 8: README']
    assert train['missing_files'] == ['train-00002.tar']
    # The image of a sample without a valid label is not decoded; the label of 05 is 6.
    assert train['formats'] == {'JPEG': 3, 'PPM': 2, 'unknown': 1}
    assert (train['height']['min'], train['height']['max']) == (64, 65)
    found = sorted(
        tuple(place.values()) for kind in ('undecodable', 'bad_fields', 'bad_files') for place in train[kind]['first']
    )
    paths = FORMATS['tar'].find_shards(str(bad_tar_dir), records.TRAIN)
    checker = SampleChecker(6, decode_image, False, Fields())
    assert found == [tuple(bad) for bad in checker.search(paths, print)]
    assert [problem for path, position, problem in found if path == paths[0] and position in (2, 5)] == [
        '02: the image (99 bytes) cannot be decoded: damaged, of more than 100 million pixels, or neither JPEG, PNG '
        'nor GIF.',
        '05: label 6 is not in 0 to 5 (--num_classes=6). Labels that begin at another number need --label_offset=N, '
        'which is added to each.',
    ]


def test_tar_shards__duplicates_and_wrong_extensions(pieces: List[Photo], tmp_path: pathlib.Path) -> None:
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
