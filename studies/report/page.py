"""Writes the report of a comparison: a self-contained HTML page, and a Markdown file with pictures."""

import html
import os
import pathlib
from typing import Any, Dict, List, Union

import markupsafe
import numpy as np
from plotly.graph_objects import Figure, Scatter
from plotly.subplots import make_subplots

from console.html import template
from console.messages import in_code, in_markdown, printable
from console.tensorflow_versions import tf
from data import remote
from data.files import write_whole
from studies.report import figures, tables
from studies.report.figures import PICTURES, Line, Panel
from studies.report.palette import sign_of
from studies.report.runs import Comparison
from studies.report.sections import markdown_table

PAGE_FILE = 'report.html'
MARKDOWN_FILE = 'report.md'
_PAGE = template((pathlib.Path(__file__).parent / 'page.html').read_text())
_CONFIG = {'displaylogo': False, 'responsive': True, 'modeBarButtons': [['toImage', 'zoom2d', 'pan2d', 'resetScale2d']]}
# Heights in pixels: of a case's row with a name of one line, of another line, of a panel by step, and between panels.
_ROW, _NAME_LINE, _BY_STEP, _BETWEEN = 48, 13, 300, 90


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


def _tables_below(comparison: Comparison) -> Dict[str, tables.Table]:
    """The tables below that of the results, by their titles."""
    found = {
        'Failed': tables.failed(comparison),
        'Not finished': tables.unfinished(comparison),
        'Means with their 95 % intervals': tables.means(comparison),
        'Differences with their 95 % intervals': tables.differences(comparison),
    }
    return {title: table for title, table in found.items() if table.rows}


