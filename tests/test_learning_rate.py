"""Tests of the learning rate against published values and against the documented formula in exact fractions."""

import math
from fractions import Fraction
from typing import Any, Dict, List, Sequence

import numpy as np
import pytest

from compat import tf
from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate
from inception_v3.presets import PRESETS
from tests.support.graphs import evaluate

BATCHES = [256, 1000, 16384]


def first_step(epoch: int, config: Config) -> int:
    return math.ceil(Fraction(epoch * config.num_train_images, config.train_batch_size))


def check_rates(steps: Sequence[int], expected: Any, config: Config, **of_tensors: float) -> None:
    """Checks the rates for Python numbers, in double precision, and for a tensor, in float32."""
    np.testing.assert_allclose([learning_rate(step, config) for step in steps], expected, rtol=1e-12)
    rates = evaluate(learning_rate(tf.constant(steps, tf.int64), config))
    np.testing.assert_allclose(rates, expected, **{'rtol': 2e-6, **of_tensors})
    assert rates.dtype == np.float32


def documented(step: int, config: Config) -> float:
    """Returns the learning rate of the documented formula, computed with exact fractions."""
    steps_per_epoch = Fraction(config.num_train_images, config.train_batch_size)
    base = 0.165 * config.train_batch_size / 256
    rate = base * 0.94 ** math.floor(Fraction(step, math.floor(3 * steps_per_epoch)))
    if config.use_learning_rate_warmup:
        cold, warmup, decay_epochs = 2, 7, 3
        adj = base * 0.94 ** ((warmup + cold) / decay_epochs)
        epoch = math.floor(step / steps_per_epoch)
        if epoch < cold:
            rate = 0.1 * adj
        elif epoch < warmup + cold + decay_epochs:
            rate = 0.1 * adj + (epoch - (cold - 1)) * 0.9 * adj / (warmup + decay_epochs - 1)
    return max(rate, 0.0001 * base)


@pytest.mark.parametrize('warmup', [False, True])
@pytest.mark.parametrize('batch', BATCHES)
def test_learning_rate__follows_the_documented_formula_in_every_epoch(batch: int, warmup: bool) -> None:
    config = Config(train_batch_size=batch, use_learning_rate_warmup=warmup)
    # A rounding error would change the first or the last step of an epoch.
    steps = [s for epoch in range(201) for s in (first_step(epoch, config), first_step(epoch + 1, config) - 1)]
    check_rates(steps, [documented(step, config) for step in steps], config)


# Published learning rates by epoch, for a batch of 1,024, to four decimals.
WARMUP_1024 = [
    *[0.0548, 0.0548, 0.1096, 0.1645, 0.2193, 0.2741, 0.3289, 0.3837],
    *[0.4385, 0.4934, 0.5482, 0.6030, 0.5153, 0.5153, 0.5153, 0.4844],
]
PLAIN_1024 = [*[0.66] * 3, *[0.6204] * 3, *[0.5832] * 3, *[0.5482] * 3, *[0.5153] * 3, 0.4844]


@pytest.mark.parametrize(('warmup', 'published'), [(True, WARMUP_1024), (False, PLAIN_1024)])
def test_learning_rate__has_the_published_values_with_and_without_warm_up(warmup: bool, published: List[float]) -> None:
    config = Config(use_learning_rate_warmup=warmup)
    rates = [learning_rate(first_step(epoch, config) + 1, config) for epoch in range(16)]
    np.testing.assert_allclose(rates, published, atol=5.1e-5)


