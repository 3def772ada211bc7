"""The report: its numbers and panels, also for runs that are incomplete."""

import dataclasses
import math
from typing import Any, Sequence

import numpy as np
import pytest
from scipy import special

from tests.support import recorded
from tools.evaluate_report.predictions import Prediction, Predictions
from tools.studies.report import page, tables
from tools.studies.report.runs import Case, Comparison, Run


def comparison_of(*cases: Case, **changes: Any) -> Comparison:
    return Comparison('Optimizers', 'Which is best?', cases, **changes)


def rows_of(comparison: Comparison) -> str:
    """The rows of all tables, in Markdown."""
    every = (tables.finals, tables.means, tables.differences, tables.unfinished)
    return '\n'.join(of(comparison).markdown() for of in every)


def test_report__tables_have_the_numbers() -> None:
    cases = recorded.case('sgd', [0.50, 0.60, 0.80]), recorded.case('RMS', [0.60, 0.90, 0.90])
    comparison = comparison_of(*cases, notes=('Costs nothing.',))
    markdown = rows_of(comparison)
    # Values 50, 60 and 80: mean 63.33, deviation √(233.33), and t = 4.303 for the interval. Top-5 is 50 plus half of
    # top-1; cross-entropy is 4 − 3 · top-1 / 100, and lower is better.
    for row in (
        '| 3 of 3 | 63.33 ± 15.28 | 81.67 ± 7.64 | 2.1000 ± 0.4583 | 115.0 ± 0.0 |',
        '| sgd: mean | 63.33 [12.09, 91.28] | 81.67 [56.05, 95.64] | 2.1000 [1.1098, 3.4312] |',
        # The deviation of an accuracy of 63.33 %: √(0.6333 · 0.3667 / 359).
        '| sgd: deviation, and that of 359 images alone | 15.28; 2.54 (at most 3% of the variance) | 7.64; 2.04 (',
        # The standard error is √(1/3 · 400/3); 3 pairs find 5.653 standard errors with a power of 80 %.
        '| RMS − sgd: verdict | 3 pairs | not told apart; detectable: 37.69 | not told apart; detectable: 18.84 | ',
        '| RMS − sgd | 3 pairs | +16.67 [−12.02, +45.35] | +8.33 [−6.01, +22.68] | −0.5000 [−1.3605, +0.3605] |',
        # Better in seven of nine pairs, equal in one.
        '| RMS better than sgd: probability | 3 pairs | 0.83 | 0.83 | 0.83 |',
    ):
        assert row in markdown, row
    text = page.page(comparison)
    for part in (
        *('63.33 ± 15.28', '+16.67 [−12.02, +45.35]', '6 of 6 runs finished', 'Costs nothing.', 'not told apart'),
        *(str(run.command) for run in comparison.runs),
    ):
        assert part in text, part
    only = rows_of(comparison_of(recorded.case('sgd', [0.5]), report=('cross_entropy',)))
    assert 'cross-entropy, nats' in only and 'top-1' not in only and 'top-5' not in only


def test_report__shows_flags_that_differ_and_folds_the_others() -> None:
    settings = {f'setting_{n}': '1' for n in range(7)}
    of_cases = {'sgd': settings, 'momentum': {'setting_0': '2'}}
    cases = [
        Case(f'case {n}', {'optimizer': name, 'width': '75', **more}, recorded.case(name, [0.5]).runs)
        for n, (name, more) in enumerate(of_cases.items())
    ]
    comparison = comparison_of(*cases)
    table = tables.finals(comparison)
    assert table.rows[1][1] == '--optimizer=momentum --setting_0=2'
    text = page.page(comparison)
    assert 'Flags that all cases have (1)' in text and text.count('--width=75') == 1
    # The first case has eight flags that the other lacks, or has with another value; five are shown.
    shown, folded = text.partition('<summary>3 more</summary>')[::2]
    assert '--setting_3=1' in shown and '--setting_4=1' in folded and '--setting_4=1' not in shown


def test_report__tables_suit_one_four_and_other_numbers_of_runs() -> None:
    cases = (
        recorded.case('one', [0.5]),
        recorded.case('four', [0.1, 0.5, 0.6, 0.8]),
        recorded.case('NaN', [0.5, math.nan]),
    )
    markdown = rows_of(comparison_of(*cases))
    # 180 of 359 images are 50 %, with Wilson's interval. The interquartile mean of four runs is of two.
    assert '| one: one run | 50.00 [44.99, 55.28] |' in markdown
    assert '| four: interquartile mean | 55.00 | 77.50 | 2.3500 |' in markdown
    assert '| four − one | 4 and 1 | +0.00 |' in markdown and 'probability |' not in markdown


def test_differences__tell_cases_apart_in_either_direction() -> None:
    cases = recorded.case('worse', [0.5, 0.51, 0.52]), recorded.case('better', [0.9, 0.91, 0.93])
    for pair in (cases, cases[::-1]):
        rows = tables.differences(comparison_of(*pair)).rows
        assert rows[1] == (f'{pair[1].name} − {pair[0].name}: verdict', '3 pairs', *['told apart'] * 3)


