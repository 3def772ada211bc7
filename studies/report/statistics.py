"""Statistics of repeated runs: means, standard deviations, and 95 % intervals of means and of their differences.

Intervals are Student's t of the runs, or of the differences by seed if two cases have the same seeds; for other seeds
Welch's, which assumes independent runs. A seed fixes initial weights, order of the images, crops and dropout, so that
runs of one seed are not independent; pairing also narrows the interval if they are correlated. For normal values, an
interval contains the true value in 95 % of all studies, whatever the number of runs (Welch's of three in 96 to 97 %).
Accuracies near 100 % are skewed, and Student's interval of the digits' mean contains it in 93 % of all studies. That of
the square roots of the errors, whose distribution is more symmetric, contains it in 94 %; intervals of differences in
95 to 97 %.
"""

import math
from typing import Any, Iterable, Mapping, NamedTuple, Optional

import numpy as np
from scipy import special, stats

CONFIDENCE = 0.95
# The interval of two runs is thirteen standard errors wide on either side.
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

    Args:
      values: of the runs.
      best: the bound of all values that a perfect run reaches; the interval is then that of the square roots of the
        distances to it, and does not exceed it.
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
    """The mean of `first` minus the mean of `second`, with its interval from `FEWEST_RUNS` runs of both on.

    Args:
      first: values of the first case, by seed or another key of the run; with the keys of the second, they are paired.
      second: values of the second case.

    Returns:
      None if a case has no runs.
    """
    if not first or not second:
        return None
    if first.keys() == second.keys():
        return mean([value - second[key] for key, value in first.items()])
    ours, theirs = summarize(first.values()), summarize(second.values())
    value = ours.mean - theirs.mean
    if min(ours.n, theirs.n) < FEWEST_RUNS:
        return Estimate(value)
    squares = [each.deviation**2 / each.n for each in (ours, theirs)]
    weights = sum(square**2 / (each.n - 1) for square, each in zip(squares, (ours, theirs)))
    # The degrees of freedom of Welch and Satterthwaite.
    return _estimate(value, math.sqrt(sum(squares)), sum(squares) ** 2 / weights if weights else 1)


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
# following two. Their package `rliable` gives the same values for one task.


def interquartile_mean(values: Iterable[float]) -> float:
    """The mean of the middle half of values, without a quarter of them, rounded down, at either end."""
    return float(stats.trim_mean([*values], 0.25))


def improvement(ours: Iterable[float], theirs: Iterable[float]) -> float:
    """The probability that one of `ours` exceeds one of `theirs`, by pairs of values; a tie counts half."""
    ours, theirs = [*ours], [*theirs]
    return float(stats.mannwhitneyu(ours, theirs).statistic) / (len(ours) * len(theirs))
