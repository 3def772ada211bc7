"""The commands of the data sets, started from a shell."""

import subprocess
import sys

import pytest


@pytest.mark.program
@pytest.mark.parametrize(
    ('name', 'missing'),
    [
        ('audit', 'name the folder of the data set, or its files with --train_files and --eval_files'),
        ('cifar10', 'required: '),
        ('from-folder', 'required: '),
        ('tar-shards', 'required: '),
    ],
)
def test_command__names_itself_and_what_is_missing(name: str, missing: str) -> None:
    done = subprocess.run([sys.executable, '-m', 'inception_v3_tpu', name], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, '')
    assert done.stderr.startswith(f'usage: inception-v3 {name} ') and missing in done.stderr
