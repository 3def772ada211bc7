"""The files of the report: their numbers and pictures, also for runs that are incomplete."""

import itertools
import math
from typing import Any, List, Tuple

import pytest
import skimage.io
from matplotlib.backends.backend_agg import FigureCanvasAgg

from studies.report import figures, files, findings, pictures, tables
from studies.report.findings import Findings
from studies.report.page import page
from studies.report.palette import sign_of
from studies.report.runs import Case, Comparison, Run
from tests.support import recorded
from tests.support.tiers import further


def written(out: Any, *cases: Case) -> Tuple[str, str]:
    """Writes a report of cases; returns the page and the Markdown text."""
    files.write(str(out), Comparison('Optimizers', 'Which is best?', cases))
    assert {path.name for path in out.iterdir()} == {*pictures.PICTURES, 'report.html', 'report.md'}
    for name in pictures.PICTURES:
        height, width, _ = skimage.io.imread(str(out / name)).shape
        assert width > 1000 and height > 200
    return (out / 'report.html').read_text(), (out / 'report.md').read_text()


def found_of(*cases: Case, **changes: Any) -> Findings:
    return findings.find(Comparison('Optimizers', 'Which is best?', cases, **changes))


def test_report__tables_have_the_numbers() -> None:
    cases = recorded.case('sgd', [0.50, 0.60, 0.80]), recorded.case('RMS', [0.60, 0.90, 0.90])
    found = found_of(*cases, notes=('Costs nothing.',))
    markdown = files.markdown(found)
    # Of 50, 60 and 80: mean 63.33, deviation √(233.33). Top-5 is 50 + half of it; cross-entropy 4 − 3 of a hundredth.
    assert '| sgd | \\-\\-' not in markdown
    assert '| 3 of 3 | 63.33 ± 15.28 | 81.67 ± 7.64 | 2.1000 ± 0.4583 | 115.0 ± 0.0 |' in markdown
    assert '| RMS − sgd | 3 pairs | +16.67 [+10.00, +30.00] |' in markdown
    for text in (page(found), markdown):
        for number in ('63.33 ± 15.28', '+16.67 [+10.00, +30.00]', '6 of 6 runs finished', 'Costs nothing.', '75 %'):
            assert number in text, number
        for run in found.runs:
            assert str(run.command) in text
    only = files.markdown(found_of(recorded.case('sgd', [0.5]), report=('cross_entropy',)))
    assert 'cross-entropy, nats' in only and 'top-1' not in only and 'top-5' not in only


def test_report__has_interquartile_means_and_probabilities_of_improvement() -> None:
    cases = [recorded.case('sgd', [0.1, 0.50, 0.60, 0.80]), recorded.case('RMS', [0.60, 0.90, 0.90, 0.95])]
    markdown = files.markdown(found_of(*cases))
    # Of the four top-1, the middle two: 55 %. RMS wins 14 of 16 pairs, ties one, and loses one. The recorded
    # cross-entropy falls as top-1 rises: lower is better, so that the probability is the same.
    assert '| sgd | 55.00 [' in markdown and '| 2.3500 [' in markdown
    (row,) = [line for line in markdown.splitlines() if line.startswith('| RMS over sgd')]
    assert row.count(' 0.91 [') == 3
    assert 'with 4 pairs, as here, it contains the true difference in about 80 %' in markdown
    few = files.markdown(found_of(recorded.case('sgd', [0.5, 0.6]), recorded.case('RMS', [0.5, math.nan, 0.7])))
    assert 'middle half' in markdown and 'middle half' not in few and ' over sgd' not in few


