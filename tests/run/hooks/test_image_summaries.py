"""Tests of the images for TensorBoard: they show the network's input, however it is transferred."""

import dataclasses
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from compat import tf
from data.records import DataError
from inception_v3.config import Config
from inception_v3.input.infeed import Infeed
from inception_v3.input_pipeline import InputPipeline
from inception_v3.run.hooks import image_summaries
from inception_v3.run.hooks.image_summaries import OUTLINE_COLOR
from tests.support.graphs import evaluate, plain_session
from tests.support.photos import Photo, encode_jpeg, photo_example
from tests.support.records import write_records
from tests.support.runs import execute, make_small_config
from tests.support.tiers import further

NAMES = ['background', *'abcde']
VGG_MEANS = [123.68, 116.78, 103.94]


@pytest.fixture
def config(photo_dir: str) -> Config:
    return make_small_config(
        photo_dir, num_train_images=5, num_eval_images=5, num_classes=6, image_summaries=3, seed=5, train_batch_size=3
    )


def drawn_images(config: Config, is_training: bool, step: int = 0) -> Dict[str, np.ndarray]:
    """Returns the pixels of the drawn images by tag, in order."""
    summary = image_summaries.draw(config, is_training, NAMES, step)
    pixels = evaluate(*[tf.image.decode_png(value.image.encoded_image_string) for value in summary.value])
    for value, image in zip(summary.value, pixels):
        assert image.shape == (value.image.height, value.image.width, value.image.colorspace)
    return {value.tag: image for value, image in zip(summary.value, pixels)}


def network_input(config: Config, is_training: bool, step: int = 0) -> Tuple[np.ndarray, np.ndarray]:
    """Returns the network's input in a step: images and labels."""
    with tf.Graph().as_default(), plain_session() as session:
        global_step = tf.train.create_global_step()
        dataset = InputPipeline(is_training, config)({'batch_size': 3})
        iterator = tf.data.make_initializable_iterator(dataset)
        features, labels = iterator.get_next()
        images = tf.cast(Infeed(config).received(features, config.transpose_enabled), tf.float32)
        global_step.load(step, session)
        session.run(iterator.initializer)
        return session.run([images, labels])


PACKED_BYTES = {'transfer': 'uint8', 'tpu': 'emulated:1', 'use_tpu': True, 'num_shards': 1}


@pytest.mark.parametrize(
    ('changes', 'is_training'),
    [
        ({'transfer': 'uint8', 'transpose_enabled': True}, True),
        ({'preprocessing': 'vgg'}, False),
        further(PACKED_BYTES, False),
    ],
    ids=str,
)
def test_draw__shows_the_input_of_the_network(config: Config, changes: Dict[str, Any], is_training: bool) -> None:
    config = dataclasses.replace(config, **changes)
    images, labels = network_input(config, is_training, step=7)
    found = drawn_images(config, is_training, step=7)
    names = [f'{n:02d} label {label} ({NAMES[label]})' for n, label in enumerate(labels, 1)]
    kind, stage = ('train_images', 'distorted') if is_training else ('eval_images', 'cropped')
    assert [*found] == [f'{kind}/{name}, {what}' for name in names for what in ('before', stage)]
    expected = images + VGG_MEANS if config.preprocessing == 'vgg' else (images + 1) * 127.5
    for name, image in zip(names, expected):
        shown = found[f'{kind}/{name}, {stage}'].astype(np.float64)
        # Drawing rounds the pixels, and so does the transfer of bytes. A half may be rounded up or down.
        np.testing.assert_allclose(shown, image, rtol=0, atol=0.5 + 1e-3)


def record_of(pixels: np.ndarray, label: int = 1) -> bytes:
    """The record of an image without boxes."""
    return photo_example(Photo(pixels, encode_jpeg(pixels), label, np.zeros([0, 4]))).SerializeToString()


def outlined_box(whole: np.ndarray) -> Tuple[slice, slice]:
    """Returns the rows and columns of the outlined box."""
    rows, columns = np.nonzero((whole == OUTLINE_COLOR).all(axis=2))
    return slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1)


def test_draw__outlines_the_crop_of_training(config: Config, photos: List[Photo]) -> None:
    config = dataclasses.replace(config, cb_distortion_range=0.0, cr_distortion_range=0.0)
    found = drawn_images(config, True)
    boxes = []
    for tag in [tag for tag in found if tag.endswith('before')]:
        decoded = evaluate(tf.image.decode_jpeg(photos[NAMES.index(tag[-len('a), before')]) - 1].encoded))
        box = outlined_box(found[tag])
        boxes.append(box)
        crop = evaluate(tf.image.resize(decoded[box][np.newaxis], [75, 75]))[0]
        shown = found[tag.replace('before', 'distorted')]
        unclipped = (shown > 0) & (shown < 255)
        # Without chroma distortion, the crop, perhaps flipped, differs only by a constant brightness.
        spread = min(np.std((shown - each)[unclipped]) for each in (crop, crop[:, ::-1]))
        assert spread < 0.5
        outside = np.ones(decoded.shape[:2], bool)
        outside[box] = False
        np.testing.assert_array_equal(found[tag][outside], decoded[outside])
    assert len(set(map(str, boxes))) == 3


