"""Tests that the container image and the Kubernetes jobs agree with the program, the lock file and each other."""

import fnmatch
import json
import os
import pathlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from distutils.core import run_setup
from typing import Any, Dict, List, Tuple

import pytest
import yaml

from console.errors import RESUME
from inception_v3.config import Config, ConfigError
from inception_v3.estimator import make_estimator
from inception_v3.settings import flags

ROOT = pathlib.Path(__file__).parent.parent
USER, HOME = 10001, '/home/trainer'
TPU_ENDPOINTS = '$(KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS)'


def job(name: str) -> Any:
    """Returns the pod template of a Job, after checks of its manifest."""
    manifest = yaml.safe_load((ROOT / 'deploy' / name).read_text())
    assert (manifest['apiVersion'], manifest['kind']) == ('batch/v1', 'Job')
    # A failed pod is replaced a limited number of times. The comments of job.yaml name the job of the preflight.
    assert manifest['spec']['template']['spec']['restartPolicy'] == 'Never'
    assert manifest['spec']['backoffLimit'] == {'job.yaml': 10, 'preflight.yaml': 0}[name]
    assert (
        manifest['metadata']['name'] == {'job.yaml': 'inception-v3', 'preflight.yaml': 'inception-v3-preflight'}[name]
    )
    return manifest['spec']['template']


def container(name: str) -> Any:
    (only,) = job(name)['spec']['containers']
    return only


def dockerfile() -> List[Tuple[str, str]]:
    """Returns the instructions of the Dockerfile and their arguments."""
    text = (ROOT / 'deploy' / 'Dockerfile').read_text().replace('\\\n', ' ')
    lines = [line.strip() for line in text.splitlines()]
    return [tuple(line.split(None, 1)) for line in lines if line and not line.startswith('#')]  # type: ignore[misc]


def arguments_of(instruction: str) -> List[str]:
    return [arguments for name, arguments in dockerfile() if name == instruction]


def is_sent(path: str) -> bool:
    """Returns whether a file or folder of the project is part of the build context."""
    lines = (ROOT / '.dockerignore').read_text().splitlines()
    return not any(fnmatch.fnmatchcase(path, line) for line in lines if line and not line.startswith('#'))


def tensorflow_version() -> str:
    version = re.search(r'^tensorflow==(\S+)', (ROOT / 'requirements.lock').read_text(), re.MULTILINE)
    assert version
    return version.group(1)


def test_job__has_valid_flags() -> None:
    arguments = container('job.yaml')['args']
    assert f'--master={TPU_ENDPOINTS}' in arguments
    # Kubernetes expands the variable to an address like this.
    address = 'grpc://10.0.0.2:8470'
    command_line = flags.parse(['main', *(argument.replace(TPU_ENDPOINTS, address) for argument in arguments)])
    config = command_line.config
    assert (config.use_tpu, config.mode) == (True, 'train_and_eval')
    assert command_line.given == {'master', 'num_shards', 'data_dir', 'model_dir', 'export_dir'}
    assert make_estimator(config).config.master == address
    # Without an address, Kubernetes keeps the name of the variable, which the program refuses.
    with pytest.raises(ConfigError, match='grpc://'):
        flags.parse(['main', *arguments])


def test_job__ends_at_exit_code_2_and_ignores_terminated_pods() -> None:
    spec = yaml.safe_load((ROOT / 'deploy' / 'job.yaml').read_text())['spec']
    codes = {'containerName': container('job.yaml')['name'], 'operator': 'In'}
    assert spec['podFailurePolicy'] == {
        'rules': [
            {'action': 'FailJob', 'onExitCodes': {**codes, 'values': [2]}},
            {'action': 'Ignore', 'onExitCodes': {**codes, 'values': [RESUME]}},
        ]
    }
    # Enough time for a loop of 100 steps at the published 815 ms, and for a checkpoint of half a gigabyte.
    assert spec['template']['spec']['terminationGracePeriodSeconds'] > 2 * 100 * 0.815


def test_slice__has_the_addresses_of_its_hosts_as_tpu() -> None:
    arguments = [a.replace('--master=', '--tpu=') for a in container('job.yaml')['args']]
    addresses = 'grpc://10.0.0.2:8470,grpc://10.0.0.3:8470'
    arguments = [argument.replace(TPU_ENDPOINTS, addresses) for argument in arguments]
    config = flags.parse(['main', *arguments, '--num_shards=32']).config
    run_config = make_estimator(config).config
    assert run_config.master == 'grpc://10.0.0.2:8470'
    assert run_config.cluster_spec.as_dict() == {'worker': ['10.0.0.2:8470', '10.0.0.3:8470']}


