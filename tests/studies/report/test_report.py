"""The files of the report: their numbers and pictures, also for runs that are incomplete."""

import itertools
import math
import re
from typing import Any, List, Tuple

import numpy as np
import pytest
import skimage.color
import skimage.io
from matplotlib.backends.backend_agg import FigureCanvasAgg

from inception_v3.config import Config
from studies.report import figures, findings, html, markdown, statistics, tables
from studies.report import files as report_files
from studies.report.palette import sign_of
from studies.report.runs import Case, Comparison, Run
from tests.support import recorded
from tests.support.tiers import further

PICTURES = ('finals.png', 'curves.png', 'schedule.png')

# Viénot, Brettel and Mollon, "Digital video colourmaps for checking the legibility of displays by dichromats": maps
# linear red, green and blue to the colour seen by people who lack one kind of cone.
COLOUR_BLIND = {
    'protanope': [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    'deuteranope': [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
}


def written(out: Any, *cases: Case, **changes: Any) -> Tuple[str, str]:
    """Writes a report of cases; returns the page and the Markdown text."""
    report_files.write(str(out), Comparison('Optimizers', 'Which is best?', cases, **changes))
    for name in PICTURES:
        height, width, _ = skimage.io.imread(str(out / name)).shape
        assert width == 1430 and height > 200
    return (out / 'report.html').read_text(), (out / 'report.md').read_text()


def rendered(*cases: Case, **changes: Any) -> Tuple[str, str]:
    """The same texts without pictures."""
    found = findings.find(Comparison('Optimizers', 'Which is best?', cases, **changes))
    return html.page(found), markdown.text(found)


def test_report__tables_have_the_numbers() -> None:
    cases = recorded.case('sgd', [0.50, 0.60, 0.80]), recorded.case('RMS', [0.60, 0.90, 0.90])
    page, markdown = rendered(*cases, notes=('Costs nothing.',))
    # Of 50, 60 and 80: mean 63.33, deviation √(233.33). Top-5 is 50 + half of it; cross-entropy 4 − 3 of a hundredth.
    assert '| sgd | \\-\\-' not in markdown
    assert '| 3 of 3 | 63.33 ± 15.28 | 81.67 ± 7.64 | 2.1000 ± 0.4583 | 115.0 ± 0.0 |' in markdown
    assert '| RMS − sgd | 3 pairs | +16.67 [+10.00, +30.00] |' in markdown
    for text in (page, markdown):
        for number in ('63.33 ± 15.28', '+16.67 [+10.00, +30.00]', '6 of 6 runs finished', 'Costs nothing.', '75 %'):
            assert number in text, number
    for run in [*cases[0].runs, *cases[1].runs]:
        assert f'\n{run.command}\n' in markdown
        assert f'<code>{run.command}</code>' in page


def test_report__has_interquartile_means_and_probabilities_of_improvement() -> None:
    cases = [recorded.case('sgd', [0.1, 0.50, 0.60, 0.80]), recorded.case('RMS', [0.60, 0.90, 0.90, 0.95])]
    page, markdown = rendered(*cases)
    # Of the four top-1, the middle two: 55 %. RMS wins 14 of 16 pairs, ties one, and loses one. The recorded
    # cross-entropy falls as top-1 rises: lower is better, so that the probability is the same.
    assert '| sgd | 55.00 [' in markdown and '| 2.3500 [' in markdown
    (row,) = [line for line in markdown.splitlines() if line.startswith('| RMS over sgd')]
    assert row.count(' 0.91 [') == 3
    for text in (page, markdown):
        assert 'is the mean of the middle half of the runs' in text and 'probability of improvement' in text
    page, markdown = rendered(recorded.case('sgd', [0.5, 0.6]), recorded.case('RMS', [0.5, math.nan, 0.7]))
    assert 'middle half' not in page + markdown and ' over sgd' not in page + markdown


def test_report__has_the_requested_metrics_only() -> None:
    _, markdown = rendered(recorded.case('sgd', [0.5]), report=('cross_entropy',))
    assert 'cross-entropy, nats' in markdown and 'top-1' not in markdown and 'top-5' not in markdown


def test_report__shows_incomplete_runs(tmp_path: Any) -> None:
    """One seed, a running run, a failed run, a run that has not started, and values that are not numbers."""
    waiting = Run('waiting', '/runs/waiting', None, None, None, (), (), {})
    failed = recorded.run(
        'failed', [0.1, math.nan], 2, losses=[3, math.nan, math.inf], failure='error: the loss is NaN'
    )
    with_nan = recorded.run('nan', [0.1, 0.2, math.nan], 3)
    page, markdown = written(
        tmp_path,
        Case('one', {}, (recorded.run('only', [0.1, 0.2, 0.5]),)),
        Case('several', {}, (recorded.run('running', [0.1]), failed, with_nan)),
        Case('none', {}, (waiting,)),
    )
    assert '| failed | failed, at step 200 of 300 | error: the loss is NaN |' in markdown
    assert '| running | at step 290 of 300 |' in markdown
    assert '| waiting | not started |' in markdown
    assert '| one | 1 of 1 | 50.00 |' in markdown
    assert '| several | 1 of 3 | nan |' in markdown
    assert '| none | 0 of 1 | – | – | – | – |' in markdown
    assert '2 of 5 runs finished, 1 failed' in page
    for text in ('the loss is NaN', 'running', 'not started'):
        assert text in page
    numbers = page[page.index('id="numbers">') :].partition('</script>')[0]
    assert 'NaN' not in numbers and 'Infinity' not in numbers


@pytest.mark.parametrize('cases', [(), (Case('empty', {}, ()),)])
def test_report__without_runs(tmp_path: Any, cases: Tuple[Case, ...]) -> None:
    page, _ = written(tmp_path, *cases)
    assert '0 of 0 runs finished' in page


def test_report__replaces_the_earlier_one(tmp_path: Any) -> None:
    written(tmp_path, recorded.case('sgd', [0.5]))
    page, markdown = written(tmp_path, recorded.case('sgd', [0.5, 0.6]))
    assert '| 2 of 2 | 55.00 ± 7.07 |' in markdown and '2 of 2' in page
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*PICTURES, 'report.html', 'report.md'])


