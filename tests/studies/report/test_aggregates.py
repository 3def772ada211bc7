"""Interquartile means and probabilities of improvement, against numbers of the package rliable."""

from typing import Tuple

import numpy as np
import pytest
from scipy import stats

from studies.report import aggregates

_RANDOM = np.random.RandomState(7)
OURS = np.round(_RANDOM.normal(0.9, 0.05, (10, 3)), 3)
THEIRS = np.round(_RANDOM.normal(0.88, 0.06, (7, 3)), 3)
EXACT = 1e-12

# Of rliable 1.2.0 with arch 7.2.0: `get_interval_estimates` after `np.random.seed(0)`, of `aggregate_iqm` with
# reps=2000, and of `probability_of_improvement` with reps=500; for all three tasks, and for the first alone.
INTERQUARTILE = {
    3: (0.8972500000000001, 0.8812484374999999, 0.9123781249999999),
    1: (0.9108333333333333, 0.8678250000000001, 0.9303333333333333),
}
IMPROVEMENT = {
    3: (0.5833333333333334, 0.40351190476190485, 0.7523809523809524),
    1: (0.75, 0.47482142857142867, 0.9571428571428572),
}


@pytest.mark.parametrize('tasks', [3, 1])
def test_interquartile_mean__and_its_interval_are_those_of_rliable(tasks: int) -> None:
    mean, *interval = INTERQUARTILE[tasks]
    assert aggregates.interquartile_mean(OURS[:, :tasks]) == pytest.approx(mean, abs=EXACT)
    assert aggregates.interquartile_interval(OURS[:, :tasks], 2000) == pytest.approx(tuple(interval), abs=EXACT)


@pytest.mark.parametrize('tasks', [3, 1])
def test_probability_of_improvement__and_its_interval_are_those_of_rliable(tasks: int) -> None:
    probability, *interval = IMPROVEMENT[tasks]
    ours, theirs = OURS[:, :tasks], THEIRS[:, :tasks]
    assert aggregates.probability_of_improvement(ours, theirs) == pytest.approx(probability, abs=EXACT)
    assert aggregates.improvement_interval(ours, theirs, 500) == pytest.approx(tuple(interval), abs=EXACT)


@pytest.mark.parametrize('runs', [1, 2, 3, 4, 5, 7, 8, 10])
def test_interquartile_mean__leaves_out_a_quarter_at_either_end(runs: int) -> None:
    scores = np.random.RandomState(runs).rand(runs, 1)
    assert aggregates.interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores, 0.25, axis=None), abs=EXACT)


@pytest.mark.parametrize(
    ('ours', 'theirs', 'probability'),
    [((1, 2), (0, 0, 0), 1), ((0, 1), (2,), 0), ((1, 1), (1, 1), 0.5), ((1, 3), (1, 2), 0.625)],
)
def test_probability_of_improvement__counts_pairs(
    ours: Tuple[float, ...], theirs: Tuple[float, ...], probability: float
) -> None:
    first, second = (np.array(values, float)[:, np.newaxis] for values in (ours, theirs))
    assert aggregates.probability_of_improvement(first, second) == probability
    assert aggregates.probability_of_improvement(second, first) == 1 - probability
