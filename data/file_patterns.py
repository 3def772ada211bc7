"""Patterns of file names, local and remote: `train-*.tar`, `train-{000000..000639}.tar`, `{a,b}.tfrecord`, and lists.

Commas separate patterns. Braces are those of Bash: `{FIRST..LAST}` with leading zeros, `{FIRST..LAST..STEP}`, `{A,B}`,
one inside another. `*`, `?` and `[…]` match within one name, not across folders.
"""

import collections
import fnmatch
import os
import re
from typing import Dict, Iterator, List, Sequence, Set

from console.messages import shown
from console.tensorflow_versions import tf
from data import remote
from data.braces import PatternError, expand
from data.records import DataError

_NAMED_AT_MOST = 3
_WILDCARDS = '*?['
_ROOT = re.compile(r'(?:\w+://[^/]*/|/*)')


def find(patterns: str, folder: str, flag: str) -> List[str]:
    """The paths of the files that patterns name: of each pattern in the order of its braces, then by name.

    Relative patterns begin in `folder`; the flag is named in messages.

    Raises:
      DataError: files are missing, a wildcard matches none, or a file is named twice.
      PatternError: a pattern cannot be expanded.
      RemoteError: access to a folder is denied, or the store cannot be reached.
    """
    names: Dict[str, Set[str]] = {}
    found: List[str] = []
    missing: List[str] = []
    for pattern in expand(patterns, flag):
        path = located(pattern, folder)
        if not remote.is_remote(path) and os.path.isdir(path):
            raise DataError(f"--{flag}={shown(patterns)}: {path} is a folder. Name its files: '{path.rstrip('/')}/*'.")
        if not _has_wildcard(path):
            is_there = os.path.basename(path) in _names(os.path.dirname(path), names, flag)
            (found if is_there else missing).append(path)
            continue
        matches = [*_matches(path, names, flag)]
        if not matches:
            raise DataError(f'--{flag}={shown(patterns)}: no file matches {path}.{_holds(path, names, flag)}')
        found += matches
    if missing:
        raise DataError(
            f'--{flag}={shown(patterns)}: {len(missing):,} of {len(missing) + len(found):,} files are missing: '
            f'{_first(missing)}.{_holds(missing[0], names, flag)} Supply them, or name the files that there are.'
        )
    twice = sorted(path for path, count in collections.Counter(found).items() if count > 1)
    if twice:
        raise DataError(f'--{flag}={shown(patterns)}: names {len(twice):,} files more than once: {_first(twice)}.')
    return found


def located(pattern: str, folder: str) -> str:
    """The path of a pattern: relative ones belong to a folder, and `~` is the user's."""
    pattern = os.path.expanduser(pattern)
    return pattern if remote.is_remote(pattern) else os.path.join(folder, pattern)


def _has_wildcard(path: str) -> bool:
    return any(character in path for character in _WILDCARDS)


def _matches(path: str, names: Dict[str, Set[str]], flag: str) -> Iterator[str]:
    """Yields the files that match a path with wildcards, by name. Folders and hidden files do not match."""
    root = _ROOT.match(path).group()  # type: ignore[union-attr]
    *folders, last = path[len(root) :].split('/')
    if '**' in path:
        raise PatternError(f'--{flag}: {shown(path)}: ** is not supported; write */ for each level of folders.')
    found = [root]
    for part in folders:
        if _has_wildcard(part):
            found = [os.path.join(each, name) for each in found for name in _matching(part, each, names, flag)]
        else:
            found = [os.path.join(each, part) for each in found]
    for each in found:
        for name in _matching(last, each, names, flag):
            # A store has no folders; its listing marks the beginnings of names by a slash, which `_names` removes.
            if remote.is_remote(each) or not os.path.isdir(os.path.join(each, name)):
                yield os.path.join(each, name)


def _matching(part: str, folder: str, names: Dict[str, Set[str]], flag: str) -> List[str]:
    in_folder = sorted(_names(folder, names, flag))
    return [name for name in in_folder if fnmatch.fnmatchcase(name, part) and (name[0] != '.' or part[0] == '.')]


def _names(folder: str, names: Dict[str, Set[str]], flag: str) -> Set[str]:
    """The names in a folder, none if it does not exist; `names` has those of earlier calls."""
    if folder not in names:
        try:
            names[folder] = {name.rstrip('/') for name in remote.names_in(folder or '.') or ()}
        except tf.errors.OpError as error:
            raise DataError(f'--{flag}: {folder} cannot be listed: {error.message}')
    return names[folder]


def _holds(path: str, names: Dict[str, Set[str]], flag: str) -> str:
    """A sentence about the folder of a path without a file."""
    folder = os.path.dirname(path)
    if _has_wildcard(folder):
        return ''
    present = sorted(_names(folder, names, flag))
    kinds = sorted({re.sub(r'\d+', '*', name) for name in present})
    place = folder or os.getcwd()
    return f' {place} holds {", ".join(kinds[:5])}.' if kinds else f' {place} is empty or does not exist.'


def _first(paths: Sequence[str]) -> str:
    more = len(paths) - _NAMED_AT_MOST
    return ', '.join(paths[:_NAMED_AT_MOST]) + (f' and {more:,} more' if more > 0 else '')
