"""Tests of the batches of image files."""

from typing import List

import pytest

from compat import tf
from inception_v3.config import ConfigError
from tools.image_batches import bytes_per_image, check_batch


def test_check_batch__counts_the_largest_operation_of_an_open_batch() -> None:
    images: List[tf.Tensor] = [tf.placeholder(tf.float32, [None, 10, 10, 3])]
    images.append(tf.concat([images[0]] * 4, axis=3))
    per_image = bytes_per_image(tf.get_default_graph())
    assert per_image == 10 * 10 * 3 * 4 * (1 + 4)
    check_batch('batch_size', 1, per_image)
    with pytest.raises(ConfigError, match=r'--batch_size=\d+: needs .* At most \d+ fit'):
        check_batch('batch_size', 10**12, per_image)
