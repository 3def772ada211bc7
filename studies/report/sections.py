"""Sections of an experiment's report: a title, a table and notes, shown on a terminal or in Markdown."""

from dataclasses import dataclass
from typing import Iterable, List, Sequence

from benchmarks import tables
from console.messages import in_markdown


@dataclass(frozen=True)
class Section:
    """A table with a title above and notes below.

    Attributes:
      title: the title.
      header: the headings of the columns.
      rows: the cells, as texts.
      words: the number of columns, from the left, that hold words; the others hold numbers.
      notes: a sentence or more each.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    notes: Sequence[str] = ()


def show(sections: Iterable[Section]) -> None:
    """Prints sections."""
    for section in sections:
        print(f'\n{section.title}\n')
        tables.show(section.header, section.rows, section.words)
        if section.notes:
            print('\n'.join(['', *section.notes]))


def plain(sections: Iterable[Section]) -> str:
    """Sections as text with plain columns."""
    parts = []
    for section in sections:
        lines = [section.title, '', *tables.plain(section.header, section.rows, section.words)]
        parts.append('\n'.join([*lines, '', *section.notes] if section.notes else lines))
    return '\n\n'.join(parts)


def markdown(sections: Iterable[Section]) -> List[str]:
    """Sections as paragraphs of Markdown."""
    parts = []
    for section in sections:
        parts += [f'## {section.title}', markdown_table(section.header, section.rows, section.words)]
        if section.notes:
            parts.append('\n'.join(f'- {note}' for note in section.notes))
    return parts


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
