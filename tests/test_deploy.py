"""Tests that the container image and the Kubernetes job agree with the program, the lock file and each other."""

import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from distutils.core import run_setup
from typing import Any, Dict, List, Tuple

import pytest
import yaml

from compat import names
from compat.errors import RESUME
from inception_v3 import flags
from inception_v3.machines import cluster
from inception_v3.tpu import topology

ROOT = pathlib.Path(__file__).parent.parent
USER, HOME = 10001, '/home/trainer'
# For each value of --build-arg=HARDWARE: the Python of the base image, and the lock of the packages.
BASES = {
    'cpu': ((3, 7), 'requirements.lock'),
    'newest': ((3, 12), 'requirements-2.21.lock'),
    'tpu': ((3, 10), 'deploy/requirements-tpu.lock'),
}
# The image with the TensorFlow that these tests run on.
HARDWARE = 'tpu' if names.knows_tpu_vms() else 'cpu'


def manifest() -> Any:
    """Returns the job."""
    return yaml.safe_load((ROOT / 'deploy' / 'job.yaml').read_text())


def pod() -> Any:
    return manifest()['spec']['template']['spec']


def container() -> Any:
    (only,) = pod()['containers']
    return only


def dockerfile(hardware: str = HARDWARE) -> List[Tuple[str, str]]:
    """Returns the instructions that an image is built with, and their arguments."""
    text = (ROOT / 'deploy' / 'Dockerfile').read_text().replace('\\\n', ' ')
    values = {**dict(re.findall(r'^ARG (\w+)=(.*)$', text, re.MULTILINE)), 'HARDWARE': hardware}
    text = re.sub(r'\$\{(\w+)\}', lambda match: values[match.group(1)], text)
    stages: Dict[str, List[Tuple[str, str]]] = {}
    stage = ''
    for name, arguments in re.findall(r'^[ \t]*([A-Za-z]+)[ \t]+(.*)$', text, re.MULTILINE):
        name = name.upper()
        if name == 'FROM':
            base, _, stage = arguments.partition(' AS ')
            # A stage may continue another one; the last stage, which has no name, is the image.
            stages[stage] = stages.get(base, [('FROM', base)])[:]
        elif name != 'ARG':
            stages[stage].append((name, arguments))
    return stages['']


def arguments_of(instruction: str, hardware: str = HARDWARE) -> List[str]:
    return [arguments for name, arguments in dockerfile(hardware) if name == instruction]


def pins(lock: str) -> Dict[str, str]:
    """Returns the packages of a lock, with their versions."""
    return dict(re.findall(r'^([\w.-]+)==(\S+)', (ROOT / lock).read_text(), re.MULTILINE))


def is_sent(path: str) -> bool:
    """Returns whether a file or folder of the project is part of the build context."""
    lines = (ROOT / '.dockerignore').read_text().splitlines()
    return not any(fnmatch.fnmatchcase(path, line) for line in lines if line and not line.startswith('#'))


def test_job__ends_at_exit_code_2_and_ignores_terminated_pods() -> None:
    spec = manifest()['spec']
    # A failed pod is replaced, a limited number of times.
    assert (spec['template']['spec']['restartPolicy'], spec['backoffLimit']) == ('Never', 10)
    codes = {'containerName': container()['name'], 'operator': 'In'}
    assert spec['podFailurePolicy'] == {
        'rules': [
            {'action': 'FailJob', 'onExitCodes': {**codes, 'values': [2]}},
            {'action': 'Ignore', 'onExitCodes': {**codes, 'values': [RESUME]}},
        ]
    }
    # Enough time for a loop of 100 steps of an assumed 815 ms, and for a checkpoint of half a gigabyte.
    assert spec['template']['spec']['terminationGracePeriodSeconds'] > 2 * 100 * 0.815


