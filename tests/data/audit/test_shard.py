"""The audit of one file, in this process; and the findings of a report."""

import multiprocessing
import pathlib
from typing import Any, List

import numpy as np
import pytest

from data import records
from data.audit import report, shard
from data.audit.findings import judge
from data.audit.shard import ShardAuditor, contradiction_of, count_boxes
from data.image_header import read_header
from data.tf_example import Fields
from tests.data.audit.data_sets import Report, write
from tests.support.photos import Photo, photo_example


def test_progress__counts_every_record_and_stops(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    progress: Any = multiprocessing.get_context('spawn').Value('q', 0)
    auditor = ShardAuditor('tfrecord', Fields(), 6, False, progress)
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


def test_contradiction__jpg_is_jpeg(photos: List[Photo]) -> None:
    header = read_header(photos[0].encoded)
    assert header
    for name in ('JPEG', 'jpg', 'JPG'):
        assert contradiction_of({'format': name, 'width': 451, 'height': 300}, header) is None
    assert contradiction_of({'format': 'PNG'}, header) == "its fields say 'PNG'; the image is a JPEG."
    assert contradiction_of({'width': 300}, header) == 'its fields say 300 x 300 pixels; the image has 451 x 300.'


def test_boxes__up_to_twice_the_image_are_fractions() -> None:
    boxes = np.array([[0.1, 0.1, 2.0, 0.5], [0.1, 0.1, 2.01, 0.5], [0.5, 0.1, 0.5, 0.2], [-1.0, 0.0, 0.5, 1.0]])
    assert count_boxes(boxes) == {'boxes': 4, 'in_pixels': 1, 'empty': 1, 'out_of_range': 2}


def test_findings__name_three_and_count_the_rest(good: Report) -> None:
    # ImageNet's classes with the background, and the limit that the documentation of the report names.
    assert report.DOCUMENTED_CLASSES == 1001 and shard.LISTED_AT_MOST == 1000
    places = [{'path': 'train', 'position': n, 'problem': 'no label.'} for n in range(5)]
    boxes = {'boxes': 4, 'in_pixels': 0, 'empty': 2, 'out_of_range': 0}
    train = {**good['splits']['train'], 'bad_fields': {'count': 1001, 'first': places}, 'boxes': boxes}
    changed = {**good, 'splits': {**good['splits'], 'train': train}, 'other_files': ['a', 'b', 'c', 'd', 'e']}
    (error,), (of_boxes, warning) = judge(changed)
    assert error.startswith('train records that cannot be used: 1,001. ')
    assert 'record 2: no label; and 998 more' in error and 'record 3' not in error
    assert 'train boxes in pixels instead of fractions of the image: 0 of 4; without area: 2.' in of_boxes
    assert warning == 'other files, which are not read: 5: a, b, c and 2 more'