@pytest.mark.parametrize('changes', [{}, {'warmup_epochs': 3, 'learning_rate_decay_epochs': 2}])
def test_cap_warmup__has_the_lower_rate_of_warm_up_and_plain_curve(changes: Dict[str, Any]) -> None:
    config = Config(use_learning_rate_warmup=True, cap_warmup=True, **changes)
    epochs = np.arange(20)
    warmup, every = config.warmup_epochs, config.learning_rate_decay_epochs
    plain = 0.66 * 0.94 ** (epochs // every)
    top = 0.66 * 0.94 ** ((warmup + 2) / every)
    rising = np.where(epochs < 2, 0.1 * top, 0.1 * top + (epochs - 1) * 0.9 * top / (warmup + every - 1))
    steps = [first_step(epoch, config) + 1 for epoch in range(20)]
    expected = np.where(epochs < 2 + warmup + every, np.minimum(rising, plain), plain)
    check_rates(steps, expected, config)
    if not changes:
        # The published rates, except where they overshoot: 0.548 instead of 0.603 in epoch 11.
        np.testing.assert_allclose(expected[:16], [*WARMUP_1024[:11], 0.5482, *WARMUP_1024[12:]], atol=5.1e-5)


@pytest.mark.parametrize('schedule', ['exponential', 'step', 'cosine'])
def test_learning_rate__has_a_floor_of_a_ten_thousandth(schedule: str) -> None:
    config = Config(schedule=schedule, learning_rate_decay=0.01, train_batch_size=512, learning_rate=3.0)
    # The floor is a fraction of the rate for the batch.
    floor = pytest.approx(3.0 * 2 * 0.0001)
    assert learning_rate(10**7, config) == floor and evaluate(learning_rate(tf.constant(10**7), config)) == floor


def test_epoch__begins_at_the_exact_step_despite_rounding() -> None:
    # An epoch has 1,000 / 3 steps. At its boundary, a quotient in float32 may be off by one step.
    config = Config(train_batch_size=24, num_train_images=8000, use_learning_rate_warmup=True)
    for epoch in range(2, 12):
        step = first_step(epoch, config)
        assert learning_rate(step, config) > learning_rate(step - 1, config)
        before, after = evaluate(learning_rate(tf.constant([step - 1, step]), config))
        assert after > before


def test_learning_rate_decay__is_at_every_step_of_several_epochs() -> None:
    config = Config(train_batch_size=1024, num_train_images=100)
    assert learning_rate(2, config) == pytest.approx(0.66 * 0.94**2)


def stepwise(step: int, epochs: List[int], config: Config) -> float:
    """Returns the rate of the step schedule with the linear warm-up of Goyal et al., computed with exact fractions."""
    base = config.learning_rate * config.train_batch_size / 256
    steps_per_epoch = Fraction(config.num_train_images, config.train_batch_size)
    warm = math.floor(config.warmup_epochs * steps_per_epoch) if config.use_learning_rate_warmup else 0
    if step < warm:
        return base * (step + 1) / warm
    return base * config.learning_rate_decay ** sum(step / steps_per_epoch >= epoch for epoch in epochs)


def test_schedule_step__warms_up_and_decays_in_epochs_30_60_and_80() -> None:
    config = Config(**PRESETS['resnet50_imagenet'])
    steps = [s for epoch in range(91) for s in (first_step(epoch, config), first_step(epoch + 1, config) - 1)]
    check_rates(steps, [stepwise(step, [30, 60, 80], config) for step in steps], config)
    # At a batch of 1,024: 0.4, divided by 10 in epochs 30, 60 and 80 (Goyal et al., section 5.1).
    rates = [learning_rate(first_step(epoch, config), config) for epoch in (5, 29, 30, 60, 80, 89)]
    np.testing.assert_allclose(rates, [0.4, 0.4, 0.04, 0.004, 0.0004, 0.0004])


@pytest.mark.parametrize('warmup', [False, True])
def test_schedule_cosine__ends_at_the_last_step(warmup: bool) -> None:
    config = Config(
        schedule='cosine', train_steps=1000, num_train_images=51200, use_learning_rate_warmup=warmup, warmup_epochs=2
    )
    base, warm = 0.66, 100 if warmup else 0
    steps = [*range(0, 1000, 7), 999, 1000, 1500]
    expected = [
        base * (step + 1) / warm
        if step < warm
        else max(base * (1 + math.cos(math.pi * min(1, (step - warm) / (1000 - warm)))) / 2, base * 1e-4)
        for step in steps
    ]
    check_rates(steps, expected, config, rtol=2e-5, atol=1e-7)
    assert learning_rate(warm, config) == pytest.approx(base)
    assert learning_rate((1000 + warm) // 2, config) == pytest.approx(base / 2)
    assert learning_rate(1000, config) == pytest.approx(base * 1e-4)


def test_step_epochs__sets_the_epochs_of_the_decay() -> None:
    config = Config(schedule='step', step_epochs='2,3', learning_rate_decay=0.5)
    assert [learning_rate(first_step(epoch, config), config) / 0.66 for epoch in range(5)] == [1, 1, 0.5, 0.25, 0.25]


@pytest.mark.parametrize('schedule', ['exponential', 'step', 'cosine'])
@pytest.mark.parametrize('warmup', [False, True])
def test_learning_rate__is_right_for_steps_beyond_32_bits_of_images(schedule: str, warmup: bool) -> None:
    # A product of this step and the batch has more than 32 bits.
    config = Config(schedule=schedule, use_learning_rate_warmup=warmup, num_train_images=10**9)
    for step in (7 * 10**6, 2**31 - 1):
        number = learning_rate(step, config)
        assert evaluate(learning_rate(tf.constant(step), config)) == pytest.approx(number, rel=1e-5)
    # The global step is a variable, in 64 bits.
    steps = [tf.Variable(5, dtype=tf.int64), tf.get_variable('s', initializer=np.int64(5), use_resource=True)]
    for variable in steps:
        assert evaluate(learning_rate(variable, config)) == pytest.approx(learning_rate(5, config), rel=1e-6)


def test_warm_up__without_cold_epochs_begins_one_slope_above_a_tenth() -> None:
    # adj = 0.66 * 0.94^(4 / 2); the slope is 0.9 adj / (4 + 2 - 1).
    config = Config(
        use_learning_rate_warmup=True,
        cold_epochs=0,
        warmup_epochs=4,
        learning_rate_decay_epochs=2,
        num_train_images=10240,
    )
    adj = 0.66 * 0.94**2
    expected = [0.1 * adj + (epoch + 1) * 0.18 * adj for epoch in range(6)] + [0.66 * 0.94**3]
    np.testing.assert_allclose([learning_rate(10 * epoch, config) for epoch in range(7)], expected, rtol=1e-12)
