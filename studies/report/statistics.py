"""Statistics of repeated runs: means, standard deviations, and differences between cases with their uncertainty."""

import functools
import math
import warnings
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
# With fewer runs, resampled means take hardly any values besides those of the runs.
FEWEST_RUNS = 3
RESAMPLES = 9999
# Coverage of the interval by the number of runs, paired and unpaired: how often it contains the true difference.
# Measured with normal values, 1,500 repetitions each; tests measure a part of it again.
_COVERAGE = {3: (0.75, 0.81), 4: (0.80, 0.86), 5: (0.83, 0.88), 8: (0.89, 0.90), 10: (0.90, 0.92), 20: (0.93, 0.94)}
# A fixed seed, so that a report of the same runs has the same numbers.
_SEED = 0


class Summary(NamedTuple):
    """The number, mean (NaN without values) and sample standard deviation (None below two values) of values."""

    n: int
    mean: float
    deviation: Optional[float]


class Estimate(NamedTuple):
    """An estimate with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """The difference between the means of two cases.

    Attributes:
      mean: first minus second, in the values' unit.
      low: lower end of the interval; None if there is no interval.
      high: upper end of the interval; None if there is no interval.
      paired: whether runs were paired by seed.
      runs: numbers of runs of the first and the second case.
    """

    mean: float
    low: Optional[float]
    high: Optional[float]
    paired: bool
    runs: Tuple[int, int]

    @property
    def n(self) -> int:
        """The smaller number of runs."""
        return min(self.runs)

    def __neg__(self) -> 'Difference':
        if self.low is None or self.high is None:
            return Difference(-self.mean, None, None, self.paired, self.runs[::-1])
        return Difference(-self.mean, -self.high, -self.low, self.paired, self.runs[::-1])


def summarize(values: Iterable[float]) -> Summary:
    """The mean and the sample standard deviation of values."""
    values = [*values]
    if not values:
        return Summary(0, math.nan, None)
    # Values that are not finite give a result that is not finite; NumPy need not warn.
    with np.errstate(invalid='ignore'):
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return Summary(len(values), float(np.mean(values)), deviation)


def difference(first: Mapping[Any, float], second: Mapping[Any, float]) -> Optional[Difference]:
    """The mean of `first` minus the mean of `second`, with its 95 % confidence interval.

    The interval is a percentile bootstrap. If both cases have the same seeds, it resamples the differences by seed;
    otherwise it resamples each case separately, which assumes independent runs. A seed fixes initial weights, order of
    the images, crops and dropout, so that runs of one seed are not independent; pairing also narrows the interval if
    they are correlated.

    With few runs the interval is too narrow. With three pairs it reaches from the smallest to the largest difference,
    and contains the true one in only 75 % of all studies, for any symmetric distribution; see `coverage`.

    Args:
      first: values of the first case, by seed or another key of the run.
      second: values of the second case.

    Returns:
      None if a case has no runs. The interval is missing with fewer than three runs, or if a value is not finite.
    """
    if not first or not second:
        return None
    ours, theirs = np.array([*first.values()]), np.array([*second.values()])
    paired = first.keys() == second.keys()
    runs = len(ours), len(theirs)
    with np.errstate(invalid='ignore'):
        mean = float(ours.mean() - theirs.mean())
    if min(runs) < FEWEST_RUNS or not math.isfinite(mean):
        return Difference(mean, None, None, paired, runs)
    random = np.random.default_rng(_SEED)
    if paired:
        low, high = _bootstrap([ours - [second[seed] for seed in first]], np.mean, RESAMPLES, random)
    else:
        low, high = _bootstrap([ours, theirs], lambda a, b, axis: a.mean(axis) - b.mean(axis), RESAMPLES, random)
    return Difference(mean, low, high, paired, runs)


def coverage(n: int, paired: bool) -> float:
    """The measured fraction of intervals of `difference` that contain the true difference, for normal values.

    Args:
      n: number of runs of either case, at least `FEWEST_RUNS`; rounded down to a number that was measured.
      paired: whether runs are paired by seed.
    """
    return _COVERAGE[max(runs for runs in _COVERAGE if runs <= n)][0 if paired else 1]


# Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021), section 4, define the
# following two. Their package `rliable` gives the same numbers for one task.


def interquartile_mean(values: Iterable[float], resamples: int = RESAMPLES) -> Optional[Estimate]:
    """The mean of the middle half of values, without a quarter of them, rounded down, at either end.

    The interval is a percentile bootstrap. Returns None with fewer than `FEWEST_RUNS` values, or if one is not finite.
    """
    (values,) = samples = [np.array([*values], float)]
    if not _allow_interval(samples):
        return None
    middle = functools.partial(stats.trim_mean, proportiontocut=0.25)
    interval = _bootstrap(samples, middle, resamples, np.random.RandomState(_SEED))
    return Estimate(float(middle(values)), *interval)


def improvement(ours: Iterable[float], theirs: Iterable[float], resamples: int = RESAMPLES) -> Optional[Estimate]:
    """The probability that one of `ours` exceeds one of `theirs`, by pairs of values; a tie counts half.

    This is the statistic U of Mann and Whitney, divided by the number of pairs. The interval is a percentile bootstrap
    that resamples both separately. Returns None with fewer than `FEWEST_RUNS` values, or if one is not finite.
    """
    samples = [np.array([*values], float) for values in (ours, theirs)]
    if not _allow_interval(samples):
        return None
    drawn = [values[indices] for values, indices in zip(samples, _resamples(resamples, *map(len, samples)))]
    low, high = np.percentile(_share_of_pairs(*drawn), [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return Estimate(float(_share_of_pairs(*samples)), float(low), float(high))


def _share_of_pairs(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    first, second = ours[..., :, np.newaxis], theirs[..., np.newaxis, :]
    return ((first > second) + 0.5 * (first == second)).mean((-2, -1))


# A report has many pairs of cases with the same numbers of runs.
@functools.lru_cache(maxsize=16)
def _resamples(resamples: int, *sizes: int) -> Tuple[np.ndarray, ...]:
    """The indices in each resample of several samples, in the order in which rliable draws them."""
    random = np.random.RandomState(_SEED)
    drawn = [[random.randint(0, size, size) for size in sizes] for _ in range(resamples)]
    return tuple(np.array(of_sample) for of_sample in zip(*drawn))


def _allow_interval(samples: Sequence[np.ndarray]) -> bool:
    return all(len(values) >= FEWEST_RUNS and np.isfinite(values).all() for values in samples)


def _bootstrap(samples: Sequence[Any], statistic: Any, resamples: int, random: Any) -> Tuple[float, float]:
    with warnings.catch_warnings():
        # Equal values give an interval of width 0; SciPy need not warn.
        warnings.simplefilter('ignore')
        interval = stats.bootstrap(
            samples,
            statistic,
            n_resamples=resamples,
            confidence_level=CONFIDENCE,
            method='percentile',
            random_state=random,
        ).confidence_interval
    return float(interval.low), float(interval.high)
