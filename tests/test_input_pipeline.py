"""Tests of the input pipeline on real records: tensors, completeness, shares of hosts, bad records."""

import dataclasses
import os
import shutil
from typing import Any, List

import numpy as np
import pytest

from compat import tf
from data import records
from inception_v3.config import PADDING_LABEL, Config
from inception_v3.input import usable_records
from inception_v3.input_pipeline import InputPipeline
from preprocessing import decoding, inception_preprocessing
from preprocessing.preprocessings import preprocessing_for
from tests.support.images import resize_bilinear
from tests.support.photos import Photo, photo_example
from tests.support.pipelines import Batch, labels_of, read


@pytest.fixture(scope='module')
def config(photo_dir: str) -> Config:
    return Config(use_tpu=False, data_dir=photo_dir, num_classes=6, num_parallel_calls=2, height=96, width=128)


@pytest.fixture(scope='module')
def evaluated(config: Config) -> List[Batch]:
    """The batches of evaluation: four of the five photographs, and the fifth with padding."""
    return read(config, False, 4)


def test_evaluation__returns_the_documented_tensors(evaluated: List[Batch], photos: List[Photo]) -> None:
    assert len(evaluated) == 2
    for images, labels in evaluated:
        assert images.dtype == np.float32 and labels.dtype == np.int32
        assert images.shape == (4, 96, 128, 3) and labels.shape == (4,)
    images, labels = (np.concatenate(parts)[: len(photos)] for parts in zip(*evaluated))
    # Two files are interleaved, so their images alternate.
    assert sorted(labels) == [photo.label for photo in photos]
    with tf.Session() as session:
        decoded = {photo.label: session.run(tf.image.decode_jpeg(photo.encoded)) for photo in photos}
    for image, label in zip(images, labels):
        pixels = decoded[label] / 255.0
        top, left = (int((size - size * 0.875) / 2) for size in pixels.shape[:2])
        cropped = pixels[top : pixels.shape[0] - top, left : pixels.shape[1] - left]
        np.testing.assert_allclose(image, (resize_bilinear(cropped, 96, 128) - 0.5) * 2, atol=5e-5)


def test_evaluation__has_every_image_once_in_the_order_of_the_files(small_config: Config) -> None:
    batches = read(small_config, False, 100)
    labels = labels_of(batches)
    assert [images.shape for images, _ in batches] == [(100, 75, 75, 3)] * 4
    assert PADDING_LABEL not in labels[:359] and labels[359:] == [PADDING_LABEL] * 41
    # All images differ, so the right number of different images means each came once.
    images = np.concatenate([images for images, _ in batches])
    assert len({image.tobytes() for image in images[:359]}) == 359
    assert (images[359:] == 0).all()
    limited = dataclasses.replace(small_config, eval_total_size=60)
    assert labels_of(read(limited, False, 60)) == labels[:60]
    # A seed orders only the records of training.
    seeded = dataclasses.replace(small_config, seed=1)
    assert labels_of(read(seeded, False, 60, batches=1)) == labels[:60]


def test_evaluation__pads_without_end_on_a_tpu(config: Config) -> None:
    batches = read(dataclasses.replace(config, use_tpu=True), False, 4, batches=4)
    assert [int((labels != PADDING_LABEL).sum()) for _, labels in batches] == [4, 1, 0, 0]


@pytest.mark.parametrize('machine', [0, 1])
def test_machines__feed_the_images_of_their_own_share(machine: int) -> None:
    hosts = Config(use_tpu=False, worker_hosts='a:1,b:1', task_index=machine, use_data='fake', num_eval_images=6)
    (_, labels), *_ = read(dataclasses.replace(hosts, height=8, width=8), False, 3, batches=1)
    assert labels.tolist() == [machine, machine + 2, machine + 4]


def test_training__shuffles_repeats_and_distorts(config: Config, photos: List[Photo]) -> None:
    batches = read(config, True, 5, batches=30)
    assert all(images.shape == (5, 96, 128, 3) and images.dtype == np.float32 for images, _ in batches)
    assert all(images.min() >= -1 and images.max() <= 1 for images, _ in batches)
    labels = labels_of(batches)
    # 150 images are 30 epochs; the shuffle buffer mixes epochs.
    assert set(labels) == {photo.label for photo in photos}
    assert labels != labels[:5] * 30
    images = np.concatenate([images for images, _ in batches])
    assert len({image.tobytes() for image in images}) == len(images)


@pytest.mark.parametrize(('enabled', 'replicas', 'sizes'), [(True, 1, [2]), (True, 3, [6]), (False, 3, [])])
def test_prefetch_enabled__keeps_two_batches_of_each_replica_ready(
    enabled: bool, replicas: int, sizes: List[int], config: Config
) -> None:
    config = dataclasses.replace(config, prefetch_enabled=enabled, num_gpus=replicas, accelerator='cpu')
    InputPipeline(is_training=False, config=config)({'batch_size': 4})
    operations = tf.get_default_graph().get_operations()
    assert [tf.get_static_value(o.inputs[1]) for o in operations if o.type == 'PrefetchDataset'] == sizes


