"""Writes the report of a comparison: a self-contained HTML page, and a Markdown file with pictures."""

import html
import os
import pathlib
from typing import Any, Dict, Iterator, List, Tuple, Union

import markupsafe
import numpy as np
from plotly.graph_objects import Figure, Scatter
from plotly.subplots import make_subplots

from benchmarks.drawing import STEPS, Panel, broken, sign_of
from console.html import template
from console.messages import in_code, in_markdown, printable
from console.tensorflow_versions import tf
from data import remote
from data.files import write_whole
from studies.files import Table
from studies.report import figures, tables
from studies.report.figures import PICTURES
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
        mode = 'tozero' if panel.has_zero else 'normal'
        if panel.x:
            drawn.update_xaxes(title_text=panel.x, rangemode='tozero', **cell)
            drawn.update_yaxes(title_text=panel.y, rangemode=mode, hoverformat=_DIGITS, **cell)
        else:
            drawn.update_xaxes(title_text=panel.y, rangemode=mode, hoverformat=_DIGITS, **cell)
            ticks = {'tickvals': [*range(len(names))], 'ticktext': names, 'showticklabels': cell['col'] == 1}
            drawn.update_yaxes(range=[len(names) - 0.5, -0.5], tickfont_size=10, automargin=True, **ticks, **cell)
            if panel.has_zero:
                drawn.add_vline(x=0, line={'width': 1, 'dash': 'dash'}, **cell)
        for case, name, style in _traces(panel):
            group = {'legendgroup': str(case), 'showlegend': False}
            drawn.add_trace(Scatter(name=_text(name), **group, **style), **cell)
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
        band = [(at, low, high) for at, (_, low, high) in found.items() if np.isfinite(low)]
        if panel.x:
            if band:
                x, lows, highs = ([*each] for each in zip(*band))
                filled = {'mode': 'lines', 'line': {'width': 0}, 'fill': 'toself', 'fillcolor': colour, 'opacity': 0.16}
                yield case, name, {'x': x + x[::-1], 'y': highs + lows[::-1], 'hoverinfo': 'skip', **filled}
            thin = {'mode': 'lines', 'line': {'width': 1, 'color': colour}, 'opacity': 0.5}
            for run, of_run in runs.items():
                yield case, run, {'x': [*of_run], 'y': [*of_run.values()], **thin}
            style = _line_style(case)
            if panel.style == STEPS:
                style['line']['shape'], style['mode'] = 'hv', 'lines'
            yield case, name, {'x': [*found], 'y': means, **style}
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
    return '<br>'.join(html.escape(printable(line), quote=False) for line in broken(text, _NAME_WIDTH))