def test_report__escapes_names() -> None:
    name = '</script><b>a|b</b>'
    page, markdown = rendered(Case(name, {}, (recorded.run(f'{name}`', [0.1, 0.2, 0.5], command=name),)))
    assert name not in page
    assert '&lt;/script&gt;&lt;b&gt;a\\|b&lt;/b&gt;' in markdown


def test_environment__names_the_runs_that_differ() -> None:
    runs = [recorded.run(f'run-{index}', [], environment={'tensorflow': '1.15.5', 'cores': '8'}) for index in range(3)]
    runs.append(recorded.run('other', [], environment={'tensorflow': '1.15.4', 'cores': '8'}))
    rows = [row.cells for row in tables.environment(runs).rows]
    assert rows == [('tensorflow', '1.15.5; but 1.15.4 in other'), ('cores', '8')]


def test_how_to_read__states_the_coverage() -> None:
    cases = recorded.case('sgd', [0.1, 0.2, 0.3, 0.4]), recorded.case('RMS', [0.1, 0.2, 0.3])
    found = findings.find(Comparison('title', '', cases))
    text = ' '.join(tables.how_to_read(found))
    assert 'with 3 runs a case, as here, it contains the true difference in about 81 %' in text
    assert statistics.coverage(3, paired=False) == 0.81


GRID = [
    f'learning_rate_decay_epochs={epochs},moving_average_decay={decay},weight_decay={weight_decay}'
    for epochs in (2, 3)
    for decay in (0.99, 0.995)
    for weight_decay in (1e-4, 4e-5)
]


@pytest.mark.parametrize(
    'names',
    [
        further(GRID),
        ['short', 'W' * 149 + '1', 'W' * 149 + '2', *(f'{"a_long_flag" * 12}={value}' for value in (1, 2))],
        further(
            ['_begins_with_an_underscore', '_and_so_does_this', '$a$', '$b$', '/runs/' * 25 + 'a', '/runs/' * 25 + 'b']
        ),
    ],
)
def test_figures__names_are_complete_and_fit_their_panels(names: List[str], monkeypatch: Any) -> None:
    drawn: List[Any] = []

    def kept(figure: Any) -> bytes:
        drawn.append(figure)
        return b''

    monkeypatch.setattr(figures, 'png', kept)
    found = findings.find(Comparison('', '', tuple(recorded.case(name, [0.5, 0.6]) for name in names)))
    for draw in (figures.finals, figures.curves, figures.schedule_and_speed):
        draw(found)
        figure = drawn.pop()
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        for axes in figure.axes:
            boxes = [text.get_window_extent(renderer) for text in axes.texts]
            panel = axes.get_window_extent(renderer)
            assert all(box.x0 >= panel.x0 and box.x1 <= panel.x1 and box.y1 <= panel.y1 for box in boxes)
            assert all(lower.y1 <= upper.y0 for upper, lower in zip(boxes, boxes[1:]))
            if boxes:
                assert [text.get_text().replace('\n', '').replace(r'\$', '$') for text in axes.texts] == names
        for legend in figure.legends:
            assert [text.get_text().replace('\n', '').replace(r'\$', '$') for text in legend.get_texts()] == names
            box = legend.get_window_extent(renderer)
            assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0
            assert box.y1 <= min(axes.get_tightbbox(renderer).y0 for axes in figure.axes)


def test_findings__different_batch_sizes_are_compared_by_epoch() -> None:
    config = Config(train_steps=300, train_batch_size=64, num_train_images=640, use_tpu=False)
    cases = [
        Case(
            str(size),
            {},
            (recorded.run(str(size), [0.5], config=Config(**{**vars(config), 'train_batch_size': size})),),
        )
        for size in (64, 128)
    ]
    assert findings.has_several_batch_sizes(findings.find(Comparison('', '', tuple(cases))))
    assert not findings.has_several_batch_sizes(findings.find(Comparison('', '', (cases[0], cases[0]))))


def test_signs__differ() -> None:
    assert len({sign_of(index) for index in range(168)}) == 168
    first = [sign_of(index) for index in range(6)]
    assert len({sign.dash for sign in first}) == len({sign.mark for sign in first}) == 6


@pytest.mark.parametrize('eyes', ['all cones', *COLOUR_BLIND])
@pytest.mark.parametrize('theme', ['light', 'dark'])
def test_signs__colours_are_distinguishable_by_the_colour_blind(theme: str, eyes: str) -> None:
    colours = np.array(
        [[int(part, 16) for part in re.findall('..', getattr(sign_of(index), theme)[1:])] for index in range(7)]
    )
    linear = (colours / 255) ** 2.2
    seen = (linear @ np.array(COLOUR_BLIND.get(eyes, np.eye(3))).T).clip(0, 1) ** (1 / 2.2)
    lab = skimage.color.rgb2lab(seen)
    distances = [np.linalg.norm(one - other) for one, other in itertools.combinations(lab, 2)]
    # A difference of about 2.3 is just noticeable.
    assert min(distances) > 9
