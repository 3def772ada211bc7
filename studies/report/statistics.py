"""What repetitions tell: mean, standard deviation, and the differences between cases with their uncertainty."""

import math
import warnings
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence, Tuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
# Below this, a resampled mean has hardly another value than the runs themselves.
FEWEST_RUNS = 3
RESAMPLES = 9999
# How often the interval holds the true difference, by the number of normal runs: of pairs, and of what is not paired.
# The same function, 1,500 times each; tests measure some of it again.
_COVERAGE = {3: (0.75, 0.81), 4: (0.80, 0.86), 5: (0.83, 0.88), 8: (0.89, 0.90), 10: (0.90, 0.92), 20: (0.93, 0.94)}
# The bootstrap draws the same for the same runs: a report that is made again says the same.
_SEED = 0


@dataclass(frozen=True)
class Summary:
    """A number over repetitions.

    Attributes:
      n: how many there are.
      mean: NaN if there are none.
      deviation: the sample standard deviation (divided by n - 1); None below two.
    """

    n: int
    mean: float
    deviation: Optional[float]


@dataclass(frozen=True)
class Difference:
    """The mean of one case less that of another.

    Attributes:
      mean: in the values' unit.
      low: the lower end of the interval; None if there is none.
      high: the upper end.
      paired: whether runs of the same seed were compared with each other.
      runs: how many the first case has, and the second.
    """

    mean: float
    low: Optional[float]
    high: Optional[float]
    paired: bool
    runs: Tuple[int, int]

    @property
    def n(self) -> int:
        """The runs of the case with fewer."""
        return min(self.runs)


def summarize(values: Sequence[float]) -> Summary:
    """The mean and the sample standard deviation of some numbers."""
    if not values:
        return Summary(0, math.nan, None)
    # Of numbers that are not finite, the result is not either, without a warning.
    with np.errstate(invalid='ignore'):
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return Summary(len(values), float(np.mean(values)), deviation)


def difference(first: Mapping[Any, float], second: Mapping[Any, float]) -> Optional[Difference]:
    """The mean of `first` less the mean of `second`, with its 95 % confidence interval.

    The interval is the percentile bootstrap's: that of the mean of the differences by seed if both cases have the same
    seeds, else that of the difference of the means, each case resampled by itself. A seed fixes initial weights, order
    of the images, crops and dropout, so runs of one seed are not independent of each other, which the second kind takes
    for granted; where they are related, pairs give the narrower interval, too.

    Of few runs it is too narrow. Of three pairs it reaches from the least to the greatest difference, which
    holds the true one in 75 % of all studies only, whatever the distribution, if it is symmetric. So there is none
    below three runs; `coverage` tells the rest.

    Args:
      first: by seed, or by what else tells the runs apart.
      second: the same of the other case.

    Returns:
      None without a run of either. Without an interval below three runs, and if a value is not finite.
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
    samples: Tuple[np.ndarray, ...] = (ours, theirs)
    statistic: Any = _difference_of_means
    if paired:
        theirs = np.array([second[seed] for seed in first])
        samples, statistic = (ours - theirs,), np.mean
    with warnings.catch_warnings():
        # Runs that are all the same have an interval without width, which needs no warning.
        warnings.simplefilter('ignore')
        interval = stats.bootstrap(
            samples,
            statistic,
            n_resamples=RESAMPLES,
            confidence_level=CONFIDENCE,
            method='percentile',
            random_state=np.random.default_rng(_SEED),
        ).confidence_interval
    return Difference(mean, float(interval.low), float(interval.high), paired, runs)


def coverage(n: int, paired: bool) -> float:
    """How often the interval of `difference` holds the true difference, as measured with normal numbers.

    Args:
      n: runs of either case, `FEWEST_RUNS` or more; between the numbers that were measured, the lower one's is told.
      paired: as `Difference` has it.
    """
    measured = max(runs for runs in _COVERAGE if runs <= n)
    return _COVERAGE[measured][0 if paired else 1]


def _difference_of_means(ours: np.ndarray, theirs: np.ndarray, axis: int) -> np.ndarray:
    return ours.mean(axis) - theirs.mean(axis)
