"""Help and refusals of every command come without TensorFlow and other packages that take seconds to load."""

import subprocess
import sys
from typing import List

import pytest

from inception_v3_tpu.commands import COMMANDS

# Importing these fails.
LARGE = ('tensorflow', 'numpy', 'scipy', 'matplotlib', 'plotly', 'jinja2', 'h5py', 'apache_beam', 'sklearn', 'PIL')
HIDDEN = f'import sys; sys.modules.update(dict.fromkeys({LARGE!r})); '


def run(code: str) -> 'subprocess.CompletedProcess[str]':
    pipe = subprocess.PIPE
    return subprocess.run([sys.executable, '-c', HIDDEN + code], stdout=pipe, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize('module', ['config', 'flags', 'presets', 'rules', 'main'])
def test_settings__need_no_tensorflow(module: str) -> None:
    done = run(f'import inception_v3.{module}')
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ('arguments', 'code', 'text'),
    [
        *(([name, '--help'], 0, 'exit codes:') for name in sorted(COMMANDS)),
        *(([name, '--no_such_flag=1'], 2, 'error: ') for name in sorted(COMMANDS)),
        (['train', '--learning_rate=0'], 2, '--learning_rate=0.0: must be above 0.'),
        (['plan', '--learning_rate=0'], 2, '--learning_rate=0.0: must be above 0.'),
        (['preflight', '--topology=v4-8'], 2, '--topology=v4-8: this program runs on v2 and v3 only'),
        (['weights', 'export', '--help'], 0, 'torchvision'),
        (['weights', 'import', 'a', 'b', '--class_0=no'], 2, "'keep', 'add', 'drop'"),
        (['features', 'a', '--model=b', '--batch_size=0'], 2, '--batch_size: 0: must be a whole number'),
        (['fid', 'a'], 2, 'pt_inception-2015-12-05-6726825d.pth'),
    ],
    ids=str,
)
def test_command__answers_at_once(arguments: List[str], code: int, text: str) -> None:
    done = run(f'from inception_v3_tpu.__main__ import main; sys.exit(main({arguments!r}))')
    assert done.returncode == code and text in done.stdout, done.stdout
