"""Layout of help texts, and a check for repeated flags."""

import re
import textwrap
from typing import Sequence

from compat.errors import CommandError
from compat.messages import shown


def filled(text: str, width: int) -> str:
    """Fills the paragraphs of a text to a width; paragraphs with an indented line, such as commands, are kept."""
    paragraphs = text.strip().split('\n\n')
    return '\n\n'.join(
        paragraph
        if paragraph.startswith(' ') or '\n ' in paragraph
        else textwrap.fill(paragraph, width, break_long_words=False, break_on_hyphens=False)
        for paragraph in paragraphs
    )


def check_given_once(argv: Sequence[str], flags: Sequence[str]) -> None:
    """Raises CommandError for a repeated flag, as from a shell that expands braces: only one value would count."""
    for flag in flags:
        values = [word.partition('=')[2] for word in argv if re.match(f'--?{flag}=', word)]
        if len(values) > 1:
            raise CommandError(
                f'--{flag}: given {len(values):,} times, first as {shown(values[0])}. Did the shell expand its braces? '
                f"Quote them, as in --{flag}='train-{{000..639}}.tar'; commas separate several patterns."
            )
