"""Writes the report of a comparison: a self-contained HTML page, and a Markdown file with pictures."""

import html
import os
import pathlib
from typing import Any, Dict, Iterator, List, Tuple, Union

import markupsafe
import numpy as np
from plotly.graph_objects import Figure, Scatter
from plotly.subplots import make_subplots

from benchmarks.drawing import sign_of
from console.html import template
from console.messages import in_code, in_markdown, printable
from console.tensorflow_versions import tf
from data import remote
from data.files import write_whole
from studies.files import Table
from studies.report import figures, tables
from studies.report.figures import PICTURES, Line, Panel
from studies.report.runs import Comparison

PAGE_FILE = 'report.html'
MARKDOWN_FILE = 'report.md'
_PAGE = template((pathlib.Path(__file__).parent / 'page.html').read_text())
_CONFIG = {'displaylogo': False, 'responsive': True, 'modeBarButtons': [['toImage', 'zoom2d', 'pan2d', 'resetScale2d']]}
# Heights in pixels: of a line of a case's name, and the least of its row; of a panel by step, and between panels.
_NAME_LINE, _ROW, _BY_STEP, _BETWEEN = 15, 36, 300, 90
_NAME_WIDTH = 36  # Characters of a case's name on a line.
_DIGITS = '.4~r'  # Four of a value under the pointer.


def write(out: str, comparison: Comparison) -> None:
    """Writes the page, the Markdown file and its pictures, and replaces those of an earlier report.

    Runs that have not started, are still running or have failed are included, with their state. The folder `out` is
    created if missing; it may be at gs:// or s3://.

    Raises:
      RemoteError: a remote folder cannot be written to.
      tf.errors.OpError: a local folder cannot be written to.
    """
    contents: Dict[str, Union[str, bytes]] = {**figures.pictures(comparison)}
    contents.update({MARKDOWN_FILE: markdown(comparison), PAGE_FILE: page(comparison)})
    with remote.explained(out, remote.WRITE):
        tf.io.gfile.makedirs(out)
    for name, content in contents.items():
        write_whole(os.path.join(out, name), content)


def _tables_below(comparison: Comparison) -> List[Table]:
    every = (tables.failed, tables.unfinished, tables.means, tables.differences)
    return [table for table in (of(comparison) for of in every) if table.rows]


def markdown(comparison: Comparison) -> str:
    """The report as Markdown; it expects its pictures in the same folder."""
    finals, curves, schedule = (f'![{description}]({name})' for name, (description, _) in PICTURES.items())
    parts = [f'# {in_markdown(comparison.title)}', comparison.question, *comparison.notes, tables.status(comparison)]
    parts += ['## Results', 'At the last step of training: mean ± sample standard deviation of the finished runs.']
    parts += [tables.finals(comparison).markdown(), finals]
    for table in _tables_below(comparison):
        parts += [f'### {table.title}', table.markdown()]
    parts += ['## Learning curves', curves, '## Schedule and speed', schedule, '## Commands']
    for case in comparison.cases:
        lines = [f'# {in_code(run.name)}: {run.state}\n{in_code(run.command or "")}'.rstrip() for run in case.runs]
        code = '\n'.join(['```sh', *lines, '```'])
        parts.append(f'<details><summary>{in_markdown(case.name)}</summary>\n\n{code}\n\n</details>')
    environment = tables.environment(comparison.runs)
    parts += ['## Environment', environment.markdown() if environment.rows else 'No run has started.']
    parts += ['## How to read this report', '\n'.join(f'- {note}' for note in tables.HOW_TO_READ)]
    return '\n\n'.join(part for part in parts if part) + '\n'


def page(comparison: Comparison) -> str:
    """The report as HTML, which needs no network and no other file."""
    return _PAGE.render(
        comparison=comparison,
        status=tables.status(comparison),
        finals=tables.finals(comparison),
        further=_tables_below(comparison),
        chart=markupsafe.Markup(chart(comparison).to_html(full_html=False, config=_CONFIG, div_id='chart')),
        environment=tables.environment(comparison.runs),
        how_to_read=tables.HOW_TO_READ,
    )


