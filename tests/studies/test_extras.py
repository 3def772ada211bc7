"""Packages that a command needs, and those that its help does not need."""

import subprocess
import sys
from typing import Any

import pytest

from studies import extras


def test_require__names_missing_packages_and_the_command_that_installs_them(monkeypatch: Any) -> None:
    extras.require('studies')
    monkeypatch.setitem(extras._MODULES, 'studies', ('json', 'no_such_package'))
    with pytest.raises(extras.MissingPackageError) as end:
        extras.require('studies')
    assert end.value.exit_code == 2
    assert str(end.value) == "no_such_package: not installed: pip install 'inception-v3-tpu[studies]'"


@pytest.mark.parametrize('name', ['sweep', 'compare', 'fine-tuning'])
def test_help__needs_no_large_package(name: str) -> None:
    hidden = 'sys.modules.update(dict.fromkeys(("tensorflow", "numpy", "plotly", "yaml", "jinja2")))'
    command = f'import sys; {hidden}; from inception_v3_tpu.commands import run; run({name!r}, ["--help"])'
    done = subprocess.run([sys.executable, '-c', command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0 and '--out' in done.stdout, done.stdout