def test_draw__reduces_large_images_with_their_outline(config: Config, photos: List[Photo], tmp_path: Any) -> None:
    large = np.repeat(np.repeat(photos[1].pixels, 2, 0), 3, 1)
    write_records(tmp_path, 'validation', [record_of(large)])
    found = drawn_images(dataclasses.replace(config, data_dir=str(tmp_path)), False)
    # Three images are requested, but the data set has only one record.
    whole, _ = found.values()
    assert whole.shape == (683, 1024, 3)
    # The outline is 0.008 * 1024 = 8 pixels wide.
    assert (whole == OUTLINE_COLOR).all(axis=2)[340].sum() == 2 * 8
    rows, columns = outlined_box(whole)
    assert (rows.start, rows.stop) == pytest.approx((683 / 16, 683 * 15 / 16), abs=1)
    assert (columns.start, columns.stop) == pytest.approx((1024 / 16, 1024 * 15 / 16), abs=1)


def test_draw__keeps_a_row_of_a_very_wide_image_and_the_threads_of_training(
    config: Config, tmp_path: Any, monkeypatch: Any
) -> None:
    write_records(tmp_path, 'validation', [record_of(np.full([1, 3000, 3], 90, np.uint8))])
    threads, session = [], tf.Session

    def recorded(config: tf.ConfigProto) -> tf.Session:
        threads.append(config.intra_op_parallelism_threads)
        return session(config=config)

    monkeypatch.setattr(tf, 'Session', recorded)
    whole, _ = drawn_images(dataclasses.replace(config, data_dir=str(tmp_path), intra_op_threads=3), False).values()
    assert whole.shape == (1, 1024, 3) and threads[0] == 3


@pytest.mark.program
def test_draw__leaves_out_bad_records_that_may_be_skipped(config: Config, photos: List[Photo], tmp_path: Any) -> None:
    write_records(tmp_path, 'validation', [b'nonsense', record_of(photos[0].pixels, 2)])
    bad = dataclasses.replace(config, data_dir=str(tmp_path), seed=None, model_dir=str(tmp_path / 'model'))
    with pytest.raises(tf.errors.InvalidArgumentError):
        drawn_images(bad, False)
    found = drawn_images(dataclasses.replace(bad, max_bad_records=1, image_summaries=1), False)
    assert [*found] == ['eval_images/01 label 2 (b), before', 'eval_images/01 label 2 (b), cropped']


@pytest.mark.program
def test_draw__leaves_out_bad_records_of_training_with_a_seed(
    config: Config, photos: List[Photo], tmp_path: Any
) -> None:
    examples = [record_of(photos[0].pixels, label) for label in range(1, 4)]
    write_records(tmp_path, 'train', [*examples, b'nonsense'])
    seeded = dataclasses.replace(
        config, data_dir=str(tmp_path), model_dir=str(tmp_path / 'model'), max_bad_records=1, image_summaries=3
    )
    assert seeded.seed is not None
    found = drawn_images(seeded, True, step=2)
    labels = [tag.split()[2] for tag in found if 'before' in tag]
    # One of 4 records in an epoch cannot be drawn; the others are the first of step 2, with their own distortions.
    assert len(labels) == 3 and {*labels} <= {'1', '2', '3'}
    write_records(tmp_path, 'train', [*examples, examples[0]])
    whole = drawn_images(dataclasses.replace(seeded, max_bad_records=0, image_summaries=4), True, step=2)
    drawn = [image for tag, image in found.items() if 'distorted' in tag]
    assert all(any(np.array_equal(image, other) for other in whole.values()) for image in drawn)


def test_tag_name__replaces_slashes_and_shortens_names() -> None:
    names = ['', 'a/b', 'c\udcff', 'd' * 200]
    tags = [image_summaries.tag_name(label, names) for label in range(5)]
    assert tags[:3] == ['label 0', 'label 1 (a|b)', r'label 2 (c\udcff)']
    assert tags[3:] == [f'label 3 ({"d" * 20}...{"d" * 20})', 'label 4']


def test_run__names_a_bad_record_that_cannot_be_drawn(config: Config, tmp_path: Any, one_layer: None) -> None:
    write_records(tmp_path, 'train', [b'nonsense'])
    bad = dataclasses.replace(config, data_dir=str(tmp_path), mode='train', model_dir=str(tmp_path / 'model'))
    with pytest.raises(DataError, match=r'train-00000-of-00001, record 0: not a tf\.train\.Example'):
        execute(bad)
