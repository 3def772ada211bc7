"""Tests of generated images: shapes, ranges, labels, and the order for a seed."""

import dataclasses

import numpy as np
import pytest

from compat import tf
from inception_v3.config import Config
from inception_v3.input.fake_data import fake_images
from inception_v3.input.infeed import Infeed
from tests.support.pipelines import Batch, read

CONFIG = Config(
    use_data='fake', use_tpu=False, num_train_images=20, num_eval_images=13, num_classes=7, height=75, width=80
)


@pytest.mark.parametrize('preprocessing', ['inception', 'vgg'])
def test_fake_images__differ_and_have_all_labels(preprocessing: str) -> None:
    config = dataclasses.replace(CONFIG, num_eval_images=30, num_classes=11, preprocessing=preprocessing)
    (images, labels), *rest = read(config, False, 30)
    assert not rest
    assert images.shape == (30, 75, 80, 3)
    assert len({image.tobytes() for image in images}) == 30
    assert set(labels) == set(range(11))
    low, high = (-1, 1) if preprocessing == 'inception' else (-124, 152)
    assert low <= images.min() < 0.9 * low and 0.9 * high < images.max() <= high
    # Training repeats without end.
    assert len(read(dataclasses.replace(config, num_train_images=20), True, 15, batches=4)) == 4


def first_images(count: int, step: int = 0, is_training: bool = True, config: Config = CONFIG) -> Batch:
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = fake_images(Infeed(config), is_training, config, tf.constant(step, tf.int64), 2).batch(count)
        return session.run(tf.data.make_one_shot_iterator(dataset).get_next())


def test_fake_images__have_labels_that_cycle_through_the_classes() -> None:
    _, labels = first_images(43)
    assert labels.tolist() == [*([*range(7)] * 2), *range(6)] * 2 + [0, 1, 2]
    _, labels = first_images(43, is_training=False)
    assert labels.tolist() == [*range(7), *range(6)]


def test_fake_images__of_a_host_are_its_part_of_each_batch() -> None:
    config = dataclasses.replace(CONFIG, train_batch_size=8, num_classes=20)
    for host in (0, 1):
        dataset = fake_images(Infeed(config), True, config, tf.constant(1, tf.int64), 2, host, 2).batch(8)
        with tf.Session() as session:
            _, labels = session.run(tf.data.make_one_shot_iterator(dataset).get_next())
        # The second and the third batch; the last images of the third begin the next epoch.
        assert labels.tolist() == [*range(8 + 4 * host, 12 + 4 * host), *[[16, 17, 18, 19], [0, 1, 2, 3]][host]]


def test_fake_images__fill_the_range_of_pixels_uniformly() -> None:
    images, _ = first_images(3, is_training=False)
    counts, _ = np.histogram((images + 1) / 2, bins=4, range=(0, 1))
    # 54,000 pixels: a quarter in each bin, within five standard deviations.
    np.testing.assert_allclose(counts, 13_500, atol=5 * np.sqrt(54_000 * 0.25 * 0.75))
    assert counts.sum() == images.size == 54_000


def test_fake_images__with_a_seed_resume_and_differ_between_epochs() -> None:
    config = dataclasses.replace(CONFIG, seed=0, train_batch_size=8)
    images, labels = first_images(44, config=config)
    later_images, later_labels = first_images(20, step=3, config=config)
    np.testing.assert_array_equal(images[24:], later_images)
    assert labels[24:].tolist() == later_labels.tolist()
    # The same image in two epochs, with another distortion.
    assert all(np.abs(images[index] - images[index + 20]).max() > 0.01 for index in range(20))
    assert np.abs(images[0] - first_images(1, config=dataclasses.replace(config, seed=1))[0]).max() > 0.01
