"""The report as one self-contained HTML page: it needs no network and no other file."""

import html
import math
import pathlib
from typing import Any, Dict, List, Sequence, Tuple, Union

import markupsafe
from plotly.graph_objects import Figure, Scatter
from plotly.subplots import make_subplots

from console.html import template
from console.messages import printable
from studies.report import figures, findings, tables
from studies.report.figures import Lines, Mark, Rows
from studies.report.findings import Findings
from studies.report.palette import sign_of

_PAGE = template((pathlib.Path(__file__).parent / 'page.html').read_text())
_CONFIG = {'displaylogo': False, 'responsive': True, 'modeBarButtons': [['toImage', 'zoom2d', 'pan2d', 'resetScale2d']]}
# Heights in pixels: of a case's row with a name of one line, of another line, of a panel by step, and between panels.
_ROW, _NAME_LINE, _BY_STEP, _BETWEEN = 48, 13, 300, 90


def page(found: Findings) -> str:
    """The page, as HTML."""
    return _PAGE.render(
        comparison=found.comparison,
        chart=markupsafe.Markup(chart(found).to_html(full_html=False, config=_CONFIG, div_id='chart')),
        state=findings.state,
        how_to_read=tables.how_to_read(found),
        status=tables.status(found.runs),
        written=tables.current_minute(),
        finals=tables.finals(found),
        further={
            'Failed': tables.failed(found),
            'Not finished': tables.unfinished(found),
            'All differences': tables.differences(found),
            'Interquartile means': tables.interquartile_means(found),
            'Probabilities of improvement': tables.improvements(found),
        },
        environment=tables.environment(found.runs),
    )


def chart(found: Findings) -> Figure:
    """All panels in one figure with one legend: a click on a case hides it in all panels, a double click the others."""
    chosen = 'Difference from the chosen case'
    panels: List[Union[Rows, Lines]] = []
    for name in found.comparison.report:
        panels += [figures.finals(found, name), figures.differences(found, name)._replace(title=chosen)]
    panels += [*figures.curves(found), figures.schedule(found), figures.throughput(found)]
    lines = max((len(figures.broken(each.case.name)) for each in found.cases), default=1)
    of_rows = max(len(found.cases), 2) * (_ROW + _NAME_LINE * (lines - 1))
    heights = [of_rows if isinstance(panel, Rows) else max(of_rows, _BY_STEP) for panel in panels[::2]]
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
    for case, each in enumerate(found.cases):
        _draw(drawn, case, 0, x=[None], y=[None], name=_text(each.case.name), showlegend=True, **_line_style(case))
    names: List[Dict[str, Any]] = []
    for place, panel in enumerate(panels):
        if isinstance(panel, Rows):
            names += _draw_rows(drawn, place, panel, found)
        else:
            _draw_lines(drawn, place, panel)
    drawn.update_xaxes(rangemode='tozero', selector={'title.text': figures.throughput(found).axis})
    drawn.update_yaxes(rangemode='tozero', selector={'title.text': figures.schedule(found).axis})
    menu = {'type': 'buttons', 'direction': 'right', 'y': 1 + 40 / height, 'yanchor': 'bottom', 'xanchor': 'left'}
    drawn.update_layout(
        template='plotly_white',
        annotations=[*drawn.layout.annotations, *names],
        height=height + 220,
        margin={'l': 60, 'r': 20, 't': 160, 'b': 60},
        hovermode='closest',
        hoverlabel={'align': 'left', 'namelength': -1},
        legend={'orientation': 'h', 'yanchor': 'bottom', 'y': 1 + 85 / height, 'x': 0},
        updatemenus=[
            {**menu, 'x': 0, 'active': int(found.by_epoch), 'buttons': _units(drawn, found)},
            {**menu, 'x': 0.54, 'type': 'dropdown', 'direction': 'down', 'buttons': _references(drawn, found)},
        ],
    )
    return drawn


def _units(drawn: Figure, found: Findings) -> List[Dict[str, Any]]:
    """Buttons that draw curves by step or by epoch; the figure is drawn as the comparison asks."""
    traces = [index for index, trace in enumerate(drawn.data) if 'lines' in trace.mode and trace.x[0] is not None]
    axes = [axis.plotly_name for axis in drawn.select_xaxes({'title.text': 'step'})]
    buttons: List[Dict[str, Any]] = []
    for by_epoch, name in enumerate(('step', 'epoch')):
        lengths = [
            figures.length_of_step(found, int(drawn.data[index].legendgroup), bool(by_epoch)) for index in traces
        ]
        x = [[step * length for step in drawn.data[index].x] for index, length in zip(traces, lengths)]
        titles = {f'{axis}.title.text': name for axis in axes}
        buttons.append({'label': f'by {name}', 'method': 'update', 'args': [{'x': x}, titles, traces]})
    if found.by_epoch:
        drawn.plotly_update(*buttons[1]['args'])
    return buttons


def _references(drawn: Figure, found: Findings) -> List[Dict[str, Any]]:
    """Buttons that choose the case from which differences are drawn."""
    traces = [index for index, trace in enumerate(drawn.data) if trace.meta]
    buttons = []
    for reference, each in enumerate(found.cases):
        panels = {name: figures.differences(found, name, reference) for name in found.comparison.report}
        values = []
        for index in traces:
            case = int(drawn.data[index].legendgroup)
            values.append(_mark_values(panels[drawn.data[index].meta].marks[case], case, found))
        together = {key: [of_trace[key] for of_trace in values] for key in (values[0] if values else ())}
        label = f'minus {_text(each.case.name)}'
        buttons.append({'label': label, 'method': 'restyle', 'args': [together, traces]})
    return buttons


