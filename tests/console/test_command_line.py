"""The refusal of repeated flags."""

import pytest

from compat.errors import CommandError
from console.command_line import check_given_once


def test_check_given_once__refuses_braces_that_the_shell_expanded() -> None:
    with pytest.raises(CommandError, match='--train_files: given 2 times, first as a0'):
        check_given_once(['--train_files=a0', '--seed=1', '-train_files=a1'], ['train_files'])
    check_given_once(['--train_files=a0', '--eval_files=a1'], ['train_files', 'eval_files'])
