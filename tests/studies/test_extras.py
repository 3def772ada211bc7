"""What is missing is told at once."""

from typing import Any

import pytest

from studies import extras


def test_what_is_not_installed_is_named_with_what_installs_it(monkeypatch: Any, capsys: Any) -> None:
    extras.require('studies')
    monkeypatch.setitem(extras._IMPORTED, 'studies', ('json', 'no_such_package'))
    with pytest.raises(SystemExit) as end:
        extras.require('studies')
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: no_such_package: not installed: pip install '.[studies]'\n"
