"""The generated data set of the benchmarks."""

import io
import os
import pathlib
from typing import List

import numpy as np
import PIL.Image
import pytest

from compat import tf
from data import dataset_info, records
from tools.benchmarks import photographs


def encoded(data_dir: str, split: str) -> List[bytes]:
    return [
        tf.train.Example.FromString(record).features.feature['image/encoded'].bytes_list.value[0]
        for path in records.find_shards(data_dir, split)
        for record in tf.io.tf_record_iterator(path)
    ]


def test_make__photographs_resemble_imagenet(tmp_path: pathlib.Path) -> None:
    data_dir = str(tmp_path / 'made')
    photographs.make(data_dir, train=24, validation=4, shards=2)
    files = encoded(data_dir, records.TRAIN)
    assert len(files) == 24 and len(encoded(data_dir, records.VALIDATION)) == 4
    assert len({*files, *encoded(data_dir, records.VALIDATION)}) == 28
    assert 70e3 < np.mean([len(file) for file in files]) < 130e3
    images = [PIL.Image.open(io.BytesIO(file)) for file in files]
    assert {image.format for image in images} == {'JPEG'} and {image.mode for image in images} == {'RGB'}
    assert all(360 <= min(image.size) < 460 <= max(image.size) < 580 for image in images)
    # Three in four are wider than high.
    assert sum(image.width > image.height for image in images) > 12
    # 4:2:0: luma has twice the samples of chroma in each direction.
    assert all([layer[1:3] for layer in image.layer] == [(2, 2), (1, 1), (1, 1)] for image in images)
    info = dataset_info.read(data_dir)
    assert info and (info.train_images, info.validation_images) == (24, 4)


def test_make__is_repeatable_and_keeps_what_exists(tmp_path: pathlib.Path) -> None:
    one, other = str(tmp_path / 'one'), str(tmp_path / 'other')
    for data_dir in (one, other):
        photographs.make(data_dir, train=2, validation=2, shards=1)
    assert encoded(one, records.TRAIN) == encoded(other, records.TRAIN)
    photographs.make(one, train=50, validation=50, shards=1)
    assert len(encoded(one, records.TRAIN)) == 2
    with pytest.raises(records.DataError, match='exists already'):
        photographs.make(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ['one', 'other']
