"""Parsing Examples."""

from typing import List

import numpy as np
import pytest

from compat import tf
from data import tf_example
from tests.support.graphs import evaluate
from tests.support.photos import Photo, photo_example, set_boxes


def test_a_record_parses_to_its_image_label_and_boxes(photos: List[Photo]) -> None:
    assert sorted({len(photo.boxes) for photo in photos}) == [0, 1, 2]
    serialized = tf.placeholder(tf.string, [])
    parsed = tf_example.parse(serialized)
    assert [tensor.dtype for tensor in parsed] == [tf.string, tf.int64, tf.float32]
    with tf.Session() as session:
        for photo in photos:
            value = session.run(parsed, {serialized: photo_example(photo).SerializeToString()})
            assert value.encoded == photo.encoded
            assert value.label == photo.label
            assert value.bbox.shape == (1, len(photo.boxes), 4)
            np.testing.assert_array_equal(value.bbox[0], photo.boxes)


def test_boxes_are_ymin_xmin_ymax_xmax_clipped_to_the_image(photos: List[Photo]) -> None:
    example = photo_example(photos[0])
    set_boxes(example, xmax=[0.4, 1.25], ymin=[0.1, -0.5], xmin=[0.2, -0.01], ymax=[0.3, 1.0])
    bbox = evaluate(tf_example.parse(tf.constant(example.SerializeToString())).bbox)
    np.testing.assert_allclose(bbox, [[[0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 1.0, 1.0]]], atol=1e-7)


@pytest.mark.parametrize('missing', ['image/encoded', 'image/class/label'])
def test_a_record_without_image_or_label_fails_when_it_is_parsed(missing: str, photos: List[Photo]) -> None:
    example = photo_example(photos[0])
    del example.features.feature[missing]
    with pytest.raises(tf.errors.InvalidArgumentError, match=missing):
        evaluate(*tf_example.parse(tf.constant(example.SerializeToString())))


# Without the bytes that `parse` adds, the process crashes.
@pytest.mark.parametrize('serialized', [b'\xff\xff no Example', b'\n\xff', b'\n\x02\n\xff', b'\x0b\xff'])
def test_parse__fails_for_a_record_that_is_not_an_example(serialized: bytes) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=tf_example.UNPARSABLE):
        evaluate(*tf_example.parse(tf.constant(serialized)))
