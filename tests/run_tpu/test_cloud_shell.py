"""Tests of `run_tpu.sh` in Cloud Shell, where a virtual machine does the run."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
from typing import Sequence

import pytest

from tests.run_tpu.world import LIMIT, LIST_BUCKET, MARK, NODE, PAUSE, World, unmarked

program = pytest.mark.program


def startup_of(call: Sequence[str]) -> str:
    """The startup script of the machine that a command creates."""
    (metadata,) = [word for word in call if word.startswith('--metadata=')]
    _, delimiter, pair = metadata.split('^')
    (key, startup) = pair.split('=', 1)
    assert (key, delimiter in startup) == ('startup-script', False)
    return startup


def handed_over(world: World, *arguments: str, **environment: str) -> str:
    """Hands a run over to a machine; returns the machine's startup script."""
    world.call('--create', *arguments, **environment, CLOUD_SHELL='true')
    startup = startup_of(world.log()[-1])
    world.forget()
    return startup


def boot(world: World, startup: str, folder: pathlib.Path) -> None:
    """Runs a startup script in a folder, without the environment variables of Cloud Shell."""
    environment = {'PATH': str(world.bin), 'TMPDIR': str(folder)}
    subprocess.run(['/bin/sh', '-c', startup], cwd=str(folder), env=environment, timeout=LIMIT, check=True)


@program
def test_create__hands_over_to_a_machine_in_the_same_network(either: World) -> None:
    done = either.call('--create', CLOUD_SHELL='true', NETWORK='net')
    assert done.returncode == 0, done.stderr
    *checks, upload, create = either.log()
    assert checks == either.checks
    assert upload[:4] == ['gcloud', 'storage', 'rsync', '--recursive']
    assert upload[5:] == ['.', 'gs://bucket/inception_v3/program']
    assert create[:9] == ['gcloud', 'compute', 'instances', 'create', *NODE, '--network=net', MARK]
    # The machine may use every API, to create the node. Debian has the `apt-get` and Python of the startup script.
    size = {'vm': 'e2-standard-4', 'node': 'n1-standard-8'}[either.architecture]
    machine = [f'--machine-type={size}', '--boot-disk-size=50GB', '--scopes=cloud-platform']
    assert create[9:-1] == [*machine, '--image-family=debian-12', '--image-project=debian-cloud']
    assert create[-1].startswith('--metadata=')
    assert either.node is None
    commands = [line.strip() for line in done.stderr.splitlines() if line.startswith('  gcloud')]
    at = 'node --project=project --zone=us-central1-b'
    assert commands == [
        f'gcloud compute instances tail-serial-port-output {at}',
        f'gcloud compute instances delete {at} && {" ".join(either.delete[:-1])}',
    ]


@program
def test_upload__excludes_local_files(world: World) -> None:
    world.call('--create', CLOUD_SHELL='true')
    option, pattern = world.log()[-2][4].split('=', 1)
    assert option == '--exclude'
    for path in ('.venv/bin/python', '.git/config', 'runs/digits/checkpoint', 'data/__pycache__/tree.pyc', 'data/.x'):
        assert re.match(pattern, path), path
    for path in ('run', 'setup.py', 'requirements.lock', 'tools/datasets/digits.py', 'inception_v3/run/main.py'):
        assert not re.match(pattern, path), path


@program
@pytest.mark.parametrize('code', [0, 2])
def test_machine__does_the_run_saves_its_log_and_deletes_itself(
    world: World, tmp_path: pathlib.Path, code: int
) -> None:
    given = ['--momentum=0.8', "--train_steps=7 '$(x)'"]
    variables = {'MODEL_DIR': "gs://bucket/it's mine", 'EXPORT_DIR': ''}
    startup = handed_over(world, '--spot', *given, **variables)
    world.script(main=[{'code': code, 'says': 'error: a message of the program\n'}])
    machine = tmp_path / 'machine'
    machine.mkdir()
    boot(world, startup, machine)
    folders = ['--num_shards=8', '--data_dir=gs://bucket/imagenet', "--model_dir=gs://bucket/it's mine", *given]
    assert world.log() == [
        ['apt-get', '-qq', 'update'],
        ['apt-get', '-qq', 'install', 'python3-venv'],
        ['gcloud', 'storage', 'rsync', '--recursive', "gs://bucket/it's mine/program", '.'],
        LIST_BUCKET,
        [*world.checks[1][:6], *folders],
        [*world.create, '--spot'],
        [*world.train[:6], *folders],
        world.delete,
        ['gcloud', 'storage', 'cp', 'run_tpu.log', "gs://bucket/it's mine/run_tpu.log"],
        ['gcloud', 'compute', 'instances', 'delete', *NODE, '--quiet'],
    ]
    assert world.node is None
    (log,) = machine.glob('*/run_tpu.log')
    assert 'error: a message of the program\n' in log.read_text()


