"""Patterns of file names, local and remote: `train-*.tar`, `train-{000000..000639}.tar`, `{a,b}.tfrecord`, and lists.

Commas separate patterns. Braces are as in Bash: `{FIRST..LAST}` with leading zeros, and `{A,B}`, also nested. `*`, `?`
and `[…]` match within one name, not across folders.
"""

import collections
import fnmatch
import functools
import os
import re
from typing import Iterator, List, Tuple

from compat import tf
from compat.messages import first_few, shown
from data import remote
from data.braces import PatternError, expand
from data.records import DataError

_WILDCARDS = re.compile(r'[*?[]')
_ROOT = re.compile(r'(?:\w+://[^/]*/|/*)')


def find(patterns: str, folder: str, flag: str) -> List[str]:
    """The paths of the files that patterns name, in the order of the patterns and of their braces, then by name.

    Relative patterns begin in `folder`; the flag is named in messages. Raises DataError if a file is missing or named
    twice, or a wildcard matches none.
    """
    given = f'--{flag}={shown(patterns)}'

    @functools.lru_cache(maxsize=None)
    def names_in(folder: str) -> List[str]:
        """The names in a folder; none if it does not exist."""
        try:
            return sorted({name.rstrip('/') for name in remote.names_in(folder or '.') or ()})
        except tf.errors.OpError as error:
            raise DataError(f'--{flag}: {folder} cannot be listed: {error.message}')

    def matching(part: str, folder: str) -> List[str]:
        names = (name for name in names_in(folder) if name[0] != '.' or part.startswith('.'))
        return [os.path.join(folder, name) for name in names if fnmatch.fnmatchcase(name, part)]

    def matches(root: str, own: str) -> Iterator[str]:
        """Yields the files that match a pattern below a root, by name. Folders and hidden files do not match."""
        if '**' in own:
            raise PatternError(
                f'--{flag}: {shown(root + own)}: ** is not supported; write */ for each level of folders.'
            )
        found, (*folders, last) = [root], own.split('/')
        for part in folders:
            if _WILDCARDS.search(part):
                found = [name for each in found for name in matching(part, each)]
            else:
                found = [os.path.join(each, part) for each in found]
        found = [name for each in found for name in matching(last, each)]
        # A store has no folders; its listing marks shared beginnings of names by a slash.
        return (each for each in found if remote.is_remote(each) or not os.path.isdir(each))

    def holds(folder: str) -> str:
        """A sentence about the content of a folder in which a file was not found."""
        kinds = sorted({re.sub(r'\d+', '*', name) for name in names_in(folder)})
        place = folder or os.getcwd()
        return f' {place} holds {", ".join(kinds[:5])}.' if kinds else f' {place} is empty or does not exist.'

    found: List[str] = []
    missing: List[str] = []
    for pattern in expand(patterns, flag):
        path = located(pattern, folder)
        root, own = _divided(pattern, path)
        if not remote.is_remote(path) and os.path.isdir(path):
            raise DataError(f"{given}: {path} is a folder. Name its files: '{path.rstrip('/')}/*'.")
        if not _WILDCARDS.search(own):
            is_there = os.path.basename(path) in names_in(os.path.dirname(path))
            (found if is_there else missing).append(path)
            continue
        matched = [*matches(root, own)]
        if not matched:
            among = '' if _WILDCARDS.search(os.path.dirname(own)) else holds(os.path.dirname(path))
            raise DataError(f'{given}: no file matches {path}.{among}')
        found += matched
    if missing:
        raise DataError(
            f'{given}: {len(missing):,} of {len(missing) + len(found):,} files are missing: {first_few(missing)}.'
            f'{holds(os.path.dirname(missing[0]))} Supply them, or name the files that there are.'
        )
    twice = sorted(path for path, count in collections.Counter(found).items() if count > 1)
    if twice:
        raise DataError(f'{given}: names {len(twice):,} files more than once: {first_few(twice)}.')
    return found


def _divided(pattern: str, path: str) -> Tuple[str, str]:
    """A located pattern in two parts: its literal root, such as the data set's, a user's or a bucket; and the rest."""
    own = pattern.partition('/')[2] if pattern.startswith('~') else pattern
    if own == path:
        own = path[len(_ROOT.match(path).group()) :]  # type: ignore[union-attr]
    return path[: len(path) - len(own)], own


def located(pattern: str, folder: str) -> str:
    """The path of a pattern: relative patterns begin in `folder`, and `~` is the user's home."""
    pattern = os.path.expanduser(pattern)
    return pattern if remote.is_remote(pattern) else os.path.join(folder, pattern)
