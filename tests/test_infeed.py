"""Tests of the infeed: images sent as bytes and finished on the device equal the host's, except for rounding."""

import dataclasses
from typing import Any, Dict, List

import numpy as np
import pytest
import skimage.data

from compat import tf
from inception_v3.config import Config
from inception_v3.input import infeed
from inception_v3.input.infeed import Infeed
from inception_v3.input_pipeline import InputPipeline
from tests.support.graphs import plain_session

CAT = (
    skimage.data.chelsea()[50:146, 100:203].astype(np.float32) + 0.3
)  # 96 x 103: 29,664 bytes, a whole number of words
# 75 x 77: 17,325 bytes, so the last word of four bytes holds only one.
CHESS = np.indices([75, 77]).sum(axis=0)[:, :, np.newaxis] % 2 * [255.0, 200.6, 0.4]
CHESS[:, 70:] = 99.5
CONFIG = Config(use_tpu=False, transfer='uint8', height=96, width=103)

# Each is tested with one of the images.
SETTINGS: List[Dict[str, Any]] = [
    {'use_fast_color_distort': False},
    {},
    {'preprocessing': 'vgg'},
    {'use_tpu': True, 'num_shards': 1},
    {'use_tpu': True, 'num_shards': 1, 'transpose_enabled': True},
    {'transpose_enabled': True, 'preprocessing': 'vgg'},
]


def batch_of_two(features: infeed.Features, config: Config) -> infeed.Features:
    """Batches the features of an image with themselves, in the layout of the pipeline."""

    def batch_of(tensor: tf.Tensor, is_image: bool) -> tf.Tensor:
        axis = -1 if is_image and config.transpose_enabled else 0
        return tf.stack([tensor, tensor], axis=axis)

    if isinstance(features, dict):
        return {name: batch_of(part, name == infeed.IMAGES) for name, part in features.items()}
    return batch_of(features, True)


def finished_images(image: np.ndarray, config: Config, is_training: bool) -> List[np.ndarray]:
    """Returns an image, or ten distortions of it in training, finished twice on the device and once by the host."""
    config = dataclasses.replace(config, height=image.shape[0], width=image.shape[1])
    own, of_floats = Infeed(config), Infeed(dataclasses.replace(config, transfer='float'))
    with tf.Graph().as_default(), plain_session() as session:
        # Without a seed, one test run in 512 would flip all ten draws or none.
        tf.set_random_seed(1)
        resized = tf.constant(image, tf.float32)
        if is_training:
            distortion = own.preprocessing.draw(tf.shape(resized), tf.zeros([1, 0, 4]), tf.random.uniform)
            sent = own.for_training(resized, distortion)
            by_host = of_floats.for_training(resized, distortion)
        else:
            sent, by_host = own.for_evaluation(resized), of_floats.for_evaluation(resized)
        received = own.received(batch_of_two(sent, config), config.transpose_enabled)
        assert received.dtype == tf.float32
        return [session.run([received[0], received[1], by_host]) for _ in range(10 if is_training else 1)]


@pytest.mark.parametrize('is_training', [True, False])
@pytest.mark.parametrize(('settings', 'image'), zip(SETTINGS, 3 * [CAT, CHESS]), ids=[*map(str, SETTINGS)])
def test_received__equals_the_finished_image_except_for_rounding(
    image: np.ndarray, settings: Dict[str, Any], is_training: bool
) -> None:
    config = dataclasses.replace(CONFIG, **settings)
    triples = finished_images(image, config, is_training)
    # Half a grey level: 0.5 with vgg, scaled to [-1, 1] with inception.
    half = 0.5 if config.preprocessing == 'vgg' else 0.5 / 255 * 2
    for first, second, by_host in triples:
        np.testing.assert_array_equal(first, second)
        assert np.abs(first - by_host).max() <= half * 1.001 + 1e-6
    if is_training:
        assert len({by_host.tobytes() for _, _, by_host in triples}) > 1