def test_report__compares_single_runs_on_the_same_images() -> None:
    last = recorded.evaluation(300, 0.5, images=48)

    def run(name: str, wrong: Sequence[int], count: int = 48, top_1: Sequence[float] = (0.1, 0.2, 0.5)) -> Case:
        images = [Prediction('a', number, 1, 1 + (number in wrong)) for number in range(count)]
        return Case(name, {}, (recorded.run(name, top_1, predictions=Predictions(name, last, images, '')),))

    unfinished = run('d', (), top_1=(0.1, 0.2))
    markdown = rows_of(comparison_of(run('a', range(26)), run('b', range(40, 44)), run('c', (), 47), unfinished))
    # As in the tests of predictions: 26 right in b alone, 4 in a alone; the binomial distribution.
    p = sum(special.comb(30, n) for n in range(5)) / 2**29
    assert '| b − a | 1 pairs | +45.83 [+25.48, +62.52] |' in markdown
    assert f"| b − a: McNemar's exact test, p | 1 pairs | {p:.2g} |  |  |" in markdown
    # No rows for c, which has other images, and d, which is not finished.
    assert markdown.count('McNemar') == 1 and 'verdict' not in markdown


def test_report__shows_incomplete_runs_and_replaces_an_earlier_one(tmp_path: Any) -> None:
    """One seed, a running run, a failed run, a run that has not started, and values that are not numbers."""
    (tmp_path / 'report.html').write_text('an earlier one')
    waiting = Run('waiting', None, None, (), (), {})
    values: Any = {'losses': [3, math.nan, math.inf], 'failure': 'error: the loss is NaN'}
    failed = recorded.run('failed', [0.1, math.nan], 2, **values)
    with_nan = recorded.run('nan', [0.1, 0.2, math.nan], 3)
    comparison = comparison_of(
        Case('one', {}, (recorded.run('only', [0.1, 0.2, 0.5]),)),
        Case('several', {}, (recorded.run('running', [0.1]), failed, with_nan)),
        Case('none', {}, (waiting,)),
        Case('empty', {}, ()),
    )
    page.write(str(tmp_path), comparison)
    (path,) = tmp_path.iterdir()
    text, markdown = path.read_text(), rows_of(comparison)
    assert 'an earlier one' not in text and '0 of 0 runs' in page.page(comparison_of(Case('empty', {}, ())))
    for row in (
        '| failed | failed, at step 200 of 300 | error: the loss is NaN |',
        '| running | at step 290 of 300 |  |',
        '| waiting | not started |  |',
        '| one | 1 of 1 | 50.00 |',
        '| several | 1 of 3 | nan |',
        '| none | 0 of 1 | – | – | – | – |',
        '| empty | 0 of 0 | – | – | – | – |',
    ):
        assert row in markdown
    for part in ('2 of 5 runs finished, 1 failed', 'the loss is NaN', 'running', 'not started'):
        assert part in text


def test_report__escapes_names() -> None:
    name = '</script><b>a|b</b>'
    comparison = comparison_of(Case(name, {}, (recorded.run(f'{name}`', [0.1, 0.2, 0.5], command=name),)))
    assert name not in page.page(comparison) and '<b>a|b' not in page.page(comparison)
    assert '&lt;/script&gt;&lt;b&gt;a|b&lt;/b&gt;' in page.page(comparison)


def test_environment__names_the_runs_that_differ() -> None:
    runs = [recorded.run(f'run-{index}', [], environment={'tensorflow': '1.15.5', 'cores': '8'}) for index in range(3)]
    runs.append(recorded.run('other', [], environment={'tensorflow': '1.15.4', 'cores': '8'}))
    assert tables.environment(runs).rows == [('tensorflow', '1.15.5; but 1.15.4 in other'), ('cores', '8')]


def test_curves__are_by_epoch_if_batches_differ() -> None:
    configs = [dataclasses.replace(recorded.OF_300_STEPS, train_batch_size=size) for size in (64, 128)]
    cases = [Case(str(c), {}, (recorded.run('run', [0.1, 0.5], config=c),)) for c in configs]
    top_1, *_ = page.curves(comparison_of(*cases))
    assert top_1.x == 'epoch' and page.curves(comparison_of(cases[0]))[0].x == 'step'
    for size, (_, _, line) in zip((64, 128), top_1.traces):
        assert line['x'] == pytest.approx([100 * size / 1281167, 200 * size / 1281167])


def test_curve__is_the_mean_of_the_runs_at_each_step() -> None:
    runs = (recorded.run('a', [0.1, 0.4, 0.7], 1), recorded.run('b', [0.3, 0.5], 2), recorded.run('c', [0.2, 0.9], 3))
    panel = page.curves(comparison_of(Case('case', {}, runs)))[0]
    band, *lines, mean = (trace for _, _, trace in panel.traces)
    assert [line['y'] for line in lines] == [pytest.approx(ys) for ys in ([10, 40, 70], [30, 50], [20, 90])]
    assert (mean['x'], mean['y']) == ([100, 200, 300], pytest.approx([20, 60, 70]))
    # At the last step, one run has no deviation.
    one, other = np.std([[10, 30, 20], [40, 50, 90]], axis=1, ddof=1)
    assert band['x'] == [100, 200, 200, 100]
    assert band['y'] == pytest.approx([20 + one, 60 + other, 60 - other, 20 - one])
