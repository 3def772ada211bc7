"""Means, standard deviations and bootstrap intervals, against NumPy."""

import math

import numpy as np
import pytest

from studies.report import statistics


def test_summarize__mean_and_deviation() -> None:
    found = statistics.summarize([1.0, 2.0, 4.0])
    assert found.n == 3
    assert found.mean == pytest.approx(7 / 3)
    # (16 + 1 + 25) / 9, over n - 1 = 2.
    assert found.deviation == pytest.approx(math.sqrt((16 + 1 + 25) / 9 / 2))


def test_summarize__few_or_invalid_values() -> None:
    assert statistics.summarize([0.5]) == statistics.Summary(1, 0.5, None)
    nothing = statistics.summarize([])
    assert (nothing.n, nothing.deviation) == (0, None)
    assert math.isnan(nothing.mean)
    assert math.isnan(statistics.summarize([0.5, math.nan]).mean)


def test_difference__interval_of_three_pairs_is_their_range() -> None:
    """A resample consists of the least difference only with probability 1/27, which is more than 2.5 %."""
    found = statistics.difference({1: 0.9, 2: 0.7, 3: 0.8}, {2: 0.5, 1: 0.8, 3: 0.3})
    assert found is not None
    assert found.paired
    assert found.runs == (3, 3)
    assert found.mean == pytest.approx((0.1 + 0.2 + 0.5) / 3)
    assert (found.low, found.high) == (pytest.approx(0.1), pytest.approx(0.5))


def test_difference__interval_of_many_pairs_is_normal() -> None:
    """By the central limit theorem: mean ± 1.96 s / √n."""
    differences = np.random.RandomState(0).normal(0.3, 1, 400)
    zeros = dict.fromkeys(range(400), 0.0)
    found = statistics.difference(dict(enumerate(differences)), zeros)
    assert found is not None and found.low is not None and found.high is not None
    half = 1.96 * differences.std(ddof=1) / 20
    assert found.low == pytest.approx(differences.mean() - half, abs=0.1 * half)
    assert found.high == pytest.approx(differences.mean() + half, abs=0.1 * half)


def test_difference__other_seeds_are_not_paired() -> None:
    ours, theirs = [0.1, 0.4, 0.2, 0.9], [0.5, 0.8, 0.6]
    found = statistics.difference(dict(enumerate(ours)), dict(enumerate(theirs)))
    assert found is not None
    assert not found.paired
    assert (found.runs, found.n) == ((4, 3), 3)
    random = np.random.RandomState(1)
    means = random.choice(ours, (40000, 4)).mean(1) - random.choice(theirs, (40000, 3)).mean(1)
    assert (found.low, found.high) == pytest.approx(np.percentile(means, [2.5, 97.5]), abs=0.015)


def test_difference__same_runs_give_the_same_interval() -> None:
    # Irregular values: every other set of resamples gives another interval.
    first, second = ({seed: math.sin(k * seed) for seed in range(9)} for k in (1, 2))
    assert statistics.difference(first, second) == statistics.difference(first, second)


def test_difference__without_interval() -> None:
    assert statistics.difference({}, {1: 0.5}) is None
    few = statistics.difference({1: 0.5, 2: 0.7}, {1: 0.3, 2: 0.4})
    assert few is not None
    assert few.mean == pytest.approx(0.25)
    assert (few.low, few.high, few.paired, few.runs) == (None, None, True, (2, 2))
    with_nan = statistics.difference({1: 0.5, 2: 0.7, 3: math.nan}, {1: 0.3, 2: 0.4, 3: 0.2})
    assert with_nan is not None and math.isnan(with_nan.mean) and with_nan.low is None


def test_difference__equal_runs_have_an_interval_of_width_0() -> None:
    found = statistics.difference({1: 0.5, 2: 0.5, 3: 0.5}, {1: 0.25, 2: 0.25, 3: 0.25})
    assert found is not None
    assert (found.low, found.high) == (0.25, 0.25)


@pytest.mark.parametrize('paired', [True, False])
def test_coverage__agrees_with_simulation(paired: bool) -> None:
    random, studies, runs = np.random.RandomState(2), 250, 3
    keys = range(runs) if paired else range(10, 10 + runs)
    held = 0
    for _ in range(studies):
        found = statistics.difference(
            dict(enumerate(random.normal(size=runs))), dict(zip(keys, random.normal(size=runs)))
        )
        assert found is not None and found.low is not None and found.high is not None
        held += found.low <= 0 <= found.high
    # Three standard deviations of a fraction of 250.
    assert held / studies == pytest.approx(statistics.coverage(runs, paired), abs=0.08)
    assert statistics.coverage(7, paired) == statistics.coverage(5, paired)