def test_evaluation__on_two_replicas_has_a_batch_of_padding_for_the_second(
    config: Config, evaluated: List[Batch]
) -> None:
    *found, (_, padding) = read(dataclasses.replace(config, num_gpus=2, accelerator='cpu'), False, 4)
    assert len(found) == len(evaluated) and {*padding} == {PADDING_LABEL}


def test_transpose_enabled__moves_the_batch_to_the_last_axis(config: Config, evaluated: List[Batch]) -> None:
    (plain, labels), *_ = evaluated
    (transposed, same_labels), *_ = read(dataclasses.replace(config, transpose_enabled=True), False, 4)
    np.testing.assert_array_equal(transposed, plain.transpose([1, 2, 3, 0]))
    np.testing.assert_array_equal(same_labels, labels)
    (images, _), *_ = read(dataclasses.replace(config, precision='bfloat16'), True, 4, batches=1)
    assert images.dtype == tf.bfloat16.as_numpy_dtype


def test_use_annotated_bbox__crops_around_the_boxes(config: Config, monkeypatch: Any) -> None:
    given: List[Any] = []

    def remember(shape: tf.Tensor, bbox: tf.Tensor, **others: Any) -> Any:
        given.append(bbox)
        return decoding.Crop(*[tf.constant(each) for each in (0, 0, 9, 9)])

    monkeypatch.setattr(inception_preprocessing, 'draw_crop', remember)
    annotated = tf.constant([[[0.1, 0.2, 0.3, 0.4]]])
    for use in (False, True):
        changed = dataclasses.replace(config, use_annotated_bbox=use)
        preprocessing_for(changed).draw(tf.constant([9, 9, 3]), annotated)
    with tf.Session() as session:
        assert session.run(given[0]).tolist() == [[[0, 0, 1, 1]]]
    assert given[1] is annotated


@pytest.fixture
def bad_dir(thumbnails: List[Photo], tmp_path: Any) -> str:
    """Writes a validation file in which records 1, 3, 4 and 6 of 8 cannot be used; returns its folder."""
    photo = thumbnails[0]
    broken, empty = (photo._replace(encoded=photo.encoded[:size]) for size in (len(photo.encoded) // 2, 0))
    good, *bad = (photo_example(each).SerializeToString() for each in (photo, photo._replace(label=6), broken, empty))
    contents = [good, bad[0], good, bad[1], b'no example at all', good, bad[2], good]
    with tf.io.TFRecordWriter(records.shard_path(str(tmp_path), 'validation', 0, 1)) as writer:
        for content in contents:
            writer.write(content)
    return str(tmp_path)


def test_max_bad_records__skips_and_names_bad_records(
    config: Config, bad_dir: str, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(usable_records, 'GROUP_RECORDS', 3)
    allowed = dataclasses.replace(config, data_dir=bad_dir, max_bad_records=4, model_dir=str(tmp_path / 'model'))
    folder = tmp_path / 'model' / 'bad_records' / 'validation'
    for _ in range(2):
        # A second pass reads the same records, which count once.
        (images, labels), *_ = read(allowed, False, 8)
        assert labels.tolist() == [1, 1, 1, 1, *[PADDING_LABEL] * 4]
        assert (images[:4] == images[0]).all() and images[0].any() and not images[4:].any()
        assert sorted(os.listdir(folder)) == [f'validation-00000-of-00001@{position}' for position in (1, 3, 4, 6)]
    shutil.rmtree(folder)
    with pytest.raises(tf.errors.InvalidArgumentError, match='more bad records than may be skipped'):
        read(dataclasses.replace(allowed, max_bad_records=3), False, 8)
    with pytest.raises(tf.errors.InvalidArgumentError):
        read(dataclasses.replace(allowed, max_bad_records=0), False, 8)


def test_max_bad_records__skips_bad_records_in_every_epoch(
    config: Config, bad_dir: str, tmp_path: Any, monkeypatch: Any
) -> None:
    os.rename(records.shard_path(bad_dir, 'validation', 0, 1), records.shard_path(bad_dir, 'train', 0, 1))
    monkeypatch.setattr(usable_records, 'GROUP_RECORDS', 3)
    allowed = dataclasses.replace(
        config, data_dir=bad_dir, max_bad_records=4, model_dir=str(tmp_path / 'model'), transfer='uint8'
    )
    # The eight records are drawn at random, because files are repeated before they are shuffled. About 200 draws miss
    # one of the bad records with a probability of 4 * (7 / 8) ** 200 = 1e-11; 40 draws missed one in 50 tests.
    taken = read(allowed, True, 5, batches=20)
    assert [labels.tolist() for _, labels in taken] == [[1] * 5] * 20
    assert len(os.listdir(tmp_path / 'model' / 'bad_records' / 'train')) == 4


def test_max_bad_records__leaves_other_records_unchanged(config: Config, evaluated: List[Batch], tmp_path: Any) -> None:
    allowed = read(dataclasses.replace(config, max_bad_records=1, model_dir=str(tmp_path)), False, 4)
    assert len(evaluated) == len(allowed)
    for (images, labels), (same_images, same_labels) in zip(evaluated, allowed):
        np.testing.assert_array_equal(images, same_images)
        np.testing.assert_array_equal(labels, same_labels)
