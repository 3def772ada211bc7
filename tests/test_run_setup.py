"""Tests of `./run` with a stand-in for uv that logs its calls and installs no packages."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
from typing import Any, List

import pytest

from tests.support.processes import text_of, wait_for

ROOT = pathlib.Path(__file__).parent.parent
LIMIT = 120
TOOLS = ('cat', 'chmod', 'cmp', 'cp', 'dirname', 'env', 'flock', 'mkdir', 'rm', 'sed', 'sh', 'sleep')

# Makes an environment, waits while the file `wait` exists, and fails if the file `fail` has its first two arguments.
UV = """#!/bin/sh
cd "$(dirname "$0")/../.."
printf '%s\\n' "$*" >>log
for last in "$@"; do :; done
if [ "$1" = venv ]; then
  mkdir -p "$last/bin"
  printf '#!/bin/sh\\necho "%s"\\n' "$last" >"$last/bin/python"
  chmod +x "$last/bin/python"
fi
while [ -e wait ]; do sleep 0.02; done
! grep -qx "$1 $2" fail 2>/dev/null
"""
PYTHON = '#!/bin/sh\nif [ "$1" = -c ]; then echo "$0"; fi\n'
# The Python of an image: its versions of TensorFlow and of Python, and the folder of its packages.
IMAGE = """#!/bin/sh
case $2 in
*tensorflow.__version__*) echo "{tensorflow} {python} $0" ;;
*addsitedir*) echo "packages of $0" ;;
*) exit 1 ;;
esac
"""
LOCK = """jinja2==3.1.6 \\
    --hash=sha256:bb \\
    --hash=sha256:cc
    # via
    #   inception-v3-tpu (setup.py)
numpy==1.24.4 \\
    --hash=sha256:dd
scipy==1.15.3 \\
    --hash=sha256:ee
tensorflow==2.15.1 \\
    --hash=sha256:ff
"""
LACKING = """jinja2==3.1.6 \\
    --hash=sha256:bb \\
    --hash=sha256:cc
scipy==1.15.3 \\
    --hash=sha256:ee
