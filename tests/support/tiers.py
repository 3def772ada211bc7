"""The tests that a tier leaves out.

Further cases of a test are in the `program` tier: for fast answers, the default tier has one of each kind.
"""

from typing import Any

import pytest

# CI runs a moved case on 1.15 and 2.15. On 2.21, the default tier has its like.
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
