"""Tests of initial weights and dropout masks derived from a seed, and of Threefry, which draws the masks."""

from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from compat import tf
from inception_v3 import seeding
from inception_v3.config import Config
from inception_v3.networks import layers
from inception_v3.networks.threefry import threefry, uniform_rows
from tests.support.emulation import on_cores
from tests.support.graphs import evaluate
from tests.support.replicas import on_replicas

KEEP = 0.8


def initial_values(seed: Any, before: int = 0) -> Dict[str, np.ndarray]:
    """Returns the initial values of three variables, created after `before` other random operations."""
    with tf.Graph().as_default():
        for _ in range(before):
            tf.random.normal([])
        with tf.variable_scope('', custom_getter=seeding.variable_getter(Config(seed=seed))):
            for name in 'ab':
                tf.get_variable(name, [3, 3, 8, 16], initializer=layers.HE_INITIALIZER)
            tf.get_variable('zeros', [4], initializer=tf.zeros_initializer())
        variables = {v.op.name: v for v in tf.global_variables()}
        return evaluate(variables)


def test_variable_getter__depends_on_seed_and_name_alone() -> None:
    once, again = initial_values(1), initial_values(1, before=5)
    for name, value in once.items():
        np.testing.assert_array_equal(value, again[name])
    assert (once['a'] != once['b']).all()
    assert (once['a'] != initial_values(2)['a']).all()
    assert (initial_values(None)['a'] != initial_values(None)['a']).all()
    # He et al.: the variance is 2 / fan-in = 2 / (3 * 3 * 8). TensorFlow corrects it for the truncation.
    assert once['a'].std() == pytest.approx(np.sqrt(2 / 72), rel=0.05)


@pytest.mark.parametrize('seed', [None, 0, 3])
def test_aggregation_method__adds_gradients_in_a_fixed_order_with_a_seed(seed: Any) -> None:
    x = tf.constant(2.0)
    method = seeding.aggregation_method(Config(seed=seed))
    (gradient,) = tf.gradients([x * 3, x * 5, x * 7], x, aggregation_method=method)
    # With a seed, each sum has two terms: the sum of three depends on their order.
    assert len(gradient.op.inputs) == (3 if seed is None else 2)
    with tf.Session() as session:
        assert session.run(gradient) == 15


def test_seed_0__is_a_seed() -> None:
    np.testing.assert_array_equal(initial_values(0)['a'], initial_values(0)['a'])
    np.testing.assert_array_equal(masks(1, 4, seed=0), masks(1, 4, seed=0))


def masks(cores: int, images: int, step: int = 3, seed: int = 1, scope: str = 'Logits') -> np.ndarray:
    """Applies dropout to ones on emulated cores; returns the concatenated results."""
    with tf.Graph().as_default():
        config = Config(seed=seed, num_shards=cores, tpu=f'emulated:{cores}')
        with tf.variable_scope('', use_resource=True):
            tf.add_to_collection(tf.GraphKeys.GLOBAL_STEP, tf.get_variable('global_step', initializer=np.int64(step)))

        def core(number: int) -> tf.Tensor:
            with tf.variable_scope(scope):
                return seeding.dropout_for(config)(tf.ones([images // cores, 1, 1, 500]), KEEP, True)

        return np.concatenate(on_cores(cores, core)[0])


def test_dropout__depends_on_the_position_in_the_global_batch() -> None:
    whole = masks(1, 8)
    np.testing.assert_array_equal(masks(2, 8), whole)


def test_dropout__of_a_replica_is_that_of_its_part_of_the_batch() -> None:
    config = Config(use_tpu=False, accelerator='cpu', num_gpus=2, seed=1)

    def replica() -> List[tf.Tensor]:
        tf.train.get_or_create_global_step()
        with tf.variable_scope('Logits'):
            return [seeding.dropout_for(config)(tf.ones([4, 1, 1, 500]), KEEP, True)]

    np.testing.assert_array_equal(np.concatenate([own for (own,) in on_replicas(2, replica)[0]]), masks(1, 8, step=0))


def test_dropout__of_one_replica_is_that_of_one_core() -> None:
    tf.train.get_or_create_global_step()
    with tf.variable_scope('Logits'):
        kept = seeding.dropout_for(Config(use_tpu=False, seed=1))(tf.ones([8, 1, 1, 500]), KEEP, True)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(kept), masks(1, 8, step=0))


def test_dropout__draws_the_numbers_of_its_own_images_only() -> None:
    # A pod of 512 cores: the numbers of the global batch would be 512 times as many.
    with tf.variable_scope('', use_resource=True):
        kept = seeding.dropout_for(Config(seed=1, num_shards=512, train_batch_size=512 * 16))(
            tf.ones([16, 1, 1, 500]), KEEP, True
        )
    sizes = [t.shape.num_elements() for o in tf.get_default_graph().get_operations() for t in o.outputs]
    assert kept.shape == (16, 1, 1, 500)
    assert None not in sizes and max(sizes) == 16 * 500


def test_dropout__depends_on_seed_step_and_scope() -> None:
    whole = masks(1, 8)
    for other in (masks(1, 8, step=4), masks(1, 8, seed=2), masks(1, 8, scope='Other')):
        # Independent masks agree in 0.8 * 0.8 + 0.2 * 0.2 = 0.68 of the elements, with a standard deviation of 0.0074.
        assert (other == whole).mean() == pytest.approx(0.68, abs=0.03)


def test_seed__gives_the_same_numbers_in_every_version() -> None:
    # Recorded from this program: a run that resumes with a later version continues with the same numbers.
    weights = initial_values(1)['a'].ravel()[:3]
    np.testing.assert_allclose(weights, [0.063396506, 0.00055914983, 0.31144723], rtol=1e-4)
    kept = (masks(1, 1).ravel()[:24] > 0).astype(int)
    assert ''.join(map(str, kept)) == '111111110111111111101111'


def test_dropout__keeps_the_requested_fraction_and_the_mean() -> None:
    whole = masks(1, 64)
    np.testing.assert_allclose(np.unique(whole), [0, 1 / KEEP])
    # The standard deviation of the fraction is 0.0022.
    assert (whole > 0).mean() == pytest.approx(KEEP, abs=0.01)


def test_dropout__is_inactive_in_evaluation() -> None:
    ones = tf.ones([2, 1, 1, 5])
    assert seeding.dropout_for(Config(seed=1))(ones, KEEP, False) is ones
    assert seeding.dropout_for(Config()) is layers.dropout


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
    # The numbers have 24 bits, and the last bit is 1 in half of them.
    whole = draws.astype(np.float64) * 2**24
    assert (whole == np.floor(whole)).all() and 0.4 < np.mean(whole % 2) < 0.6
    # Within five standard deviations of the count in a tenth of the range, for 100,200 numbers, and of a correlation.
    np.testing.assert_allclose(np.histogram(draws, 10, (0, 1))[0] / draws.size, 0.1, atol=5 * 0.3 / np.sqrt(draws.size))
    for one, other in ((draws[:-1], draws[1:]), (draws[:, :-1], draws[:, 1:]), (draws[:, :250], draws[:, 251:])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(one.size)