def test_job__requests_the_tpu_that_it_uses() -> None:
    config = flags.parse(['main', *(a for a in container('job.yaml')['args'] if TPU_ENDPOINTS not in a)]).config
    assert container('job.yaml')['resources']['limits']['cloud-tpus.google.com/v2'] == config.num_shards


def test_tpu__has_the_tensorflow_version_of_the_lock() -> None:
    version = re.match(r'\d+\.\d+', tensorflow_version())
    assert version
    assert job('job.yaml')['metadata']['annotations'] == {'tf-version.cloud-tpus.google.com': version.group()}


def test_preflight__checks_the_flags_of_the_job_without_a_tpu() -> None:
    preflight = container('preflight.yaml')
    assert preflight['command'] == ['python', '-m', 'inception_v3.preflight']
    topology, *arguments = preflight['args']
    assert topology == '--topology=v2-8'
    assert arguments == [a for a in container('job.yaml')['args'] if TPU_ENDPOINTS not in a]
    assert flags.parse(['preflight', *arguments]).config.num_shards == 8
    assert set(preflight['resources']['limits']) == {'memory'}
    assert preflight['image'] == container('job.yaml')['image']


def test_image__is_used_by_the_jobs_and_runs_the_program(monkeypatch: Any, capsys: Any) -> None:
    image = container('job.yaml')['image']
    text = (ROOT / 'deploy' / 'Dockerfile').read_text()
    assert f'docker build --file=deploy/Dockerfile --tag={image} .' in text
    (entrypoint,) = arguments_of('ENTRYPOINT')
    python, option, module = json.loads(entrypoint)
    assert (python, option, module) == ('python', '-m', 'inception_v3.main')
    monkeypatch.setattr(sys, 'argv', ['main', '--help'])
    with pytest.raises(SystemExit) as end:
        runpy.run_module(module, run_name='__main__')
    assert not end.value.code
    assert 'inception_v3.main' in capsys.readouterr().out


def test_image__has_python_and_packages_of_the_lock() -> None:
    (base,) = arguments_of('FROM')
    assert re.fullmatch(r'python:{}\.{}-slim@sha256:[0-9a-f]{{64}}'.format(*sys.version_info), base)
    lock, program = [arguments for arguments in arguments_of('RUN') if arguments.startswith('pip install')]
    assert '--require-hashes' in lock and '--requirement=requirements.lock' in lock
    # All packages come from the lock file, including those that build the program.
    assert '--no-deps' in program and '--no-build-isolation' in program
    assert {'setuptools', 'google-api-python-client', 'oauth2client'} <= set(
        re.findall(r'^([\w-]+)==', (ROOT / 'requirements.lock').read_text(), re.MULTILINE)
    )


def test_copied_files__exist_in_the_build_context() -> None:
    for arguments in arguments_of('COPY'):
        *sources, _ = arguments.split()
        for source in sources:
            assert (ROOT / source).exists()
    assert is_sent('requirements.lock') and is_sent('setup.py')
    for package in run_setup(str(ROOT / 'setup.py'), stop_after='init').packages:
        assert is_sent(package.split('.')[0])
    for name in ('.git', '.venv', '.tools', 'runs', 'build', 'tests'):
        assert not is_sent(name), name


def test_image__prints_at_once() -> None:
    assert 'PYTHONUNBUFFERED=1' in arguments_of('ENV')


def test_image__does_not_run_as_root() -> None:
    instructions = [name for name, _ in dockerfile()]
    (user,) = arguments_of('USER')
    assert user == f'{USER}:{USER}'  # Numbers: Kubernetes refuses a name with runAsNonRoot.
    assert instructions.index('USER') < instructions.index('ENTRYPOINT')
    assert max(i for i, name in enumerate(instructions) if name == 'RUN') < instructions.index('USER')
    assert f'useradd --uid {USER} --user-group --create-home trainer' in arguments_of('RUN')
    assert arguments_of('WORKDIR')[-1] == HOME
    assert f'HOME={HOME}' in arguments_of('ENV')


