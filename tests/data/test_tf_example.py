"""Examples: parsing and building."""

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


def test_make_example__labels_each_box(photos: List[Photo]) -> None:
    boxes = [
        tf_example.Box(0.25, 0.5, 0.75, 1.0),
        tf_example.Box(xmin=0.0, ymin=0.125, xmax=0.375, ymax=0.625),
    ]
    example = tf_example.make_example(b'', 'PNG', 7, 'é\udcff', 1, 1, 'a\udcfe.png', 'n01440764', boxes)
    feature = example.features.feature
    assert [*feature['image/object/class/label'].int64_list.value] == [7, 7]
    assert {
        name: [*feature[f'image/object/bbox/{name}'].float_list.value] for name in ('xmin', 'ymin', 'xmax', 'ymax')
    } == {'xmin': [0.25, 0.0], 'ymin': [0.5, 0.125], 'xmax': [0.75, 0.375], 'ymax': [1.0, 0.625]}
    assert [*feature['image/class/synset'].bytes_list.value] == [b'n01440764']
    # Names of files may be bytes that are not UTF-8.
    assert [*feature['image/class/text'].bytes_list.value] == [b'\xc3\xa9\xff']
    assert [*feature['image/filename'].bytes_list.value] == [b'a\xfe.png']


@pytest.mark.parametrize(
    ('encoded', 'expected'), [(b'\x89PNG\r', 'PNG'), (b'GIF89a', 'GIF'), (b'\xff\xd8\xff', 'JPEG')]
)
def test_format_of__is_that_of_the_first_bytes(encoded: bytes, expected: str) -> None:
    assert tf_example.format_of(encoded) == expected


# Without the bytes that `parse` adds, the process crashes.
@pytest.mark.parametrize('serialized', [b'\xff\xff no Example', b'\n\xff', b'\n\x02\n\xff', b'\x0b\xff'])
def test_parse__fails_for_a_record_that_is_not_an_example(serialized: bytes) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=tf_example.UNPARSABLE):
        evaluate(*tf_example.parse(tf.constant(serialized)))
