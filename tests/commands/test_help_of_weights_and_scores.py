"""Tests that the commands on weights and features answer --help and wrong flags without TensorFlow and NumPy."""

import subprocess
import sys
from typing import List

import pytest

# Importing these fails.
HIDDEN = 'import sys; sys.modules.update(dict.fromkeys(["tensorflow", "numpy", "scipy", "h5py"])); '


@pytest.mark.parametrize(
    ('name', 'arguments', 'code', 'text'),
    [
        ('weights', ['--help'], 0, 'compare'),
        ('weights', ['export', '--help'], 0, 'torchvision'),
        ('weights', ['import', 'a', 'b', '--class_0=no'], 2, "'keep', 'add', 'drop'"),
        ('features', ['--help'], 0, '--layer'),
        ('features', ['a', '--model=b', '--batch_size=0'], 2, '--batch_size=0: must be at least 1.'),
        ('fid', ['--help'], 0, '--kid_subsets'),
        ('fid', ['a'], 2, 'pt_inception-2015-12-05-6726825d.pth'),
    ],
)
def test_command__answers_without_tensorflow(name: str, arguments: List[str], code: int, text: str) -> None:
    command = f'{HIDDEN}from inception_v3.commands.{name}.__main__ import main; sys.exit(main({arguments!r}))'
    done = subprocess.run([sys.executable, '-c', command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == code and text in done.stdout.decode(), done.stdout.decode()