@pytest.mark.parametrize('name', ['job.yaml', 'preflight.yaml'])
def test_pod__meets_the_restricted_security_standard(name: str) -> None:
    spec = job(name)['spec']
    ids = {'runAsUser': USER, 'runAsGroup': USER, 'fsGroup': USER}
    assert spec['securityContext'] == {'runAsNonRoot': True, 'seccompProfile': {'type': 'RuntimeDefault'}, **ids}
    assert container(name)['securityContext'] == {
        'allowPrivilegeEscalation': False,
        'readOnlyRootFilesystem': True,
        'capabilities': {'drop': ['ALL']},
    }
    assert spec['automountServiceAccountToken'] is False
    # The folders that the program writes.
    folders = {mount['name']: mount['mountPath'] for mount in container(name)['volumeMounts']}
    assert sorted(folders.values()) == [HOME, '/tmp']
    assert [volume for volume in spec['volumes'] if volume['emptyDir'] == {}] == [
        {'name': n, 'emptyDir': {}} for n in folders
    ]


@pytest.mark.parametrize('name', ['job.yaml', 'preflight.yaml'])
def test_job__has_limits_of_time_and_memory(name: str) -> None:
    spec = yaml.safe_load((ROOT / 'deploy' / name).read_text())['spec']
    longest = {'job.yaml': Config().train_steps * 0.815, 'preflight.yaml': 300}[name]
    assert 2 * longest < spec['activeDeadlineSeconds'] < 7 * longest
    assert spec['ttlSecondsAfterFinished'] > 86400
    resources = container(name)['resources']
    sizes = [int(resources[kind]['memory'][:-2]) for kind in ('requests', 'limits')]
    assert 1 <= sizes[0] <= sizes[1] and resources['requests']['cpu'] >= 1


# The fields of the Kubernetes API, batch/v1 and v1, that the jobs use.
FIELDS = {
    'Job': 'apiVersion kind metadata spec',
    'Job.spec': 'backoffLimit podFailurePolicy activeDeadlineSeconds ttlSecondsAfterFinished template',
    'Job.spec.podFailurePolicy': 'rules',
    'Job.spec.podFailurePolicy.rules': 'action onExitCodes',
    'Job.spec.podFailurePolicy.rules.onExitCodes': 'containerName operator values',
    'Job.spec.template': 'metadata spec',
    'Job.spec.template.spec': 'restartPolicy terminationGracePeriodSeconds automountServiceAccountToken '
    'securityContext volumes containers',
    'Job.spec.template.spec.securityContext': 'runAsNonRoot runAsUser runAsGroup fsGroup seccompProfile',
    'Job.spec.template.spec.securityContext.seccompProfile': 'type',
    'Job.spec.template.spec.volumes': 'name emptyDir',
    'Job.spec.template.spec.containers': 'name image command args securityContext volumeMounts resources',
    'Job.spec.template.spec.containers.securityContext': 'allowPrivilegeEscalation readOnlyRootFilesystem capabilities',
    'Job.spec.template.spec.containers.securityContext.capabilities': 'drop',
    'Job.spec.template.spec.containers.volumeMounts': 'name mountPath',
    'Job.spec.template.spec.containers.resources': 'requests limits',
}


def unknown_fields(value: Any, path: str = 'Job') -> List[str]:
    if isinstance(value, list):
        return [field for item in value for field in unknown_fields(item, path)]
    if not isinstance(value, dict) or path.split('.')[-1] in ('metadata', 'requests', 'limits', 'emptyDir'):
        return []
    unknown = [f'{path}.{key}' for key in value if key not in FIELDS.get(path, '').split()]
    return unknown + [field for key, each in value.items() for field in unknown_fields(each, f'{path}.{key}')]


@pytest.mark.parametrize('name', ['job.yaml', 'preflight.yaml'])
def test_job__has_only_fields_of_the_api(name: str) -> None:
    assert unknown_fields(yaml.safe_load((ROOT / 'deploy' / name).read_text())) == []


def in_root(root: pathlib.Path, path: str) -> pathlib.Path:
    """The place of an absolute path of the image."""
    return root / path.lstrip('/')


