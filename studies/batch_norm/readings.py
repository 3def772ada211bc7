"""Repeats the published experiment by its equations, with other decays and with either kind of variance.

The published decay is 0.99. The other decays show how much the figures depend on it.
"""

from typing import Iterable, List, NamedTuple, Sequence, Tuple

import numpy as np

from inception_v3.batch_norm import EPSILON
from studies.batch_norm.comparison import largest_difference, normal_rows
from studies.batch_norm.layer import REPLICAS, Statistics


class Range(NamedTuple):
    """The minimum and the maximum of several values."""

    least: float
    greatest: float


class Reading(NamedTuple):
    """Largest differences between per-replica batch normalization and one device, for one decay and kind of variance.

    Attributes:
      decay: decay of the moving statistics.
      bessel: whether the moving variance averages unbiased variances.
      training_outputs: differences of training outputs, over the draws.
      inference_own: of inference outputs, if each replica uses its own moving statistics.
      inference_averaged: of inference outputs, if all replicas use the mean of their moving statistics.
      moving_variance: of the moving variance, averaged over the replicas.
    """

    decay: float
    bessel: bool
    training_outputs: Range
    inference_own: Range
    inference_averaged: Range
    moving_variance: Range


def readings(decays: Sequence[float], steps: int, seeds: Iterable[int]) -> List[Reading]:
    """Repeats the experiment in NumPy, in float64, for each decay, without and with Bessel's correction."""
    settings = [(decay, bessel) for decay in decays for bessel in (False, True)]
    drawn = [_differences(normal_rows(steps + 1, seed), settings) for seed in seeds]
    return [
        Reading(decay, bessel, *(Range(min(values), max(values)) for values in zip(*of_setting)))
        for (decay, bessel), of_setting in zip(settings, zip(*drawn))
    ]


def _differences(
    batches: np.ndarray, settings: Sequence[Tuple[float, bool]]
) -> List[Tuple[float, float, float, float]]:
    """The differences of one draw, in the order of `Reading`'s fields, for each (decay, bessel)."""
    # [steps, replicas, rows of a replica, channels]; one device is one replica with all rows.
    replicas, whole = (
        batches.reshape([len(batches), n, -1, batches.shape[-1]]).astype(np.float64) for n in (REPLICAS, 1)
    )
    outputs = [
        _normalize(rows[:-1], Statistics(rows[:-1].mean(2, keepdims=True), rows[:-1].var(2, keepdims=True)))
        for rows in (replicas, whole)
    ]
    training_outputs = largest_difference(outputs[0].reshape(outputs[1].shape), outputs[1])
    values = []
    for decay, bessel in settings:
        own, (one,) = _moving(replicas[:-1], decay, bessel), _moving(whole[:-1], decay, bessel)
        averaged = Statistics(*np.mean(own, 0))
        reference = _normalize(replicas[-1], one)
        each = np.stack([_normalize(*of_replica) for of_replica in zip(replicas[-1], own)])
        values.append(
            (
                training_outputs,
                largest_difference(each, reference),
                largest_difference(_normalize(replicas[-1], averaged), reference),
                largest_difference(averaged.variance, one.variance),
            )
        )
    return values


def _normalize(rows: np.ndarray, statistics: Statistics) -> np.ndarray:
    return (rows - statistics.mean) / np.sqrt(statistics.variance + EPSILON)


def _moving(rows: np.ndarray, decay: float, bessel: bool) -> List[Statistics]:
    """The moving statistics of each replica after training on rows [steps, replicas, rows, channels]."""
    steps = len(rows)
    weights = (1 - decay) * decay ** np.arange(steps - 1, -1, -1.0)
    means = np.tensordot(weights, rows.mean(2), 1)
    variances = decay**steps + np.tensordot(weights, rows.var(2, ddof=int(bessel)), 1)
    return [Statistics(*of_replica) for of_replica in zip(means, variances)]
