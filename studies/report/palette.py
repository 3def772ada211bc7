"""The signs of cases in figures: colour, line style and marker together; colour is never the only difference."""

from typing import NamedTuple, Tuple


class Sign(NamedTuple):
    """The style in which a case is drawn.

    Attributes:
      light: colour, on white.
      dash: lengths of dashes and gaps, in line widths; empty for a solid line.
      mark: name of the mark in Plotly.
      matplotlib_mark: the same mark in Matplotlib.
    """

    light: str
    dash: Tuple[int, ...]
    mark: str
    matplotlib_mark: str


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


def sign_of(index: int) -> Sign:
    """The sign of the case at an index: the first 6 differ in colour, line and mark, the first 168 in at least one."""
    return Sign(_COLOURS[index % len(_COLOURS)], _DASHES[index % len(_DASHES)], *_MARKS[index % len(_MARKS)])
