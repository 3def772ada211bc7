"""Tests of missing, damaged and empty record files, and of bad records, in whole runs."""

import dataclasses
import os
from typing import Any, List

import pytest

from compat import tf
from data import record_counts, records
from data.record_counts import FileRecords
from data.records import DataError
from inception_v3.config import Config
from inception_v3.input.bad_records import BadRecords
from tests.support.photos import Photo, photo_example, set_boxes
from tests.support.records import write_records
from tests.support.runs import evaluations, execute


@pytest.fixture
def copied(copied: Config) -> Config:
    """The finished run, to resume on bad data."""
    return dataclasses.replace(copied, allow_other_data_set=True)


def test_bad_records__are_named_and_checkpoints_kept(copied: Config, photos: List[Photo], tmp_path: Any) -> None:
    good = photo_example(photos[0])
    outside = photo_example(photos[1]._replace(label=11))
    broken = photo_example(photos[1]._replace(encoded=photos[1].encoded[:5000]))
    uneven = photo_example(photos[2])
    set_boxes(uneven, ymin=[0.1, 0.2], xmin=[0.1], ymax=[0.5], xmax=[0.6])
    bad_dir = tmp_path / 'bad'
    write_records(bad_dir, 'train', [each.SerializeToString() for each in (good, outside, good, broken, uneven)])
    write_records(bad_dir, 'validation', [good.SerializeToString()])
    config = dataclasses.replace(
        copied, data_dir=str(bad_dir), train_steps=100, train_batch_size=2, use_annotated_bbox=True
    )
    with pytest.raises(DataError) as error:
        execute(config)
    for message in (
        'train-00000-of-00001, record 1: label 11 is not in 0 to 10 (--num_classes=11).',
        'train-00000-of-00001, record 3: the image (5,000 bytes) cannot be decoded',
        'train-00000-of-00001, record 4: bounding boxes with missing corners',
        '--max_bad_records=0',
    ):
        assert message in str(error.value)
    assert tf.train.checkpoint_exists(os.path.join(str(copied.model_dir), 'model.ckpt-5'))


def test_bad_records__are_named_at_the_end_if_skipped(
    copied: Config, photos: List[Photo], tmp_path: Any, caplog: Any
) -> None:
    good = photo_example(photos[0]).SerializeToString()
    write_records(tmp_path / 'bad', 'train', [good])
    write_records(tmp_path / 'bad', 'validation', [good, b'nonsense', good])
    # An earlier command recorded record 0 as bad; the record has been repaired since.
    stale = tmp_path / 'model' / 'bad_records' / 'validation'
    os.makedirs(str(stale))
    (stale / 'validation-00000-of-00001@0').write_text('')
    config = dataclasses.replace(
        copied, data_dir=str(tmp_path / 'bad'), mode='eval', max_bad_records=1, num_eval_images=3, eval_batch_size=2
    )
    execute(config)
    assert evaluations(config)[-1].images == 2
    skipped = [record.message for record in caplog.records if record.message.startswith('skipped')]
    assert len(skipped) == 1
    assert '1 records could not be used:' in caplog.messages
    assert 'images were expected' not in caplog.text
    assert 'validation-00000-of-00001, record 1: not a tf.train.Example.' in skipped[0]
    # A file manager's own file is not a record.
    (stale / '.DS_Store').write_text('')
    assert len([*BadRecords(config, ['validation']).skipped()]) == 1


def test_run__names_a_file_with_fewer_records_than_were_counted(
    copied: Config, photos: List[Photo], tmp_path: Any
) -> None:
    write_records(tmp_path / 'data', 'train', 3 * [photo_example(photos[0]).SerializeToString()])
    path = records.shard_path(str(tmp_path / 'data'), 'train', 0, 1)
    record_counts.write(f'{tmp_path}/data/', {os.path.basename(path): FileRecords(os.path.getsize(path), 4)})
    config = dataclasses.replace(copied, data_dir=str(tmp_path / 'data'), mode='train', seed=1, train_steps=100)
    with pytest.raises(
        DataError, match=f'^{path}: has fewer records than were counted: it has changed, or is truncated'
    ):
        execute(config)


def test_run__names_bad_records_that_cannot_be_replaced(copied: Config, photos: List[Photo], tmp_path: Any) -> None:
    good = photo_example(photos[0]).SerializeToString()
    write_records(tmp_path / 'data', 'train', [good, *(40 * [b'nonsense'])])
    config = dataclasses.replace(
        copied, data_dir=str(tmp_path / 'data'), mode='train', seed=1, train_steps=100, max_bad_records=40
    )
    with pytest.raises(DataError) as error:
        execute(config)
    reason, *found, advice = str(error.value).splitlines()
    assert reason == '--seed=1: bad records follow each other, and none near them can replace them:'
    assert 'record 1: not a tf.train.Example' in found[0]
    assert advice == 'Repair the data, or train without --seed. The checkpoints are kept.'
