"""Colours and files of the figures on the pages of this program's commands."""

import io
from typing import Any, NamedTuple

from matplotlib.figure import Figure

DOTS_PER_INCH = 150
_PAGE_PIXELS_PER_INCH = 96


class Look(NamedTuple):
    """Colours of a figure; they match the page."""

    paper: str
    ink: str
    faint: str
    good: str
    bad: str
    most: str


LIGHT = Look('#ffffff', '#1b1f24', '#8a939d', '#0072b2', '#c44f00', '#003a70')
DARK = Look('#14171b', '#e6e9ed', '#7b8590', '#56b4e9', '#f0904e', '#9bd6ff')


def dress(axes: Any, look: Look) -> None:
    """Gives axes the colours of a look."""
    axes.set_facecolor(look.paper)
    axes.tick_params(colors=look.ink)
    for spine in axes.spines.values():
        spine.set_color(look.faint)


def png(figure: Figure) -> bytes:
    """The PNG file of a figure."""
    content = io.BytesIO()
    figure.savefig(content, format='png', dpi=DOTS_PER_INCH, bbox_inches='tight', facecolor=figure.get_facecolor())
    return content.getvalue()


def width_on_page(pixels: int) -> int:
    """The width on a page, in CSS pixels, at which the text of a figure of this width has its intended size."""
    return round(pixels * _PAGE_PIXELS_PER_INCH / DOTS_PER_INCH)
