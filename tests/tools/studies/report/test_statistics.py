"""Means, differences and their intervals, against SciPy's tests, simulations, and numbers of the package rliable."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.support.tiers import further
from tools.studies.report import statistics

_RANDOM = np.random.RandomState(7)
OURS = np.round(_RANDOM.normal(0.9, 0.05, (10, 3)), 3)[:, 0]
THEIRS = np.round(_RANDOM.normal(0.88, 0.06, (7, 3)), 3)[:, 0]


def test_summarize__has_mean_and_deviation() -> None:
    # (16 + 1 + 25) / 9, over n - 1 = 2.
    expected = (3, pytest.approx(7 / 3), pytest.approx(math.sqrt((16 + 1 + 25) / 9 / 2)))
    assert statistics.summarize([1.0, 2.0, 4.0]) == expected
    assert statistics.summarize([1.0, 3.0]) == (2, 2.0, pytest.approx(2**0.5))
    assert np.isnan(statistics.summarize([0.5])[2]) and np.isnan(statistics.summarize([])[1:]).all()


@pytest.mark.parametrize('are_paired', [True, False])
def test_difference__ends_where_the_test_of_scipy_has_p_5_percent(are_paired: bool) -> None:
    ours = OURS[:7]
    keys = range(7) if are_paired else range(10, 17)
    found = statistics.difference(dict(zip(range(7), ours)), dict(zip(reversed(keys), THEIRS[::-1])))
    assert found is not None and found.value == pytest.approx(ours.mean() - THEIRS.mean())
    for end in found[1:]:
        test = (
            stats.ttest_rel(ours - end, THEIRS) if are_paired else stats.ttest_ind(ours - end, THEIRS, equal_var=False)
        )
        assert test.pvalue == pytest.approx(0.05)
    low, high = statistics.mean(ours)[1:]
    assert (
        stats.ttest_1samp(ours, low).pvalue
        == pytest.approx(stats.ttest_1samp(ours, high).pvalue)
        == pytest.approx(0.05)
    )


def test_difference__of_few_runs_has_no_interval() -> None:
    assert statistics.difference({}, {1: 0.5}) is None
    for others in ({1: 0.3, 2: 0.4}, {3: 0.3, 4: 0.4}):
        few = statistics.difference({1: 0.5, 2: 0.7}, others)
        assert few is not None and few.value == pytest.approx(0.25) and np.isnan(few[1:]).all()
    assert np.isnan(statistics.difference({1: 0.5, 2: 0.7, 3: math.nan}, {1: 0.3, 2: 0.4, 3: 0.2})).all()
    assert statistics.difference(dict.fromkeys('abc', 0.5), dict.fromkeys('def', 0.25)) == (0.25, 0.25, 0.25)


# Top-1 of ten runs of the digits: 96.91 ± 1.69 %. 100 minus a gamma distribution has this mean and deviation.
SHAPE = (3.09 / 1.69) ** 2


@pytest.mark.parametrize('runs', [3, further(10)])
@pytest.mark.parametrize(
    ('draw', 'true', 'of_pairs', 'of_others'),
    [
        (lambda random, runs: random.normal(80, 2, size=runs), 80, (0.94, 0.96), (0.94, 0.97)),
        (lambda random, runs: 100 - random.gamma(SHAPE, 3.09 / SHAPE, runs), 96.91, (0.94, 0.97), (0.94, 0.98)),
    ],
    ids=['normal', 'near 100 %'],
)
def test_intervals__contain_the_true_value_as_often_as_they_say(
    draw: Any, true: float, of_pairs: Any, of_others: Any, runs: int
) -> None:
    random, studies = np.random.RandomState(0), 2000
    held = np.zeros(3)
    for _ in range(studies):
        ours, theirs = draw(random, runs), draw(random, runs)
        by_seed = dict(enumerate(ours))
        found: Any = [statistics.mean(ours, best=100)]
        found += [statistics.difference(by_seed, dict(enumerate(theirs, start))) for start in (0, 50)]
        held += [low <= expected <= high for (_, low, high), expected in zip(found, (true, 0, 0))]
    for share, (least, most) in zip(held / studies, ((0.94, 0.96), of_pairs, of_others)):
        assert least <= round(share, 2) <= most, held / studies


def test_mean__of_bounded_values_stays_within_the_bound() -> None:
    # Errors of 1, 4 and 9 have the roots 1, 2 and 3: their mean is 2, their variance 1, and t / √3 = 4.303 / 1.732.
    upper = (2 + 4.302653 / math.sqrt(3)) ** 2 + 1
    assert statistics.mean([99, 96, 91], best=100) == pytest.approx((286 / 3, 100 - upper, 99))
    assert statistics.mean([1, 4, 9], best=0) == pytest.approx((14 / 3, 1, upper))
    assert statistics.mean([100] * 3, best=100) == (100, 100, 100)
    # A perfect run among others.
    value, low, high = statistics.mean([100, 96, 91], best=100)
    assert statistics.mean([0, 4, 9], best=0) == pytest.approx((100 - value, 100 - high, 100 - low))
    assert np.isnan(statistics.mean([1, 4, math.nan], best=0)).all()


def test_seeds_needed__are_those_of_tables() -> None:
    # From G*Power 3.1, for a t test of pairs, two-sided, 5 %, power 80 %, and effects of 0.2, 0.5 and 0.8 deviations.
    assert [statistics.seeds_needed(effect, 1) for effect in (0.2, 0.5, 0.8)] == [199, 34, 15]
    for effect in (0.9, 1.5, 2.0, 2.5):
        n = statistics.seeds_needed(effect, 1)
        fewer, enough = (stats.nct.sf(stats.t.ppf(0.975, m - 1), m - 1, effect * math.sqrt(m)) for m in (n - 1, n))
        assert fewer < 0.8 <= enough, (effect, n)
    assert statistics.seeds_needed(1, 0) == statistics.seeds_needed(100, 1) == 3
    # The quantiles of χ² with 9 degrees of freedom are 19.023 and 2.700.
    expected = 2 * math.sqrt(9 / 19.0228), 2 * math.sqrt(9 / 2.70039)
    assert statistics.deviation_interval(2, 10) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize('are_paired', [True, False])
def test_detectable__is_found_in_80_percent_of_studies(are_paired: bool) -> None:
    ours, theirs = OURS[:5], THEIRS[:5]
    found = statistics.detectable(dict(enumerate(ours)), dict(enumerate(theirs, 0 if are_paired else 9)))
    deviations = (
        [np.std(ours - theirs, ddof=1), 0.0] if are_paired else [np.std(each, ddof=1) for each in (ours, theirs)]
    )
    drawn = [np.random.RandomState(seed).normal(0, scale, (20000, 5)) for seed, scale in enumerate(deviations)]
    test = stats.ttest_rel if are_paired else stats.ttest_ind
    # The degrees of freedom of Welch's test vary with the deviations that are drawn.
    tolerance = 0.01 if are_paired else 0.03
    options = {} if are_paired else {'equal_var': False}
    assert np.mean(test(drawn[0] + found, drawn[1], axis=1, **options).pvalue < 0.05) == pytest.approx(
        0.8, abs=tolerance
    )
    assert math.isnan(statistics.detectable({1: 0.5, 2: 0.6}, {1: 0.5, 2: 0.7}))


def test_deviation_of_images__is_that_of_the_binomial_distribution() -> None:
    assert statistics.deviation_of_images(0.9691, 359) == pytest.approx(stats.binom(359, 0.9691).std() / 359)
    assert statistics.deviation_of_images(1.0, 359) == 0


def test_share__has_the_interval_of_wilson() -> None:
    """Newcombe, "Two-Sided Confidence Intervals for the Single Proportion" (1998), table I: 81 of 263."""
    assert statistics.share(81 / 263, 263) == pytest.approx((0.3080, 0.2553, 0.3662), abs=5e-5)


def test_interquartile_mean__and_improvement_are_those_of_rliable() -> None:
    assert statistics.interquartile_mean(OURS) == pytest.approx(0.9108333333333333, abs=1e-12)
    assert statistics.improvement(OURS, THEIRS) == pytest.approx(0.75)
    # Ties count half: of 16 pairs, 8 are won and 4 are ties.
    assert (
        statistics.improvement([1, 3, 1, 3], [1, 2, 1, 2]) == 0.625 and statistics.improvement([1] * 3, [1] * 3) == 0.5
    )