def chart(comparison: Comparison) -> Figure:
    """All panels in one figure with one legend: a click on a case hides it in all panels, a double click the others."""
    panels: List[Panel] = []
    for name in comparison.metrics:
        panels += [figures.finals(comparison, name), figures.differences(comparison, name)]
    panels += [figures.throughput(comparison), figures.schedule(comparison), *figures.curves(comparison)]
    names = [_text(case.name) for case in comparison.cases]
    of_rows = sum(max(_ROW, _NAME_LINE * (2 + name.count('<br>'))) for name in names) + _ROW
    pairs = [panels[first : first + 2] for first in range(0, len(panels), 2)]
    heights = [max(_BY_STEP if panel.steps else of_rows for panel in pair) for pair in pairs]
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
        mode = 'tozero' if panel.from_zero else 'normal'
        if panel.steps:
            drawn.update_xaxes(title_text=panel.steps, rangemode='tozero', **cell)
            drawn.update_yaxes(title_text=panel.axis, rangemode=mode, hoverformat=_DIGITS, **cell)
            traces = _lines(panel)
        else:
            drawn.update_xaxes(title_text=panel.axis, rangemode=mode, hoverformat=_DIGITS, **cell)
            ticks = {'tickvals': [*range(len(names))], 'ticktext': names, 'showticklabels': cell['col'] == 1}
            drawn.update_yaxes(range=[len(names) - 0.5, -0.5], tickfont_size=10, automargin=True, **ticks, **cell)
            traces = _marks(panel)
        for case, line, style in traces:
            group = {'legendgroup': str(case), 'showlegend': False}
            drawn.add_trace(Scatter(name=_text(line.name), **group, **style), **cell)
        if panel.is_difference:
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


def _lines(panel: Panel) -> Iterator[Tuple[int, Line, Dict[str, Any]]]:
    """The traces of a panel of curves, each with the number of its case."""
    for case, (mean, runs) in enumerate(panel.cases):
        colour, style = sign_of(case).light, _line_style(case)
        if panel.from_zero:
            style['line']['shape'], style['mode'] = 'hv', 'lines'
        known = [index for index, low in enumerate(mean.lows) if np.isfinite(low)]
        if len(mean.lows) == len(mean.steps):
            x = [mean.steps[index] for index in [*known, *known[::-1]]]
            y = [*(mean.highs[index] for index in known), *(mean.lows[index] for index in known[::-1])]
            band = {'mode': 'lines', 'line': {'width': 0}, 'fill': 'toself', 'fillcolor': colour, 'opacity': 0.16}
            yield case, mean, {'x': x, 'y': y, 'hoverinfo': 'skip', **band}
        for run in runs:
            thin = {'mode': 'lines', 'line': {'width': 1, 'color': colour}, 'opacity': 0.5}
            yield case, run, {'x': run.steps, 'y': run.values, **thin}
        yield case, mean, {'x': mean.steps, 'y': mean.values, **style}


def _marks(panel: Panel) -> Iterator[Tuple[int, Line, Dict[str, Any]]]:
    """The traces of a panel of rows, each with the number of its case."""
    for case, (mean, runs) in enumerate(panel.cases):
        sign, row = sign_of(case), {'y': [case], 'mode': 'markers', 'hoverinfo': 'x+name'}
        hollow = f'{sign.mark}-open'
        for run in runs:
            yield case, run, {'x': run.values, 'marker': {'symbol': hollow, 'size': 8, 'color': sign.light}, **row}
        has_bar, (value,) = bool(np.isfinite(mean.lows[0])), mean.values
        marker = {'symbol': sign.mark if has_bar else hollow, 'size': 12, 'color': sign.light}
        bar = {'symmetric': False, 'array': [mean.highs[0] - value], 'arrayminus': [value - mean.lows[0]]}
        yield case, mean, {'x': [value], 'marker': marker, 'error_x': bar if has_bar else None, **row}


def _line_style(case: int) -> Dict[str, Any]:
    sign = sign_of(case)
    dash = ','.join(f'{2 * length}px' for length in sign.dash) or 'solid'
    marker = {'symbol': sign.mark, 'size': 8, 'maxdisplayed': 15}
    return {'mode': 'lines+markers', 'line': {'width': 2.5, 'color': sign.light, 'dash': dash}, 'marker': marker}


def _text(text: str) -> str:
    """A name for Plotly, which reads HTML; its lines are broken where a name may be."""
    return '<br>'.join(html.escape(printable(line), quote=False) for line in figures.broken(text, _NAME_WIDTH))
