"""The commands of the data sets, started from a shell."""

import subprocess
import sys

import pytest


@pytest.mark.program
@pytest.mark.parametrize('name', ['audit', 'cifar10', 'from_folder', 'tar_shards'])
def test_command__names_itself_and_what_is_missing(name: str) -> None:
    done = subprocess.run([sys.executable, '-m', f'data.{name}'], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, '')
    assert done.stderr.startswith(f'usage: python -m data.{name} ') and 'required: ' in done.stderr
