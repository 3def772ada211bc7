"""What tests share: real images as record files, and small configurations."""

import dataclasses
import functools
import time
from typing import Any, Iterator, List, NamedTuple

import numpy as np
import pytest
import skimage.data
import tensorflow as tf
from tensorflow.python.util import deprecation

from console.screen import logger
from data import digits, records
from data.dataset_info import DatasetInfo
from inception_v3.config import Config
from inception_v3.networks import layers
from inception_v3.networks.registry import NETWORKS

# As in the programs (`set_up_logging`), for the time that it takes.
deprecation._PRINT_DEPRECATION_WARNINGS = False


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Lets a worker of pytest-xdist finish what it was asked first: only when that is done is its main thread free.

    What it is asked while that is busy, it does in another thread, where no signal can be handled.
    """
    time.sleep(1)


@pytest.fixture(autouse=True)
def _new_graph() -> Iterator[None]:
    """Every test has a graph of its own."""
    with tf.Graph().as_default():
        yield


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """What a test does to the program's logger, such as running `main`, ends with it."""
    before = logger.handlers, logger.propagate, logger.level
    yield
    logger.handlers, logger.propagate, logger.level = before


def evaluate(*tensors: Any) -> Any:
    """The values of tensors of the current graph, its variables newly initialized."""
    with tf.compat.v1.Session() as session:
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        values = session.run(tensors)
    return values[0] if len(tensors) == 1 else values


@pytest.fixture(scope='session')
def digits_dir(tmp_path_factory: Any) -> str:
    """The digits data set."""
    data_dir = str(tmp_path_factory.mktemp('digits') / 'data')
    digits.build(data_dir)
    return data_dir


class Photo(NamedTuple):
    """A photograph in a record: its pixels before encoding, its JPEG file, its label and its boxes."""

    pixels: np.ndarray
    encoded: bytes
    label: int
    boxes: np.ndarray


def encode_jpeg(pixels: np.ndarray, quality: int = 95) -> bytes:
    """A JPEG file of uint8 pixels, [height, width, 3]."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(tf.image.encode_jpeg(pixels, quality=quality))


@pytest.fixture(scope='session')
def photos() -> List[Photo]:
    """Photographs from inside scikit-image, of several shapes, labelled 1, 2, 3 …, with 0, 1 or 2 boxes each."""
    images = [
        skimage.data.chelsea(),  # 300 x 451
        skimage.data.astronaut(),  # 512 x 512
        skimage.data.coffee(),  # 400 x 600
        skimage.data.rocket()[:, 60:300],  # 427 x 240
        skimage.data.chelsea()[20:, ::-1],  # 280 x 451
    ]
    boxes = np.array([[0.1, 0.2, 0.6, 0.7], [0.3, 0.0, 1.0, 0.5]], np.float32)
    return [
        Photo(np.ascontiguousarray(image), encode_jpeg(image), index + 1, boxes[: index % 3])
        for index, image in enumerate(images)
    ]


def photo_example(photo: Photo) -> tf.train.Example:
    """The record of a photograph."""
    height, width, _ = photo.pixels.shape
    example = records.make_example(photo.encoded, 'JPEG', photo.label, 'class', height, width, 'photo.jpg')
    for column, corner in enumerate(['ymin', 'xmin', 'ymax', 'xmax']):
        values = photo.boxes[:, column].tolist()
        example.features.feature[f'image/object/bbox/{corner}'].float_list.value.extend(values)
    return example


@pytest.fixture(scope='session')
def photo_dir(photos: List[Photo], tmp_path_factory: Any) -> str:
    """The photographs as a data set: two training files, two validation files, the same images in both."""
    data_dir = str(tmp_path_factory.mktemp('photos'))
    for split in (records.TRAIN, records.VALIDATION):
        records.write_shards(data_dir, split, [functools.partial(photo_example, photo) for photo in photos], 2)
    DatasetInfo('photos', 'scikit-image', len(photos), len(photos), 6, list('_12345')).write(data_dir)
    return data_dir


def make_small_config(data_dir: str, **changes: Any) -> Config:
    """The whole program at its smallest: 16 channels a layer, 75 pixels, the digits, on the CPU."""
    config = Config(
        use_tpu=False,
        data_dir=data_dir,
        num_train_images=1438,
        num_eval_images=359,
        num_classes=11,
        train_batch_size=8,
        eval_batch_size=64,
        height=75,
        width=75,
        depth_multiplier=0.01,
        num_parallel_calls=2,
    )
    return dataclasses.replace(config, **changes)


@pytest.fixture
def small_config(digits_dir: str) -> Config:
    """The smallest program, on the digits."""
    return make_small_config(digits_dir)


def one_layer_network(
    images: tf.Tensor, num_classes: int, is_training: bool, conv: layers.Conv, norm: layers.Norm, **others: Any
) -> Any:
    """One layer and the logits: 4 trainable variables."""
    with tf.compat.v1.variable_scope('Layer'):
        net = tf.nn.relu(norm(conv(images, 16, (3, 3), 2, 'VALID')))
    with tf.compat.v1.variable_scope('Logits'):
        net = layers.add_bias(conv(tf.reduce_mean(net, [1, 2], keepdims=True), num_classes, (1, 1)))
    return tf.squeeze(net, [1, 2]), None


# In the place of the network that it has the limits of.
ONE_LAYER = NETWORKS['inception_v3']._replace(build=one_layer_network)


@pytest.fixture
def one_layer(monkeypatch: Any) -> None:
    """In place of the network one layer and the logits, with 4 trainable variables, where all that counts is around."""
    monkeypatch.setitem(NETWORKS, 'inception_v3', ONE_LAYER)
