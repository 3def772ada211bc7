"""Runs on data sets of other names, keys and labels."""

import dataclasses
import pathlib
from typing import Any, List

import pytest

from inception_v3.config import Config
from tests.support.foreign_records import FOREIGN, write_foreign, write_foreign_tar
from tests.support.photos import Photo
from tests.support.pipelines import labels_of, read
from tests.support.runs import evaluations, execute

SMALL = {'num_train_images': 4, 'num_eval_images': 5, 'train_batch_size': 2, 'eval_batch_size': 2, 'num_classes': 6}


@pytest.fixture
def config(small_config: Config, one_layer: None, photos: List[Photo], tmp_path: pathlib.Path) -> Config:
    """The configuration of a run on foreign records in folders."""
    write_foreign(tmp_path / 'train' / 'a', photos[:2])
    write_foreign(tmp_path / 'train' / 'b', photos[2:4])
    write_foreign(tmp_path / 'val' / 'one.tfrecord', photos[:3])
    write_foreign(tmp_path / 'val' / 'two.tfrecord', photos[3:5])
    return dataclasses.replace(
        small_config, **SMALL, **FOREIGN, data_dir=str(tmp_path), model_dir=str(tmp_path / 'model'), train_steps=2
    )


@pytest.mark.program
def test_tar_shards__are_read_in_the_order_of_their_pattern(
    config: Config, photos: List[Photo], tmp_path: pathlib.Path
) -> None:
    write_foreign_tar(tmp_path / 'web' / 'photos-000.tar', photos[:2])
    write_foreign_tar(tmp_path / 'web' / 'photos-001.tar', photos[2:5])
    keys = {'image_key': Config.image_key, 'label_key': Config.label_key}
    tar = dataclasses.replace(config, **keys, data_format='tar', eval_files='web/photos-{001..000}.tar')
    # In the order of the pattern.
    labels = labels_of(read(dataclasses.replace(tar, num_files_infeed=1), False, 5))
    assert labels == [photo.label for photo in [*photos[2:5], *photos[:2]]]


def test_run__reads_relative_patterns_without_a_data_dir(
    config: Config, tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    relative = dataclasses.replace(config, data_dir='', train_files='train/*', eval_files='val/*')
    summary = execute(relative)
    assert [evaluation.images for evaluation in evaluations(config)] == [5]
    assert 'data set   --train_files=train/*, --eval_files=val/*\n' in summary


@pytest.mark.program
def test_bad_records__are_named_by_path_in_files_of_equal_names(
    config: Config, photos: List[Photo], caplog: Any
) -> None:
    root = pathlib.Path(config.data_dir)
    bad = photos[0]._replace(encoded=b'no image')
    paths = [write_foreign(root / name / 'same', [photos[0], bad]) for name in ('x', 'y')]
    execute(dataclasses.replace(config, mode='train', train_files='{x,y}/same', max_bad_records=2, train_steps=4))
    skipped = [message for message in caplog.messages if message.startswith('skipped')]
    assert [message.partition(': ')[0] for message in skipped] == [f'skipped {path}, record 1' for path in paths]
