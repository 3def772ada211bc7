"""Moves further cases of a test to the `program` tier; for fast answers, the default tier has one of each kind."""

from typing import Any

import pytest

# CI runs the moved cases on both versions of TensorFlow, as it does the default tier.
_MARKS = (pytest.mark.program, pytest.mark.both)


def further(*values: Any) -> Any:
    """A case of `pytest.mark.parametrize` that only the `program` tier runs."""
    return pytest.param(*values, marks=_MARKS)
