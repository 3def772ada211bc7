"""Tests of `./run`: it sets up the environment once, and again after an interrupted set-up."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FILES = ('run', 'setup.py', 'requirements.lock', 'README.md')


@pytest.fixture
def project(tmp_path: Any) -> pathlib.Path:
    """A checkout of the project without an environment."""
    folder = tmp_path / 'a project'
    folder.mkdir()
    for name in FILES:
        shutil.copy(str(ROOT / name), str(folder))
    for package in ('console', 'inception_v3', 'inception_v3_tpu', 'preprocessing', 'data', 'studies', 'benchmarks'):
        shutil.copytree(str(ROOT / package), str(folder / package), ignore=shutil.ignore_patterns('__pycache__'))
    return folder


def outside_environment() -> Any:
    """The environment variables of someone who has not used the project yet."""
    environment = {n: value for n, value in os.environ.items() if n != 'TF' and not n.startswith('PYTEST')}
    venv = str(ROOT / '.venv')
    environment['PATH'] = os.pathsep.join(p for p in environment['PATH'].split(os.pathsep) if not p.startswith(venv))
    return environment


def call(project: pathlib.Path, *command: str) -> 'subprocess.CompletedProcess[str]':
    return subprocess.run(
        [str(project / 'run'), *command], capture_output=True, text=True, timeout=900, env=outside_environment()
    )


@pytest.mark.program
def test_run__prints_help_without_a_command(project: pathlib.Path) -> None:
    for done in (call(project), call(project, '--help')):
        assert done.returncode == 0
        assert done.stdout.startswith('./run [--tf=VERSION] COMMAND')
        assert {'PYTHON37', 'PYTHON311', 'PYTHON_IMAGE'} <= set(re.findall(r'PYTHON\w+', done.stdout))
    assert not list(project.glob('.venv*'))


@pytest.mark.slow
def test_run__killed_set_up_is_repaired_by_the_next_call(project: pathlib.Path) -> None:
    started = subprocess.Popen(
        [str(project / 'run'), 'true'], env=outside_environment(), start_new_session=True, stderr=subprocess.DEVNULL
    )
    site_packages = project / '.venv' / 'lib' / 'python3.7' / 'site-packages'
    for _ in range(3000):
        if (site_packages / 'tensorflow_core').exists():
            break
        time.sleep(0.1)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    assert (site_packages / 'tensorflow_core').exists()

    show = (
        'import sys, sklearn, inception_v3, tensorflow as tf; print(sys.version_info[:2], tf.__version__, sys.prefix)'
    )
    repaired = call(project, 'python', '-W', 'ignore', '-c', show)
    assert repaired.returncode == 0, repaired.stderr
    assert f'(3, 7) 1.15.5 {project}/.venv' in repaired.stdout
    assert 'installing' in repaired.stderr

    again = call(project, 'python', '-c', 'print("ready")')
    assert (again.stdout, again.stderr) == ('ready\n', '')
