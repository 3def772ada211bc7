"""The eager loop of a RevNet, in a process of its own: eager execution cannot be switched off again."""

import json
import pathlib
import re
import subprocess
import sys

import pytest


@pytest.mark.both
@pytest.mark.program
def test_eager_loop__gives_the_same_weights_in_all_modes_and_after_resuming(
    digits_dir: str, tmp_path: pathlib.Path
) -> None:
    command = [sys.executable, '-W', 'ignore', '-m', 'tests.examples.eager_steps', str(tmp_path), digits_dir]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    assert re.fullmatch(r'step 1 of 2, loss \d\.\d{4}', lines[0]) and lines[1].startswith('step 2 of 2, loss ')
    assert re.fullmatch(r'accuracy \d+% of the validation images', lines[2])
    found = json.loads(last)
    assert (found['exit code'], found['resumed at']) == (0, 2)
    assert found['different'] == [[], []]
    assert len({*found['variables']}) == 1 and found['variables'][0] > 60
    assert found['rates'] == pytest.approx([0.02, 0.002, 0.0002])
    assert found['restored rate'] == pytest.approx(0.0002)
    assert sorted(path.name for path in (tmp_path / 'stored').glob('*.index')) == ['ckpt-3.index', 'ckpt-4.index']
