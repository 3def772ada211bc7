"""Tests that commands answer `--help` and wrong flags without libraries that take seconds to load."""

import subprocess
import sys

import pytest

HIDDEN = 'import sys; sys.modules.update(dict.fromkeys(["tensorflow", "numpy", "scipy", "matplotlib", "jinja2"])); '


@pytest.mark.parametrize('command', ['evaluate', 'predict', 'export', 'provenance'])
@pytest.mark.parametrize(('flag', 'code', 'text'), [('--help', 0, 'exit codes:'), ('--no_such', 2, 'error: ')])
def test_command__answers_without_large_libraries(command: str, flag: str, code: int, text: str) -> None:
    program = f'{HIDDEN}from inception_v3_tpu.__main__ import main; main([{command!r}, {flag!r}])'
    done = subprocess.run([sys.executable, '-c', program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == code and text in done.stdout.decode(), done.stdout.decode()