def _draw_lines(drawn: Figure, place: int, panel: Lines) -> None:
    is_schedule = panel.axis == 'learning rate'
    for case, (means, runs) in enumerate(panel.cases):
        colour, style = sign_of(case).light, _line_style(case)
        known = [index for index, deviation in enumerate(means.deviations) if math.isfinite(deviation)]
        back = [(index, side) for side, indices in ((1, known), (-1, known[::-1])) for index in indices]
        if is_schedule:
            style['line'].update(shape='hv', width=min(2.5 + 3 * figures.schedule_width(panel, case), 14))
            style['mode'] = 'lines'
        for run in runs:
            texts = [_text(f'{run.name}\n{text}') for text in run.texts]
            style_of_run = {'mode': 'lines', 'line': {'width': 1, 'color': colour}, 'opacity': 0.5}
            if run.steps:
                _draw(drawn, case, place, x=run.steps, y=run.values, text=texts, **style_of_run)
        if known:
            x = [means.steps[index] for index, _ in back]
            y = [means.values[index] + side * means.deviations[index] for index, side in back]
            band = {'mode': 'lines', 'line': {'width': 0}, 'fill': 'toself', 'fillcolor': colour, 'opacity': 0.16}
            _draw(drawn, case, place, x=x, y=y, hoverinfo='skip', hovertemplate=None, **band)
        if means.steps:
            texts = [_text(f'{means.name}\n{text}') for text in means.texts]
            _draw(drawn, case, place, x=means.steps, y=means.values, text=texts, **style)
    row, col = _cell(place)
    drawn.update_yaxes(title_text=panel.axis, row=row, col=col)
    drawn.update_xaxes(title_text='step', rangemode='tozero', row=row, col=col)


def _draw_rows(drawn: Figure, place: int, panel: Rows, found: Findings) -> List[Dict[str, Any]]:
    """Draws a panel of rows, but for the names of the cases, which it returns: Plotly adds them faster all at once."""
    row, col = _cell(place)
    for case, mark in enumerate(panel.marks):
        sign = sign_of(case)
        texts = [_text(f'{run}\n{text}') for run, (_, text) in mark.runs.items()]
        x = [value for value, _ in mark.runs.values()]
        hollow = {'symbol': f'{sign.mark}-open', 'size': 8, 'color': sign.light}
        if x:
            _draw(drawn, case, place, x=x, y=[case] * len(x), text=texts, mode='markers', marker=hollow)
        style = {'mode': 'markers', 'marker.size': 12, 'marker.color': sign.light, 'error_x.symmetric': False}
        _draw(drawn, case, place, y=[case], meta=panel.metric, **style, **_mark_values(mark, case, found))
    if panel.metric:
        drawn.add_vline(x=0, row=row, col=col, line={'width': 1, 'dash': 'dash'})
    drawn.update_xaxes(title_text=panel.axis, row=row, col=col)
    drawn.update_yaxes(showticklabels=False, range=[len(panel.marks) - 0.5, -0.8], dtick=1, row=row, col=col)
    # The names stand above their rows.
    x, y = (axis.plotly_name.replace('axis', '') for axis in drawn.get_subplot(row, col))
    where = {'x': 0, 'xref': f'{x} domain', 'xanchor': 'left', 'yref': y, 'yanchor': 'bottom', 'yshift': 8}
    style = {'showarrow': False, 'align': 'left', 'font': {'size': 10}}
    return [{**where, **style, 'y': case, 'text': _text(each.case.name)} for case, each in enumerate(found.cases)]


def _mark_values(mark: Mark, case: int, found: Findings) -> Dict[str, Any]:
    """The properties of a mark's trace that depend on its value."""
    return {
        'x': [mark.value],
        'text': [_text(f'{found.cases[case].case.name}\n{mark.text}')],
        'marker.symbol': sign_of(case).mark + ('' if math.isfinite(mark.low) else '-open'),
        'error_x.visible': math.isfinite(mark.low),
        'error_x.array': [mark.high - mark.value],
        'error_x.arrayminus': [mark.value - mark.low],
    }


def _draw(drawn: Figure, case: int, place: int, **values: Any) -> None:
    values = {'showlegend': False, 'legendgroup': str(case), 'hovertemplate': '%{text}<extra></extra>', **values}
    drawn.add_trace(Scatter(**values), *_cell(place))


def _line_style(case: int) -> Dict[str, Any]:
    sign = sign_of(case)
    dash = ','.join(f'{2 * length}px' for length in sign.dash) or 'solid'
    marker = {'symbol': sign.mark, 'size': 8, 'maxdisplayed': 15}
    return {'mode': 'lines+markers', 'line': {'width': 2.5, 'color': sign.light, 'dash': dash}, 'marker': marker}


def _cell(place: int) -> Tuple[int, int]:
    """The row and the column of a panel, from 1."""
    return place // 2 + 1, place % 2 + 1


def _text(text: str) -> str:
    """A text for Plotly, which reads HTML; its lines are broken where a name may be."""
    lines: Sequence[str] = [part for line in text.split('\n') for part in figures.broken(line)]
    return '<br>'.join(html.escape(printable(line), quote=False) for line in lines)