def markdown(comparison: Comparison) -> str:
    """The report as Markdown; it expects its pictures in the same folder."""
    finals, curves, schedule = (f'![{description}]({name})' for name, (description, _) in PICTURES.items())
    parts = [f'# {in_markdown(comparison.title)}', comparison.question, *comparison.notes, tables.status(comparison)]
    parts += ['## Results', 'At the last step of training: mean ± sample standard deviation of the finished runs.']
    parts += [markdown_table(*tables.finals(comparison)), finals]
    for title, table in _tables_below(comparison).items():
        parts += [f'### {title}', markdown_table(*table)]
    parts += ['## Learning curves', curves, '## Schedule and speed', schedule, '## Commands']
    for case in comparison.cases:
        lines = [f'# {in_code(run.name)}: {run.state}\n{in_code(run.command or "")}'.rstrip() for run in case.runs]
        code = '\n'.join(['```sh', *lines, '```'])
        parts.append(f'<details><summary>{in_markdown(case.name)}</summary>\n\n{code}\n\n</details>')
    environment = tables.environment(comparison.runs)
    parts += ['## Environment', markdown_table(*environment) if environment.rows else 'No run has started.']
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
        chosen = figures.differences(comparison, name)._replace(title='Difference from the chosen case')
        panels += [figures.finals(comparison, name), chosen]
    panels += [*figures.curves(comparison), figures.schedule(comparison), figures.throughput(comparison)]
    names = [_text(case.name) for case in comparison.cases]
    lines = max((name.count('<br>') for name in names), default=0)
    of_rows = max(len(names), 2) * (_ROW + _NAME_LINE * lines)
    heights = [max(of_rows, _BY_STEP if panel.by_step else 0) for panel in panels[::2]]
    height = sum(heights) + _BETWEEN * (len(heights) - 1)
    drawn = make_subplots(
        rows=len(heights),
        cols=2,
        subplot_titles=[panel.title for panel in panels],
        row_heights=heights,
        vertical_spacing=_BETWEEN / height,
        horizontal_spacing=0.08,
        specs=[[{}, {} if 2 * row + 1 < len(panels) else None] for row in range(len(heights))],
    )
    for case, name in enumerate(names):
        _draw(drawn, 0, case, x=[None], y=[None], name=name, showlegend=True, **_line_style(case))
    annotations: List[Dict[str, Any]] = []
    for place, panel in enumerate(panels):
        cell = dict(zip(('row', 'col'), _cell(place)))
        mode = 'tozero' if panel.from_zero else 'normal'
        if panel.by_step:
            drawn.update_xaxes(title_text='step', rangemode='tozero', **cell)
            drawn.update_yaxes(title_text=panel.axis, rangemode=mode, **cell)
            _draw_lines(drawn, place, panel)
            continue
        drawn.update_xaxes(title_text=panel.axis, rangemode=mode, **cell)
        drawn.update_yaxes(showticklabels=False, range=[len(names) - 0.5, -0.8], dtick=1, **cell)
        _draw_rows(drawn, place, panel)
        if panel.metric:
            drawn.add_vline(x=0, line={'width': 1, 'dash': 'dash'}, **cell)
        # The names stand above their rows; Plotly adds them faster all at once.
        x, y = (axis.plotly_name.replace('axis', '') for axis in drawn.get_subplot(**cell))
        where = {'x': 0, 'xref': f'{x} domain', 'xanchor': 'left', 'yref': y, 'yanchor': 'bottom', 'yshift': 8}
        style = {'showarrow': False, 'align': 'left', 'font': {'size': 10}}
        annotations += [{**where, **style, 'y': case, 'text': name} for case, name in enumerate(names)]
    menu = {'type': 'buttons', 'direction': 'right', 'y': 1 + 40 / height, 'yanchor': 'bottom', 'xanchor': 'left'}
    units = _units(drawn, comparison)
    if comparison.by_epoch:
        drawn.plotly_update(*units[1]['args'])
    drawn.update_layout(
        template='plotly_white',
        annotations=[*drawn.layout.annotations, *annotations],
        height=height + 220,
        margin={'l': 60, 'r': 20, 't': 160, 'b': 60},
        hovermode='closest',
        hoverlabel={'align': 'left', 'namelength': -1},
        legend={'orientation': 'h', 'yanchor': 'bottom', 'y': 1 + 85 / height, 'x': 0},
        updatemenus=[
            {**menu, 'x': 0, 'active': int(comparison.by_epoch), 'buttons': units},
            {**menu, 'x': 0.54, 'type': 'dropdown', 'direction': 'down', 'buttons': _references(drawn, comparison)},
        ],
    )
    return drawn


def _units(drawn: Figure, comparison: Comparison) -> List[Dict[str, Any]]:
    """Buttons that draw curves by step or by epoch."""
    traces = [index for index, trace in enumerate(drawn.data) if 'lines' in trace.mode and trace.x[0] is not None]
    axes = [axis.plotly_name for axis in drawn.select_xaxes({'title.text': 'step'})]
    epochs = [comparison.cases[int(drawn.data[index].legendgroup)].steps_per_epoch or 1 for index in traces]
    buttons = []
    for unit, lengths in (('step', [1.0] * len(traces)), ('epoch', epochs)):
        x = [[step / length for step in drawn.data[index].x] for index, length in zip(traces, lengths)]
        titles = {f'{axis}.title.text': unit for axis in axes}
        buttons.append({'label': f'by {unit}', 'method': 'update', 'args': [{'x': x}, titles, traces]})
    return buttons


def _references(drawn: Figure, comparison: Comparison) -> List[Dict[str, Any]]:
    """Buttons that choose the case from which differences are drawn."""
    traces = [index for index, trace in enumerate(drawn.data) if trace.meta]
    buttons = []
    for reference, case in enumerate(comparison.cases):
        # The traces are in the order of the metrics, and of the cases in each.
        lines = [
            line for name in comparison.metrics for line, _ in figures.differences(comparison, name, reference).cases
        ]
        values = [_values_of_mark(line, index % len(comparison.cases)) for index, line in enumerate(lines)]
        together = {key: [of_trace[key] for of_trace in values] for key in values[0]}
        buttons.append({'label': f'minus {_text(case.name)}', 'method': 'restyle', 'args': [together, traces]})
    return buttons


