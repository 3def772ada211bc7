"""Braces and commas in patterns of file names, as Bash expands them: `train-{000000..000639}.tar`, `{a,b}.tfrecord`.

Written by hand, because the package braceexpand does not bound a range.
It needs no TensorFlow, so flags are checked before TensorFlow is loaded to list files.
"""

import itertools
import re
from typing import List

from compat.errors import CommandError
from compat.messages import shown

# The flags whose values are such patterns, by split.
FILE_FLAGS = {'train': 'train_files', 'validation': 'eval_files'}
# More files than any data set has; a mistyped range would fill the memory.
_FILES_AT_MOST = 1_000_000
_RANGE = re.compile(r'(\d{1,15})\.\.(\d{1,15})')


class PatternError(CommandError, ValueError):
    """A pattern that cannot be expanded."""


def expand(patterns: str, flag: str) -> List[str]:
    """The patterns without commas and braces, in order; wildcards stay. Raises PatternError if they are not valid."""
    try:
        # As in webdataset: `pipe:gsutil cat gs://bucket/{000..639}.tar`.
        if patterns.startswith('pipe:'):
            read = [word for word in patterns.split() if '://' in word or word.endswith('.tar')]
            raise ValueError(f'commands are not run. Name the files: {",".join(read) or "gs://bucket/{000..639}.tar"}')
        expanded = [each for part in _split(patterns) for each in _expanded(part.strip())]
        if not all(expanded):
            raise ValueError('one of the names is empty.')
    except ValueError as error:
        raise PatternError(f'--{flag}={shown(patterns)}: {error}')
    return expanded


def _depths(text: str) -> List[int]:
    """The number of open braces after each character."""
    return [*itertools.accumulate({'{': 1, '}': -1}.get(character, 0) for character in text)]


def _split(text: str) -> List[str]:
    """The parts between the commas outside of braces."""
    depths = _depths(text)
    if min(depths, default=0) < 0:
        raise ValueError('a closing brace without an opening one.')
    if depths and depths[-1]:
        raise ValueError('an opening brace without a closing one.')
    commas = [at for at, character in enumerate(text) if character == ',' and not depths[at]]
    return [text[before + 1 : after] for before, after in zip([-1, *commas], [*commas, len(text)])]


def _expanded(part: str) -> List[str]:
    begin, brace, _ = part.partition('{')
    if not brace:
        return [part]
    end = len(begin) + _depths(part[len(begin) :]).index(0)
    content, ends = part[len(begin) + 1 : end], _expanded(part[end + 1 :])
    match, parts = _RANGE.fullmatch(content), _split(content)
    if not match and len(parts) < 2:
        raise ValueError(f'{{{shown(content)}}} is neither a range, {{000..639}}, nor a list, {{a,b}}.')
    middles = _range(*match.groups()) if match else [each for one in parts for each in _expanded(one)]
    if len(middles) * len(ends) > _FILES_AT_MOST:
        raise ValueError(f'names more than {_FILES_AT_MOST:,} files.')
    return [f'{begin}{middle}{rest}' for middle in middles for rest in ends]


def _range(first: str, last: str) -> List[str]:
    begin, end = int(first), int(last)
    if abs(end - begin) >= _FILES_AT_MOST:
        raise ValueError(f'{{{first}..{last}}} names more than {_FILES_AT_MOST:,} files.')
    is_padded = any(len(each) > 1 and each.startswith('0') for each in (first, last))
    width = max(len(first), len(last)) if is_padded else 0
    return [f'{number:0{width}d}' for number in (range(begin, end + 1) if begin <= end else range(begin, end - 1, -1))]