def copy_context(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies a file or folder of the build context, as COPY does."""
    if source.is_file():
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(source), str(target))
        return

    def ignored(folder: str, names: List[str]) -> List[str]:
        at = pathlib.Path(folder).relative_to(source)
        return [name for name in names if not is_sent(str(at / name)) or name == '__pycache__']

    shutil.rmtree(str(target))  # Files that an earlier COPY brought are in the folder, too.
    shutil.copytree(str(source), str(target), ignore=ignored)


def build_image(root: pathlib.Path, python: pathlib.Path) -> Dict[str, str]:
    """Follows the Dockerfile in a folder, with another Python; returns the environment."""
    workdir = root
    environment: Dict[str, str] = {}
    for name, arguments in dockerfile():
        if name == 'WORKDIR':
            workdir = in_root(root, arguments)
            workdir.mkdir(parents=True, exist_ok=True)
        elif name == 'ENV':
            key, value = arguments.split('=', 1)
            environment[key] = value
        elif name == 'COPY':
            source, _ = arguments.split()
            copy_context(ROOT / source, workdir)
        elif name == 'RUN' and arguments.startswith('pip install') and 'requirements.lock' in arguments:
            # ./run did the same for the environment of the tests.
            assert (workdir / 'requirements.lock').read_text() == (ROOT / '.venv' / 'installed.lock').read_text()
        elif name == 'RUN' and arguments.startswith('pip install'):
            words = [word for word in shlex.split(arguments) if word != '--no-cache-dir']
            command = [str(ROOT / '.tools' / 'bin' / 'uv'), *words[:2], f'--python={python}', *words[2:]]
            subprocess.run(command, cwd=str(workdir), check=True)
        elif name == 'RUN' and arguments.startswith('useradd'):
            for file in ('passwd', 'group', 'shadow'):
                in_root(root, '/etc').mkdir(exist_ok=True)
                in_root(root, f'/etc/{file}').touch()
            in_root(root, '/home').mkdir()
            subprocess.run(['useradd', f'--prefix={root}', *shlex.split(arguments)[1:]], check=True)
        elif name == 'RUN':
            words = [str(in_root(root, w)) if w.startswith('/') else w for w in shlex.split(arguments)]
            subprocess.run(words, cwd=str(workdir), check=True)
        else:
            assert name in ('FROM', 'USER', 'ENTRYPOINT'), name
    return environment


@pytest.mark.program
@pytest.mark.skipif(os.getuid() != 0, reason='only root can become another user')
def test_image__runs_as_its_user_and_writes_only_its_home(tmp_path: pathlib.Path) -> None:
    root, venv = tmp_path / 'root', tmp_path / 'venv'
    root.mkdir()
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', str(venv)], check=True)
    (packages,) = venv.glob('lib/python*/site-packages')
    (packages / 'lock.pth').write_text(sysconfig.get_paths()['purelib'] + '\n')
    python = venv / 'bin' / 'python'
    environment = build_image(root, python)
    home, temporary = in_root(root, environment['HOME']), in_root(root, '/tmp')
    temporary.mkdir(mode=0o777)
    temporary.chmod(0o777)
    for folder in root.parents:
        if folder.stat().st_uid == os.getuid() and str(folder).startswith(tempfile.gettempdir() + os.sep):
            folder.chmod(0o755)
    program = in_root(root, '/opt/inception_v3')
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in program.rglob('*'))
    before = {path: path.stat().st_mtime_ns for path in root.rglob('*')}

    # The user can read all files, since the Python of the tests may be in a private folder, and write none.
    caps = ['--inh-caps=-all,+dac_read_search', '--ambient-caps=-all,+dac_read_search']
    user = ['setpriv', f'--reuid={USER}', f'--regid={USER}', '--clear-groups', '--no-new-privs', *caps]
    (entrypoint,) = arguments_of('ENTRYPOINT')
    _, *module = json.loads(entrypoint)
    flags_of_run = ['--preset=digits', '--train_steps=2', '--eval_total_size=64', '--model_dir=runs/two']
    done = subprocess.run(
        [*user, str(python), *module, *flags_of_run],
        cwd=str(home),
        env={**environment, 'HOME': str(home), 'TMPDIR': str(temporary), 'PATH': os.environ['PATH']},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert (home / 'runs' / 'two' / 'checkpoint').exists()
    written = {path for path in root.rglob('*') if before.get(path) != path.stat().st_mtime_ns} - {home, temporary}
    assert [path for path in written if home not in path.parents and temporary not in path.parents] == []
    assert {path.stat().st_uid for path in written} == {USER}
