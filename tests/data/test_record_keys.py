"""Messages about records with other keys."""

from typing import Any, List

import pytest

from console.tensorflow_versions import tf
from data import record_checker
from data.record_keys import described
from data.records import DataError
from data.tf_example import Fields
from tests.support.foreign_records import foreign_example, write_foreign
from tests.support.photos import Photo


def test_described__says_which_keys_look_like_an_image_and_a_label(photos: List[Photo]) -> None:
    height, width, _ = photos[0].pixels.shape
    example = foreign_example(photos[0], height=height, id=b'x1', thumbnail=b'\xff\x00\x01')
    example.features.feature['scores'].float_list.value[:] = [0.5, 0.25]
    example.features.feature['nothing'].SetInParent()
    assert described(example) == (
        f"The record has the keys fine_label ({photos[0].label - 1}), height ({height}), id ('x1'), nothing (empty), "
        f'picture (JPEG of {width} x {height} pixels), scores (2 floats), thumbnail (3 bytes). --image_key=picture '
        'looks like an image. --label_key=fine_label looks like a label.'
    )
    del example.features.feature['picture'], example.features.feature['fine_label']
    assert described(example).endswith(
        '--label_key=height looks like a label. None holds the bytes of a JPEG, PNG or GIF file; other images must be '
        'encoded as one first.'
    )
    assert described(tf.train.Example()) == 'The record has no keys.'


def test_check_keys__of_the_first_record(photos: List[Photo], tmp_path: Any) -> None:
    path = write_foreign(tmp_path / 'some', photos[:2])
    record_checker.check_keys(path, Fields('picture', 'fine_label', 1))
    for fields, message in (
        (Fields(), 'no image: image/encoded must hold .* --image_key=picture looks like an image'),
        (Fields('picture'), 'no label: image/class/label must hold .* --label_key=fine_label looks like a label'),
        (Fields('picture', 'picture'), 'no label: picture must hold one whole number'),
    ):
        with pytest.raises(DataError, match=f'{path}, record 0: {message}'):
            record_checker.check_keys(path, fields)


def test_label_problem__names_the_range_and_the_offset() -> None:
    assert record_checker.label_problem(0, 10, 1) is None
    assert record_checker.label_problem(10, 10) == (
        'label 10 is not in 0 to 9 (--num_classes=10). Labels that begin at another number need --label_offset=N, '
        'which is added to each.'
    )
    assert record_checker.label_problem(-2, 10, -3) == (
        'label -2 (1 in the record, and --label_offset=-3) is not in 0 to 9 (--num_classes=10).'
    )
