"""Interquartile means and probabilities of improvement, with stratified bootstrap intervals.

Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021), section 4. Their package
`rliable` gives the same numbers. Scores are a matrix [runs, tasks]; a comparison of this program has one task.
"""

import functools
from typing import Tuple

import numpy as np

from studies.report.statistics import CONFIDENCE, RESAMPLES

# A fixed seed, so that a report of the same runs has the same numbers.
_SEED = 0


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """The mean of the middle half of all scores: a quarter of them, rounded down, is left out at either end.

    Args:
      scores: float [..., runs, tasks]; leading dimensions are those of resamples.

    Returns:
      float [...].
    """
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    return flat[..., cut : flat.shape[-1] - cut].mean(-1)


def probability_of_improvement(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """The probability that a run of one method exceeds a run of another one, by pairs of runs; a tie counts half.

    For each task this is the statistic U of Mann and Whitney, divided by the number of pairs; tasks are averaged.

    Args:
      ours: float [..., runs, tasks], the scores of the method that may be better; larger is better.
      theirs: float [..., other runs, tasks].

    Returns:
      float [...].
    """
    first, second = ours[..., :, np.newaxis, :], theirs[..., np.newaxis, :, :]
    return ((first > second) + 0.5 * (first == second)).mean((-3, -2, -1))


def interquartile_interval(scores: np.ndarray, resamples: int = RESAMPLES) -> Tuple[float, float]:
    """The percentile interval of the interquartile mean. Runs are resampled in each task by itself.

    Args:
      scores: float [runs, tasks].
      resamples: their number.
    """
    (drawn,) = _draws(resamples, scores.shape)
    return _percentiles(interquartile_mean(_taken(scores, drawn)))


def improvement_interval(ours: np.ndarray, theirs: np.ndarray, resamples: int = RESAMPLES) -> Tuple[float, float]:
    """The percentile interval of the probability of improvement. Runs are resampled by method and task.

    Args:
      ours: as of `probability_of_improvement`.
      theirs: as there.
      resamples: their number.
    """
    first, second = _draws(resamples, ours.shape, theirs.shape)
    return _percentiles(probability_of_improvement(_taken(ours, first), _taken(theirs, second)))


# A report has many pairs of cases with the same numbers of runs.
@functools.lru_cache(maxsize=16)
def _draws(resamples: int, *shapes: Tuple[int, int]) -> Tuple[np.ndarray, ...]:
    """The runs in each resample of several matrices: for each, int [resamples, runs, tasks]."""
    random = np.random.RandomState(_SEED)
    drawn = [[random.randint(0, shape[0], shape) for shape in shapes] for _ in range(resamples)]
    return tuple(np.array(of_matrix) for of_matrix in zip(*drawn))


def _taken(scores: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    return np.take_along_axis(scores[np.newaxis], drawn, axis=1)


def _percentiles(values: np.ndarray) -> Tuple[float, float]:
    low, high = np.percentile(values, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return float(low), float(high)
