"""Tables in Markdown."""

from typing import Iterable, Sequence

from console.messages import in_markdown


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], words: int) -> str:
    """A table in GitHub-flavoured Markdown.

    Args:
      header: headings of the columns, in Markdown.
      rows: the cells, as plain text; they are escaped.
      words: the number of columns, from the left, that hold words; the others hold numbers.
    """
    rule = [':--' if column < words else '--:' for column in range(len(header))]
    lines = [header, rule, *([in_markdown(cell) for cell in row] for row in rows)]
    return '\n'.join(f'| {" | ".join(cells)} |' for cells in lines)