"""


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
        (self.folder / 'requirements-2.15.lock').write_text(LOCK)
        self.add(self.folder / '.tools' / 'bin' / 'uv', UV)
        self.python = self.add(self.bin / 'python3.7', PYTHON)
        self.machine('Linux x86_64')

    def add(self, path: pathlib.Path, text: str) -> pathlib.Path:
        path.write_text(text)
        path.chmod(0o755)
        return path

    def machine(self, name: str) -> None:
        """Sets the name of the machine that `uname -sm` prints."""
        self.add(self.bin / 'uname', f'#!/bin/sh\n[ "$*" = -sm ] && echo "{name}"\n')

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

    def refused(self, *command: str, **environment: str) -> str:
        """The message of a call that must neither run its command nor make an environment."""
        done = self.call(*command, 'sh', '-c', 'echo ran', **environment)
        assert (done.returncode, done.stdout, self.log()) == (2, '', [])
        return done.stderr

    def log(self) -> List[str]:
        return text_of(str(self.folder / 'log')).splitlines()

    def set_up(self, python: Any = None, name: str = '.venv', lock: str = 'requirements.lock') -> List[str]:
        """The calls of a whole set-up."""
        own = f'{self.folder}/{name}'
        return [
            f'venv --quiet --python {python or self.python} {own}',
            f'pip sync --quiet --python {own}/bin/python --require-hashes --compile-bytecode {self.folder}/{lock}',
        ]


@pytest.fixture
def project(tmp_path: pathlib.Path) -> Project:
    return Project(tmp_path)


def test_run__sets_up_once_and_passes_arguments_output_and_exit_code(project: Project) -> None:
    script = 'printf "%s;" "$@"; echo "${PATH%%:*};$PYTHONPATH"; exit 7'
    done = project.call('sh', '-c', script, 'x', 'a b', '*', PYTHONPATH='mine')
    assert (done.returncode, done.stdout) == (7, f'a b;*;{project.folder}/.venv/bin;{project.folder}:mine\n')
    assert project.log() == project.set_up()
    assert 'installing the packages of requirements.lock' in done.stderr
    again = project.call('sh', '-c', 'exit 0')
    assert (again.returncode, again.stdout, again.stderr) == (0, '', '')
    assert len(project.log()) == 2


def test_run__prints_help_without_a_command(project: Project) -> None:
    for done in (project.call(), project.call('--help'), project.call('-h')):
        assert (done.returncode, project.log()) == (0, [])
        assert done.stdout.startswith('./run [--tf=VERSION] COMMAND') and 'PYTHON_IMAGE' in done.stdout


def test_run__refuses_unknown_options(project: Project) -> None:
    assert '--tf: not an option; before COMMAND stands --tf=VERSION' in project.refused('--tf', '2.15')
    assert '-c: not an option' in project.refused('--tf=2.15', '-c')


def test_run__changed_lock_replaces_the_environment(project: Project) -> None:
    project.call('sh', '-c', ':')
    (project.folder / '.venv' / 'old').touch()
    (project.folder / 'requirements.lock').write_text('one==2\n')
    assert project.call('sh', '-c', ':').returncode == 0
    assert project.log() == project.set_up() * 2
    assert not (project.folder / '.venv' / 'old').exists()


@pytest.mark.parametrize('step', ['venv --quiet', 'pip sync', ''])
def test_run__failed_or_killed_set_up_runs_nothing_and_is_repaired(project: Project, step: str) -> None:
    hindrance = project.folder / ('fail' if step else 'wait')
    hindrance.write_text(step + '\n')
    started = project.start('sh', '-c', 'echo ran')
    if not step:
        wait_for(project.log)
        os.killpg(started.pid, signal.SIGKILL)
    assert started.communicate(timeout=LIMIT)[0] == '' and started.returncode != 0
    hindrance.unlink()
    (project.folder / 'log').unlink()
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


@pytest.mark.program
def test_run__candidate_must_be_of_the_version(project: Project) -> None:
    # The real check: this interpreter is accepted for the version of TensorFlow that it runs, and for no other.
    ours = ('--tf=1.15', 'PYTHON37', '.venv', 'requirements.lock')
    other = ('--tf=2.15', 'PYTHON311', '.venv-2.15', 'requirements-2.15.lock')
    if sys.version_info[:2] != (3, 7):
        ours, other = other, ours
    flag, variable, environment, lock = ours
    assert project.call(flag, 'sh', '-c', ':', **{variable: sys.executable}).returncode == 0
    assert project.log() == project.set_up(sys.executable, environment, lock)
    project.python.unlink()
    assert project.call(other[0], 'sh', '-c', ':', **{other[1]: sys.executable}).returncode == 2


@pytest.mark.parametrize(('way', 'version', 'python_version'), [('variable', '2.15', '3.11'), ('flag', '2.21', '3.12')])
def test_run__each_version_has_an_environment_of_its_own(
    project: Project, way: str, version: str, python_version: str
) -> None:
    python = project.add(project.bin / f'python{python_version}', PYTHON)
    (project.folder / 'requirements-2.21.lock').write_text(LOCK)
    command = ['sh', '-c', 'echo "${PATH%%:*} $TF"']
    done = project.call(f'--tf={version}', *command) if way == 'flag' else project.call(*command, TF=version)
    assert (done.returncode, done.stdout) == (0, f'{project.folder}/.venv-{version}/bin {version}\n')
    assert project.log() == project.set_up(python, f'.venv-{version}', f'requirements-{version}.lock')
    # The flag has precedence over the variable.
    assert project.call('--tf=1.15', *command, TF=version).stdout == f'{project.folder}/.venv/bin 1.15\n'


def test_run__machines_without_1_15_take_2_15_and_say_so(project: Project) -> None:
    python = project.add(project.bin / 'python3.11', PYTHON)
    project.machine('Linux aarch64')
    command = ['sh', '-c', 'echo "${PATH%%:*} $TF"']
    done = project.call(*command)
    assert (done.returncode, done.stdout) == (0, f'{project.folder}/.venv-2.15/bin 2.15\n')
    assert done.stderr.startswith('run: TensorFlow 1.15 has no package for Linux aarch64: using 2.15\n')
    assert project.log() == project.set_up(python, '.venv-2.15', 'requirements-2.15.lock')
    assert project.call(*command).stderr == ''
    # An explicit choice is kept.
    assert project.call(*command, TF='1.15').stdout == f'{project.folder}/.venv/bin 1.15\n'


@pytest.mark.parametrize('version', ['2.16', ''])
def test_run__other_versions_are_refused(project: Project, version: str) -> None:
    message = 'this program runs on TensorFlow 1.15 (the default), 2.15 and 2.21; on a TPU VM, --tf=image'
    assert project.refused(f'--tf={version}') == f'run: --tf={version}: {message}\n'


def test_run__image_keeps_its_tensorflow_and_adds_what_it_lacks(project: Project) -> None:
    old = IMAGE.format(tensorflow='2.16.1', python='3.11')
    project.add(project.bin / 'python3', old)
    python = project.add(project.bin / 'python3.10', IMAGE.format(tensorflow='2.15.1', python='3.10'))
    done = project.call('--tf=image', 'sh', '-c', 'echo "${PATH%%:*} $TF"')
    environment = project.folder / '.venv-image'
    assert (done.returncode, done.stdout) == (0, f'{environment}/bin image\n'), done.stderr
    assert project.log() == project.set_up(python, '.venv-image', '.venv-image/requirements.lock')
    assert (environment / 'requirements.lock').read_text() == LACKING
    assert (environment / 'image.pth').read_text() == f'packages of {python}\n'
    assert project.call('--tf=image', 'sh', '-c', ':').stderr == ''
    assert len(project.log()) == 2


@pytest.mark.parametrize(('tensorflow', 'python'), [('2.16.1', '3.10'), ('2.15.1', '3.9')])
def test_run__another_image_is_refused(project: Project, tensorflow: str, python: str) -> None:
    project.add(project.bin / 'python3', IMAGE.format(tensorflow=tensorflow, python=python))
    error = project.refused('--tf=image')
    message = f'is Python {python} with TensorFlow {tensorflow}; on a TPU VM, this program needs Python 3.10 or 3.11'
    assert f'--tf=image: {project.bin}/python3 {message}' in error and '--version=tpu-vm-tf-2.15.1-se' in error


def test_run__image_takes_the_named_python_only(project: Project, tmp_path: pathlib.Path) -> None:
    assert 'python3 python3.11 python3.10 cannot import TensorFlow' in project.refused('--tf=image')
    project.add(project.bin / 'python3', IMAGE.format(tensorflow='2.15.1', python='3.11'))
    error = project.refused('--tf=image', PYTHON_IMAGE=str(tmp_path / 'none'))
    assert f'{tmp_path}/none cannot import TensorFlow' in error
