"""The signs of cases in figures: colour, line style and marker together; colour is never the only difference."""

from dataclasses import dataclass
from typing import Tuple


@dataclass(frozen=True)
class Sign:
    """The style in which a case is drawn.

    Attributes:
      light: colour on white.
      dark: colour on nearly black.
      dash: lengths of dashes and gaps, in line widths; empty for a solid line.
      mark: name of the mark in Plotly.
      matplotlib_mark: the same mark in Matplotlib.
      path: the same mark as an SVG path, from -5 to 5.
    """

    light: str
    dark: str
    dash: Tuple[int, ...]
    mark: str
    matplotlib_mark: str
    path: str


# Okabe and Ito, "Color Universal Design": distinguishable with any common kind of colour blindness. Their yellow is
# left out, because it is too faint on white; in the dark theme black becomes white, and the two blues are lighter.
_COLOURS = (
    ('#0072B2', '#4A9FE0'),  # blue
    ('#D55E00', '#F0803C'),  # vermilion
    ('#009E73', '#1FB98C'),  # bluish green
    ('#CC79A7', '#DB93BB'),  # reddish purple
    ('#E69F00', '#F0B429'),  # orange
    ('#000000', '#F2F2F2'),  # black
    ('#56B4E9', '#A5D8F8'),  # sky blue
)
_DASHES: Tuple[Tuple[int, ...], ...] = ((), (5, 2), (2, 2), (6, 2, 2, 2), (10, 3), (8, 2, 2, 2, 2, 2))
_MARKS = (
    ('circle', 'o', 'M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0Z'),
    ('square', 's', 'M-3.6,-3.6H3.6V3.6H-3.6Z'),
    ('triangle-up', '^', 'M0,-4.6L4.4,3.4H-4.4Z'),
    ('diamond', 'D', 'M0,-5L4.4,0L0,5L-4.4,0Z'),
    ('triangle-down', 'v', 'M0,4.6L4.4,-3.4H-4.4Z'),
    ('cross', 'P', 'M-1.5,-4.5H1.5V-1.5H4.5V1.5H1.5V4.5H-1.5V1.5H-4.5V-1.5H-1.5Z'),
    ('star', '*', 'M0,-5L1.3,-1.6L4.8,-1.5L2,0.7L3,4.1L0,2.1L-3,4.1L-2,0.7L-4.8,-1.5L-1.3,-1.6Z'),
    ('x', 'X', 'M-4.2,-2.1L-2.1,-4.2L0,-2.1L2.1,-4.2L4.2,-2.1L2.1,0L4.2,2.1L2.1,4.2L0,2.1L-2.1,4.2L-4.2,2.1L-2.1,0Z'),
)


def sign_of(index: int) -> Sign:
    """The sign of the case at an index: the first 6 differ in colour, line and mark, the first 168 in at least one."""
    light, dark = _COLOURS[index % len(_COLOURS)]
    return Sign(light, dark, _DASHES[index % len(_DASHES)], *_MARKS[index % len(_MARKS)])
