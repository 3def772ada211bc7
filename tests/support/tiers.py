"""The tests that a tier leaves out.

Further cases of a test are in the `program` tier: the default tier has only one of each kind, to be fast. In the same
way, `slow` has one case of each kind of long test, and `nightly` the others.
"""

import functools
import pathlib
from typing import Any

import pytest

# The markers by which CI chooses tests.
MARKERS = ('program', 'slow', 'nightly', 'both')

# CI runs further cases on 1.15 and 2.15. On 2.21, the default tier has a similar case.
_MARKS = (pytest.mark.program, pytest.mark.both, pytest.mark.further)
# Files and folders of tests/ that run on TensorFlow 1.15 alone. Their subject is text: Markdown and its diagrams, the
# sources of modules as a parser sees them, shell scripts, a Dockerfile. No version of Python or a package changes that.
OF_TEXT = (
    'docs/test_commands.py',
    'docs/test_map.py',
    'docs/test_network_diagrams.py',
    'docs/test_pages.py',
    'run_tpu',
    'test_deploy.py',
    'test_imports.py',
    'test_run_setup.py',
)


def further(*values: Any) -> Any:
    """A case of `pytest.mark.parametrize` that only the `program` tier runs."""
    return pytest.param(*values, marks=_MARKS)


@functools.lru_cache(maxsize=None)
def may_have(path: pathlib.Path, marker: str) -> bool:
    """Whether a file gives one of its tests a marker, directly or by `further`, `slow_in` of stores, or a fixture."""
    # Parametrized fixtures are in the file itself, or in that of its folder.
    texts = [each.read_text(encoding='utf-8') for each in (path, path.with_name('conftest.py')) if each.exists()]
    giving = {'program': 'further(', 'both': 'further(', 'slow': 'slow_in(', 'nightly': 'slow_in('}
    return any(f'mark.{marker}' in text or giving[marker] in text for text in texts)
