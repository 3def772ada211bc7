"""Statistics of repeated runs: means, standard deviations, and 95 % intervals of means and of their differences.

Intervals are Student's t of the runs, or of the differences by seed if two cases have the same seeds. For other seeds,
they are Welch's, which assume independent runs. A seed fixes initial weights, order of the images, crops and dropout,
so runs with the same seed are not independent; pairing also narrows the interval if they are correlated.

For normal values, an interval contains the true value in 95 % of all studies, whatever the number of runs (Welch's of
three runs in 96 to 97 %). Accuracies near 100 % are skewed: Student's interval of the digits' mean contains the true
value in 93 % of all studies. The interval from the square roots of the errors, whose distribution is more symmetric,
contains it in 94 %, and intervals of differences in 95 to 97 %.
"""

import math
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Tuple

import numpy as np
from scipy import special, stats

CONFIDENCE = 0.95
# The share of studies that find a detectable difference.
POWER = 0.8
# With two runs, the interval is thirteen standard errors wide on either side.
FEWEST_RUNS = 3


class Summary(NamedTuple):
    """The number, mean (NaN without values) and sample standard deviation (NaN below two values) of values."""

    n: int
    mean: float
    deviation: float


class Estimate(NamedTuple):
    """An estimate with its 95 % confidence interval, whose ends are NaN with too few runs for one."""

    value: float
    low: float = math.nan
    high: float = math.nan


def summarize(values: Iterable[float]) -> Summary:
    """The mean and the sample standard deviation of values."""
    values = [*values]
    # Values that are not finite give a result that is not finite; NumPy need not warn.
    with np.errstate(invalid='ignore'):
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
        return Summary(len(values), float(np.mean(values)) if values else math.nan, deviation)


def mean(values: Iterable[float], best: Optional[float] = None) -> Estimate:
    """The mean, with Student's interval from `FEWEST_RUNS` values on.

    `best` is the value of a perfect run, which bounds all values. The interval is then computed from the square roots
    of the distances to `best`, and does not exceed it.
    """
    values = [*values]
    n, value, deviation = summarize(values)
    if n < FEWEST_RUNS:
        return Estimate(value)
    if best is None:
        return _estimate(value, deviation / math.sqrt(n), n - 1)
    roots = np.sqrt(np.abs(np.subtract(values, best)))
    # The mean of squares is the square of the mean plus the variance.
    distances = np.maximum(mean(roots)[1:], 0) ** 2 + summarize(roots).deviation ** 2
    low, high = best + distances if best <= min(values) else best - distances[::-1]
    return Estimate(value, float(low), float(high))


def difference(first: Mapping[Any, float], second: Mapping[Any, float]) -> Optional[Estimate]:
    """The mean of `first` minus that of `second`, with its interval from `FEWEST_RUNS` runs on; None without runs.

    The values are by seed or another key of the run; with equal keys, they are paired.
    """
    if not first or not second:
        return None
    value = summarize(first.values()).mean - summarize(second.values()).mean
    if min(len(first), len(second)) < FEWEST_RUNS:
        return Estimate(value)
    return _estimate(value, *_error(first, second))


def _error(first: Mapping[Any, float], second: Mapping[Any, float]) -> Tuple[float, float]:
    """The standard error of a difference of means, and its degrees of freedom."""
    if first.keys() == second.keys():
        n, _, deviation = summarize(value - second[key] for key, value in first.items())
        return deviation / math.sqrt(n), n - 1
    squares = [(each.deviation**2 / each.n, each.n - 1) for each in map(summarize, (first.values(), second.values()))]
    total = sum(square for square, _ in squares)
    weights = sum(square**2 / freedom for square, freedom in squares)
    # The degrees of freedom of Welch and Satterthwaite.
    return math.sqrt(total), total**2 / weights if weights else 1


def detectable(first: Mapping[Any, float], second: Mapping[Any, float]) -> float:
    """The difference that a two-sided test at 5 % finds with `POWER`, given the spread of runs; NaN with too few."""
    if min(len(first), len(second)) < FEWEST_RUNS:
        return math.nan
    error, freedom = _error(first, second)
    return error * _noncentrality(freedom)


def seeds_needed(sought: float, deviation: float) -> int:
    """The number of seeds, at least `FEWEST_RUNS`, to find the difference `sought`, above 0, with `POWER`.

    Both cases have the same seeds; the differences by seed are assumed to be normal, with the given deviation.
    """
    # Start below: the normal distribution needs fewer seeds than Student's.
    n = max(FEWEST_RUNS, math.ceil((deviation / sought * float(special.ndtri(POWER) + special.ndtri(0.975))) ** 2))
    while deviation / math.sqrt(n) * _noncentrality(n - 1) > sought:
        n += 1
    return n


def deviation_interval(deviation: float, n: int) -> Tuple[float, float]:
    """The 95 % interval of the standard deviation of n normal values."""
    low, high = (math.sqrt((n - 1) / float(special.chdtri(n - 1, tail))) for tail in (0.025, 0.975))
    return deviation * low, deviation * high


def _noncentrality(freedom: float) -> float:
    """The true difference, in standard errors, for which Student's t exceeds the limit of the test with `POWER`."""
    limit = float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2))
    return float(special.nctdtrinc(freedom, 1 - POWER, limit))


def deviation_of_images(accuracy: float, images: int) -> float:
    """The standard deviation of an accuracy, as a fraction, if images are right independently of each other.

    Jordan, "On the Variance of Neural Network Training with respect to Test Sets and Distributions" (2024, arXiv
    2304.01910), finds that runs make independent errors. If some images are harder than others, runs spread less.
    """
    return math.sqrt(accuracy * (1 - accuracy) / images)


def _estimate(value: float, error: float, freedom: float) -> Estimate:
    """An estimate with Student's interval, from its standard error and the degrees of freedom."""
    half = float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    return Estimate(value, value - half, value + half)


def share(fraction: float, images: int) -> Estimate:
    """A fraction of images, such as the accuracy of a single evaluation, with Wilson's interval."""
    if not math.isfinite(fraction):
        return Estimate(fraction)
    interval = stats.binomtest(round(fraction * images), images).proportion_ci(CONFIDENCE, 'wilson')
    return Estimate(fraction, interval.low, interval.high)


# Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021), section 4, define the
# following two functions. Their package `rliable` gives the same values for one task.


def interquartile_mean(values: Iterable[float]) -> float:
    """The mean of the middle half of values, without a quarter of them, rounded down, at either end."""
    return float(stats.trim_mean([*values], 0.25))


def improvement(ours: Iterable[float], theirs: Iterable[float]) -> float:
    """The probability that one of `ours` exceeds one of `theirs`, by pairs of values; a tie counts half."""
    ours, theirs = [*ours], [*theirs]
    return float(stats.mannwhitneyu(ours, theirs).statistic) / (len(ours) * len(theirs))
