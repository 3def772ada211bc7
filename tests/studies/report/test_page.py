"""The report's page in a real browser."""

import re
from typing import Any, Iterator, List, Tuple

import pytest
import skimage.io

from studies.report import files as report_files
from studies.report.palette import sign_of
from studies.report.runs import Case, Comparison
from tests.support import recorded
from tests.support.browser import Browser, browser

pytestmark = pytest.mark.program

FINALS = {'sgd': [0.50123, 0.60456, 0.80789], 'momentum': [0.7, 0.75, 0.8], 'RMS': [0.9, 0.91, 0.92]}


@pytest.fixture(scope='module')
def chromium() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope='module')
def page(tmp_path_factory: Any) -> str:
    """A report of three cases with three runs each, and of one with a run that failed."""
    out = tmp_path_factory.mktemp('report')
    failed = recorded.run('broken/seed-1', [], 1, losses=[3.0], failure='error: the loss is not a number')
    cases = [recorded.case(name, finals) for name, finals in FINALS.items()]
    cases.append(Case('broken', {'optimizer': 'broken', 'learning_rate': '9000'}, (failed,)))
    report_files.write(str(out), Comparison('Optimizers', 'Which is best?', tuple(cases)))
    return str(out / 'report.html')


def drawn(chromium: Browser, figure: str) -> List[str]:
    """The names of the cases that a figure draws."""
    return chromium.run(
        'const figure = document.getElementById(arguments[0]);'
        'return figure.hidden ? [] : [...new Set(figure.data.map((trace) => trace.name).filter(Boolean))]',
        figure,
    )


def rows(chromium: Browser) -> List[str]:
    """The names in all visible rows of the tables."""
    return chromium.run(
        "return [...document.querySelectorAll('tbody tr[data-cases]')].filter((row) => !row.hidden)"
        ".map((row) => row.querySelector('th').textContent.trim())"
    )


def place(chromium: Browser, figure: str, trace: str, point: int) -> Tuple[float, float]:
    """Scrolls to a point of a figure, and returns its position in the window."""
    x, y = chromium.run(
        """
        const figure = document.getElementById(arguments[0]);
        figure.scrollIntoView({block: 'center'});
        const trace = figure.data.find((each) => each.name === arguments[1]);
        const {xaxis, yaxis} = figure._fullLayout;
        const {left, top} = figure.getBoundingClientRect();
        const [x, y] = [trace.x[arguments[2]], trace.y[arguments[2]]];
        return [left + xaxis._offset + xaxis.d2p(x), top + yaxis._offset + yaxis.d2p(y)];
        """,
        *(figure, trace, point),
    )
    return x, y


def hovered(chromium: Browser, figure: str, trace: str, point: int) -> str:
    """The hover text at a point of a figure."""
    # Plotly handles mouse moves at most twenty times a second.
    chromium.point_at(1, 1)
    chromium.run("document.querySelectorAll('.hoverlayer > *').forEach((label) => label.remove())")
    chromium.point_at(*place(chromium, figure, trace, point))
    chromium.run('return new Promise((resolve) => setTimeout(resolve, 150))')
    return chromium.run(
        "return [...document.getElementById(arguments[0]).querySelectorAll('.hoverlayer text')]"
        ".map((text) => text.textContent).join(' ')",
        figure,
    )


def contrast(chromium: Browser, selector: str) -> float:
    """The contrast ratio of a text and the page, by WCAG 2."""
    colours = chromium.run(
        'return [getComputedStyle(document.querySelector(arguments[0])).color,'
        'getComputedStyle(document.documentElement).backgroundColor]',
        selector,
    )
    luminances = []
    for colour in colours:
        parts = [int(part) / 255 for part in re.findall(r'\d+', colour)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        luminances.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(luminances) + 0.05) / (min(luminances) + 0.05)


def test_page__draws_by_step_and_epoch_without_requests_or_console_errors(chromium: Browser, page: str) -> None:
    chromium.requests(), chromium.complaints()
    chromium.open(page)
    requests = chromium.requests()
    assert f'file://{page}' in requests
    assert [each for each in requests if each != f'file://{page}' and not each.startswith(('data:', 'blob:'))] == []
    assert drawn(chromium, 'curve-top_1') == ['sgd', 'momentum', 'RMS']
    assert drawn(chromium, 'curve-loss') == ['sgd', 'momentum', 'RMS', 'broken']

    last = 'return document.getElementById("curve-top_1").data.find((trace) => trace.name === "sgd").x[2]'
    assert chromium.run(last) == 300
    chromium.run('document.querySelector("input[value=epochs]").click()')
    assert chromium.run(last) == pytest.approx(300 * 1024 / 1281167)
    assert chromium.complaints() == []


def test_hover__shows_the_recorded_values(chromium: Browser, page: str) -> None:
    chromium.open(page)
    text = hovered(chromium, 'curve-top_1', 'sgd', 2)
    # The last of three evaluations; the mean of 50.123, 60.456 and 80.789 %, and their deviation.
    assert 'sgd' in text and 'step 300' in text and '63.79 ± 15.60 %' in text and 'mean of 3 runs' in text
    # Losses fall by 0.05 every ten steps: 3 − 20 · 0.05 at step 200.
    assert 'training loss 2.0000' in hovered(chromium, 'curve-loss', 'RMS', 20)
    assert 'top-1 63.79 ± 15.60 %' in hovered(chromium, 'final', 'sgd', 0)
    # 91 − 63.789.
    assert 'top-1 +27.21 points' in hovered(chromium, 'differences', 'RMS', 0)
    assert '115.0' in hovered(chromium, 'throughput', 'momentum', 0)


