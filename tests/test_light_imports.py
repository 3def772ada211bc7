"""Tests that the command line is parsed without TensorFlow, which takes seconds to load."""

import subprocess
import sys

import pytest

# Importing TensorFlow fails.
HIDDEN = 'import sys; sys.modules["tensorflow"] = None; '


@pytest.mark.parametrize('module', ['config', 'flags', 'presets', 'rules', 'main'])
def test_settings__need_no_tensorflow(module: str) -> None:
    done = subprocess.run([sys.executable, '-c', f'{HIDDEN}import inception_v3.{module}'], stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize(
    ('module', 'arguments', 'code', 'text'),
    [
        ('main', ['--help'], 0, '--learning_rate='),
        ('main', ['--learning_rate=0'], 2, '--learning_rate=0.0: must be above 0.'),
        ('commands.plan.__main__', ['--help'], 0, '--learning_rate='),
        ('commands.plan.__main__', ['--learning_rate=0'], 2, '--learning_rate=0.0: must be above 0.'),
        ('commands.preflight.__main__', ['--help'], 0, '--topology='),
        ('commands.preflight.__main__', ['--topology=v4-8'], 2, '--topology=v4-8: this program runs on v2 and v3 only'),
    ],
)
def test_command__answers_without_tensorflow(module: str, arguments: list, code: int, text: str) -> None:
    command = f'{HIDDEN}from inception_v3.{module} import main; sys.exit(main(["main", *{arguments!r}]))'
    done = subprocess.run([sys.executable, '-c', command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == code and text in done.stdout.decode(), done.stdout.decode()