def test_report__shows_incomplete_runs_and_replaces_an_earlier_one(tmp_path: Any) -> None:
    """One seed, a running run, a failed run, a run that has not started, and values that are not numbers."""
    assert '0 of 0 runs finished' in written(tmp_path, Case('empty', {}, ()))[0]
    assert '0 of 0 runs finished' in written(tmp_path)[0]
    waiting = Run('waiting', '/runs/waiting', None, None, None, (), (), {})
    values: Any = {'losses': [3, math.nan, math.inf], 'failure': 'error: the loss is NaN'}
    failed = recorded.run('failed', [0.1, math.nan], 2, **values)
    with_nan = recorded.run('nan', [0.1, 0.2, math.nan], 3)
    text, markdown = written(
        tmp_path,
        Case('one', {}, (recorded.run('only', [0.1, 0.2, 0.5]),)),
        Case('several', {}, (recorded.run('running', [0.1]), failed, with_nan)),
        Case('none', {}, (waiting,)),
    )
    for row in (
        '| failed | failed, at step 200 of 300 | error: the loss is NaN |',
        '| running | at step 290 of 300 |',
        '| waiting | not started |',
        '| one | 1 of 1 | 50.00 |',
        '| several | 1 of 3 | nan |',
        '| none | 0 of 1 | – | – | – | – |',
    ):
        assert row in markdown
    for part in ('2 of 5 runs finished, 1 failed', 'the loss is NaN', 'running', 'not started'):
        assert part in text


def test_report__escapes_names() -> None:
    name = '</script><b>a|b</b>'
    found = found_of(Case(name, {}, (recorded.run(f'{name}`', [0.1, 0.2, 0.5], command=name),)))
    assert name not in page(found) and '<b>a|b' not in page(found)
    assert '&lt;/script&gt;&lt;b&gt;a\\|b&lt;/b&gt;' in files.markdown(found)


def test_environment__names_the_runs_that_differ() -> None:
    runs = [recorded.run(f'run-{index}', [], environment={'tensorflow': '1.15.5', 'cores': '8'}) for index in range(3)]
    runs.append(recorded.run('other', [], environment={'tensorflow': '1.15.4', 'cores': '8'}))
    assert tables.environment(runs).rows == [('tensorflow', '1.15.5; but 1.15.4 in other'), ('cores', '8')]


@pytest.mark.parametrize(
    'names',
    [
        further(
            [f'weight_decay={w},moving_average_decay={m},learning_rate={r}' for w in '12' for m in '34' for r in '5']
        ),
        ['short', 'W' * 149 + '1', 'W' * 149 + '2', *(f'{"a_long_flag" * 12}={value}' for value in (1, 2))],
        further(['_begins_with_an_underscore', '_and_this', '$a$', '$b$', '/runs/' * 25 + 'a', '/runs/' * 25 + 'b']),
    ],
)
def test_pictures__names_are_complete_and_do_not_overlap(names: List[str]) -> None:
    found = found_of(*[recorded.case(name, [0.5, 0.6]) for name in names])
    for draw in (pictures.finals, pictures.curves, pictures.schedule_and_speed):
        figure = draw(found)
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        rows = figure.axes[0].get_yticklabels() if draw is pictures.finals else figure.legends[0].get_texts()
        assert [text.get_text().replace('\n', '').replace(r'\$', '$') for text in rows] == names
        boxes = [text.get_window_extent(renderer) for text in rows]
        assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
        if figure.legends:
            box = figure.legends[0].get_window_extent(renderer)
            assert box.x0 >= 0 and box.x1 <= figure.bbox.x1
            assert box.y1 <= min(axes.get_tightbbox(renderer).y0 for axes in figure.axes)
        else:
            assert min(box.x0 for box in boxes) >= 0 and figure.axes[0].get_window_extent().width > 150


def test_differences__are_from_the_reference() -> None:
    found = found_of(recorded.case('sgd', [0.5, 0.6, 0.8]), recorded.case('RMS', [0.6, 0.9, 0.9]))
    for reference, values in ((0, (100 / 6, 10, 30)), (1, (-100 / 6, -30, -10))):
        panel = figures.differences(found, 'top_1', reference)
        assert panel.marks[1 - reference][:3] == pytest.approx(values) and math.isnan(panel.marks[reference].value)


def test_signs__differ() -> None:
    assert len({sign_of(index) for index in range(168)}) == 168
    first = [sign_of(index) for index in range(6)]
    assert len({sign.dash for sign in first}) == len({sign.mark for sign in first}) == 6
