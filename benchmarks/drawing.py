"""The figures of studies and benchmarks, drawn by matplotlib: the signs of cases, and panels of measured values."""

import io
import textwrap
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from benchmarks.comparison import Spread

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


def lay_out(axes: Any) -> None:
    """Draws a light grid behind the data, and no frame on the top and right."""
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ('top', 'right'):
        axes.spines[side].set_visible(False)


def bars(spreads: Sequence[Spread]) -> List[List[float]]:
    """Error bars from the minimum to the maximum, in matplotlib's format: distances from the medians."""
    return [
        [values.median - values.least for values in spreads],
        [values.greatest - values.median for values in spreads],
    ]


def png(figure: Any, **options: Any) -> bytes:
    """The PNG file of a `matplotlib.figure.Figure`; the options are those of `savefig`."""
    content = io.BytesIO()
    figure.savefig(content, format='png', **options)
    return content.getvalue()


def svg(figure: Any) -> bytes:
    """The SVG file of a figure, always the same, with the text as text. On a dark page it is dark, with its hues."""
    import matplotlib

    content = io.BytesIO()
    with matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': 'figure'}):
        figure.savefig(content, format='svg', metadata={'Date': None})
    dark = b'<style>@media(prefers-color-scheme:dark){#figure_1{filter:invert(.9) hue-rotate(180deg)}}</style>'
    return content.getvalue().replace(b'<defs>', dark + b'<defs>', 1)


class Panel(NamedTuple):
    """A panel of a figure: its title, the labels of its axes, and by series a spread at each position.

    Positions are numbers, or words for kinds side by side. The vertical axis is linear from 0, or logarithmic. The
    horizontal one may be logarithmic.
    """

    title: str
    x: str
    y: str
    series: Mapping[str, Mapping[Any, Optional[Spread]]]
    is_logarithmic: bool = False
    has_logarithmic_positions: bool = False


def chart(title: str, panels: Sequence[Panel], columns: int = 2, is_svg: bool = False) -> bytes:
    """A figure as a PNG file, or as SVG for light and dark pages. A series has one sign in all panels.

    It shows medians, with bars from the least to the greatest value.
    """
    from matplotlib.figure import Figure

    rows = -(-len(panels) // columns)
    drawn = Figure(figsize=(6 * columns + 1, 4 * rows + 1.2), dpi=120, facecolor='white')
    drawn.suptitle(title)
    signs = {label: sign_of(index) for index, label in enumerate({key: 0 for panel in panels for key in panel.series})}
    marks: Dict[str, Any] = {}
    for axes, panel in zip(drawn.subplots(rows, columns, squeeze=False).flat, panels):
        heading, x, y, series, is_logarithmic, has_logarithmic_positions = panel
        places = [*{place: 0 for values in series.values() for place in values}]
        are_words = any(isinstance(place, str) for place in places)
        for index, (label, values) in enumerate(series.items()):
            shift = 0.7 * ((index + 0.5) / len(series) - 0.5)
            found = {places.index(at) + shift if are_words else at: value for at, value in values.items() if value}
            if found:
                marks[label] = axes.errorbar(
                    [*found],
                    [value.median for value in found.values()],
                    yerr=bars([*found.values()]),
                    color=signs[label].light,
                    marker=signs[label].matplotlib_mark,
                    linestyle='none' if are_words else signs[label].linestyle,
                    capsize=3,
                )
        if are_words:
            axes.set_xticks(range(len(places)))
            axes.set_xticklabels([textwrap.fill(place, 12) for place in places], fontsize=8)
        axes.set(title=heading, xlabel=x, ylabel=y, yscale='log' if is_logarithmic else 'linear')
        if has_logarithmic_positions:
            axes.set_xscale('log')
            axes.set_xticks(places)
            axes.set_xticklabels([f'{place:,}' for place in places])
            axes.set_xticks([], minor=True)
            axes.yaxis.set_minor_formatter('{x:g}')
            axes.yaxis.set_major_formatter('{x:g}')
        if not is_logarithmic:
            axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
        lay_out(axes)
    legend_columns = 2 * columns
    drawn.legend([*marks.values()], [*marks], loc='lower center', ncol=legend_columns, frameon=False, fontsize=9)
    drawn.tight_layout(rect=(0, 0.25 * (1 + len(marks) // legend_columns) / drawn.get_figheight(), 1, 1))
    return svg(drawn) if is_svg else png(drawn)
