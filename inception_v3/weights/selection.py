"""Selects variables of a network by name, as in `--freeze` and `--init_except`."""

import fnmatch
from typing import Iterable, List

# The classifiers of all networks. Their shapes follow from the number of classes.
HEAD = 'Logits,AuxLogits'


class Patterns:
    """A list of patterns, separated by commas.

    A pattern is a name or a shell pattern of the outer scopes of a variable, separated by slashes, with or without the
    scope of the network: `Mixed_5b`, `InceptionV3/Mixed_5b`, `Mixed_[56]*` or `Mixed_5b/Branch_0`. It matches all
    variables in these scopes. `*` matches no slash. Case does not matter.
    """

    def __init__(self, text: str):
        self.names = [name.strip() for name in text.split(',')] if text.strip() else []

    def match(self, variable: str) -> bool:
        """Whether a pattern matches the name of a variable."""
        return any(_matches(name, variable) for name in self.names)

    def unmatched(self, variables: Iterable[str]) -> List[str]:
        """The patterns that match none of the variables."""
        known = [*variables]
        return [name for name in self.names if not any(_matches(name, variable) for variable in known)]


def _matches(pattern: str, variable: str) -> bool:
    wanted, scopes = pattern.lower().strip('/').split('/'), variable.lower().split('/')
    return any(
        len(outer) >= len(wanted) and all(fnmatch.fnmatchcase(scope, part) for scope, part in zip(outer, wanted))
        for outer in (scopes, scopes[1:])
    )


def scopes_of(variables: Iterable[str]) -> List[str]:
    """The two outer scopes of each variable, once each, in the order of the variables."""
    return [*dict.fromkeys('/'.join(name.split('/')[:-1][:2]) or name for name in variables)]
