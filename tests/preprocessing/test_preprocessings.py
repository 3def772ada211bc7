"""Tests of the preprocessing objects: settings, and the steps from an image to the network and back."""

import dataclasses
from typing import Any, List

import numpy as np
import pytest

from compat import tf
from data.records import Record
from inception_v3.config import Config
from inception_v3.input.record_preprocessing import RecordPreprocessing
from preprocessing.decoding import decode_image, image_shape
from preprocessing.inception_preprocessing import preprocess_for_eval, preprocess_for_train
from preprocessing.preprocessings import PREPROCESSINGS, preprocessing_for
from preprocessing.steps import Settings
from preprocessing.vgg_preprocessing import preprocess_image, resize_range
from tests.support.graphs import draw_many, evaluate
from tests.support.images import CAT, WHOLE
from tests.support.photos import Photo, photo_example


def test_settings__have_the_names_and_defaults_of_flags() -> None:
    flags = dataclasses.asdict(Config())
    assert Settings(**{name: flags[name] for name in Settings._fields}) == Settings(299, 299)


@pytest.mark.parametrize('kind', PREPROCESSINGS)
def test_visible__inverts_finish(kind: str) -> None:
    preprocessing = preprocessing_for(Config(preprocessing=kind))
    finished = preprocessing.finish(tf.constant(CAT, tf.float32))
    np.testing.assert_array_equal(evaluate(preprocessing.visible(finished)), CAT)


@pytest.mark.parametrize('kind', PREPROCESSINGS)
def test_draw__flips_half_of_the_images_or_none(kind: str) -> None:
    both = [PREPROCESSINGS[kind].make(Settings(20, 20, random_flip)) for random_flip in (True, False)]
    drawn = [each.draw(tf.constant([30, 30, 3]), tf.constant(WHOLE), tf.random.uniform).flip for each in both]
    flips = np.array(draw_many((*drawn,), 2000))
    # Expected: 1,000; the tolerance is four standard deviations.
    assert 910 < flips[:, 0].sum() < 1090 and not flips[:, 1].any()


@pytest.mark.parametrize('changes', [{}, {'preprocessing': 'vgg'}, {'preprocessing': 'cifar'}], ids=str)
def test_unpack__finishes_a_batch_like_single_images(changes: Any) -> None:
    height, width, _ = CAT.shape
    preprocessing = preprocessing_for(Config(height=height, width=width, **changes))
    image = tf.constant(CAT, tf.float32)
    distortion = preprocessing.draw(tf.constant(CAT.shape), tf.constant(WHOLE), tf.random.uniform)
    finished = preprocessing.finish(image, distortion)
    numbers = preprocessing.pack(distortion)[tf.newaxis]
    packed = preprocessing.finish(image[tf.newaxis], preprocessing.unpack(numbers))[0]
    for on_host, on_device in draw_many((finished, packed), 4):
        np.testing.assert_allclose(on_device, on_host, atol=1e-5)


@pytest.mark.parametrize('kind', PREPROCESSINGS)
def test_of_image__gives_the_bits_of_the_pipeline(kind: str, photos: List[Photo]) -> None:
    config = Config(preprocessing=kind, height=75, width=80, num_classes=6)
    preprocessing = preprocessing_for(config)
    encoded = tf.constant(photos[0].encoded)
    distortion = preprocessing.draw(image_shape(encoded), tf.constant(WHOLE))
    training = (
        preprocessing.finish(preprocessing.resize_encoded(encoded, distortion=distortion), distortion),
        preprocessing.of_image(decode_image(encoded), distortion),
    )
    for piped, documented in draw_many(training, 5):
        np.testing.assert_array_equal(piped, documented)


def test_documented_evaluation__gives_the_bits_of_the_pipeline(photos: List[Photo]) -> None:
    image, record = decode_image(tf.constant(photos[0].encoded)), photo_example(photos[0]).SerializeToString()
    for kind, documented in (
        ('inception', preprocess_for_eval(image, 75, 80)),
        ('vgg', preprocess_image(image, 75, 80, False, *resize_range(75, 80))),
    ):
        config = Config(preprocessing=kind, height=75, width=80, num_classes=6)
        piped, _ = RecordPreprocessing(is_training=False, config=config).preprocess(Record(tf.constant(record)))
        np.testing.assert_array_equal(*evaluate(piped, documented))


@pytest.mark.program
def test_documented_functions__may_be_converted_by_autograph(photos: List[Photo]) -> None:
    """AutoGraph converts functions in the map of a user's data set."""

    def of_evaluation(image: tf.Tensor) -> Any:
        return preprocess_for_eval(image, 75, 80), preprocess_image(image, 75, 80)

    def of_training(image: tf.Tensor) -> Any:
        return preprocess_for_train(image, 75, 80, None), preprocess_image(image, 75, 80, True)

    dataset = tf.data.Dataset.from_tensors(photos[0].pixels)
    evaluated, trained = (
        evaluate(*tf.data.make_one_shot_iterator(dataset.map(each)).get_next()) for each in (of_evaluation, of_training)
    )
    for found, expected in zip(evaluated, evaluate(*of_evaluation(tf.constant(photos[0].pixels)))):
        np.testing.assert_array_equal(found, expected)
    assert [image.shape for image in trained] == [(75, 80, 3)] * 2 and all(image.std() > 0.01 for image in trained)
