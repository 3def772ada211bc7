"""Formats values from users and files for messages, terminals, tables and Markdown."""

import difflib
from typing import Any, Iterable, Sequence, Tuple

# The maximum length of a value in a message.
_CHARACTERS = 80
# The number of a list's texts that a message shows.
FEW = 3


def printable(text: str, kept: str = '') -> str:
    """A text with unprintable characters escaped: newlines, terminal controls, bidi controls, surrogates.

    The characters in `kept` are not escaped.
    """
    if text.isprintable():
        return text
    return ''.join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)


def shown(value: Any, at_most: int = _CHARACTERS) -> str:
    """A value on one line, in printable characters; a longer value than `at_most` is shortened in its middle."""
    text = value.decode(errors='surrogateescape') if isinstance(value, bytes) else str(value)
    if len(text) > at_most:
        text = f'{text[: at_most // 2]}...{text[-at_most // 2 :]}'
    return printable(text)


def full(path: Any) -> str:
    """A path on one line, in printable characters: whole up to 4,096 characters, Linux's limit in bytes."""
    return shown(path, 4096)


def meant(word: str, choices: Iterable[str], before: str = '') -> str:
    """A question that suggests the choice most similar to a word; empty if none is similar.

    Case is ignored. `before` is put in front of the choice, such as the folder of a file name.
    """
    by_letters = {choice.lower(): choice for choice in choices}
    similar = difflib.get_close_matches(word.lower(), by_letters, n=1)
    return f' Did you mean {full(before + by_letters[similar[0]])}?' if similar else ''


def alternatives(choices: Iterable[Any]) -> str:
    """Choices in words: `a, b or c`."""
    *others, last = map(str, choices)
    return f'{", ".join(others)} or {last}'


def listed(texts: Sequence[str], at_most: int = 3, separator: str = '; ') -> str:
    """The first few texts, and the number of the others."""
    more = [f'and {len(texts) - at_most} more'] if len(texts) > at_most else []
    return separator.join([*(shown(text, 500) for text in texts[:at_most]), *more])


def in_rows(rows: Sequence[Tuple[str, Any]], indent: str = '') -> str:
    """A line for each name and value, with the values aligned."""
    width = max(len(name) for name, _ in rows)
    return '\n'.join(f'{indent}{name:<{width}}  {printable(str(value))}'.rstrip() for name, value in rows)


def in_markdown(text: str) -> str:
    """A text that Markdown shows literally, on one line: no new column, HTML tag, link or emphasis."""
    for sign, instead in (
        ('\\', '\\\\'),
        ('<', '&lt;'),
        ('>', '&gt;'),
        ('](', ']\\('),
        *((s, f'\\{s}') for s in '|*_`'),
    ):
        text = text.replace(sign, instead)
    return printable(' '.join(text.split()))


def in_code(text: str) -> str:
    """A text for inline code in Markdown, without backticks, which would end it."""
    return printable(text).replace('`', r'\x60')


def counted(count: int, singular: str, plural: str = '') -> str:
    """A number and its noun: `1 image`, `2 images`; `plural` if it is not the singular with an s."""
    return f'{count:,} {singular if count == 1 else plural or singular + "s"}'


def first_few(texts: Sequence[str]) -> str:
    """The first three texts, and the number of the others."""
    more = len(texts) - FEW
    return ', '.join(texts[:FEW]) + (f' and {more:,} more' if more > 0 else '')
