"""The wheel with the core packages alone, and the source distribution, in a new environment, from a user's folder."""

import os
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile
from typing import Any, List

import numpy as np
import PIL.Image
import pytest

import inception_v3
from inception_v3.run import versions
from inception_v3_tpu.__main__ import COMMANDS
from tests.support.pages import read_page
from tests.support.project import PACKAGES, ROOT
from tests.support.shared import once

INSTALLED = [package for package in PACKAGES if package != 'examples']

pytestmark = pytest.mark.program

UV = ROOT / '.tools' / 'bin' / 'uv'
# Names that a user's own files may have.
USER_FILES = ('data', 'console', 'tools', 'compat', 'inception_v3', 'preprocessing', 'tests')
TINY = (
    *('--network=resnet50', '--height=32', '--width=32', '--depth_multiplier=0.1', '--optimizer=sgd'),
    *('--use_tpu=False', '--train_batch_size=4', '--eval_batch_size=4', '--moving_average=False'),
    *('--train_steps=2', '--train_steps_per_eval=2', '--num_parallel_calls=1'),
)


@pytest.fixture(scope='module')
def source(tmp_path_factory: Any) -> pathlib.Path:
    """The source distribution of the files in git, beside the wheel that is built from it."""

    def make(of_session: str) -> None:
        folder = pathlib.Path(of_session)
        listed = subprocess.run(['git', 'ls-files', '-z'], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        for name in listed.decode().split('\0')[:-1]:
            if (ROOT / name).is_file():
                (folder / 'source' / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / 'source' / name).write_bytes((ROOT / name).read_bytes())
        build = [str(UV), 'build', '--quiet', '--no-build-isolation', '--python', sys.executable]
        subprocess.run([*build, '--out-dir', str(folder), str(folder / 'source')], check=True, cwd=folder)

    (path,) = pathlib.Path(once(tmp_path_factory, 'distributions', make)).glob('*.tar.gz')
    return path


@pytest.fixture(scope='module')
def wheel(source: pathlib.Path) -> pathlib.Path:
    (path,) = source.parent.glob('*.whl')
    return path


class Installed:
    """The wheel in an environment of its own, used from a folder with a user's files."""

    def __init__(self, environment: pathlib.Path, folder: pathlib.Path):
        self._bin = environment / 'bin'
        self.folder = folder
        for name in USER_FILES:
            (self.folder / f'{name}.py').write_text('raise SystemExit("a file of the user")')

    @property
    def python(self) -> pathlib.Path:
        return self._bin / 'python'

    def run(self, *arguments: Any, code: int = 0, program: str = 'inception-v3') -> 'subprocess.CompletedProcess[str]':
        environment = {'PATH': f'{self._bin}:/usr/bin:/bin', 'HOME': str(self.folder), 'PYTHONPATH': ':.'}
        command = [program, *map(str, arguments)]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, done.stderr
        assert 'Traceback' not in done.stderr
        return done


@pytest.fixture(scope='module')
def installed(wheel: pathlib.Path, tmp_path_factory: Any) -> Installed:
    def make(folder: str) -> None:
        environment = f'{folder}/environment'
        python = ['--python', os.path.realpath(sys.executable)]
        subprocess.run([str(UV), '--quiet', 'venv', *python, environment], check=True)
        lock = ['--constraint', str(ROOT / 'requirements.lock')]
        install = [str(UV), '--quiet', 'pip', 'install', '--python', f'{environment}/bin/python', *lock, str(wheel)]
        subprocess.run(install, check=True, cwd=folder)

    environment = pathlib.Path(once(tmp_path_factory, 'installed', make), 'environment')
    return Installed(environment, tmp_path_factory.mktemp('user'))


def test_wheel__has_every_package_with_its_files_and_no_tests(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(str(wheel)) as archive:
        names = {*archive.namelist()}
        assert b'from inception_v3_tpu.data import' in archive.read('inception_v3_tpu/inception_v3/input_pipeline.py')
        (metadata_path,) = (name for name in names if name.endswith('.dist-info/METADATA'))
        metadata = archive.read(metadata_path).decode()
    paths = {
        path.relative_to(ROOT).as_posix()
        for package in INSTALLED
        for path in (ROOT / package).rglob('*')
        if path.is_file() and '__pycache__' not in path.parts and path.suffix != '.md'
    }
    # One folder contains all others.
    expected = {path if path.startswith('inception_v3_tpu/') else f'inception_v3_tpu/{path}' for path in paths}
    assert {name for name in names if '.dist-info/' not in name} == expected
    assert f'\nVersion: {inception_v3.__version__}\n' in metadata
    assert '\nClassifier: Programming Language :: Python :: 3.7\n' in metadata
    assert '# Inception v3 on Cloud TPU' in metadata
    assert {'demo', 'data', 'studies'} <= {*re.findall(r'^Provides-Extra: (.*)$', metadata, re.MULTILINE)}


# The help of all commands in one process, because most commands load the same packages.
HELP = """
import contextlib, io
from inception_v3_tpu import __main__ as commands
for name in commands.COMMANDS:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        commands.run(name, ['--help'])
    print(name, '--' in text.getvalue().replace('--help', '') or '{' in text.getvalue())
"""


def test_core_alone__has_the_help_of_every_command(installed: Installed) -> None:
    helped = dict(line.split() for line in installed.run('-c', HELP, program='python').stdout.splitlines())
    assert [name for name in COMMANDS if helped[name] != 'True'] == []


# A user's program: it imports parts of this one, and a module of its own that is named like one of this program's.
USER = """
import sys
from inception_v3_tpu import BatchNorm, Config, InputPipeline, LoadEMAHook, inception_model_fn, learning_rate, networks
import data

assert data.MINE
rate: float = learning_rate(0, Config())
print(round(rate, 2), networks.inception_v3.inception_v3.__name__)
names = {}
for name, module in list(sys.modules.items()):
    names.setdefault(getattr(module, '__file__', None), []).append(name)
print([twice for path, twice in names.items() if path and 'inception_v3_tpu' in path and len(twice) > 1])
"""


def test_import__gives_the_parts_once_and_leaves_the_users_modules(installed: Installed) -> None:
    folder = installed.folder / 'library'
    folder.mkdir()
    (folder / 'data.py').write_text('MINE = True\n')
    (folder / 'user.py').write_text(USER)
    done = installed.run('library/user.py', program='python')
    assert done.stdout == '0.66 inception_v3\n[]\n'


# Only the last line is wrong.
TYPED = """
from inception_v3_tpu import BatchNorm, Config, InputPipeline, LoadEMAHook, inception_model_fn, learning_rate, networks
pipeline = InputPipeline(is_training=True, config=Config(use_data='fake'))
network, rate, norm, hook = networks.inception_v3.inception_v3, learning_rate(0, Config()), BatchNorm, LoadEMAHook
wrong: str = Config().height
"""


def test_types__are_those_of_the_parts(installed: Installed) -> None:
    (installed.folder / 'typed.py').write_text(TYPED)
    command = [sys.executable, '-m', 'mypy', '--python-executable', str(installed.python), '--no-incremental']
    # Without PYTHONPATH, in which `./run` puts the checkout's packages.
    environment = {name: value for name, value in os.environ.items() if name != 'PYTHONPATH'}
    done = subprocess.run(
        [*command, 'typed.py'], cwd=installed.folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    error, _ = done.stdout.splitlines()
    assert error.startswith('typed.py:5: error: Incompatible types in assignment (expression has type "int"')


def test_installed__has_the_digest_of_the_checkout(installed: Installed) -> None:
    code = 'from inception_v3_tpu.inception_v3.run import versions; print(versions._digest())'
    assert installed.run('-c', code, program='python').stdout.strip() == versions._digest()


def test_core_alone__trains_on_images_and_predicts_with_a_page(installed: Installed) -> None:
    random = np.random.RandomState(0)
    for name in ('dark', 'light'):
        (installed.folder / 'photos' / name).mkdir(parents=True)
        for number in range(6):
            pixels = random.randint(0, 100, [40, 40, 3]) + (0 if name == 'dark' else 150)
            PIL.Image.fromarray(pixels.astype(np.uint8)).save(installed.folder / 'photos' / name / f'{number}.png')
    installed.run('from-folder', 'photos', 'records')
    assert installed.run('audit', 'records').stdout.endswith('can be trained on\n')
    trained = installed.run('train', *TINY, '--data_dir=records', '--model_dir=run', '--export_dir=export')
    assert 'top-1' in trained.stdout
    done = installed.run('predict', 'photos/dark', '--model=export', '--html=page.html')
    assert done.stdout.count('photos/dark/') == 6
    text = ' '.join(read_page(installed.folder / 'page.html').text)
    assert 'photos/dark/0.png' in text and 'dark' in text


@pytest.mark.parametrize(
    ('arguments', 'extra'),
    [
        (['train', '--preset=digits'], 'demo'),
        (['sweep', 'optimizers', '--digits'], 'studies'),
    ],
)
def test_core_alone__names_the_extra_that_is_missing(installed: Installed, arguments: List[str], extra: str) -> None:
    (line,) = installed.run(*arguments, code=2).stderr.splitlines()
    assert line.startswith('error: ') and f"pip install 'inception-v3-tpu[{extra}]'" in line


def test_source__has_every_file_of_the_project(source: pathlib.Path) -> None:
    with tarfile.open(str(source)) as archive:
        names = {member.name.split('/', 1)[-1] for member in archive.getmembers() if member.isfile()}
    paths = [path for path in (source.parent / 'source').rglob('*') if path.is_file()]
    assert len(paths) > 500
    for path in paths:
        name = path.relative_to(source.parent / 'source').as_posix()
        # Files for the repository alone are not in it.
        assert name in names or name.startswith(('.git', '.devcontainer', '.docker')), name
