"""Findings, compared with computations of the test's own."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate
from studies.report import findings
from studies.report.runs import Case, Comparison, Run
from tests.support import recorded


def find(*cases: Case) -> findings.Findings:
    return findings.find(Comparison('title', 'question', cases))


def not_started(name: str) -> Run:
    return Run(name, f'/runs/{name}', None, None, None, (), (), {})


def test_curve__summarizes_the_runs_at_each_step() -> None:
    runs = (recorded.run('a', [0.1, 0.4, 0.7], 1), recorded.run('b', [0.3, 0.5], 2), recorded.run('c', [0.2, 0.9], 3))
    curve = find(Case('case', {}, runs)).cases[0].evaluations['top_1']
    assert [one.values for one in curve.curves] == [(0.1, 0.4, 0.7), (0.3, 0.5), (0.2, 0.9)]
    assert curve.steps == (100, 200, 300)
    deviations = [np.std([0.1, 0.3, 0.2], ddof=1), np.std([0.4, 0.5, 0.9], ddof=1)]
    assert [*curve.summaries] == [
        (3, pytest.approx(0.2), pytest.approx(deviations[0])),
        (3, pytest.approx(0.6), pytest.approx(deviations[1])),
        (1, 0.7, None),
    ]


def test_finals__are_of_the_finished_runs() -> None:
    runs = (
        recorded.run('done', [0.1, 0.4, 0.7], 1),
        recorded.run('running', [0.3, 0.5], 2),
        recorded.run('failed', [0.2], 3, failure='error: no loss'),
        recorded.run('failed in its export', [0.2, 0.3, 0.5], 4, failure='error: disk full'),
        not_started('waiting'),
    )
    found = find(Case('case', {}, runs)).cases[0]
    assert found.finals['top_1'] == {1: 0.7, 4: 0.5}
    states = ['finished', 'at step 290 of 300', 'failed, at step 290 of 300', 'finished', 'not started']
    assert [findings.state(run) for run in runs] == states


def test_difference__pairs_the_finished_runs_by_seed() -> None:
    cases = [recorded.case('sgd', [0.5, 0.6, 0.8]), recorded.case('RMS', [0.6, 0.9, 0.9])]
    pair = find(*cases).pairs[0]
    found = pair.differences['top_1']
    assert found is not None and found.paired and (pair.later, pair.earlier) == (1, 0)
    assert (found.mean, found.low, found.high) == pytest.approx(((0.1 + 0.3 + 0.1) / 3, 0.1, 0.3))
    unfinished = [Case(case.name, {}, (*case.runs, not_started(f'{case.name}/seed-4'))) for case in cases]
    assert find(*unfinished).pairs[0].differences == pair.differences
    # Several runs of one seed are not paired.
    runs = tuple(recorded.run(f'again/{index}', [0, 0, 0.5 + 0.1 * index], seed=1) for index in range(3))
    again = find(Case('again', {}, runs), cases[0]).pairs[0].differences['top_1']
    assert again is not None and not again.paired and again.runs == (3, 3)


def test_throughput__is_the_median_of_a_run() -> None:
    """The 30 summaries have 101 … 129 images/s; the first has none."""
    case = recorded.case('sgd', [0.5])
    assert find(case).cases[0].throughputs == {1: 115}
    (run,) = case.runs
    slow = dataclasses.replace(run.training[-1], images_per_second=1.0)
    runs = (dataclasses.replace(run, training=(*run.training[:-1], slow)),)
    assert find(dataclasses.replace(case, runs=runs)).cases[0].throughputs == {1: 114}


def test_loss__is_the_mean_of_each_span_of_steps() -> None:
    """12,000 steps in 300 points: 40 steps, and four summaries, per point."""
    losses = np.random.RandomState(0).uniform(1, 2, 1200)
    run = recorded.run('long', [], config=Config(train_steps=12000), losses=losses.tolist())
    curve = find(Case('case', {}, (run,))).cases[0].loss.curves[0]
    assert len(curve.steps) == 300 and curve.steps[:2] == (30, 70)
    assert curve.values == pytest.approx(losses.reshape(300, 4).mean(1))


@pytest.mark.parametrize(
    'changes',
    [
        {},
        {'use_learning_rate_warmup': True, 'learning_rate_decay_epochs': 1, 'cold_epochs': 0},
        {'train_steps': 1},
        {'train_steps': 30},
    ],
)
def test_schedule__equals_the_formula_at_every_step(changes: Any) -> None:
    settings: Any = {'train_steps': 5000, 'train_batch_size': 64, 'num_train_images': 12345, 'use_tpu': False}
    config = Config(**{**settings, **changes})
    found = find(Case('case', {}, (recorded.run('run', [], config=config),)))
    steps, rates = zip(*found.cases[0].schedule)
    assert steps[0] == 0 and steps[-1] == config.train_steps - 1 and not found.by_epoch
    for step in range(config.train_steps):
        assert rates[np.searchsorted(steps, step, side='right') - 1] == learning_rate(step, config), step


def test_findings__different_batch_sizes_are_compared_by_epoch() -> None:
    configs = [
        Config(train_steps=300, train_batch_size=size, num_train_images=640, use_tpu=False) for size in (64, 128)
    ]
    assert find(*[Case(str(c), {}, (recorded.run('run', [0.5], config=c),)) for c in configs]).by_epoch


def test_findings__of_runs_that_have_not_started() -> None:
    found = find(Case('case', {}, (not_started('a'), not_started('b'))), recorded.case('sgd', [0.5, math.nan]))
    assert (found.cases[0].schedule, found.cases[0].steps_per_epoch, found.cases[0].throughputs) == ((), None, {})
    assert found.pairs[0].differences == {'top_1': None, 'top_5': None, 'cross_entropy': None}
    assert math.isnan(found.cases[1].evaluations['top_1'].summaries[-1].mean)
