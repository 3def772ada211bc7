"""Expands `~` in the paths of a command line, which a shell leaves in `--flag=~/folder` and within quotes."""

import os
import re
import sys
from typing import List, Optional, Sequence

from console.errors import CommandError
from console.messages import meant, shown

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


def check_folder(path: str, flag: str = '') -> None:
    """Refuses the path of a local folder that does not exist; paths with a scheme, such as gs://, are not looked up.

    Commands call this before they load TensorFlow, which takes seconds.
    """
    if path and '://' not in path and not os.path.exists(path):
        raise CommandError(f'{f"--{flag}=" * bool(flag)}{shown(path, 4096)}: no such folder.{meant_path(path)}')


def meant_path(path: str) -> str:
    """The question whether a path beside a local one that does not exist was meant; empty if none is like it."""
    folder, name = os.path.split(path.rstrip(os.sep))
    try:
        names = os.listdir(folder or '.')
    except (OSError, ValueError):
        return ''
    return meant(name, names, os.path.join(folder, '')) if name else ''