def _draw_lines(drawn: Figure, place: int, panel: Panel) -> None:
    for case, (mean, runs) in enumerate(panel.cases):
        colour, style = sign_of(case).light, _line_style(case)
        if panel.from_zero:
            style['line'].update(shape='hv', width=min(2.5 + 3 * figures.schedule_width(panel, case), 14))
            style['mode'] = 'lines'
        thin = {'mode': 'lines', 'line': {'width': 1, 'color': colour}, 'opacity': 0.5}
        known = [index for index, low in enumerate(mean.lows) if np.isfinite(low)]
        if known and len(mean.lows) == len(mean.steps):
            x = [mean.steps[index] for index in [*known, *known[::-1]]]
            y = [*(mean.highs[index] for index in known), *(mean.lows[index] for index in known[::-1])]
            band = {'mode': 'lines', 'line': {'width': 0}, 'fill': 'toself', 'fillcolor': colour, 'opacity': 0.16}
            _draw(drawn, place, case, x=x, y=y, hoverinfo='skip', hovertemplate=None, **band)
        for line, its_style in (*((run, thin) for run in runs), (mean, style)):
            if line.steps:
                _draw(drawn, place, case, x=line.steps, y=line.values, text=_texts(line), **its_style)


def _draw_rows(drawn: Figure, place: int, panel: Panel) -> None:
    for case, (mean, runs) in enumerate(panel.cases):
        sign = sign_of(case)
        hollow = {'symbol': f'{sign.mark}-open', 'size': 8, 'color': sign.light}
        if runs:
            x, texts = [run.values[0] for run in runs], [text for run in runs for text in _texts(run)]
            _draw(drawn, place, case, x=x, y=[case] * len(x), text=texts, mode='markers', marker=hollow)
        style = {'mode': 'markers', 'marker.size': 12, 'marker.color': sign.light, 'error_x.symmetric': False}
        _draw(drawn, place, case, y=[case], meta=panel.metric, **style, **_values_of_mark(mean, case))


def _values_of_mark(line: Line, case: int) -> Dict[str, Any]:
    """The properties of a mark's trace that depend on its value."""
    has_bar = bool(np.isfinite(line.lows[0]))
    return {
        'x': line.values,
        'text': _texts(line),
        'marker.symbol': sign_of(case).mark + ('' if has_bar else '-open'),
        'error_x.visible': has_bar,
        'error_x.array': [line.highs[0] - line.values[0]],
        'error_x.arrayminus': [line.values[0] - line.lows[0]],
    }


def _draw(drawn: Figure, place: int, case: int, **values: Any) -> None:
    values = {'showlegend': False, 'legendgroup': str(case), 'hovertemplate': '%{text}<extra></extra>', **values}
    drawn.add_trace(Scatter(**values), *_cell(place))


def _line_style(case: int) -> Dict[str, Any]:
    sign = sign_of(case)
    dash = ','.join(f'{2 * length}px' for length in sign.dash) or 'solid'
    marker = {'symbol': sign.mark, 'size': 8, 'maxdisplayed': 15}
    return {'mode': 'lines+markers', 'line': {'width': 2.5, 'color': sign.light, 'dash': dash}, 'marker': marker}


def _cell(place: int) -> List[int]:
    """The row and the column of a panel, from 1."""
    return [place // 2 + 1, place % 2 + 1]


def _texts(line: Line) -> List[str]:
    return [_text(f'{line.name}\n{text}') for text in line.texts]


def _text(text: str) -> str:
    """A text for Plotly, which reads HTML; its lines are broken where a name may be."""
    lines = [part for line in text.split('\n') for part in figures.broken(line)]
    return '<br>'.join(html.escape(printable(line), quote=False) for line in lines)
