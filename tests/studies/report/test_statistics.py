"""Means, standard deviations, differences and their intervals, against NumPy and numbers of the package rliable."""

import math
from typing import Tuple

import numpy as np
import pytest

from studies.report import statistics

_RANDOM = np.random.RandomState(7)
OURS = np.round(_RANDOM.normal(0.9, 0.05, (10, 3)), 3)[:, 0]
THEIRS = np.round(_RANDOM.normal(0.88, 0.06, (7, 3)), 3)[:, 0]


def test_summarize__mean_and_deviation() -> None:
    found = statistics.summarize([1.0, 2.0, 4.0])
    # (16 + 1 + 25) / 9, over n - 1 = 2.
    assert found == (3, pytest.approx(7 / 3), pytest.approx(math.sqrt((16 + 1 + 25) / 9 / 2)))
    assert statistics.summarize([0.5]) == (1, 0.5, None)
    nothing = statistics.summarize([])
    assert (nothing.n, nothing.deviation) == (0, None) and math.isnan(nothing.mean)


def test_difference__interval_of_three_pairs_is_their_range() -> None:
    """A resample consists of the least difference only with probability 1/27, which is more than 2.5 %."""
    found = statistics.difference({1: 0.9, 2: 0.7, 3: 0.8}, {2: 0.5, 1: 0.8, 3: 0.3})
    assert found is not None and found.paired and found.runs == (3, 3)
    assert (found.mean, found.low, found.high) == pytest.approx(((0.1 + 0.2 + 0.5) / 3, 0.1, 0.5))
    assert (-found).low == -0.5 and (-found).high == pytest.approx(-0.1)
    equal = statistics.difference({1: 0.5, 2: 0.5, 3: 0.5}, {1: 0.25, 2: 0.25, 3: 0.25})
    assert equal is not None and (equal.low, equal.high) == (0.25, 0.25)


def test_difference__interval_of_many_pairs_is_normal() -> None:
    """By the central limit theorem: mean ± 1.96 s / √n."""
    differences = np.random.RandomState(0).normal(0.3, 1, 400)
    zeros = dict.fromkeys(range(400), 0.0)
    found = statistics.difference(dict(enumerate(differences)), zeros)
    assert found is not None
    half = 1.96 * differences.std(ddof=1) / 20
    assert (found.low, found.high) == pytest.approx(differences.mean() + np.array([-half, half]), abs=0.1 * half)
    assert found == statistics.difference(dict(enumerate(differences)), zeros), 'the seed is fixed'


def test_difference__other_seeds_are_not_paired() -> None:
    ours, theirs = [0.1, 0.4, 0.2, 0.9], [0.5, 0.8, 0.6]
    found = statistics.difference(dict(enumerate(ours)), dict(enumerate(theirs)))
    assert found is not None and not found.paired and (found.runs, found.n) == ((4, 3), 3)
    random = np.random.RandomState(1)
    means = random.choice(ours, (40000, 4)).mean(1) - random.choice(theirs, (40000, 3)).mean(1)
    assert (found.low, found.high) == pytest.approx(np.percentile(means, [2.5, 97.5]), abs=0.015)


def test_difference__without_interval() -> None:
    assert statistics.difference({}, {1: 0.5}) is None
    few = statistics.difference({1: 0.5, 2: 0.7}, {1: 0.3, 2: 0.4})
    assert few is not None and few.mean == pytest.approx(0.25)
    assert (few.low, few.high, few.paired, few.runs) == (None, None, True, (2, 2))
    with_nan = statistics.difference({1: 0.5, 2: 0.7, 3: math.nan}, {1: 0.3, 2: 0.4, 3: 0.2})
    assert with_nan is not None and math.isnan(with_nan.mean) and with_nan.low is None


@pytest.mark.parametrize('paired', [True, False])
def test_coverage__agrees_with_simulation(paired: bool) -> None:
    random, studies, runs = np.random.RandomState(2), 250, 3
    keys = range(runs) if paired else range(10, 10 + runs)
    held = 0
    for _ in range(studies):
        values = [random.normal(size=runs) for _ in range(2)]
        found = statistics.difference(dict(enumerate(values[0])), dict(zip(keys, values[1])))
        assert found is not None and found.low is not None and found.high is not None
        held += found.low <= 0 <= found.high
    # Three standard deviations of a fraction of 250.
    assert held / studies == pytest.approx(statistics.coverage(runs, paired), abs=0.08)
    assert statistics.coverage(7, paired) == statistics.coverage(5, paired)


def test_interquartile_mean__and_improvement_are_those_of_rliable() -> None:
    """Of rliable 1.2.0 with arch 7.2.0: `get_interval_estimates` after `np.random.seed(0)`, with so many resamples."""
    assert statistics.interquartile_mean(OURS, 2000) == pytest.approx(
        (0.9108333333333333, 0.8678250000000001, 0.9303333333333333), abs=1e-12
    )
    assert statistics.improvement(OURS, THEIRS, 500) == pytest.approx((0.75, 0.47482142857142867, 0.9571428571428572))
    assert statistics.interquartile_mean([0.5, 0.6]) is None
    assert statistics.improvement([0.5, 0.6, math.nan], THEIRS) is None


@pytest.mark.parametrize(
    ('ours', 'theirs', 'probability'),
    [
        ((1, 2, 1), (0, 0, 0), 1),
        ((0, 1, 0), (2, 2, 2), 0),
        ((1, 1, 1), (1, 1, 1), 0.5),
        ((1, 3, 1, 3), (1, 2, 1, 2), 0.625),
    ],
)
def test_improvement__counts_pairs(ours: Tuple[float, ...], theirs: Tuple[float, ...], probability: float) -> None:
    for first, second, expected in ((ours, theirs, probability), (theirs, ours, 1 - probability)):
        found = statistics.improvement(first, second)
        assert found is not None and found.value == expected
