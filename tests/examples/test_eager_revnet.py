"""The eager loop of a RevNet, in a process of its own: eager execution cannot be switched off again."""

import json
import pathlib
import subprocess
import sys

import pytest


@pytest.mark.both
@pytest.mark.program
def test_eager_loop__gives_the_same_weights_in_all_modes_and_after_a_break(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, '-W', 'ignore', '-m', 'tests.examples.eager_steps', str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found['different'] == [[], [], []]
    assert len({*found['variables']}) == 1 and found['variables'][0] > 50
    assert found['resumed at'] == 1
    assert 0 <= found['accuracy'] <= 1
    assert sorted(path.name for path in (tmp_path / 'defun').glob('*.index')) == ['ckpt-1.index', 'ckpt-2.index']
