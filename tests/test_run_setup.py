"""Tests of `./run` with a stand-in for uv that logs its calls and makes no packages."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
from typing import Any, List

import pytest

from tests.support.processes import text_of, wait_for

pytestmark = pytest.mark.program

ROOT = pathlib.Path(__file__).parent.parent
LIMIT = 120
TOOLS = ('cat', 'chmod', 'cmp', 'cp', 'dirname', 'env', 'flock', 'mkdir', 'rm', 'sed', 'sh', 'sleep')

# It makes .venv, waits while the file `wait` exists, and fails if the file `fail` has its first two arguments.
UV = """#!/bin/sh
cd "$(dirname "$0")/../.."
printf '%s\\n' "$*" >>log
if [ "$1" = venv ]; then mkdir -p .venv/bin; fi
while [ -e wait ]; do sleep 0.02; done
! grep -qx "$1 $2" fail 2>/dev/null
"""
PYTHON = '#!/bin/sh\nif [ "$1" = -c ]; then echo "$0"; fi\n'


class Project:
    """A folder with `run` and the stand-ins."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder / 'a project'
        self.bin = folder / 'bin'
        for made in (self.bin, self.folder / '.tools' / 'bin'):
            made.mkdir(parents=True)
        for tool in (*TOOLS, 'grep'):
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        shutil.copy(str(ROOT / 'run'), str(self.folder))
        (self.folder / 'requirements.lock').write_text('one==1\n')
        self.add(self.folder / '.tools' / 'bin' / 'uv', UV)
        self.python = self.add(self.bin / 'python3.7', PYTHON)

    def add(self, path: pathlib.Path, text: str) -> pathlib.Path:
        path.write_text(text)
        path.chmod(0o755)
        return path

    def start(self, *command: str, **environment: str) -> 'subprocess.Popen[str]':
        return subprocess.Popen(
            [str(self.folder / 'run'), *command],
            env={'PATH': str(self.bin), 'HOME': str(self.folder), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def call(self, *command: str, **environment: str) -> 'subprocess.CompletedProcess[str]':
        process = self.start(*command, **environment)
        out, err = process.communicate(timeout=LIMIT)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def log(self) -> List[str]:
        return text_of(str(self.folder / 'log')).splitlines()

    def set_up(self, python: Any = None) -> List[str]:
        """The calls of a whole set-up."""
        own = f'{self.folder}/.venv'
        return [
            f'venv --quiet --python {python or self.python} {own}',
            f'pip sync --quiet --python {own}/bin/python --require-hashes --compile-bytecode '
            f'{self.folder}/requirements.lock',
            f'pip install --quiet --python {own}/bin/python --no-deps --no-build-isolation --editable {self.folder}',
        ]


@pytest.fixture
def project(tmp_path: pathlib.Path) -> Project:
    return Project(tmp_path)


def test_run__sets_up_once_and_passes_arguments_output_and_exit_code(project: Project) -> None:
    script = 'printf "%s;" "$@"; echo "${PATH%%:*}"; exit 7'
    done = project.call('sh', '-c', script, 'x', 'a b', '*')
    assert (done.returncode, done.stdout) == (7, f'a b;*;{project.folder}/.venv/bin\n')
    assert project.log() == project.set_up()
    assert 'installing the packages of requirements.lock' in done.stderr
    again = project.call('sh', '-c', 'exit 0')
    assert (again.returncode, again.stdout, again.stderr) == (0, '', '')
    assert len(project.log()) == 3


def test_run__changed_lock_replaces_the_environment(project: Project) -> None:
    project.call('sh', '-c', ':')
    (project.folder / '.venv' / 'old').touch()
    (project.folder / 'requirements.lock').write_text('one==2\n')
    assert project.call('sh', '-c', ':').returncode == 0
    assert project.log() == project.set_up() * 2
    assert not (project.folder / '.venv' / 'old').exists()


@pytest.mark.parametrize('step', ['venv --quiet', 'pip sync', 'pip install'])
def test_run__failed_set_up_runs_nothing_and_is_repaired(project: Project, step: str) -> None:
    (project.folder / 'fail').write_text(step + '\n')
    done = project.call('sh', '-c', 'echo ran')
    assert done.returncode != 0 and not done.stdout
    (project.folder / 'fail').unlink()
    (project.folder / 'log').unlink()
    assert project.call('sh', '-c', 'echo ran').stdout == 'ran\n'
    assert project.log() == project.set_up()


def test_run__killed_set_up_is_repaired(project: Project) -> None:
    (project.folder / 'wait').touch()
    started = project.start('sh', '-c', 'echo ran')
    wait_for(project.log)
    os.killpg(started.pid, signal.SIGKILL)
    assert started.communicate(timeout=LIMIT)[0] == ''
    for name in ('wait', 'log'):
        (project.folder / name).unlink()
    assert project.call('sh', '-c', 'echo ran').stdout == 'ran\n'
    assert project.log() == project.set_up()


def test_run__second_first_call_waits(project: Project) -> None:
    (project.folder / 'wait').touch()
    calls = [project.start('sh', '-c', 'echo ran') for _ in range(2)]
    wait_for(project.log)
    (project.folder / 'wait').unlink()
    assert [call.communicate(timeout=LIMIT)[0] for call in calls] == ['ran\n'] * 2
    assert project.log() == project.set_up()


def test_run__chooses_a_python_that_works(project: Project, tmp_path: pathlib.Path) -> None:
    mine = project.add(tmp_path / 'mine', PYTHON)
    project.call('sh', '-c', ':', PYTHON37=str(mine))
    assert project.log() == project.set_up(mine)
    shutil.rmtree(str(project.folder / '.venv'))
    (project.folder / 'log').unlink()
    # A version manager's shim that fails, and a version that pyenv installed.
    project.add(project.bin / 'python3.7', '#!/bin/sh\nexit 127\n')
    folder = tmp_path / 'pyenv' / 'versions' / '3.7.17' / 'bin'
    folder.mkdir(parents=True)
    found = project.add(folder / 'python3.7', PYTHON)
    project.call('sh', '-c', ':', PYENV_ROOT=str(tmp_path / 'pyenv'))
    assert project.log() == project.set_up(found)


def test_run__downloads_python_or_names_the_variable(project: Project) -> None:
    (project.bin / 'python3.7').unlink()
    done = project.call('sh', '-c', 'echo ran')
    assert (done.returncode, done.stdout) == (2, '')
    assert project.log() == [f'python install --install-dir {project.folder}/.tools/python 3.7']
    assert 'downloading CPython 3.7' in done.stderr and 'PYTHON37=/path/to/python3.7' in done.stderr


def test_run__candidate_must_be_python_3_7(project: Project) -> None:
    # The real check: this interpreter is accepted if it is 3.7 and has ssl and venv.
    done = project.call('sh', '-c', ':', PYTHON37=sys.executable)
    assert done.returncode == 0
    assert project.log() == project.set_up(sys.executable)
    other = project.add(project.bin / 'other', f'#!/bin/sh\nexec {sys.executable} -c "import sys; sys.exit(1)"\n')
    (project.bin / 'python3.7').unlink()
    shutil.rmtree(str(project.folder / '.venv'))
    assert project.call('sh', '-c', ':', PYTHON37=str(other)).returncode == 2
