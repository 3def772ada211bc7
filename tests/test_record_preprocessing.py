"""Tests of the preprocessing of records: parsing, and groups that are drawn together."""

import dataclasses
from typing import Any, Dict, List

import numpy as np
import pytest

from compat import tf
from data.records import Record
from inception_v3 import input_pipeline
from inception_v3.config import Config
from inception_v3.input.record_preprocessing import RecordPreprocessing
from inception_v3.input_pipeline import InputPipeline
from preprocessing.preprocessings import preprocessing_for
from preprocessing.steps import Settings
from tests.support.graphs import evaluate
from tests.support.photos import Photo, photo_example

KINDS = [
    {'preprocessing': 'inception', 'transfer': 'uint8', 'random_flip': False},
    {'preprocessing': 'inception', 'fast_mode': False, 'use_fast_color_distort': False},
    {'preprocessing': 'vgg'},
    {'preprocessing': 'cifar', 'random_flip': False},
]


@pytest.fixture
def config(photo_dir: str) -> Config:
    return Config(use_tpu=False, data_dir=photo_dir, num_classes=6, num_parallel_calls=2, height=75, width=80)


def records_of(photos: List[Photo], count: int) -> List[bytes]:
    """Serialized records of the photos, in turn."""
    return [photo_example(photos[number % len(photos)]).SerializeToString() for number in range(count)]


def all_of(dataset: tf.data.Dataset) -> Any:
    """The elements of a data set, stacked."""
    return evaluate(tf.data.experimental.get_single_element(dataset.batch(1000)))


def one_by_one(dataset: tf.data.Dataset, is_training: bool, config: Config) -> Any:
    """The elements of a data set of records, each preprocessed alone, stacked."""
    preprocess = tf.autograph.experimental.do_not_convert(RecordPreprocessing(is_training, config).preprocess)
    return all_of(dataset.map(preprocess))


def test_settings__are_those_of_the_flags() -> None:
    values: Dict[str, Any] = {
        **{'height': 80, 'width': 90, 'random_flip': False, 'fast_mode': False, 'use_fast_color_distort': False},
        **{'cb_distortion_range': 0.2, 'cr_distortion_range': 0.3, 'brightness_distortion_range': 0.4},
        **{'crop_area_min': 0.5, 'crop_aspect_ratio_max': 2.0, 'use_annotated_bbox': True, 'crop_padding': 7},
    }
    settings = Settings(**values)
    assert all(one != default for one, default in zip(settings, Settings(299, 299)))
    assert preprocessing_for(Config(**values)).settings == settings


def test_parse__refuses_labels_beyond_num_classes(config: Config, photos: List[Photo]) -> None:
    record = tf.placeholder(tf.string, [])
    encoded, _, parsed = RecordPreprocessing(is_training=False, config=config).parse(record)
    with tf.Session() as session:
        for label in (0, 5, 6, -1):
            given = {record: photo_example(photos[0]._replace(label=label)).SerializeToString()}
            if label in (0, 5):
                assert session.run([encoded, parsed], given) == [photos[0].encoded, label]
            else:
                with pytest.raises(tf.errors.InvalidArgumentError, match='label out of range'):
                    session.run(encoded, given)
    records = [photo_example(photos[0]._replace(label=each)).SerializeToString() for each in (2, 6, 5, -3)]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r'label out of range:\]? \[6 -3\]'):
        evaluate(RecordPreprocessing(is_training=False, config=config).parse(tf.constant(records))[2])
    shifted = RecordPreprocessing(is_training=False, config=dataclasses.replace(config, label_offset=-1))
    assert evaluate(shifted.parse(tf.constant(records[::2]))[2]).tolist() == [1, 4]


@pytest.mark.parametrize(('is_training', 'use', 'boxes'), [(True, True, 2), (True, False, 0), (False, True, 0)])
def test_parse__reads_boxes_for_training_with_them(
    is_training: bool, use: bool, boxes: int, config: Config, photos: List[Photo]
) -> None:
    record = tf.constant(photo_example(photos[2]).SerializeToString())
    preprocessing = RecordPreprocessing(is_training, dataclasses.replace(config, use_annotated_bbox=use))
    with tf.Session() as session:
        assert session.run(preprocessing.parse(record)[1]).tolist() == [photos[2].boxes[:boxes].tolist()]


def test_preprocess__draws_the_distortion_from_the_key(config: Config, thumbnails: List[Photo]) -> None:
    records = RecordPreprocessing(is_training=True, config=dataclasses.replace(config, seed=1))
    record = tf.constant(photo_example(thumbnails[0]).SerializeToString())
    key = tf.placeholder(tf.int64, [2])
    image, _ = records.preprocess(Record(record, key=key))
    with tf.Session() as session:
        keys = [1, 2], [1, 2], [1, 3], [2, 2]
        first, again, other_record, other_epoch = (session.run(image, {key: each}) for each in keys)
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other_record).max() > 0.1 and np.abs(first - other_epoch).max() > 0.1


@pytest.mark.parametrize('kind', KINDS, ids=str)
def test_groups__have_the_bits_of_single_records(kind: Any, config: Config, thumbnails: List[Photo]) -> None:
    config = dataclasses.replace(config, seed=3, **kind)
    count = 2 * input_pipeline._GROUP_RECORDS
    keys = [[3, number] for number in range(count)]
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices(
            Record(records_of(thumbnails, count), key=tf.constant(keys, tf.int64))
        )
        grouped = all_of(InputPipeline(is_training=True, config=config).preprocessing(dataset))
        single = one_by_one(dataset, True, config)
    for one, other in zip(tf.nest.flatten(grouped), tf.nest.flatten(single)):
        assert len(one) == count
        np.testing.assert_array_equal(one, other)


def test_evaluation__prepares_the_records_after_the_last_whole_group(config: Config, thumbnails: List[Photo]) -> None:
    count = input_pipeline._GROUP_RECORDS + 3
    records = records_of(thumbnails, count)
    given = Record(records, [*map(str, range(count))], [*range(100, 100 + count)])
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices(given)
        images, (labels, paths, positions) = all_of(
            InputPipeline(is_training=False, config=config, with_places=True).preprocessing(dataset)
        )
        expected, expected_labels = one_by_one(tf.data.Dataset.from_tensor_slices(Record(records)), False, config)
    assert [int(path) + 100 for path in paths] == positions.tolist() == [*range(100, 100 + count)]
    np.testing.assert_array_equal(images, expected)
    np.testing.assert_array_equal(labels, expected_labels)


def test_groups_without_a_seed__draw_for_each_image(config: Config, thumbnails: List[Photo]) -> None:
    count = 4 * input_pipeline._GROUP_RECORDS
    config = dataclasses.replace(config, use_fast_color_distort=True, transfer='uint8')
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices(Record(records_of(thumbnails[:1], count)))
        features, _ = all_of(InputPipeline(is_training=True, config=config).preprocessing(dataset))
    numbers = features['distortion']
    assert 0.25 < numbers[:, 0].mean() < 0.75, 'flips'
    for column in (1, 2, 3):
        assert len(np.unique(numbers[:, column])) == count
    assert len(np.unique(features['images'], axis=0)) == count
