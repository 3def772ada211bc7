"""Writes the report of a comparison: a self-contained HTML page."""

import html
import math
import os
import pathlib
import textwrap
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import markupsafe
from plotly.graph_objects import Figure, Scatter
from plotly.subplots import make_subplots

from compat import tf
from compat.messages import printable
from console.html import template
from data import remote
from data.files import write_whole
from tools.benchmarks.tables import Spread
from tools.studies.drawing import sign_of
from tools.studies.report import tables
from tools.studies.report.runs import LOSS, Case, Comparison
from tools.studies.report.statistics import difference, summarize

PAGE_FILE = 'report.html'
_PAGE = template((pathlib.Path(__file__).parent / 'page.html').read_text())
_CONFIG = {'displaylogo': False, 'responsive': True, 'modeBarButtons': [['toImage', 'zoom2d', 'pan2d', 'resetScale2d']]}
# Heights in pixels: of a line of a case's name, of a case's row at least, of a panel by step, and between panels.
_NAME_LINE, _ROW, _BY_STEP, _BETWEEN = 15, 36, 300, 90
_NAME_WIDTH = 36  # Characters of a case's name on a line.
_DIGITS = '.4~r'  # Four digits of a value under the pointer.


def write(out: str, comparison: Comparison) -> None:
    """Writes the page, which replaces an earlier one.

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
        shared_flags=[f'--{name}={value}' for name, value in tables.shared_settings(comparison).items()],
        further=[table for table in (of(comparison) for of in further) if table.rows],
        chart=markupsafe.Markup(chart(comparison).to_html(full_html=False, config=_CONFIG, div_id='chart')),
        environment=tables.environment(comparison.runs),
        how_to_read=tables.HOW_TO_READ,
    )


# A trace in a panel: the number of its case, its name, and its values and style for Plotly.
Trace = Tuple[int, str, Dict[str, Any]]


class Panel(NamedTuple):
    """A panel: its title, the labels of its axes, and its traces. Without an x label, each case has a row."""

    title: str
    x: str
    y: str
    traces: Sequence[Trace]
    has_zero: bool = False


def finals(comparison: Comparison, name: str) -> Panel:
    """A metric of each case at the last step."""
    metric = comparison.metrics[name]
    traces: List[Trace] = []
    for index, case in enumerate(comparison.cases):
        values = case.finals(name)
        runs = {case.by_key[key].name: value for key, value in values.items()}
        traces += _row(index, case, _spread(values.values()) if values else None, runs)
    return Panel(f'At the last step: {metric.label}', '', metric.heading, traces)


def differences(comparison: Comparison, name: str) -> Panel:
    """The difference of each later case from the first, with its interval."""
    metric = comparison.metrics[name]
    traces: List[Trace] = []
    for index, case in enumerate(comparison.cases):
        found = difference(case.finals(name), comparison.cases[0].finals(name)) if index else None
        traces += _row(index, case, found and Spread(*found), {})
    axis = f'difference of {metric.label}, {metric.difference_unit}'
    return Panel('Difference from the first case, 95 % interval', '', axis, traces, has_zero=True)


def _row(index: int, case: Case, mean: Optional[Spread], runs: Mapping[str, float]) -> Iterator[Trace]:
    """The row of a case: a hollow mark for each of several runs, and the mean, hollow if too few runs give no bar."""
    sign, row = sign_of(index), {'y': [index], 'mode': 'markers', 'hoverinfo': 'x+name'}
    hollow, bars = {'symbol': f'{sign.mark}-open', 'color': sign.light}, None
    for run, value in runs.items() if len(runs) > 1 else ():
        yield index, run, {'x': [value], 'marker': {**hollow, 'size': 8}, **row}
    marker: Dict[str, Any] = {**hollow, 'size': 12}
    if mean and math.isfinite(mean.least):
        marker['symbol'] = sign.mark
        lengths = {'array': [mean.greatest - mean.median], 'arrayminus': [mean.median - mean.least]}
        bars = {'symmetric': False, **lengths}
    yield index, case.name, {'x': [mean.median] if mean else [], 'marker': marker, 'error_x': bars, **row}


def _spread(values: Iterable[float]) -> Spread:
    """The mean, with one standard deviation on either side, which is NaN for a single value."""
    _, mean, deviation = summarize(values)
    return Spread(mean, mean - deviation, mean + deviation)


def curves(comparison: Comparison) -> List[Panel]:
    """Evaluation metrics and training loss by step, or by epoch if the cases' batch sizes differ."""
    panels = []
    for name, metric in (*comparison.metrics.items(), ('', LOSS)):
        traces: List[Trace] = []
        for index, case in enumerate(comparison.cases):
            length = (comparison.by_epoch and case.steps_per_epoch) or 1
            of_runs = {run.name: run.values(name) if name else run.losses for run in case.counted}
            runs = {run: {step / length: value for step, value in of.items()} for run, of in of_runs.items()}
            traces += _curve(index, case, runs)
        title = f'Validation: {metric.label}' if name else 'Training: loss'
        panels.append(Panel(title, 'epoch' if comparison.by_epoch else 'step', metric.heading, traces))
    return panels


def _curve(index: int, case: Case, runs: Mapping[str, Mapping[float, float]]) -> Iterator[Trace]:
    """The curves of a case: a band, one for each of several runs, and their mean."""
    colour = sign_of(index).light
    places = sorted({at for values in runs.values() for at in values})
    means = {at: _spread(values[at] for values in runs.values() if at in values) for at in places}
    band = [(at, low, high) for at, (_, low, high) in means.items() if math.isfinite(low)]
    if band:
        x, lows, highs = ([*each] for each in zip(*band))
        filled = {'mode': 'lines', 'line': {'width': 0}, 'fill': 'toself', 'fillcolor': colour, 'opacity': 0.16}
        yield index, case.name, {'x': x + x[::-1], 'y': highs + lows[::-1], 'hoverinfo': 'skip', **filled}
    for run, values in runs.items() if len(runs) > 1 else ():
        thin = {'mode': 'lines', 'line': {'width': 1, 'color': colour}, 'opacity': 0.5}
        yield index, run, {'x': [*values], 'y': [*values.values()], **thin}
    yield index, case.name, {'x': places, 'y': [mean.median for mean in means.values()], **_line_style(index)}


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
        for case, name, style in panel.traces:
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


def _line_style(case: int) -> Dict[str, Any]:
    sign = sign_of(case)
    dash = ','.join(f'{2 * length}px' for length in sign.dash) or 'solid'
    marker = {'symbol': sign.mark, 'size': 8, 'maxdisplayed': 15}
    return {'mode': 'lines+markers', 'line': {'width': 2.5, 'color': sign.light, 'dash': dash}, 'marker': marker}


def _text(text: str) -> str:
    """A name as HTML for Plotly, wrapped to lines."""
    lines = textwrap.wrap(text, _NAME_WIDTH, drop_whitespace=False, replace_whitespace=False)
    return '<br>'.join(html.escape(printable(line), quote=False) for line in lines)
