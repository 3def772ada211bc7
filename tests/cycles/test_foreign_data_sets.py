"""Runs on data sets of other names, keys and labels."""

import dataclasses
import pathlib
from typing import Any, List

import numpy as np
import pytest

from data.records import DataError
from inception_v3.config import Config
from inception_v3.model_dir.trained_model import find
from tests.support.foreign_records import FOREIGN, write_foreign, write_foreign_tar
from tests.support.photos import Photo
from tests.support.pipelines import labels_of, read
from tests.support.runs import evaluations, execute

SMALL = {'num_train_images': 4, 'num_eval_images': 5, 'train_batch_size': 2, 'eval_batch_size': 2, 'num_classes': 6}


@pytest.fixture
def config(small_config: Config, one_layer: None, photos: List[Photo], tmp_path: pathlib.Path) -> Config:
    """The configuration of a run on foreign records, which the documented names hide from nobody."""
    write_foreign(tmp_path / 'train' / 'a', photos[:2])
    write_foreign(tmp_path / 'train' / 'b', photos[2:4])
    write_foreign(tmp_path / 'val' / 'one.tfrecord', photos[:3])
    write_foreign(tmp_path / 'val' / 'two.tfrecord', photos[3:5])
    return dataclasses.replace(
        small_config, **SMALL, **FOREIGN, data_dir=str(tmp_path), model_dir=str(tmp_path / 'model'), train_steps=2
    )


def test_evaluation__reads_the_same_from_every_form(
    config: Config, photos: List[Photo], tmp_path: pathlib.Path
) -> None:
    write_foreign_tar(tmp_path / 'web' / 'photos-000.tar', photos[:2])
    write_foreign_tar(tmp_path / 'web' / 'photos-001.tar', photos[2:5])
    keys = {'image_key': Config.image_key, 'label_key': Config.label_key}
    tar = dataclasses.replace(config, **keys, data_format='tar', eval_files='web/photos-{000..001}.tar')
    (of_records,), (of_tar,) = (read(dataclasses.replace(c, num_files_infeed=1), False, 5) for c in (config, tar))
    assert labels_of([of_records]) == labels_of([of_tar]) == [photo.label for photo in photos[:5]]
    np.testing.assert_array_equal(of_records[0], of_tar[0])


def test_run__trains_and_evaluates(config: Config) -> None:
    summary = execute(config)
    assert [evaluation.images for evaluation in evaluations(config)] == [5]
    assert f'data set   {config.data_dir}\n' in summary
    shifted = dataclasses.replace(config, mode='eval', eval_files='val/o*', label_offset=0, num_eval_images=3)
    execute(shifted)
    last = evaluations(config)[-1]
    assert last.images == 3
    assert {change.partition(':')[0] for change in last.changed} == {'eval_files', 'label_offset', 'num_eval_images'}


def test_bad_records__of_files_of_equal_names(config: Config, photos: List[Photo], caplog: Any) -> None:
    caplog.set_level('INFO')
    root = pathlib.Path(config.data_dir)
    empty = photos[0]._replace(encoded=b'no image')
    paths = [write_foreign(root / name / 'same', [photos[0], empty]) for name in ('x', 'y')]
    skipping = dataclasses.replace(
        config, train_files='train/*', eval_files='{x,y}/same', max_bad_records=2, num_eval_images=4
    )
    execute(skipping)
    assert evaluations(config)[-1].images == 2
    skipped = [message for message in caplog.messages if message.startswith('skipped')]
    assert [message.partition(': ')[0] for message in skipped] == [f'skipped {path}, record 1' for path in paths]
    wrong = dataclasses.replace(config, train_files='train/*', label_offset=2, num_classes=6, train_steps=9)
    with pytest.raises(DataError) as error:
        execute(wrong)
    assert 'label 6 (4 in the record, and --label_offset=2) is not in 0 to 5 (--num_classes=6).' in str(error.value)


def test_find__patterns_of_a_run_in_another_folder(config: Config, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    relative = dataclasses.replace(config, data_dir='', train_files='train/*', eval_files='val/*')
    execute(relative)
    assert find(str(config.model_dir)).config.data_dir == ''
    monkeypatch.chdir('/')
    found = find(str(config.model_dir)).config
    assert found.source.find('validation') == [f'{tmp_path}/val/{name}.tfrecord' for name in ('one', 'two')]