def test_job__requests_the_whole_tpu_that_it_uses() -> None:
    command_line = flags.parse(['main', *container()['args']])
    config = command_line.config
    assert (config.use_tpu, config.tpu, config.mode) == (True, 'local', 'train_and_eval')
    assert command_line.given == {'tpu', 'num_shards', 'data_dir', 'model_dir', 'export_dir'}
    # https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus: one machine of 4 chips. GKE has no v2.
    assert pod()['nodeSelector'] == {
        'cloud.google.com/gke-tpu-accelerator': 'tpu-v3-device',
        'cloud.google.com/gke-tpu-topology': '2x2',
    }
    chips = 4
    # Kubernetes does not allow a request of an extended resource that differs from its limit.
    resources = container()['resources']
    assert resources['requests']['google.com/tpu'] == resources['limits']['google.com/tpu'] == chips
    assert config.num_shards == chips * 2 == topology.CLOUD_TPUS['v3-8'].cores
    # 96 processors and 340 GB; some of both belong to Kubernetes.
    assert resources['requests']['cpu'] < 96
    assert int(resources['limits']['memory'].replace('Gi', '')) * 2**30 < 340e9


def test_image__is_used_by_the_job_and_runs_the_program() -> None:
    image = container()['image']
    # https://cloud.google.com/artifact-registry/docs/docker/names
    assert re.fullmatch(r'LOCATION-docker\.pkg\.dev/PROJECT/REPOSITORY/[a-z0-9-]+:tpu', image)
    (entrypoint,) = arguments_of('ENTRYPOINT')
    assert json.loads(entrypoint) == ['python', '-m', 'inception_v3.main']


@pytest.mark.parametrize('hardware', sorted(BASES))
def test_image__has_the_packages_of_its_lock_and_the_copied_files(hardware: str) -> None:
    version, lock = BASES[hardware]
    (base,) = arguments_of('FROM', hardware)
    digest = '' if hardware == 'newest' else '@sha256:[0-9a-f]{64}'
    assert re.fullmatch(r'python:{}\.{}-slim'.format(*version) + digest, base)
    assert arguments_of('COPY', hardware) == [f'{lock} ./', '. .']
    assert (ROOT / lock).exists() and is_sent(lock.split('/')[0])
    installs = [arguments for arguments in arguments_of('RUN', hardware) if arguments.startswith('pip install')]
    assert '--require-hashes' in installs[0] and f'--requirement={pathlib.Path(lock).name}' in installs[0]
    # All packages come from the lock file, including those that build the program.
    assert all('--no-deps' in install for install in installs[1:])
    assert {'setuptools', 'google-api-python-client', 'oauth2client', 'jinja2', 'numpy'} <= set(pins(lock))


def test_build_context__has_the_program_alone() -> None:
    assert is_sent('setup.py')
    for package in run_setup(str(ROOT / 'setup.py'), stop_after='init').packages:
        assert is_sent(package.split('.')[0])
    for name in ('.git', '.venv', '.tools', 'runs', 'build', 'tests'):
        assert not is_sent(name), name


def test_image__does_not_run_as_root() -> None:
    instructions = [name for name, _ in dockerfile()]
    (user,) = arguments_of('USER')
    assert user == f'{USER}:{USER}'  # Numbers: Kubernetes refuses a name with runAsNonRoot.
    assert instructions.index('USER') < instructions.index('ENTRYPOINT')
    assert max(i for i, name in enumerate(instructions) if name == 'RUN') < instructions.index('USER')
    assert f'useradd --uid {USER} --user-group --create-home trainer' in arguments_of('RUN')
    assert arguments_of('WORKDIR')[-1] == HOME
    assert f'HOME={HOME}' in arguments_of('ENV')


