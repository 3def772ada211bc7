"""`run_tpu.sh`, run among stubs: a `gcloud` that keeps a node in a file, and a `run` that is told how to end."""

import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Sequence

import pytest

from inception_v3 import flags
from inception_v3.config import Config

ROOT = pathlib.Path(__file__).parent.parent
SCRIPTS = ('run', 'run_tpu.sh', '.ci/run')
TOOLS = ('cat', 'chmod', 'env', 'grep', 'mktemp', 'rm', 'sed', 'tee')
TYPES = [f'v2-{cores}' for cores in (8, 32, 128, 256, 512)]
TYPES += [f'v3-{cores}' for cores in (8, 32, 64, 128, 256, 512, 1024, 2048)]

NODE = ['node', '--project=project', '--zone=us-central1-b']
DESCRIBE = ['gcloud', 'compute', 'tpus', 'describe', *NODE, '--format=value(state)']
LIST_BUCKET = ['gcloud', 'storage', 'ls', 'gs://bucket']
CREATE = ['gcloud', 'compute', 'tpus', 'create', *NODE, '--network=default']
CREATE += ['--accelerator-type=v2-8', '--version=1.15']
DELETE = ['gcloud', 'compute', 'tpus', 'delete', *NODE, '--quiet']
FLAGS = ['--num_shards=8', '--data_dir=gs://bucket/imagenet', '--model_dir=gs://bucket/inception_v3']
FLAGS += ['--export_dir=gs://bucket/inception_v3/export']
PREFLIGHT = ['./run', 'python', '-m', 'inception_v3.preflight', '--topology=v2-8', *FLAGS]
CLUSTER = ['--tpu=node', '--tpu_zone=us-central1-b', '--gcp_project=project']
TRAIN = ['./run', 'python', '-m', 'inception_v3.main', *CLUSTER, *FLAGS]
CHECKPOINT = ['gcloud', 'storage', 'cat', 'gs://bucket/inception_v3/checkpoint']
PAUSE = ['sleep', '0']
CHECKS = [DESCRIBE, LIST_BUCKET, PREFLIGHT]
ASK = [CHECKPOINT, PAUSE, DESCRIBE]
RESTART = [*ASK, TRAIN]
RENEW = [*ASK, DELETE, CREATE]

# Logs its call, then does the next thing that `script.json` has for such a call: it may leave the node in a
# state, save a checkpoint, say something, wait for a signal, and fail. Without one, it does what the real command
# would.
STUB = """
import json, os, pathlib, shutil, sys, time
world = pathlib.Path({world!r})
call = [{name!r}, *sys.argv[1:]]
with open(str(world / 'log'), 'a') as log:
    log.write(json.dumps(call) + '\\n')
kinds = 'config', 'instances', 'describe', 'rsync', 'checkpoint', 'storage', 'create', 'delete', 'preflight', 'main', ''
kind = [k for k in kinds if any(k in word for word in call[:5])][0]
node, checkpoint, script = world / 'node', world / 'checkpoint', json.loads((world / 'script.json').read_text())
todo = script[kind].pop(0) if script.get(kind) else {{}}
(world / 'script.json').write_text(json.dumps(script))
if kind == 'create':
    node.write_text('CREATING')
if 'seconds' in todo:
    (world / 'waiting').write_text(str(os.getpid()))
    time.sleep(todo['seconds'])
    (world / 'waiting').write_text('done')
sys.stderr.write(todo.get('says', ''))
if kind == 'main':
    # A program that starts writes the file anew, whether it has a new checkpoint or not.
    old = checkpoint.read_text().split(chr(34))[1] if checkpoint.exists() else 'model.ckpt-0'
    checkpoint.write_text('model_checkpoint_path: "%s"\\nlast_preserved_timestamp: %f\\n' % (
        todo.get('saves', old), time.time()))
if todo.get('node') == 'gone':
    node.unlink()
elif 'node' in todo:
    node.write_text(todo['node'])
elif not todo.get('code'):
    if kind == 'create':
        node.write_text('READY')
    if kind == 'delete':
        if not node.exists():
            sys.exit('ERROR: NOT_FOUND: Resource node was not found')
        node.unlink()
    if kind == 'describe':
        if not node.exists():
            sys.exit('ERROR: NOT_FOUND: Resource node was not found')
        print(node.read_text())
    if kind == 'checkpoint':
        print(checkpoint.read_text())
    if kind == 'rsync' and call[-1] == '.':
        shutil.copy(str(world / 'run'), '.')
        shutil.copy(str(world / 'run_tpu.sh'), '.')
if 'prints' in todo:
    print(todo['prints'])
sys.exit(todo.get('code', 0))
"""


