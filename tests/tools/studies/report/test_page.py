"""The report's page: the values of its figure, and the page in a real browser."""

from typing import Any, Dict, List, Tuple

import pytest

from tests.support import recorded
from tests.support.browser import browser
from tools.studies.report import page
from tools.studies.report.runs import Case, Comparison

FINALS = {'sgd': [0.50123, 0.60456, 0.80789], 'momentum': [0.7, 0.75, 0.8], 'RMS': [0.9, 0.91, 0.92]}


@pytest.fixture(scope='module')
def comparison() -> Comparison:
    """Three cases with three runs each, and one with a run that failed."""
    failed = recorded.run('broken/seed-1', [], 1, losses=[3.0], failure='error: the loss is not a number')
    cases = [recorded.case(name, finals) for name, finals in FINALS.items()]
    cases.append(Case('broken', {'optimizer': 'broken', 'learning_rate': '9000'}, (failed,)))
    return Comparison('Optimizers', 'Which is best?', tuple(cases))


def traces_of(comparison: Comparison) -> Dict[Tuple[str, str], List[Any]]:
    """The traces with values, by the title of their panel and the name of their case; the means are the last."""
    drawn = page.chart(comparison)
    titles = [each.text for each in drawn.layout.annotations]
    found: Dict[Tuple[str, str], List[Any]] = {}
    for trace in drawn.data:
        if trace.hoverinfo != 'skip' and list(trace.x) not in ([], [None]):
            # Axes are named x, x2, x3, …
            key = titles[int(trace.xaxis[1:] or 1) - 1], comparison.cases[int(trace.legendgroup)].name
            found.setdefault(key, []).append(trace)
    return found


def test_chart__has_the_recorded_values(comparison: Comparison) -> None:
    found = traces_of(comparison)
    # The last of three evaluations; the mean of 50.123, 60.456 and 80.789 %, and their deviation.
    *runs, mean = found['Validation: top-1', 'sgd']
    assert (mean.name, [*mean.x], mean.y[2]) == ('sgd', [100, 200, 300], pytest.approx(63.79, abs=0.01))
    assert [(run.name, run.y[2]) for run in runs] == [
        (f'sgd/seed-{seed}', pytest.approx(100 * final)) for seed, final in enumerate(FINALS['sgd'], 1)
    ]
    # Losses fall by 0.05 every ten steps: 3 − 20 · 0.05 at step 200.
    losses = found['Training: loss', 'RMS'][-1]
    assert dict(zip(losses.x, losses.y))[200] == pytest.approx(2)
    *runs, mean = found['At the last step: top-1', 'sgd']
    assert [*mean.x, *mean.error_x.array, *mean.error_x.arrayminus] == pytest.approx([63.79, 15.6, 15.6], abs=0.01)
    assert [*mean.y] == [0] and [run.x[0] for run in runs] == pytest.approx([50.123, 60.456, 80.789])
    assert [trace.marker.symbol for trace in (*runs, mean)] == ['circle-open'] * 3 + ['circle']
    # 91 − 63.789, and half of the interval, for the first of three metrics. Only these panels have a line at 0.
    mean, *_ = found['Difference from the first case, 95 % interval', 'RMS']
    assert [*mean.x, *mean.error_x.array] == pytest.approx([27.21, 36.32], abs=0.01)
    assert [case for title, case in found if title.startswith('Difference')] == ['momentum', 'RMS']
    assert len(page.chart(comparison).layout.shapes) == 3
    assert ('Training: loss', 'broken') in found and ('Validation: top-1', 'broken') not in found
    # The legend has each case once.
    assert [each.name for each in page.chart(comparison).data if each.showlegend is None] == [*FINALS, 'broken']


@pytest.mark.program
def test_page__is_drawn_without_requests_or_console_errors(comparison: Comparison, tmp_path: Any) -> None:
    page.write(str(tmp_path), comparison)
    with browser() as opened:
        opened.open(f'{tmp_path}/report.html')
        assert [each for each in opened.requests() if not each.startswith(('file:', 'data:', 'blob:'))] == []
        assert opened.run("return document.querySelectorAll('#chart .scatterlayer .trace').length") > 30
        assert opened.run('return document.documentElement.scrollWidth') <= 1280
        assert opened.complaints() == []