@program
@pytest.mark.parametrize('ours', [True, False])
def test_machine__deletes_only_its_own_vm_after_its_crash(world: World, tmp_path: pathlib.Path, ours: bool) -> None:
    startup = handed_over(world)
    # The node of the crashed machine, or of another start.
    (mark,) = re.findall(r'RUN_TPU_MARK=(\S+)', startup)
    world.existing_node(description=mark if ours else 'run_tpu.sh-another-1')
    world.script(delete=[{'code': 1, 'says': 'ERROR: busy\n'}])
    boot(world, startup, tmp_path)
    whole = [world.delete, PAUSE, world.delete, *world.checks, world.create, world.train, world.delete]
    assert world.log()[3:-2] == (whole if ours else [])
    assert world.node == (None if ours else 'READY')


@program
def test_machine__shuts_down_without_permission_to_delete_itself(world: World, tmp_path: pathlib.Path) -> None:
    startup = handed_over(world)
    # The machine has no access to the bucket either.
    world.script(rsync=[{'code': 1}], storage=[{'code': 1}], instance_delete=[{'code': 1}])
    boot(world, startup, tmp_path)
    assert world.log()[-2:] == [
        ['gcloud', 'compute', 'instances', 'delete', *NODE, '--quiet'],
        ['shutdown', '-h', 'now'],
    ]


def test_machine__gets_every_variable(world: World) -> None:
    script, _ = (world.folder / 'run_tpu.sh').read_text().split('\nset -eu\n')
    variables = re.findall(r'^([A-Z_]+)=\$\{\1:?-', script, re.MULTILINE)
    assert len(variables) == len(set(variables)) > 10
    done = world.call('--create', '--dry_run', CLOUD_SHELL='true')
    assert world.log() == []
    startup = startup_of(shlex.split(done.stdout))
    (command,) = [line for line in startup.splitlines() if './run_tpu.sh --create' in line]
    env, *given, program, create, architecture = shlex.split(command)
    assert (env, program, create, architecture) == ('env', './run_tpu.sh', '--create', '--architecture=vm')
    assert [word.split('=')[0] for word in given] == [*variables, 'RUN_TPU_MARK']


@program
def test_dry_run__prints_the_commands_of_a_run_in_cloud_shell(world: World) -> None:
    dry = world.call('--create', '--dry_run', CLOUD_SHELL='true')
    assert (dry.returncode, world.log()) == (0, [])
    assert world.call('--create', CLOUD_SHELL='true').returncode == 0
    printed = unmarked(shlex.split(dry.stdout))
    assert printed == [word for call in world.log(every=True) for word in unmarked(call)]


@program
def test_machine__is_deleted_after_a_failed_or_interrupted_creation(world: World) -> None:
    delete = ['gcloud', 'compute', 'instances', 'delete', *NODE, '--quiet']
    world.script(instance_create=[{'code': 1, 'says': 'ERROR: timed out\n'}])
    done = world.call('--create', CLOUD_SHELL='true')
    assert (done.returncode, world.log()[-1]) == (1, delete)
    assert 'timed out' in done.stderr
    world.forget()

    (world.folder / 'instance').write_text('{"state": "RUNNING"}')
    world.script(instance_create=[{'code': 1, 'says': 'ERROR: The resource node already exists\n'}])
    done = world.call('--create', CLOUD_SHELL='true')
    assert (done.returncode, world.log()[-1][:4]) == (2, ['gcloud', 'compute', 'instances', 'create'])
    assert 'this start did not make it' in done.stderr
    world.forget()

    (world.folder / 'instance').unlink()
    world.script(instance_create=[{'waits': True}])
    script = world.start('--create', CLOUD_SHELL='true')
    world.waiting()
    os.killpg(script.pid, signal.SIGINT)
    world.message(script, 'waiting for gcloud')
    world.go_on()
    script.wait(timeout=LIMIT)
    assert (script.returncode, world.log()[-1]) == (130, delete)


def test_cloud_shell__needs_create(world: World) -> None:
    world.node = 'READY'
    done = world.call(CLOUD_SHELL='true')
    assert (done.returncode, world.log()) == (2, [])
    assert 'Cloud Shell' in done.stderr and 'Use --create to create the TPU VM and a machine' in done.stderr
