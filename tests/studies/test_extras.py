"""Packages that a command needs."""

from typing import Any

import pytest

from console.errors import CommandError
from studies import extras


def test_require__names_missing_packages_and_the_command_that_installs_them(monkeypatch: Any) -> None:
    extras.require('studies')
    monkeypatch.setitem(extras._MODULES, 'studies', ('json', 'no_such_package'))
    with pytest.raises(CommandError) as end:
        extras.require('studies')
    assert end.value.exit_code == 2
    assert str(end.value) == "no_such_package: not installed: pip install 'inception-v3-tpu[studies]'"
