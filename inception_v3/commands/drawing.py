"""Colours and files of the figures on the pages of this program's commands."""

import io
from typing import Any, Tuple

from console import html

DOTS_PER_INCH = 150
_PAGE_PIXELS_PER_INCH = 96
# Those of the page in light mode; in dark mode, the page inverts its figures.
FAINT, GOOD, BAD, MOST = '#8a939d', '#0072b2', '#c44f00', '#003a70'


def png(figure: Any) -> bytes:
    """The PNG file of a figure."""
    content = io.BytesIO()
    figure.savefig(content, format='png', dpi=DOTS_PER_INCH, bbox_inches='tight')
    return content.getvalue()


def on_page(png: bytes) -> Tuple[str, int]:
    """The data URI of a figure, and the width in CSS pixels at which its text has the intended size."""
    # A PNG file has its width in the bytes 16 to 19.
    width = int.from_bytes(png[16:20], 'big') * _PAGE_PIXELS_PER_INCH / DOTS_PER_INCH
    return html.data_uri(png, 'image/png'), round(width)
