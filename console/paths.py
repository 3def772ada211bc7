"""Expands `~` in the paths of a command line, which a shell leaves in `--flag=~/folder` and within quotes."""

import os
import re
import sys
from typing import List, Optional, Sequence

# A flag with its value, or a value alone; the value begins with a tilde.
_WORD = re.compile(r'(-{1,2}\w[\w-]*=)?(~.*)', re.DOTALL)


def expanded(argv: Optional[Sequence[str]] = None) -> List[str]:
    """The words of a command line, with the home folder in place of a leading `~` or `~user` of a word or a value.

    A `~` elsewhere, and the name of an unknown user, stay as they are: `./~` names a file `~`. By default, they are
    the words of this process without the program's name.
    """
    return [_expanded(word) for word in (sys.argv[1:] if argv is None else argv)]


def _expanded(word: str) -> str:
    match = _WORD.fullmatch(word)
    return (match.group(1) or '') + os.path.expanduser(match.group(2)) if match else word
