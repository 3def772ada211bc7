"""The eager loop of a RevNet, in a process of its own: eager execution cannot be switched off again."""

import json
import pathlib
import subprocess
import sys

import pytest


@pytest.mark.both
@pytest.mark.program
def test_eager_loop__gives_the_same_weights_in_all_modes_and_after_a_kill(
    digits_dir: str, tmp_path: pathlib.Path
) -> None:
    python = [sys.executable, '-W', 'ignore', '-m']
    folder = str(tmp_path / 'killed')
    flags = [f'--folder={folder}', f'--data_dir={digits_dir}', '--batch_size=4', '--steps_per_checkpoint=2']
    with subprocess.Popen([*python, 'examples.eager_revnet', *flags], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        lines = [line for line, _ in zip(run.stdout, range(3))]
        run.kill()
    assert lines[2].startswith('step 3 of 80, loss ')
    command = [*python, 'tests.examples.eager_steps', str(tmp_path), digits_dir]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found['different'] == [[], [], []]
    assert len({*found['variables']}) == 1 and found['variables'][0] > 100
    assert found['resumed at'] in (2, 4)
    assert 0 <= found['accuracy'] <= 1
    assert found['rates'] == pytest.approx([0.02, 0.002, 0.0002])
    assert found['restored rate'] == pytest.approx(0.0002)
    assert sorted(path.name for path in (tmp_path / 'defun').glob('*.index')) == ['ckpt-4.index', 'ckpt-5.index']
