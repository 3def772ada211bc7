"""The figures of studies and benchmarks, drawn by matplotlib: the signs of cases, and panels of measured values."""

import io
import math
import textwrap
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from benchmarks.tables import Spread

FAINT, GRID = '#57606a', '#e3e7ea'
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


def png(figure: Any) -> bytes:
    """The PNG file of a `matplotlib.figure.Figure`."""
    content = io.BytesIO()
    figure.savefig(content, format='png', dpi=120, bbox_inches='tight')
    return content.getvalue()


def svg(figure: Any) -> bytes:
    """The SVG file of a figure, always the same, with the text as text. On a dark page it is dark, with its hues."""
    import matplotlib

    content = io.BytesIO()
    with matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': 'figure'}):
        figure.savefig(content, format='svg', metadata={'Date': None}, bbox_inches='tight')
    dark = b'<style>@media(prefers-color-scheme:dark){#figure_1{filter:invert(.9) hue-rotate(180deg)}}</style>'
    return content.getvalue().replace(b'<defs>', dark + b'<defs>', 1)


BARS, BANDS, STEPS = 'bars', 'bands', 'steps'
_LINE = 64  # Characters of a label on a line.
_LABEL: Any = {'size': 8, 'family': 'monospace'}
_CHARACTER = 0.6022 * _LABEL['size'] / 72  # The width of a character of a label, in inches.


class Panel(NamedTuple):
    """A panel of a figure: its title, the labels of its axes, and by series a spread at each position.

    Positions are numbers, or words for kinds side by side. A spread without an interval has NaN at its ends. The
    vertical axis is linear, by default with 0, or logarithmic. The horizontal one may be logarithmic.
    """

    title: str
    x: str
    y: str
    series: Mapping[str, Mapping[Any, Optional[Spread]]]
    is_logarithmic: bool = False
    has_logarithmic_positions: bool = False
    has_zero: bool = True
    # Intervals as bars or as a band; or STEPS, without intervals.
    style: str = BARS
    # By series, the values of single runs at each position, by name.
    runs: Mapping[str, Mapping[str, Mapping[Any, float]]] = {}


def chart(title: str, panels: Sequence[Panel], columns: int = 2, is_svg: bool = False) -> bytes:
    """A figure as a PNG file, or as SVG for light and dark pages. A series has one sign in all panels."""
    drawn = draw(title, panels, columns)
    return svg(drawn) if is_svg else png(drawn)


def draw(title: str, panels: Sequence[Panel], columns: int = 2) -> Any:
    """The `matplotlib.figure.Figure` of panels, with the signs of the series below it."""
    from matplotlib.figure import Figure

    rows = -(-len(panels) // columns)
    drawn = Figure(figsize=(6 * columns + 1, 4 * rows), facecolor='white', constrained_layout=True)
    drawn.suptitle(title)
    signs = {label: sign_of(index) for index, label in enumerate({key: 0 for panel in panels for key in panel.series})}
    all_axes = drawn.subplots(rows, columns, squeeze=False).flat
    for axes in all_axes[len(panels) :]:
        axes.set_visible(False)
    for axes, panel in zip(all_axes, panels):
        _draw_panel(axes, panel, signs)
    _draw_legend(drawn, signs)
    return drawn


def _draw_panel(axes: Any, panel: Panel, signs: Mapping[str, Sign]) -> None:
    places = [*{place: 0 for values in panel.series.values() for place in values}]
    are_words = any(isinstance(place, str) for place in places)
    for index, (label, values) in enumerate(panel.series.items()):
        shift, sign = 0.7 * ((index + 0.5) / len(panel.series) - 0.5), signs[label]
        style: Any = {'color': sign.light, 'linestyle': 'none' if are_words else sign.linestyle}
        mark: Any = {'marker': sign.matplotlib_mark, 'markersize': 5}
        for run in panel.runs.get(label, {}).values():
            at = [places.index(place) + shift if are_words else place for place in run]
            hollow: Any = {**style, **mark, 'markerfacecolor': 'none'}
            thin = hollow if are_words else {'color': sign.light, 'linewidth': 0.7, 'alpha': 0.4}
            axes.plot(at, [*run.values()], **thin)
        found = {places.index(at) + shift if are_words else at: value for at, value in values.items() if value}
        if found:
            at, (medians, lows, highs) = [*found], zip(*found.values())
            if panel.style == BARS:
                distances = [[m - low for m, low in zip(medians, lows)], [high - m for m, high in zip(medians, highs)]]
                known = distances if all(map(math.isfinite, lows)) else None
                axes.errorbar(at, medians, yerr=known, capsize=3, **style, **mark)
            elif panel.style == STEPS:
                axes.plot(at, medians, drawstyle='steps-post', **style)
            else:
                axes.plot(at, medians, markevery=max(1, len(at) // 15), **style, **mark)
                if any(map(math.isfinite, lows)):
                    axes.fill_between(at, lows, highs, color=sign.light, alpha=0.16, linewidth=0)
    if are_words:
        axes.set_xlim(-0.5, len(places) - 0.5)
        axes.set_xticks(range(len(places)))
        axes.set_xticklabels([textwrap.fill(place, 12) for place in places], fontsize=8)
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y, yscale='log' if panel.is_logarithmic else 'linear')
    if panel.has_logarithmic_positions:
        axes.set_xscale('log')
        axes.set_xticks(places)
        axes.set_xticklabels([f'{place:,}' for place in places])
        axes.set_xticks([], minor=True)
        axes.yaxis.set_minor_formatter('{x:g}')
        axes.yaxis.set_major_formatter('{x:g}')
    if panel.has_zero and not panel.is_logarithmic:
        low, high = axes.get_ylim()
        axes.set_ylim(min(0, low), max(0, high))
        if low < 0:
            axes.axhline(0, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
    axes.grid(color=GRID, linewidth=0.8, axis='y' if are_words else 'both')
    axes.set_axisbelow(True)
    for side in ('top', 'right'):
        axes.spines[side].set_visible(False)


def _draw_legend(drawn: Any, signs: Mapping[str, Sign]) -> None:
    """Draws signs and labels below a figure, which grows when it is written."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=sign.light, linestyle=sign.linestyle, marker=sign.matplotlib_mark, markersize=5)
        for sign in signs.values()
    ]
    labels = ['\n'.join(broken(label, _LINE)) for label in signs]
    widest = max((len(line) for label in labels for line in label.split('\n')), default=0)
    # The line beside a label and the gap to the next column take 0.9 inches.
    columns = max(1, min(len(signs), int(drawn.get_figwidth() / (widest * _CHARACTER + 0.9))))
    place: Any = {'loc': 'upper center', 'bbox_to_anchor': (0.5, 0), 'ncol': columns, 'frameon': False}
    legend = drawn.legend(handles, [''] * len(handles), handlelength=4, prop=_LABEL, **place)
    # Set afterwards, because matplotlib drops labels that begin with an underscore. It reads text between dollar signs
    # as a formula.
    for text, label in zip(legend.get_texts(), labels):
        text.set_text(label.replace('$', r'\$'))


def broken(label: str, width: int) -> List[str]:
    """The lines of a label, which is never shortened."""
    return textwrap.wrap(label, width, drop_whitespace=False, replace_whitespace=False) or ['']