@pytest.mark.program
def test_image__has_what_a_run_needs_and_a_run_writes_nothing_there(tmp_path: pathlib.Path) -> None:
    def ignored(folder: str, names: List[str]) -> List[str]:
        at = pathlib.Path(folder).relative_to(ROOT)
        return [name for name in names if not is_sent(str(at / name)) or name == '__pycache__']

    program, home = tmp_path / 'program', tmp_path / 'home'
    shutil.copytree(str(ROOT), str(program), ignore=ignored)
    home.mkdir()
    before = {path: path.stat().st_mtime_ns for path in program.rglob('*')}
    _, *module = json.loads(arguments_of('ENTRYPOINT')[0])
    # The network with the fewest operations.
    network = ['--network=revnet38', '--depth_multiplier=1', '--height=32', '--width=32']
    flags_of_run = ['--preset=digits', '--mode=train', '--train_steps=1', '--export_dir=', '--model_dir=runs/one']
    # In the image, the program belongs to another user, so it can write no bytecode.
    environment = {'PATH': os.environ['PATH'], 'HOME': str(home), 'PYTHONDONTWRITEBYTECODE': '1'}
    done = subprocess.run(
        [sys.executable, *module, *flags_of_run, *network],
        cwd=str(home),
        env={**environment, 'PYTHONPATH': str(program)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert (home / 'runs' / 'one' / 'checkpoint').exists()
    assert {path: path.stat().st_mtime_ns for path in program.rglob('*')} == before


def test_tfjob__is_a_run_of_as_many_workers() -> None:
    job = yaml.safe_load((ROOT / 'deploy' / 'tfjob.yaml').read_text())
    worker = job['spec']['tfReplicaSpecs']['Worker']
    (only,) = worker['template']['spec']['containers']
    ports = [port['containerPort'] for port in only['ports']]
    # The operator sets TF_CONFIG like this.
    hosts = [f'inception-v3-worker-{number}.default.svc:{ports[0]}' for number in range(worker['replicas'])]
    value = json.dumps({'cluster': {'worker': hosts}, 'task': {'type': 'worker', 'index': 1}})
    config = flags.parse(['main', *only['args']], tf_config=value).config
    assert (config.machines, config.task_index, config.use_tpu) == (2, 1, False)
    assert config.num_gpus == only['resources']['limits']['nvidia.com/gpu']
    assert ports[1] == cluster.channel_port(hosts)
    mounted = only['volumeMounts'][0]['mountPath']
    assert all(path.startswith(f'{mounted}/') for path in (config.data_dir, str(config.model_dir)))
    # Exit code 75, after SIGTERM, counts as a failure.
    assert worker['restartPolicy'] == 'OnFailure'


@pytest.mark.parametrize(('code', 'is_queued_again'), [(0, False), (1, True), (2, False), (75, True)])
def test_slurm__starts_a_worker_on_each_node(tmp_path: pathlib.Path, code: int, is_queued_again: bool) -> None:
    commands = {
        'scontrol': '[ $1 = requeue ] && echo requeue $2 >> calls || printf "node1\\nnode2\\n"',
        'srun': 'shift; SLURM_PROCID=1 "$@"',
        'run': f'printf "%s\\n" "$@" > arguments; exit {code}',
    }
    for name, text in commands.items():
        (tmp_path / name).write_text(f'#!/bin/sh\n{text}\n')
        (tmp_path / name).chmod(0o755)
    environment = {'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'SLURM_JOB_NODELIST': 'node[1-2]', 'SLURM_JOB_ID': '7'}
    script = str(ROOT / 'deploy' / 'slurm.sh')
    assert subprocess.run(['bash', script], cwd=tmp_path, env=environment).returncode == code
    arguments = (tmp_path / 'arguments').read_text().splitlines()
    assert arguments[:4] == ['--tf=2.15', 'python', '-m', 'inception_v3.main']
    config = flags.parse(['main', *arguments[4:]], tf_config='').config
    assert (config.worker_hosts, config.task_index, config.num_gpus) == ('node1:2222,node2:2222', 1, 4)
    assert (tmp_path / 'calls').exists() == is_queued_again
