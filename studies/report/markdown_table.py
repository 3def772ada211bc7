"""Tables in Markdown, as code hosts show it."""

from typing import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """A table.

    Args:
      header: above the columns, in Markdown.
      rows: of texts, which are shown as they are.
      words: how many columns, the first ones, are of words; the others are of numbers.
    """
    rule = [':--' if column < words else '--:' for column in range(len(header))]
    lines = [header, rule, *([escaped(cell) for cell in row] for row in rows)]
    return '\n'.join(f'| {" | ".join(cells)} |' for cells in lines)


def escaped(text: str) -> str:
    """Text that Markdown takes as it is: on one line, no column of a table, no tag of HTML, and no link."""
    for sign, instead in (
        ('\\', '\\\\'),
        ('<', '&lt;'),
        ('>', '&gt;'),
        ('](', ']\\('),
        *((s, f'\\{s}') for s in '|*_`'),
    ):
        text = text.replace(sign, instead)
    return ' '.join(text.split())