def test_filter__hides_curves_and_rows(chromium: Browser, page: str) -> None:
    chromium.open(page)
    assert {'sgd', 'RMS − sgd', 'broken/seed-1'} <= {*rows(chromium)}
    chromium.run("document.getElementById('words').focus()")
    chromium.type('optimizer=rm')
    for figure in ('curve-top_1', 'curve-loss', 'final', 'schedule', 'throughput'):
        assert drawn(chromium, figure) == ['RMS'], figure
    # Of the results, and of the interquartile means.
    assert rows(chromium) == ['RMS', 'RMS']
    assert chromium.run("return document.getElementById('count').textContent") == '1 of 4 cases shown'

    chromium.run("const box = document.getElementById('words'); box.value = ''; box.dispatchEvent(new Event('input'))")
    chromium.run('document.querySelector(\'input[name=case][value="0"]\').focus()')
    chromium.press(' ')
    assert drawn(chromium, 'curve-top_1') == ['momentum', 'RMS']
    assert 'sgd' not in rows(chromium) and 'RMS − sgd' not in rows(chromium) and 'RMS − momentum' in rows(chromium)

    chromium.run("document.getElementById('none').click()")
    assert rows(chromium) == [] and drawn(chromium, 'curve-top_1') == []
    assert 'No data' in chromium.run("return document.getElementById('curve-top_1-empty').innerText")
    chromium.run("document.getElementById('all').click()")
    assert len(drawn(chromium, 'curve-top_1')) == 3
    assert chromium.complaints() == []


def test_differences__are_from_the_selected_reference_case(chromium: Browser, page: str) -> None:
    chromium.open(page)
    chromium.run(
        "for (const [id, value] of [['metric', 'cross_entropy'], ['reference', '2']]) {"
        'const list = document.getElementById(id); list.value = value; list.dispatchEvent(new Event("change")); }'
    )
    assert drawn(chromium, 'differences') == ['sgd', 'momentum']
    # Cross-entropy is 4 − 3 · top-1; top-1 is 0.75 and 0.91. The interval of three pairs is their range.
    text = hovered(chromium, 'differences', 'momentum', 0)
    assert 'cross-entropy +0.4800 nats' in text and '+0.3600 … +0.6000' in text


def test_copy_button__copies_the_command(chromium: Browser, page: str) -> None:
    chromium.open(page)
    chromium.run("document.querySelector('details .copy').closest('details').open = true")
    chromium.run("document.querySelector('.copy').focus()")
    chromium.press('Enter')
    chromium.run('return new Promise((resolve) => setTimeout(resolve, 100))')
    assert chromium.run("return document.querySelector('.copy').textContent") in ('copied', 'selected')
    command = chromium.run("return document.querySelector('.command code').textContent")
    assert command == 'python -m inception_v3.main --model_dir=/runs/sgd/seed-1 --seed=1'


def test_theme__light_and_dark(chromium: Browser, page: str, tmp_path: Any) -> None:
    """The user's preference and the button choose the theme; each case is drawn in its colour."""
    for theme in ('light', 'dark'):
        chromium.open(page, dark=theme == 'light')
        chromium.run("document.getElementById('theme').focus()")
        chromium.press('Enter')
        assert chromium.run('return document.documentElement.dataset.theme') == theme
        for selector in ('h1', '.lead', 'thead th', 'td', '.state', 'figcaption p'):
            assert contrast(chromium, selector) > 4.5, (theme, selector)
        chromium.run("document.getElementById('curve-top_1').scrollIntoView({block: 'center'})")
        chromium.screenshot(f'{tmp_path}/{theme}.png')
        pixels = skimage.io.imread(f'{tmp_path}/{theme}.png')[..., :3]
        for index in range(3):
            colour = [int(part, 16) for part in re.findall('..', getattr(sign_of(index), theme)[1:])]
            assert (pixels == colour).all(-1).sum() > 200, (theme, index)


def test_page__fits_a_narrow_screen(chromium: Browser, page: str) -> None:
    chromium.open(page, width=400)
    edges = "return [...document.querySelectorAll('.wide table')].map(table => table.getBoundingClientRect().right)"
    assert max(chromium.run(edges)) <= 400
    chromium.open(page, width=360)
    assert max([*chromium.run(edges), chromium.run('return document.documentElement.scrollWidth')]) <= 360
    # Each value has the head of its column beside it.
    heads = "return document.querySelector('#results tbody tr').querySelectorAll('td')[1].dataset.head"
    assert chromium.run(heads) == 'runs'
    chromium.open(page, width=400)
    assert chromium.run('return document.documentElement.scrollWidth') <= 400
    wide = chromium.run(
        "return [...document.querySelectorAll('.chart svg.main-svg, button, input, select')]"
        '.filter((each) => each.getBoundingClientRect().right > 400 && !each.closest(".wide, .command")).length'
    )
    assert wide == 0
    assert chromium.complaints() == []
