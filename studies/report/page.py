"""Writes the report of a comparison: a self-contained HTML page."""

import html
import math
import os
import pathlib
import textwrap
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import markupsafe
from plotly.graph_objects import Figure, Scatter
from plotly.subplots import make_subplots

from benchmarks.tables import Spread
from console.html import template
from console.messages import printable
from console.tensorflow_versions import tf
from data import remote
from data.files import write_whole
from studies.drawing import sign_of
from studies.report import tables
from studies.report.runs import LOSS, Case, Comparison
from studies.report.statistics import difference, summarize

PAGE_FILE = 'report.html'
_PAGE = template((pathlib.Path(__file__).parent / 'page.html').read_text())
_CONFIG = {'displaylogo': False, 'responsive': True, 'modeBarButtons': [['toImage', 'zoom2d', 'pan2d', 'resetScale2d']]}
# Heights in pixels: of a line of a case's name, and the least of its row; of a panel by step, and between panels.
_NAME_LINE, _ROW, _BY_STEP, _BETWEEN = 15, 36, 300, 90
_NAME_WIDTH = 36  # Characters of a case's name on a line.
_DIGITS = '.4~r'  # Four of a value under the pointer.
# The position of the values of panels that have one for each case.
_ONLY = ''


def write(out: str, comparison: Comparison) -> None:
    """Writes the page, and replaces that of an earlier report.

    Runs that have not started, are still running or have failed are included, with their state. The folder `out` is
    created if missing; it may be at gs:// or s3://.

    Raises:
      RemoteError: a remote folder cannot be written to.
      tf.errors.OpError: a local folder cannot be written to.
    """
    with remote.explained(out, remote.WRITE):
        tf.io.gfile.makedirs(out)
    write_whole(os.path.join(out, PAGE_FILE), page(comparison))


def page(comparison: Comparison) -> str:
    """The report as HTML, which needs no network and no other file."""
    further = (tables.unfinished, tables.means, tables.differences)
    return _PAGE.render(
        comparison=comparison,
        status=tables.status(comparison),
        finals=tables.finals(comparison),
        further=[table for table in (of(comparison) for of in further) if table.rows],
        chart=markupsafe.Markup(chart(comparison).to_html(full_html=False, config=_CONFIG, div_id='chart')),
        environment=tables.environment(comparison.runs),
        how_to_read=tables.HOW_TO_READ,
    )


class Panel(NamedTuple):
    """A panel: its title, the labels of its axes, and by case a spread at each position, and the values of single runs.

    Without a label of the x axis, a panel has a row for each case. A spread without an interval has NaN at its ends.
    """

    title: str
    x: str
    y: str
    series: Mapping[str, Mapping[Any, Optional[Spread]]]
    runs: Mapping[str, Mapping[str, Mapping[Any, float]]] = {}
    has_zero: bool = False


def finals(comparison: Comparison, name: str) -> Panel:
    """A metric of each case at the last step."""
    metric, series, runs = comparison.metrics[name], {}, {}
    for case in comparison.cases:
        values = case.finals(name)
        series[case.name] = {_ONLY: _spread(values.values())}
        runs[case.name] = {case.by_key[key].name: {_ONLY: value} for key, value in values.items()}
    return Panel(f'At the last step: {metric.label}', '', metric.heading, series, _of_several(runs))


def _spread(values: Iterable[float]) -> Optional[Spread]:
    """The mean, with one standard deviation on either side; None without values."""
    n, mean, deviation = summarize(values)
    return Spread(mean, mean - deviation, mean + deviation) if n else None


def _of_several(runs: Mapping[str, Mapping[str, Any]]) -> Dict[str, Mapping[str, Any]]:
    """The runs of the cases that have several."""
    return {name: of_case for name, of_case in runs.items() if len(of_case) > 1}


def differences(comparison: Comparison, name: str) -> Panel:
    """The difference of each later case from the first, with its interval."""
    metric, series = comparison.metrics[name], {}
    for case in comparison.cases:
        first = comparison.cases[0]
        found = difference(case.finals(name), first.finals(name)) if case is not first else None
        series[case.name] = {_ONLY: found and Spread(*found)}
    axis = f'difference of {metric.label}, {metric.difference_unit}'
    return Panel('Difference from the first case, 95 % interval', '', axis, series, has_zero=True)


def curves(comparison: Comparison) -> List[Panel]:
    """Evaluation metrics and training loss by step, or by epoch if the cases' batch sizes differ."""
    panels = []
    for name, metric in (*comparison.metrics.items(), ('', LOSS)):
        series, runs = {}, {}
        for case in comparison.cases:
            at = _positions(comparison, case)
            of_runs = {run.name: run.values(name) if name else run.losses for run in case.runs}
            steps = sorted({step for values in of_runs.values() for step in values})
            series[case.name] = {
                at(step): _spread(values[step] for values in of_runs.values() if step in values) for step in steps
            }
            runs[case.name] = {
                run: {at(step): value for step, value in values.items()} for run, values in of_runs.items()
            }
        title = f'Validation: {metric.label}' if name else 'Training: loss'
        unit = 'epoch' if comparison.by_epoch else 'step'
        panels.append(Panel(title, unit, metric.heading, series, _of_several(runs)))
    return panels


def _positions(comparison: Comparison, case: Case) -> Callable[[int], float]:
    """The position of a step of a case: its epoch, if epochs are compared."""
    length = (comparison.by_epoch and case.steps_per_epoch) or 1
    return lambda step: step / length


