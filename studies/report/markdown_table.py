"""Tables in GitHub-flavoured Markdown."""

from typing import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> str:
    """A table in Markdown.

    Args:
      header: headings of the columns, in Markdown.
      rows: the cells, as plain text; they are escaped.
      words: the number of columns, from the left, that hold words; the others hold numbers.
    """
    rule = [':--' if column < words else '--:' for column in range(len(header))]
    lines = [header, rule, *([escaped(cell) for cell in row] for row in rows)]
    return '\n'.join(f'| {" | ".join(cells)} |' for cells in lines)


def escaped(text: str) -> str:
    """Escapes text so that Markdown shows it literally, on one line: no new column, HTML tag, link or emphasis."""
    for sign, instead in (
        ('\\', '\\\\'),
        ('<', '&lt;'),
        ('>', '&gt;'),
        ('](', ']\\('),
        *((s, f'\\{s}') for s in '|*_`'),
    ):
        text = text.replace(sign, instead)
    return ' '.join(text.split())
