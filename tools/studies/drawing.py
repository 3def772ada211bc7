"""The figures of studies, drawn by matplotlib: the signs of cases, and panels of measured values."""

import io
import textwrap
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Tuple

from tools.benchmarks.tables import Spread

GRID = '#e3e7ea'
# Okabe and Ito, "Color Universal Design": distinguishable with any common kind of colour blindness. Their yellow is
# left out, because it is too faint on white.
_COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#000000', '#56B4E9')
_DASHES: Tuple[Tuple[int, ...], ...] = ((), (5, 2), (2, 2), (6, 2, 2, 2), (10, 3), (8, 2, 2, 2, 2, 2))
_MARKS = (
    ('circle', 'o'),
    ('square', 's'),
    ('triangle-up', '^'),
    ('diamond', 'D'),
    ('triangle-down', 'v'),
    ('cross', 'P'),
    ('star', '*'),
    ('x', 'X'),
)


class Sign(NamedTuple):
    """The style in which a case is drawn: colour, line and mark together; colour is never the only difference."""

    light: str  # Colour, on white.
    dash: Tuple[int, ...]  # Lengths of dashes and gaps, in line widths; empty for a solid line.
    mark: str  # Name of the mark in Plotly.
    matplotlib_mark: str  # The same mark in Matplotlib.

    @property
    def linestyle(self) -> Any:
        """The line style in Matplotlib."""
        return (0, self.dash) if self.dash else '-'


def sign_of(index: int) -> Sign:
    """The sign of the case at an index: the first 6 differ in colour, line and mark, the first 168 in at least one."""
    return Sign(_COLOURS[index % len(_COLOURS)], _DASHES[index % len(_DASHES)], *_MARKS[index % len(_MARKS)])


class Panel(NamedTuple):
    """A panel of a figure: its title, the labels of its axes, and by series a spread at each position.

    Positions are numbers, or words for categories. Axes are linear, the vertical one including 0, or logarithmic.
    """

    title: str
    x: str
    y: str
    series: Mapping[str, Mapping[Any, Optional[Spread]]]
    is_logarithmic: bool = False


def chart(title: str, panels: Sequence[Panel], columns: int = 2, is_svg: bool = False) -> bytes:
    """A figure as a PNG file, or as SVG for light and dark pages. A series has one sign in all panels.

    The same figure gives the same SVG file, with the text as text. On a dark page, it is dark, with the same hues.
    """
    import matplotlib

    content, drawn = io.BytesIO(), draw(title, panels, columns)
    if not is_svg:
        drawn.savefig(content, format='png', dpi=120, bbox_inches='tight')
        return content.getvalue()
    with matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': 'figure'}):
        drawn.savefig(content, format='svg', metadata={'Date': None}, bbox_inches='tight')
    dark = b'<style>@media(prefers-color-scheme:dark){#figure_1{filter:invert(.9) hue-rotate(180deg)}}</style>'
    return content.getvalue().replace(b'<defs>', dark + b'<defs>', 1)


def draw(title: str, panels: Sequence[Panel], columns: int = 2) -> Any:
    """The `matplotlib.figure.Figure` of panels, with the signs of the series below it."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    rows = -(-len(panels) // columns)
    drawn = Figure(figsize=(6 * columns + 1, 4 * rows), facecolor='white', constrained_layout=True)
    drawn.suptitle(title)
    signs = {label: sign_of(index) for index, label in enumerate({key: 0 for panel in panels for key in panel.series})}
    for axes, panel in zip(drawn.subplots(rows, columns, squeeze=False).flat, panels):
        _draw_panel(axes, panel, signs)
    handles = [
        Line2D([], [], color=sign.light, linestyle=sign.linestyle, marker=sign.matplotlib_mark, markersize=5)
        for sign in signs.values()
    ]
    place: Any = {'loc': 'upper center', 'bbox_to_anchor': (0.5, 0), 'frameon': False}
    # Below the figure, which grows when it is written.
    drawn.legend(handles, [*signs], ncol=2 * columns, handlelength=4, **place)
    return drawn


def _draw_panel(axes: Any, panel: Panel, signs: Mapping[str, Sign]) -> None:
    places = [*{place: 0 for values in panel.series.values() for place in values}]
    are_words = any(isinstance(place, str) for place in places)
    for index, (label, values) in enumerate(panel.series.items()):
        shift, sign = 0.7 * ((index + 0.5) / len(panel.series) - 0.5), signs[label]
        found = {places.index(at) + shift if are_words else at: value for at, value in values.items() if value}
        if found:
            medians, lows, highs = zip(*found.values())
            bars = [[m - low for m, low in zip(medians, lows)], [high - m for m, high in zip(medians, highs)]]
            style: Any = {'color': sign.light, 'linestyle': 'none' if are_words else sign.linestyle}
            axes.errorbar([*found], medians, bars, capsize=3, marker=sign.matplotlib_mark, markersize=5, **style)
    if are_words:
        axes.set_xlim(-0.5, len(places) - 0.5)
        axes.set_xticks(range(len(places)))
        axes.set_xticklabels([textwrap.fill(place, 12) for place in places], fontsize=8)
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    if panel.is_logarithmic:
        axes.set(xscale='log', yscale='log')
        axes.set_xticks(places)
        axes.set_xticklabels([f'{place:,}' for place in places])
        axes.set_xticks([], minor=True)
        axes.yaxis.set_minor_formatter('{x:g}')
        axes.yaxis.set_major_formatter('{x:g}')
    else:
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.grid(color=GRID, linewidth=0.8, axis='y' if are_words else 'both')
    axes.set_axisbelow(True)
    for side in ('top', 'right'):
        axes.spines[side].set_visible(False)