class World:
    """A folder with the script, and a PATH on which there is nothing but stubs and a few tools."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.bin = folder / 'bin'
        self.bin.mkdir()
        shutil.copy(str(ROOT / 'run_tpu.sh'), str(folder))
        for tool in TOOLS:
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        stubs = [(self.bin / name, name) for name in ('gcloud', 'sleep', 'apt-get', 'shutdown')]
        for path, name in (*stubs, (folder / 'run', './run')):
            path.write_text(f'#!{sys.executable} -IS\n' + STUB.format(world=str(folder), name=name))
            path.chmod(0o755)
        self.environment = {
            'PATH': str(self.bin),
            'PROJECT': 'project',
            'ZONE': 'us-central1-b',
            'BUCKET': 'bucket',
            'TPU_NAME': 'node',
            'RESTART_SECONDS': '0',
        }
        self.script()

    def script(self, **todo: Any) -> None:
        """Says what the next calls of a kind do."""
        (self.folder / 'script.json').write_text(json.dumps(todo))

    @property
    def node(self) -> Optional[str]:
        """The state of the node; None if there is none."""
        path = self.folder / 'node'
        return path.read_text().strip() if path.exists() else None

    @node.setter
    def node(self, state: str) -> None:
        (self.folder / 'node').write_text(state)

    def start(
        self, *arguments: str, shell: Sequence[str] = ('/bin/sh',), **environment: str
    ) -> 'subprocess.Popen[str]':
        return subprocess.Popen(
            [*shell, './run_tpu.sh', *arguments],
            cwd=str(self.folder),
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell cannot trap what was ignored when it began, as under nohup.
            preexec_fn=functools.partial(signal.signal, signal.SIGHUP, signal.SIG_DFL),
        )

    def call(self, *arguments: str, **environment: str) -> 'subprocess.CompletedProcess[str]':
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def log(self) -> List[List[str]]:
        """The commands that ran."""
        path = self.folder / 'log'
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_a_command_that_waits(self) -> int:
        for _ in range(600):
            path = self.folder / 'waiting'
            if path.exists() and path.read_text():
                return int(path.read_text())
            time.sleep(0.05)
        raise AssertionError('no command waits')


@pytest.fixture
def world(tmp_path: Any) -> World:
    return World(tmp_path)


def test_a_node_that_is_there_is_used_and_left(world: World) -> None:
    world.node = 'READY'
    done = world.call('--optimizer=momentum')
    assert done.returncode == 0, done.stderr
    assert world.log() == [DESCRIBE, LIST_BUCKET, *([*c, '--optimizer=momentum'] for c in (PREFLIGHT, TRAIN))]
    assert world.node == 'READY'
    assert done.stdout == ''
    assert 'tensorboard --logdir=gs://bucket/inception_v3' in done.stderr


def test_with_create_the_node_is_made_after_the_checks_and_deleted_at_the_end(world: World) -> None:
    done = world.call('--create')
    assert done.returncode == 0, done.stderr
    assert world.log() == [*CHECKS, CREATE, TRAIN, DELETE]
    assert world.node is None


@pytest.mark.parametrize('arguments', [(), ('--create',), ("--train_steps=7 '$(x)'", '--create', '--flagfile=a b')])
def test_a_dry_run_prints_what_a_run_does_and_does_nothing(world: World, arguments: Any) -> None:
    dry = world.call('--dry_run', *arguments)
    assert (dry.returncode, world.log(), os.listdir(str(world.folder / 'bin'))) == (0, [], os.listdir(str(world.bin)))
    if '--create' not in arguments:
        world.node = 'READY'
    assert world.call(*arguments).returncode == 0
    assert [shlex.split(line) for line in dry.stdout.splitlines()] == world.log()

    # What is printed can be pasted.
    (world.folder / 'log').unlink()
    if '--create' in arguments:
        world.script(describe=[{}])
    pasted = subprocess.run(
        ['/bin/sh'], input=dry.stdout, cwd=str(world.folder), env=world.environment, timeout=60, text=True
    )
    assert pasted.returncode == 0
    assert [shlex.split(line) for line in dry.stdout.splitlines()] == world.log()


def test_a_dry_run_needs_no_gcloud(world: World) -> None:
    (world.bin / 'gcloud').unlink()
    (world.folder / 'run').unlink()
    done = world.call('--create', '--dry_run')
    assert [shlex.split(line) for line in done.stdout.splitlines()] == [*CHECKS, CREATE, TRAIN, DELETE]


@pytest.mark.parametrize('tpu_type', TYPES)
def test_the_program_takes_the_flags_for_every_type_of_node(world: World, tpu_type: str) -> None:
    done = world.call('--dry_run', '--train_batch_size=4096', '--eval_batch_size=4096', TPU_TYPE=tpu_type)
    preflight, train = [shlex.split(line) for line in done.stdout.splitlines()][2:]
    assert preflight[:5] == ['./run', 'python', '-m', 'inception_v3.preflight', f'--topology={tpu_type}']
    assert train[:4] == ['./run', 'python', '-m', 'inception_v3.main']
    cores = int(tpu_type.split('-')[1])
    expected = Config(
        num_shards=cores,
        mode='train_and_eval',
        data_dir='gs://bucket/imagenet',
        model_dir='gs://bucket/inception_v3',
        export_dir='gs://bucket/inception_v3/export',
        train_batch_size=4096,
        eval_batch_size=4096,
    )
    assert flags.parse(['preflight', *preflight[5:]]).config == expected
    config = flags.parse(train[3:]).config
    assert (config.tpu, config.tpu_zone, config.gcp_project) == ('node', 'us-central1-b', 'project')
    assert train[7:] == preflight[5:]


def test_variables_say_which_node_and_which_folders(world: World) -> None:
    variables = {
        'BUCKET': '',
        'DATA_DIR': 'gs://their-data/records',
        'MODEL_DIR': 'gs://mine/run',
        'EXPORT_DIR': '',
        'TPU_TYPE': 'v3-8',
        'TPU_VERSION': '1.15.5',
        'NETWORK': 'net',
        'TPU_RANGE': '10.1.0.0/29',
        'PREEMPTIBLE': 'true',
    }
    done = world.call('--create', **variables)
    assert done.returncode == 0, done.stderr
    folders = ['--num_shards=8', '--data_dir=gs://their-data/records', '--model_dir=gs://mine/run']
    create = [*CREATE[:7], '--network=net', '--accelerator-type=v3-8', '--version=1.15.5', '--range=10.1.0.0/29']
    assert world.log() == [
        DESCRIBE,
        ['gcloud', 'storage', 'ls', 'gs://their-data'],
        ['gcloud', 'storage', 'ls', 'gs://mine'],
        ['./run', 'python', '-m', 'inception_v3.preflight', '--topology=v3-8', *folders],
        [*create, '--preemptible'],
        ['./run', 'python', '-m', 'inception_v3.main', *CLUSTER, *folders],
        DELETE,
    ]


def test_project_and_zone_come_from_gcloud_if_they_are_not_set(world: World) -> None:
    world.node = 'READY'
    world.script(config=[{'prints': 'project'}, {'prints': 'us-central1-b'}])
    assert world.call(PROJECT='', ZONE='', BUCKET='gs://bucket').returncode == 0
    asked = [['gcloud', 'config', 'get-value', name] for name in ('project', 'compute/zone')]
    assert world.log() == [*asked, *CHECKS, TRAIN]


@pytest.mark.parametrize(
    ('environment', 'arguments', 'parts'),
    [
        ({'PROJECT': ''}, (), ['PROJECT', 'gcloud config set project']),
        ({'ZONE': ''}, (), ['ZONE', 'us-central1-b', 'gcloud compute tpus locations list']),
        ({'BUCKET': ''}, (), ['BUCKET', 'BUCKET=my-bucket']),
        ({'BUCKET': '', 'DATA_DIR': 'gs://data/x'}, (), ['BUCKET', 'MODEL_DIR']),
        ({'DATA_DIR': '/home/me/data'}, (), ['/home/me/data', 'gs://']),
        ({'TPU_TYPE': 'v4-8'}, (), ['TPU_TYPE=v4-8', 'v2-8', 'v3-2048']),
        ({'PREEMPTIBLE': 'yes'}, (), ['PREEMPTIBLE=yes', 'true or false']),
        ({'MAX_RESTARTS': '-1'}, (), ['MAX_RESTARTS=-1', 'whole number']),
        ({'MAX_RENEWALS': 'many'}, (), ['MAX_RENEWALS=many', 'whole number']),
        ({'RESTART_SECONDS': 'x'}, (), ['RESTART_SECONDS=x', 'whole number']),
        ({}, ('--model_dir=gs://bucket/other',), ['--model_dir=gs://bucket/other', 'MODEL_DIR']),
        ({}, ('--num_shards', '32'), ['--num_shards', 'TPU_TYPE']),
        ({}, ('-num_shards=32',), ['-num_shards=32', 'TPU_TYPE']),
        ({}, ('--master=grpc://10.0.0.2:8470',), ['--master=grpc://10.0.0.2:8470', 'TPU_NAME']),
        ({}, ('--topology=v2-8',), ['--topology=v2-8', 'TPU_TYPE']),
        *[({}, (flag,), [flag, 'on the node']) for flag in ('--use_tpu', '--use_tpu=false', '--nouse_tpu')],
        *[({}, (flag,), [flag, 'preflight']) for flag in ('--xla', '--noxla', '--json=1', '--nojson', '-json')],
    ],
)
def test_what_is_missing_or_wrong_is_said_before_anything_runs(
    world: World, environment: Dict[str, str], arguments: Any, parts: List[str]
) -> None:
    done = world.call('--create', *arguments, **environment)
    assert done.returncode == 1
    assert done.stderr.startswith('run_tpu.sh: ')
    for part in parts:
        assert part in done.stderr
    assert [call for call in world.log() if call[1] != 'config'] == []


def startup_of(call: Sequence[str]) -> str:
    """What a machine that is made by that command does when it is up."""
    (metadata,) = [word for word in call if word.startswith('--metadata=')]
    _, delimiter, pair = metadata.split('^')
    (key, startup) = pair.split('=', 1)
    assert (key, delimiter in startup) == ('startup-script', False)
    return startup


def test_in_cloud_shell_a_machine_in_the_network_of_the_node_takes_over(world: World) -> None:
    done = world.call('--create', CLOUD_SHELL='true', NETWORK='net')
    assert done.returncode == 0, done.stderr
    *checks, upload, create = world.log()
    assert checks == CHECKS
    assert upload[:4] == ['gcloud', 'storage', 'rsync', '--recursive']
    assert upload[5:] == ['.', 'gs://bucket/inception_v3/program']
    assert create[:8] == ['gcloud', 'compute', 'instances', 'create', *NODE, '--network=net']
    assert '--scopes=cloud-platform' in create
    assert world.node is None
    commands = [line.strip() for line in done.stderr.splitlines() if line.startswith('  gcloud')]
    at = 'node --project=project --zone=us-central1-b'
    assert commands == [
        f'gcloud compute instances tail-serial-port-output {at}',
        f'gcloud compute instances delete {at} && gcloud compute tpus delete {at}',
    ]


def test_what_is_not_of_the_program_is_not_copied_to_the_machine(world: World) -> None:
    world.call('--create', CLOUD_SHELL='true')
    option, pattern = world.log()[-2][4].split('=', 1)
    assert option == '--exclude'
    for path in ('.venv/bin/python', '.git/config', 'runs/digits/checkpoint', 'data/__pycache__/tree.pyc', 'data/.x'):
        assert re.match(pattern, path), path
    for path in ('run', 'run_tpu.sh', 'setup.py', 'requirements.lock', 'data/digits.py', 'inception_v3/run/main.py'):
        assert not re.match(pattern, path), path


@pytest.mark.parametrize('code', [0, 2])
def test_the_machine_does_the_run_leaves_its_log_and_deletes_itself(
    world: World, tmp_path: pathlib.Path, code: int
) -> None:
    given = ['--momentum=0.8', "--train_steps=7 '$(x)'"]
    variables = {
        'MODEL_DIR': "gs://bucket/it's mine",
        'EXPORT_DIR': '',
        'PREEMPTIBLE': 'true',
        'TPU_RANGE': '10.1.0.0/29',
    }
    world.call('--create', *given, **variables, CLOUD_SHELL='true')
    startup = startup_of(world.log()[-1])
    (world.folder / 'log').unlink()

    world.script(main=[{'code': code, 'says': 'error: what the program says\n'}])
    machine = tmp_path / 'machine'
    machine.mkdir()
    # A machine has none of the variables.
    environment = {'PATH': str(world.bin), 'TMPDIR': str(machine)}
    subprocess.run(['/bin/sh', '-c', startup], cwd=str(machine), env=environment, timeout=60, check=True)
    folders = ['--num_shards=8', '--data_dir=gs://bucket/imagenet', "--model_dir=gs://bucket/it's mine", *given]
    assert world.log() == [
        DELETE,
        ['apt-get', '-qq', 'update'],
        ['apt-get', '-qq', 'install', 'python3-venv'],
        ['gcloud', 'storage', 'rsync', '--recursive', "gs://bucket/it's mine/program", '.'],
        DESCRIBE,
        LIST_BUCKET,
        [*PREFLIGHT[:5], *folders],
        [*CREATE, '--range=10.1.0.0/29', '--preemptible'],
        [*TRAIN[:7], *folders],
        DELETE,
        ['gcloud', 'storage', 'cp', 'run_tpu.log', "gs://bucket/it's mine/run_tpu.log"],
        ['gcloud', 'compute', 'instances', 'delete', *NODE, '--quiet'],
    ]
    assert world.node is None
    (log,) = machine.glob('*/run_tpu.log')
    assert 'error: what the program says\n' in log.read_text()


def test_a_machine_that_starts_again_deletes_the_node_left_from_before_its_crash(
    world: World, tmp_path: pathlib.Path
) -> None:
    world.call('--create', CLOUD_SHELL='true')
    startup = startup_of(world.log()[-1])
    (world.folder / 'log').unlink()

    world.node = 'READY'
    world.script(delete=[{'code': 1, 'says': 'ERROR: busy\n'}])
    environment = {'PATH': str(world.bin), 'TMPDIR': str(tmp_path)}
    subprocess.run(['/bin/sh', '-c', startup], cwd=str(tmp_path), env=environment, timeout=60, check=True)
    assert world.log()[:3] == [DELETE, PAUSE, DELETE]
    assert world.log()[6:-2] == [*CHECKS, CREATE, TRAIN, DELETE]
    assert world.node is None


def test_a_machine_that_may_not_delete_itself_shuts_down(world: World, tmp_path: pathlib.Path) -> None:
    world.call('--create', CLOUD_SHELL='true')
    startup = startup_of(world.log()[-1])
    # Nor may it read the bucket.
    world.script(rsync=[{'code': 1}], storage=[{'code': 1}], instances=[{'code': 1}])
    environment = {'PATH': str(world.bin), 'TMPDIR': str(tmp_path)}
    subprocess.run(['/bin/sh', '-c', startup], cwd=str(tmp_path), env=environment, timeout=60, check=True)
    assert world.log()[-2:] == [
        ['gcloud', 'compute', 'instances', 'delete', *NODE, '--quiet'],
        ['shutdown', '-h', 'now'],
    ]


def test_the_machine_gets_every_variable(world: World) -> None:
    script, _ = (world.folder / 'run_tpu.sh').read_text().split('\nset -eu\n')
    variables = re.findall(r'^([A-Z_]+)=\$\{\1:?-', script, re.MULTILINE)
    assert len(variables) == len(set(variables)) > 10
    done = world.call('--create', '--dry_run', CLOUD_SHELL='true')
    assert world.log() == []
    startup = startup_of(shlex.split(done.stdout))
    (command,) = [line for line in startup.splitlines() if './run_tpu.sh --create' in line]
    env, *given, program, create = shlex.split(command)
    assert (env, program, create) == ('env', './run_tpu.sh', '--create')
    assert [word.split('=')[0] for word in given] == variables


def test_a_dry_run_in_cloud_shell_prints_what_a_run_does(world: World) -> None:
    dry = world.call('--create', '--dry_run', CLOUD_SHELL='true')
    assert (dry.returncode, world.log()) == (0, [])
    assert world.call('--create', CLOUD_SHELL='true').returncode == 0
    assert shlex.split(dry.stdout) == [word for call in world.log() for word in call]


def test_a_machine_whose_creation_fails_or_is_interrupted_is_deleted(world: World) -> None:
    delete = ['gcloud', 'compute', 'instances', 'delete', *NODE, '--quiet']
    world.script(instances=[{'code': 1, 'says': 'ERROR: timed out\n'}])
    done = world.call('--create', CLOUD_SHELL='true')
    assert (done.returncode, world.log()[-1]) == (1, delete)
    assert 'timed out' in done.stderr
    (world.folder / 'log').unlink()

    world.script(instances=[{'code': 1, 'says': 'ERROR: The resource node already exists\n'}])
    done = world.call('--create', CLOUD_SHELL='true')
    assert (done.returncode, world.log()[-1][:4]) == (1, ['gcloud', 'compute', 'instances', 'create'])
    (world.folder / 'log').unlink()

    world.script(instances=[{'seconds': 1}])
    script = world.start('--create', CLOUD_SHELL='true')
    world.wait_for_a_command_that_waits()
    os.killpg(script.pid, signal.SIGINT)
    script.communicate(timeout=30)
    assert (script.returncode, world.log()[-1]) == (130, delete)


def test_in_cloud_shell_nothing_is_made_without_create(world: World) -> None:
    world.node = 'READY'
    done = world.call(CLOUD_SHELL='true')
    assert (done.returncode, world.log()) == (1, [])
    assert 'Cloud Shell cannot reach a node; with --create' in done.stderr


def test_without_gcloud_it_says_where_to_get_it(world: World) -> None:
    shutil.rmtree(str(world.bin))
    done = world.call('--create')
    assert (done.returncode, done.stdout) == (1, '')
    assert done.stderr.startswith('run_tpu.sh: gcloud: not found; https://')


@pytest.mark.parametrize('said', ['(unset)\n', 'config get-value project\n', ''])
def test_what_gcloud_says_of_a_setting_may_be_no_setting(world: World, said: str) -> None:
    world.script(config=[{'prints': said}])
    done = world.call(PROJECT='')
    assert (done.returncode, 'no Google Cloud project' in done.stderr) == (1, True)


def test_a_failed_preflight_costs_nothing(world: World) -> None:
    world.script(preflight=[{'code': 1, 'says': 'error: --optimizer=adam: must be sgd, momentum or RMS.\n'}])
    done = world.call('--create')
    assert done.returncode == 1
    assert 'must be sgd' in done.stderr and 'preflight failed' in done.stderr
    assert world.log() == CHECKS


def test_a_bucket_that_cannot_be_listed_is_named(world: World) -> None:
    world.script(storage=[{'code': 1, 'says': 'ERROR: gs://bucket not found: 404.\n'}])
    done = world.call('--create')
    assert done.returncode == 1
    assert '404' in done.stderr and 'gcloud storage buckets create gs://bucket --location=us-central1' in done.stderr
    assert world.log() == [DESCRIBE, LIST_BUCKET]


@pytest.mark.parametrize('state', ['READY', 'PREEMPTED', 'CREATING'])
def test_with_create_a_node_that_exists_is_left_alone(world: World, state: str) -> None:
    world.node = state
    done = world.call('--create')
    assert done.returncode == 1
    assert f'exists already, and is {state}' in done.stderr
    assert (world.log(), world.node) == ([DESCRIBE], state)


@pytest.mark.parametrize(('state', 'part'), [(None, 'no such node'), ('PREEMPTED', 'is PREEMPTED, and must be READY')])
def test_without_create_the_node_must_be_there_and_ready(world: World, state: Optional[str], part: str) -> None:
    if state:
        world.node = state
    done = world.call()
    assert (done.returncode, world.log(), world.node) == (1, [DESCRIBE], state)
    assert part in done.stderr


def test_when_gcloud_cannot_say_whether_the_node_exists_its_reason_is_shown(world: World) -> None:
    world.script(describe=[{'code': 1, 'says': 'ERROR: PERMISSION_DENIED: Cloud TPU API has not been used\n'}])
    done = world.call('--create')
    assert (done.returncode, world.log()) == (1, [DESCRIBE])
    assert 'PERMISSION_DENIED' in done.stderr and 'whether there is a node' in done.stderr


@pytest.mark.parametrize('answer', ['exit 0', 'echo "$@"', 'case $3 in describe) exit 1 ;; esac'])
def test_a_gcloud_that_says_nothing_of_a_node_is_believed(world: World, answer: str) -> None:
    (world.bin / 'gcloud').write_text(f'#!/bin/sh\n{answer}\n')
    assert world.call('--create').returncode == 0
    assert world.log() == [PREFLIGHT, TRAIN]


SILENT = {'code': 1}


@pytest.mark.parametrize(('arguments', 'cloud_shell'), [((), ''), (('--create',), 'true')])
def test_a_gcloud_that_fails_silently_is_not_enough_to_use_a_node_or_to_hand_one_over(
    world: World, arguments: Any, cloud_shell: str
) -> None:
    world.node = 'READY'
    world.script(describe=[SILENT])
    done = world.call(*arguments, CLOUD_SHELL=cloud_shell)
    assert (done.returncode, world.log(), world.node) == (1, [DESCRIBE], 'READY')
    assert 'whether there is a node' in done.stderr


@pytest.mark.parametrize('describe', [SILENT, {'node': 'READY'}])
def test_a_node_that_may_have_been_there_is_not_deleted(world: World, describe: Dict[str, Any]) -> None:
    world.script(describe=[describe], create=[{'code': 1, 'node': 'READY'}])
    done = world.call('--create')
    assert (done.returncode, world.log(), world.node) == (1, [*CHECKS, CREATE], 'READY')
    (world.folder / 'log').unlink()

    world.script(describe=[describe], create=[{'seconds': 1, 'code': 1, 'node': 'READY'}])
    (world.folder / 'waiting').write_text('')
    script = world.start('--create')
    world.wait_for_a_command_that_waits()
    script.send_signal(signal.SIGINT)
    script.communicate(timeout=30)
    assert (script.returncode, world.log(), world.node) == (130, [*CHECKS, CREATE], 'READY')


def test_a_node_that_was_made_after_silence_is_deleted_when_it_is_interrupted(world: World) -> None:
    world.script(describe=[SILENT], create=[{'seconds': 1}])
    script = world.start('--create')
    world.wait_for_a_command_that_waits()
    script.send_signal(signal.SIGINT)
    script.communicate(timeout=30)
    assert (script.returncode, world.log(), world.node) == (130, [*CHECKS, CREATE, DELETE], None)


def test_a_healthy_node_is_kept_when_gcloud_fails_silently(world: World) -> None:
    world.script(main=[{'code': 1}], describe=[{}, SILENT])
    assert world.call('--create').returncode == 0
    assert world.log() == [*CHECKS, CREATE, TRAIN, *RESTART, DELETE]


@pytest.mark.parametrize('state', ['PREEMPTED', 'TERMINATED', 'STOPPED'])
def test_a_lost_node_is_made_anew_and_the_same_command_goes_on(world: World, state: str) -> None:
    world.script(main=[{'code': 1, 'node': state}, {'code': 1, 'node': state}, {}])
    done = world.call('--create', PREEMPTIBLE='true')
    assert done.returncode == 0, done.stderr
    create = [*CREATE, '--preemptible']
    again = [*ASK, DELETE, create, TRAIN]
    assert world.log() == [*CHECKS, create, TRAIN, *again, *again, DELETE]
    assert f'node is {state}' in done.stderr and 'restart 2 of at most 5' in done.stderr


def test_a_lost_node_is_asked_for_again_until_there_is_capacity(world: World) -> None:
    no_capacity = {'code': 1, 'says': 'ERROR: There is no more capacity in the zone\n', 'node': 'TERMINATED'}
    world.script(main=[{'code': 1, 'node': 'PREEMPTED'}, {}], create=[{}, *[no_capacity] * 9, {}])
    # What costs nothing is no restart.
    done = world.call('--create', MAX_RESTARTS='1')
    assert done.returncode == 0, done.stderr
    assert world.log() == [*CHECKS, CREATE, TRAIN, *RENEW, *[PAUSE, DESCRIBE, DELETE, CREATE] * 9, TRAIN, DELETE]
    assert 'no more capacity' in done.stderr


def test_a_lost_node_is_not_asked_for_for_ever(world: World) -> None:
    no_capacity = {'code': 1, 'says': 'ERROR: There is no more capacity in the zone\n', 'node': 'TERMINATED'}
    world.script(main=[{'code': 1, 'node': 'PREEMPTED'}], create=[{}, *[no_capacity] * 9])
    done = world.call('--create', MAX_RENEWALS='2')
    assert done.returncode == 1
    assert world.log() == [*CHECKS, CREATE, TRAIN, *RENEW, PAUSE, DESCRIBE, DELETE, CREATE, DELETE]
    assert 'no new node in 2 attempts' in done.stderr
    assert world.node is None


def test_a_node_whose_renewal_failed_is_not_trusted_and_one_that_was_renewed_is(world: World) -> None:
    # The second node is READY, though gcloud failed; the third is, too, and is kept when the program fails on it.
    world.script(
        main=[{'code': 1, 'node': 'PREEMPTED'}, {'code': 1}], create=[{}, {'code': 1, 'says': '?', 'node': 'READY'}, {}]
    )
    assert world.call('--create').returncode == 0
    assert world.log() == [*CHECKS, CREATE, TRAIN, *RENEW, PAUSE, DESCRIBE, DELETE, CREATE, TRAIN, *RESTART, DELETE]


def test_a_node_that_is_gone_needs_no_deletion(world: World) -> None:
    world.script(main=[{'node': 'gone'}])
    done = world.call('--create')
    assert (done.returncode, world.log()) == (0, [*CHECKS, CREATE, TRAIN, DELETE])
    assert 'COULD NOT' not in done.stderr


def test_a_node_of_someone_else_is_not_made_anew(world: World) -> None:
    world.node = 'READY'
    world.script(main=[{'code': 1, 'node': 'RESTARTING'}, {'code': 1, 'node': 'PREEMPTED'}, {}])
    assert world.call().returncode == 0
    assert world.log() == [*CHECKS, TRAIN, *RESTART * 2]


@pytest.mark.parametrize('state', ['READY', 'PREEMPTED'])
def test_restarts_are_bounded_and_the_node_is_deleted_after_the_last(world: World, state: str) -> None:
    world.script(main=[{'code': 1, 'node': state}] * 9)
    done = world.call('--create', MAX_RESTARTS='2')
    assert done.returncode == 1
    again = RESTART if state == 'READY' else [*RENEW, TRAIN]
    assert world.log() == [*CHECKS, CREATE, TRAIN, *again, *again, CHECKPOINT, DELETE]
    assert 'given up after 2 restarts without a new checkpoint' in done.stderr


def test_a_new_checkpoint_counts_the_restarts_anew(world: World) -> None:
    saves = [f'model.ckpt-{step}' for step in (100, 100, 200, 200, 300, 300)]
    world.script(main=[{'code': 1, 'saves': path} for path in saves])
    done = world.call('--create', MAX_RESTARTS='2')
    assert done.returncode == 0, done.stderr
    assert world.log() == [*CHECKS, CREATE, TRAIN, *RESTART * 6, DELETE]
    assert re.findall('restart ([0-9]) of at most 2', done.stderr) == list('121212')


def test_an_answer_that_fails_to_come_is_no_new_checkpoint(world: World) -> None:
    world.script(main=[{'code': 1}] * 9, checkpoint=[{}, {'code': 1, 'says': 'ERROR: 503\n'}])
    assert world.call('--create', MAX_RESTARTS='2').returncode == 1
    assert world.log() == [*CHECKS, CREATE, TRAIN, *RESTART * 2, CHECKPOINT, DELETE]


def test_what_the_user_has_to_change_ends_the_run_at_once(world: World) -> None:
    world.script(main=[{'code': 2, 'node': 'PREEMPTED', 'says': 'error: a bad record\n'}])
    done = world.call('--create')
    assert done.returncode == 2
    assert world.log() == [*CHECKS, CREATE, TRAIN, DELETE]
    assert 'once it is corrected, this command goes on' in done.stderr


@pytest.mark.parametrize('code', [1, 75, 134, 137])
def test_any_other_failure_is_restarted_on_the_node_that_is_ready(world: World, code: int) -> None:
    world.script(main=[{'code': code}])
    done = world.call('--create')
    assert done.returncode == 0
    assert world.log() == [*CHECKS, CREATE, TRAIN, *RESTART, DELETE]


def test_a_program_that_was_interrupted_is_not_started_again(world: World) -> None:
    world.script(main=[{'code': 130}])
    assert world.call('--create').returncode == 130
    assert world.log() == [*CHECKS, CREATE, TRAIN, DELETE]


def test_a_creation_that_fails_half_way_leaves_nothing(world: World) -> None:
    world.script(create=[{'code': 1, 'says': 'ERROR: timed out\n'}])
    done = world.call('--create')
    assert done.returncode == 1
    assert world.log() == [*CHECKS, CREATE, DELETE]
    assert 'timed out' in done.stderr and world.node is None


def test_a_node_that_someone_else_made_meanwhile_is_left_alone(world: World) -> None:
    world.script(create=[{'code': 1, 'node': 'READY', 'says': 'ERROR: ALREADY_EXISTS: node\n'}])
    done = world.call('--create')
    assert (done.returncode, world.log(), world.node) == (1, [*CHECKS, CREATE], 'READY')


def test_a_deletion_that_fails_is_tried_again_and_then_said_loudly(world: World) -> None:
    world.script(delete=[{'code': 1, 'says': 'ERROR: busy\n'}])
    assert world.call('--create').returncode == 0
    assert world.log() == [*CHECKS, CREATE, TRAIN, DELETE, PAUSE, DELETE]
    (world.folder / 'log').unlink()

    world.script(delete=[{'code': 1, 'says': 'ERROR: busy\n'}] * 3)
    done = world.call('--create')
    assert done.returncode == 1
    assert world.log() == [*CHECKS, CREATE, TRAIN, *[DELETE, PAUSE] * 2, DELETE]
    *_, message, command = done.stderr.splitlines()
    assert 'COULD NOT BE DELETED' in message
    assert shlex.split(command) == DELETE


@pytest.mark.parametrize('shell', ['/bin/sh', '/bin/bash'])
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize('to_all', [False, True])
def test_an_interrupted_training_stops_and_its_node_is_deleted(
    world: World, shell: str, number: signal.Signals, to_all: bool
) -> None:
    world.script(main=[{'seconds': 60}])
    script = world.start('--create', shell=[shell])
    program = world.wait_for_a_command_that_waits()
    if to_all:  # As a terminal does, on Ctrl-C and when it is closed.
        os.killpg(script.pid, number)
    else:
        script.send_signal(number)
    script.communicate(timeout=30)
    assert script.returncode == 128 + number
    assert world.log() == [*CHECKS, CREATE, TRAIN, DELETE]
    assert world.node is None
    with pytest.raises(ProcessLookupError):
        os.kill(program, 0)


@pytest.mark.parametrize('shell', ['/bin/sh', '/bin/bash'])
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGHUP])
def test_an_interrupted_creation_is_waited_for_and_undone(world: World, shell: str, number: signal.Signals) -> None:
    world.script(create=[{'seconds': 1}])
    script = world.start('--create', shell=[shell])
    world.wait_for_a_command_that_waits()
    os.killpg(script.pid, number)
    _, err = script.communicate(timeout=30)
    assert script.returncode == 128 + number
    assert 'waiting for gcloud' in err
    assert (world.folder / 'waiting').read_text() == 'done'
    assert world.log() == [*CHECKS, CREATE, DELETE]
    assert world.node is None


def test_a_log_that_nobody_reads_any_more_ends_the_run_and_its_node(world: World) -> None:
    world.script(main=[{'seconds': 1, 'code': 1, 'node': 'PREEMPTED'}])
    script = world.start('--create')
    world.wait_for_a_command_that_waits()
    assert script.stdout and script.stderr
    script.stdout.close()
    script.stderr.close()
    assert script.wait(timeout=30) == 128 + signal.SIGPIPE
    assert (world.log(), world.node) == ([*CHECKS, CREATE, TRAIN, DELETE], None)


def test_with_nohup_it_outlives_the_terminal(world: World) -> None:
    world.script(main=[{'seconds': 1}])
    script = world.start('--create', shell=[str(shutil.which('nohup')), '/bin/sh'])
    world.wait_for_a_command_that_waits()
    os.killpg(script.pid, signal.SIGHUP)
    script.communicate(timeout=30)
    assert (script.returncode, world.node) == (0, None)
    assert world.log() == [*CHECKS, CREATE, TRAIN, DELETE]


def test_a_second_interruption_does_not_stop_the_deletion(world: World) -> None:
    world.script(main=[{'code': 2}], delete=[{'seconds': 1}])
    script = world.start('--create')
    world.wait_for_a_command_that_waits()
    os.killpg(script.pid, signal.SIGINT)
    os.killpg(script.pid, signal.SIGTERM)
    script.communicate(timeout=30)
    assert script.returncode == 2
    assert (world.log()[-1], world.node) == (DELETE, None)


def test_help_says_what_there_is(world: World) -> None:
    done = world.call('--help')
    assert (done.returncode, done.stderr, world.log()) == (0, '', [])
    for part in ('--create', '--dry_run', '--help', 'PROJECT=', 'ZONE=', 'BUCKET=', 'TPU_RANGE='):
        assert part in done.stdout
    for line in (
        'TPU_TYPE=v2-8',
        'TPU_VERSION=1.15',
        'MODEL_DIR=gs://$BUCKET/inception_v3',
        'MAX_RESTARTS=5',
        'MAX_RENEWALS=60',
    ):
        assert f'    {line}\n' in done.stdout
    assert 'set -eu' not in done.stdout


def test_shellcheck_has_nothing_to_say() -> None:
    shellcheck = pathlib.Path(sys.executable).parent / 'shellcheck'
    done = subprocess.run([str(shellcheck), *SCRIPTS], cwd=str(ROOT), stdout=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, '')
