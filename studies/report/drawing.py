"""Functions for the matplotlib figures of all studies."""

import io
from typing import Any, List, Sequence

from benchmarks.comparison import Spread
from studies.report.palette import Sign

FAINT, GRID = '#57606a', '#e3e7ea'


def lay_out(axes: Any) -> None:
    """Draws a light grid behind the data, and no frame on the top and right."""
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ('top', 'right'):
        axes.spines[side].set_visible(False)


def dashes(sign: Sign) -> Any:
    """The line style of a sign, in matplotlib's format."""
    return (0, sign.dash) if sign.dash else '-'


def bars(spreads: Sequence[Spread]) -> List[List[float]]:
    """Error bars from the minimum to the maximum, in matplotlib's format: distances from the medians."""
    return [
        [values.median - values.least for values in spreads],
        [values.greatest - values.median for values in spreads],
    ]


def png(figure: Any, **options: Any) -> bytes:
    """The PNG file of a figure.

    Args:
      figure: a `matplotlib.figure.Figure`.
      **options: arguments of `savefig`, such as `dpi`.
    """
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