def chart(comparison: Comparison) -> Figure:
    """All panels in one figure with one legend: a click on a case hides it in all panels, a double click the others."""
    panels: List[Panel] = []
    for name in comparison.metrics:
        panels += [finals(comparison, name), differences(comparison, name)]
    panels += curves(comparison)
    names = [_text(case.name) for case in comparison.cases]
    of_rows = sum(max(_ROW, _NAME_LINE * (2 + name.count('<br>'))) for name in names) + _ROW
    pairs = [panels[first : first + 2] for first in range(0, len(panels), 2)]
    heights = [max(_BY_STEP if panel.x else of_rows for panel in pair) for pair in pairs]
    height = sum(heights) + _BETWEEN * (len(heights) - 1)
    drawn = make_subplots(
        rows=len(heights),
        cols=2,
        subplot_titles=[panel.title for panel in panels],
        row_heights=heights,
        vertical_spacing=_BETWEEN / height,
        horizontal_spacing=0.08,
        specs=[[{}, {} if len(pair) > 1 else None] for pair in pairs],
    )
    for case, name in enumerate(names):
        drawn.add_trace(Scatter(x=[None], y=[None], name=name, legendgroup=str(case), **_line_style(case)))
    for place, panel in enumerate(panels):
        cell = {'row': place // 2 + 1, 'col': place % 2 + 1}
        if panel.x:
            drawn.update_xaxes(title_text=panel.x, rangemode='tozero', **cell)
            drawn.update_yaxes(title_text=panel.y, hoverformat=_DIGITS, **cell)
        else:
            drawn.update_xaxes(title_text=panel.y, hoverformat=_DIGITS, **cell)
            ticks = {'tickvals': [*range(len(names))], 'ticktext': names, 'showticklabels': cell['col'] == 1}
            drawn.update_yaxes(range=[len(names) - 0.5, -0.5], tickfont_size=10, automargin=True, **ticks, **cell)
        for case, name, style in _traces(panel):
            group = {'legendgroup': str(case), 'showlegend': False}
            drawn.add_trace(Scatter(name=_text(name), **group, **style), **cell)
        if panel.has_zero:
            # After the traces: Plotly adds no line to an empty panel.
            drawn.add_vline(x=0, line={'width': 1, 'dash': 'dash'}, **cell)
    drawn.update_layout(
        template='plotly_white',
        height=height + 180,
        margin={'l': 60, 'r': 20, 't': 120, 'b': 60},
        hovermode='closest',
        hoverlabel={'align': 'left', 'namelength': -1},
        legend={'orientation': 'h', 'yanchor': 'bottom', 'y': 1 + 45 / height, 'x': 0},
    )
    return drawn


def _traces(panel: Panel) -> Iterator[Tuple[int, str, Dict[str, Any]]]:
    """The traces of a panel, each with the number of its case and its name; those of means are the last of a case."""
    for case, (name, values) in enumerate(panel.series.items()):
        colour, mark, runs = sign_of(case).light, sign_of(case).mark, panel.runs.get(name, {})
        found = {at: spread for at, spread in values.items() if spread}
        means = [spread.median for spread in found.values()]
        band = [(at, low, high) for at, (_, low, high) in found.items() if math.isfinite(low)]
        if panel.x:
            if band:
                x, lows, highs = ([*each] for each in zip(*band))
                filled = {'mode': 'lines', 'line': {'width': 0}, 'fill': 'toself', 'fillcolor': colour, 'opacity': 0.16}
                yield case, name, {'x': x + x[::-1], 'y': highs + lows[::-1], 'hoverinfo': 'skip', **filled}
            thin = {'mode': 'lines', 'line': {'width': 1, 'color': colour}, 'opacity': 0.5}
            for run, of_run in runs.items():
                yield case, run, {'x': [*of_run], 'y': [*of_run.values()], **thin}
            yield case, name, {'x': [*found], 'y': means, **_line_style(case)}
            continue
        # A row for each case, with a hollow mark for each run, and for a mean of too few runs for a bar.
        row = {'y': [case], 'mode': 'markers', 'hoverinfo': 'x+name'}
        for run, of_run in runs.items():
            marker = {'symbol': f'{mark}-open', 'size': 8, 'color': colour}
            yield case, run, {'x': [*of_run.values()], 'marker': marker, **row}
        marker = {'symbol': mark if band else f'{mark}-open', 'size': 12, 'color': colour}
        bars = None
        for (_, low, high), mean in zip(band, means):
            bars = {'symmetric': False, 'array': [high - mean], 'arrayminus': [mean - low]}
        yield case, name, {'x': means, 'marker': marker, 'error_x': bars, **row}


def _line_style(case: int) -> Dict[str, Any]:
    sign = sign_of(case)
    dash = ','.join(f'{2 * length}px' for length in sign.dash) or 'solid'
    marker = {'symbol': sign.mark, 'size': 8, 'maxdisplayed': 15}
    return {'mode': 'lines+markers', 'line': {'width': 2.5, 'color': sign.light, 'dash': dash}, 'marker': marker}


def _text(text: str) -> str:
    """A name for Plotly, which reads HTML; its lines are broken where a name may be."""
    lines = textwrap.wrap(text, _NAME_WIDTH, drop_whitespace=False, replace_whitespace=False)
    return '<br>'.join(html.escape(printable(line), quote=False) for line in lines)
