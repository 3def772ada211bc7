"""The commands of data sets answer --help and wrong flags without TensorFlow and other large packages."""

import subprocess
import sys

import pytest

HIDDEN = ('tensorflow', 'numpy', 'apache_beam', 'sklearn', 'PIL', 'rich')


@pytest.mark.parametrize('command', ['from-folder', 'imagenet', 'cifar10', 'digits', 'tar-shards', 'audit'])
def test_help_needs_no_large_package(command: str) -> None:
    code = (
        f'import sys; sys.modules.update(dict.fromkeys({HIDDEN!r})); '
        'from inception_v3_tpu.__main__ import main; sys.exit(main())'
    )
    for flag, exit_code, text in (('--help', 0, 'exit codes:'), ('--nonsense', 2, 'error: ')):
        done = subprocess.run(
            [sys.executable, '-c', code, command, flag], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert done.returncode == exit_code and text in done.stdout, done.stdout
