"""Tests of Threefry against the known answers of its authors' library, and of the numbers drawn from it."""

from typing import List, Tuple

import numpy as np
import pytest

from console.tensorflow_versions import tf
from inception_v3.networks.threefry import threefry, uniform_rows
from tests.support.graphs import evaluate


def signed(words: Tuple[int, int]) -> Tuple[tf.Tensor, tf.Tensor]:
    first, second = (tf.constant(np.uint32(word).astype(np.int32)) for word in words)
    return first, second


@pytest.mark.parametrize(
    ('key', 'counter', 'expected'),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry__gives_the_known_answers(
    key: Tuple[int, int], counter: Tuple[int, int], expected: Tuple[int, int]
) -> None:
    # Random123's kat_vectors, threefry2x32 with 20 rounds.
    words = evaluate(*threefry(signed(key), signed(counter)))
    assert tuple(int(np.int32(word).astype(np.uint32)) for word in words) == expected


def rows_of(rows: List[int], columns: int, key: Tuple[int, int] = (1, 2)) -> np.ndarray:
    with tf.Graph().as_default():
        return evaluate(uniform_rows(signed(key), tf.constant(rows), columns))


def test_uniform_rows__depend_on_key_row_and_column() -> None:
    whole = rows_of([0, 1, 2, 3], 7)
    assert whole.shape == (4, 7)
    np.testing.assert_array_equal(rows_of([2, 3], 7), whole[2:])
    assert len(np.unique(whole)) == 28
    for key in ((2, 1), (1, 3), (2, 2)):
        assert not np.isin(rows_of([0, 1, 2, 3], 7, key), whole).any()


def test_uniform_rows__are_uniform_and_uncorrelated() -> None:
    draws = rows_of(list(range(200)), 501)
    assert draws.dtype == np.float32
    assert draws.min() >= 0 and draws.max() < 1
    # Within five standard deviations: of a count of a tenth of 100,200 numbers, and of a correlation.
    np.testing.assert_allclose(np.histogram(draws, 10, (0, 1))[0] / draws.size, 0.1, atol=5 * 0.3 / np.sqrt(draws.size))
    for one, other in ((draws[:-1], draws[1:]), (draws[:, :-1], draws[:, 1:]), (draws[:, :250], draws[:, 251:])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(one.size)
