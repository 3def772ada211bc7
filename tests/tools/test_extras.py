"""Packages that a command needs."""

import pytest

from compat.errors import CommandError
from tools import extras


def test_require__names_missing_packages_and_the_command_that_installs_them() -> None:
    extras.require('studies', 'json')
    with pytest.raises(CommandError) as end:
        extras.require('studies', 'json', 'no_such_package')
    assert end.value.exit_code == 2
    assert str(end.value) == "no_such_package: not installed: pip install 'inception-v3-tpu[studies]'"