def test_received__is_near_the_hosts_image_whatever_the_hue() -> None:
    # Green next to blue, and values next to those that a brightness turns black or white.
    random = np.random.RandomState(0)
    pixels = random.choice([0.0, 0.4, 10.2, 20.6, 31.9, 200.3, 235.5, 254.8, 255.0], [100, 100, 3])
    pixels[..., 2] = np.where(random.rand(100, 100) < 0.5, pixels[..., 1] + 1e-6, pixels[..., 2])
    config = dataclasses.replace(CONFIG, use_fast_color_distort=False)
    for first, _, by_host in finished_images(np.float32(np.clip(pixels, 0, 255)), config, True):
        # Half a level; [-1, 1] has 255 levels.
        assert np.abs(first - by_host).max() * 127.5 <= 0.5 + 1e-3


def test_received__applies_each_images_own_flip_and_colours() -> None:
    config = dataclasses.replace(CONFIG, height=75, width=77)
    pixels = np.stack([CHESS, CHESS, CHESS[:, ::-1] * 0.5]).astype(np.uint8)
    pixels[:, :, :10] = [10, 100, 200]
    distortions = np.array([[0, 0, 0, 0], [1, 0.1, 0.1, 0.1], [1, -0.14, 0.04, 0.18]], np.float32)
    features = {infeed.IMAGES: tf.constant(pixels), infeed.DISTORTION: tf.constant(distortions)}
    with tf.Session() as session:
        received = session.run(Infeed(config).received(features, is_batch_last=False))
    for image, original, (flip, *offsets) in zip(received, pixels, distortions):
        flipped = original[:, ::-1] if flip else original
        np.testing.assert_allclose(image, (np.clip(flipped / 255 + offsets, 0, 1) - 0.5) * 2, atol=1e-6)


def test_for_evaluation__packs_bytes_into_words_for_a_tpu() -> None:
    for image, words in ((CAT, 7416), (CHESS, 4332)):
        size = {'height': image.shape[0], 'width': image.shape[1]}
        config = Config(transfer='uint8', num_shards=1, **size)
        sent = Infeed(config).for_evaluation(tf.constant(image, tf.float32))
        assert (sent.dtype, sent.shape.as_list()) == (tf.int32, [words])
        assert 4 * words < 1.001 * image.size


def test_as_evaluated__equals_the_images_of_evaluation() -> None:
    with tf.Session() as session:
        own, image = Infeed(CONFIG), tf.constant(CAT, tf.float32)
        received = own.received(own.for_evaluation(image)[tf.newaxis], is_batch_last=False)[0]
        evaluated, exported = session.run([received, own.as_evaluated(image)])
    np.testing.assert_array_equal(evaluated, exported)
    np.testing.assert_allclose(evaluated, (np.rint(CAT) / 255 - 0.5) * 2, atol=1e-6)


def test_input_pipeline__sends_bytes_of_the_images_that_it_sends_as_floats(photo_dir: str) -> None:
    # With a seed, both pipelines draw the same distortions.
    sizes = {'num_classes': 6, 'height': 80, 'width': 90}
    config = dataclasses.replace(CONFIG, data_dir=photo_dir, transpose_enabled=True, seed=1, **sizes)
    batches = []
    for each in (config, dataclasses.replace(config, transfer='float')):
        with tf.Graph().as_default(), plain_session() as session:
            dataset = InputPipeline(is_training=True, config=each)({'batch_size': 5})
            features, labels = tf.data.make_one_shot_iterator(dataset).get_next()
            if each.transfer == 'uint8':
                sent = features[infeed.IMAGES]
                assert (sent.dtype, sent.shape.as_list()) == (tf.uint8, [80, 90, 3, 5])
            batches.append(session.run([Infeed(each).received(features, is_batch_last=True), labels]))
    (of_bytes, labels), (of_floats, same_labels) = batches
    assert of_bytes.shape == of_floats.shape == (5, 80, 90, 3)
    assert labels.tolist() == same_labels.tolist()
    # Half a grey level.
    assert np.abs(of_bytes - of_floats).max() <= 0.5 / 255 * 2 * 1.001 + 1e-6
