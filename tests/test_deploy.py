"""Tests that the container image and the Kubernetes jobs agree with the program, the lock file and each other."""

import fnmatch
import json
import pathlib
import re
import runpy
import sys
from distutils.core import run_setup
from typing import Any, List, Tuple

import pytest
import yaml

from console.errors import RESUME
from inception_v3.config import ConfigError
from inception_v3.estimator import make_estimator
from inception_v3.settings import flags

ROOT = pathlib.Path(__file__).parent.parent
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
    config = flags.parse(['main', *arguments, '--num_shards=16']).config
    run_config = make_estimator(config).config
    assert run_config.master == 'grpc://10.0.0.2:8470'
    assert run_config.cluster_spec.as_dict() == {'worker': ['10.0.0.2:8470', '10.0.0.3:8470']}


def test_job__requests_the_tpu_that_it_uses() -> None:
    config = flags.parse(['main', *(a for a in container('job.yaml')['args'] if TPU_ENDPOINTS not in a)]).config
    assert container('job.yaml')['resources']['limits'] == {'cloud-tpus.google.com/v2': config.num_shards}


def test_tpu__has_the_tensorflow_version_of_the_lock() -> None:
    version = re.match(r'\d+\.\d+', tensorflow_version())
    assert version
    assert job('job.yaml')['metadata']['annotations'] == {'tf-version.cloud-tpus.google.com': version.group()}
    assert f'\nTPU_VERSION=${{TPU_VERSION:-{version.group()}}}\n' in (ROOT / 'run_tpu.sh').read_text()


def test_preflight__checks_the_flags_of_the_job_without_a_tpu() -> None:
    preflight = container('preflight.yaml')
    assert preflight['command'] == ['python', '-m', 'inception_v3.preflight']
    topology, *arguments = preflight['args']
    assert topology == '--topology=v2-8'
    assert arguments == [a for a in container('job.yaml')['args'] if TPU_ENDPOINTS not in a]
    assert flags.parse(['preflight', *arguments]).config.num_shards == 8
    assert 'resources' not in preflight
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
    assert base.startswith('python:{}.{}-'.format(*sys.version_info))
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
    assert user not in ('root', '0')
    assert instructions.index('USER') < instructions.index('ENTRYPOINT')
    assert max(i for i, name in enumerate(instructions) if name == 'RUN') < instructions.index('USER')
    assert any(arguments == f'useradd --create-home {user}' for arguments in arguments_of('RUN'))
    assert arguments_of('WORKDIR')[-1] == f'/home/{user}'
