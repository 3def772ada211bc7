"""The report's page in a real browser."""

from typing import Any, Iterator, List

import pytest

from studies.report import page
from studies.report.runs import Case, Comparison
from tests.support import recorded
from tests.support.browser import Browser, browser

pytestmark = pytest.mark.program

FINALS = {'sgd': [0.50123, 0.60456, 0.80789], 'momentum': [0.7, 0.75, 0.8], 'RMS': [0.9, 0.91, 0.92]}
# Finds a trace of a case in the panel with a title; `arguments` are the title, the index of the case, and a point.
FIND = """
const figure = document.getElementById('chart');
const title = figure.layout.annotations.find((each) => each.text === arguments[0]);
const axesOf = ({xaxis, yaxis}) => [xaxis.replace("x", "xaxis"), yaxis.replace("y", "yaxis")].map(
  (name) => figure._fullLayout[name]);
const inPanel = (trace) => {
  const [x, y] = axesOf(trace);
  return Math.abs((x.domain[0] + x.domain[1]) / 2 - title.x) < .01 && Math.abs(y.domain[1] - title.y) < .01;
};
const traces = figure._fullData.filter((each) => inPanel(each) && each.hoverinfo !== 'skip' && each.x[0] !== null);
const ofCase = traces.filter((each) => each.legendgroup === String(arguments[1]) && each.visible === true);
const trace = ofCase[ofCase.length - 1];
"""


@pytest.fixture(scope='module')
def opened(tmp_path_factory: Any) -> Iterator[Browser]:
    """The page of three cases with three runs each, and of one with a run that failed."""
    out = tmp_path_factory.mktemp('report')
    failed = recorded.run('broken/seed-1', [], 1, losses=[3.0], failure='error: the loss is not a number')
    cases = [recorded.case(name, finals) for name, finals in FINALS.items()]
    cases.append(Case('broken', {'optimizer': 'broken', 'learning_rate': '9000'}, (failed,)))
    page.write(str(out), Comparison('Optimizers', 'Which is best?', tuple(cases)))
    with browser() as chromium:
        chromium.open(f'{out}/report.html')
        yield chromium


def shown(opened: Browser, title: str) -> List[int]:
    """The indices of the cases that a panel shows."""
    cases = f'{FIND} return traces.filter((each) => each.visible === true).map((each) => Number(each.legendgroup))'
    return sorted({*opened.run(cases, title, 0)})


def hovered(opened: Browser, *point: Any) -> str:
    """The text that appears at a point of a case in a panel."""
    x, y = opened.run(
        f"""{FIND}
        figure.scrollIntoView({{block: 'start'}});
        const {{top: above}} = figure.getBoundingClientRect();
        const [x, y] = axesOf(trace);
        window.scrollBy(0, above + y._offset - 200);
        const {{left, top}} = figure.getBoundingClientRect();
        return [left + x._offset + x.d2p(trace.x[arguments[2]]), top + y._offset + y.d2p(trace.y[arguments[2]])];
        """,
        *point,
    )
    # Plotly handles mouse moves at most twenty times a second.
    for place in ((1, 1), (x, y)):
        opened.point_at(*place)
        opened.run('return new Promise((resolve) => setTimeout(resolve, 150))')
    labels = "return [...document.querySelectorAll('.hoverlayer text')].map((text) => text.textContent).join(' ')"
    return opened.run(labels)


def test_page__draws_all_panels_without_requests_or_console_errors(opened: Browser) -> None:
    assert [each for each in opened.requests() if not each.startswith(('file:', 'data:', 'blob:'))] == []
    assert shown(opened, 'Validation: top-1') == [0, 1, 2] and shown(opened, 'Training: loss') == [0, 1, 2, 3]
    assert opened.run('return document.documentElement.scrollWidth') <= 1280
    assert opened.complaints() == []


def test_hover__shows_the_recorded_values(opened: Browser) -> None:
    text = hovered(opened, 'Validation: top-1', 0, 2)
    # The last of three evaluations; the mean of 50.123, 60.456 and 80.789 %, and their deviation.
    assert 'sgd' in text and '300' in text and '63.79' in text
    # Losses fall by 0.05 every ten steps: 3 − 20 · 0.05 at step 200.
    assert '200, 2' in hovered(opened, 'Training: loss', 2, 20)
    text = hovered(opened, 'At the last step: top-1', 0, 0)
    assert '63.79' in text and '15.6' in text
    # 91 − 63.789, and half of the interval.
    text = hovered(opened, 'Difference from the first case, 95 % interval', 2, 0)
    assert '27.21' in text and '36.32' in text


def test_legend__hides_a_case_in_all_panels(opened: Browser) -> None:
    opened.run(
        "const item = document.querySelector('.legendtoggle'); "
        "for (const name of ['mousedown', 'mouseup']) item.dispatchEvent(new MouseEvent(name))"
    )
    opened.run('return new Promise((resolve) => setTimeout(resolve, 700))')
    assert shown(opened, 'Validation: top-1') == [1, 2] and shown(opened, 'At the last step: top-1') == [1, 2]
