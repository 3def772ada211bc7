"""Packages that a command needs."""

from typing import Any

import pytest

from studies import extras


def test_require__names_missing_packages_and_the_command_that_installs_them(monkeypatch: Any, capsys: Any) -> None:
    extras.require('studies')
    monkeypatch.setitem(extras._MODULES, 'studies', ('json', 'no_such_package'))
    with pytest.raises(SystemExit) as end:
        extras.require('studies')
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: no_such_package: not installed: pip install '.[studies]'\n"
