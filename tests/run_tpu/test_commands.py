"""Tests of the commands of `run_tpu.sh`, of its flags and of its variables."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
from typing import Any, Dict, List

import pytest

from inception_v3.config import Config
from inception_v3.settings import flags
from tests.run_tpu.world import (
    CHECKS,
    CLUSTER,
    CREATE,
    DELETE,
    LIMIT,
    LIST_BUCKET,
    MARK,
    PREFLIGHT,
    ROOT,
    SCRIPTS,
    TRAIN,
    World,
    unmarked,
)

TYPES = [f'v2-{cores}' for cores in (8, 32, 128, 256, 512)]
TYPES += [f'v3-{cores}' for cores in (8, 32, 64, 128, 256, 512, 1024, 2048)]


@pytest.mark.program
def test_existing_node__is_used_and_kept(world: World) -> None:
    world.node = 'READY'
    done = world.call('--optimizer=momentum')
    assert done.returncode == 0, done.stderr
    assert world.log() == [LIST_BUCKET, *([*c, '--optimizer=momentum'] for c in (PREFLIGHT, TRAIN))]
    assert world.node == 'READY'
    assert done.stdout == ''
    assert 'tensorboard --logdir=gs://bucket/inception_v3' in done.stderr
    assert os.listdir(str(world.temporary)) == []


@pytest.mark.program
def test_create__creates_the_node_after_the_checks_and_deletes_it(world: World) -> None:
    done = world.call('--create')
    assert done.returncode == 0, done.stderr
    assert world.log() == [*CHECKS, CREATE, TRAIN, DELETE]
    assert world.node is None


@pytest.mark.program
@pytest.mark.parametrize('arguments', [(), ('--create',), ("--train_steps=7 '$(x)'", '--create', '--flagfile=a b')])
def test_dry_run__prints_the_commands_of_a_run(world: World, arguments: Any) -> None:
    dry = world.call('--dry_run', *arguments)
    assert (dry.returncode, world.log(), os.listdir(str(world.folder / 'bin'))) == (0, [], os.listdir(str(world.bin)))
    if '--create' not in arguments:
        world.node = 'READY'
    assert world.call(*arguments).returncode == 0
    printed = [unmarked(shlex.split(line)) for line in dry.stdout.splitlines()]
    assert printed == world.log(describe=True)

    # The printed commands can be pasted into a shell.
    world.forget()
    pasted = subprocess.run(
        ['/bin/sh'], input=dry.stdout, cwd=str(world.folder), env=world.environment, timeout=LIMIT, text=True
    )
    # At the end, the node is asked for, and is gone.
    assert pasted.returncode == (1 if '--create' in arguments else 0)
    assert printed == world.log(describe=True)


def test_dry_run__needs_no_gcloud(world: World) -> None:
    (world.bin / 'gcloud').unlink()
    (world.folder / 'run').unlink()
    done = world.call('--create', '--dry_run')
    printed = [unmarked(shlex.split(line)) for line in done.stdout.splitlines()]
    assert [call for call in printed if 'describe' not in call] == [*CHECKS, CREATE, TRAIN, DELETE]


@pytest.mark.parametrize('tpu_type', TYPES)
def test_program__accepts_the_flags_for_every_node_type(world: World, tpu_type: str) -> None:
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
        tpu='node',
        tpu_zone='us-central1-b',
        gcp_project='project',
    )
    assert flags.parse(['preflight', *preflight[5:]]).config == expected
    assert train[4:] == preflight[5:]


@pytest.mark.program
def test_variables__set_node_and_folders(world: World) -> None:
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
    create = [*CREATE[:7], '--network=net', MARK, '--accelerator-type=v3-8', '--version=1.15.5', '--range=10.1.0.0/29']
    assert world.log() == [
        ['gcloud', 'storage', 'ls', 'gs://their-data'],
        ['gcloud', 'storage', 'ls', 'gs://mine'],
        ['./run', 'python', '-m', 'inception_v3.preflight', '--topology=v3-8', *CLUSTER, *folders],
        [*create, '--preemptible'],
        ['./run', 'python', '-m', 'inception_v3.main', *CLUSTER, *folders],
        DELETE,
    ]


@pytest.mark.program
def test_project_and_zone__default_to_gclouds_settings(world: World) -> None:
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
        ({'TIMEOUT_SECONDS': '0'}, (), ['TIMEOUT_SECONDS=0', 'whole number']),
        ({'TPU_VERSION': '2.1'}, (), ['TPU_VERSION=2.1', '1.15']),
        ({'TPU_NAME': 'My_Node'}, (), ['TPU_NAME=My_Node', 'begin with a letter']),
        ({'TPU_NAME': '-node'}, (), ['TPU_NAME=-node', 'begin with a letter']),
        ({'TPU_RANGE': '10.1.0.0/16'}, (), ['TPU_RANGE=10.1.0.0/16', '/29']),
        ({'ZONE': 'us-central1'}, (), ['ZONE=us-central1', 'us-central1-b']),
        ({'PROJECT': 'My Project'}, (), ['PROJECT=My Project', 'gcloud projects list']),
        ({}, ('--model_dir=gs://bucket/other',), ['--model_dir=gs://bucket/other', 'MODEL_DIR']),
        ({}, ('--num_shards', '32'), ['--num_shards', 'TPU_TYPE']),
        ({}, ('-num_shards=32',), ['-num_shards=32', 'TPU_TYPE']),
        ({}, ('--master=grpc://10.0.0.2:8470',), ['--master=grpc://10.0.0.2:8470', 'TPU_NAME']),
        ({}, ('--topology=v2-8',), ['--topology=v2-8', 'TPU_TYPE']),
        *[({}, (flag,), [flag, 'uses the node']) for flag in ('--use_tpu', '--use_tpu=false', '--nouse_tpu')],
        *[({}, (flag,), [flag, 'preflight']) for flag in ('--xla', '--noxla', '--json=1', '--nojson', '-json')],
    ],
)
def test_wrong_or_missing_settings__end_the_script_before_any_command(
    world: World, environment: Dict[str, str], arguments: Any, parts: List[str]
) -> None:
    done = world.call('--create', *arguments, **environment)
    assert done.returncode == 2
    assert done.stderr.startswith('run_tpu.sh: ')
    for part in parts:
        assert part in done.stderr
    assert [call for call in world.log() if call[1] != 'config'] == []


def test_missing_gcloud__is_reported_with_a_link(world: World) -> None:
    shutil.rmtree(str(world.bin))
    done = world.call('--create')
    assert (done.returncode, done.stdout) == (2, '')
    assert done.stderr.startswith('run_tpu.sh: gcloud: not found; install it as in https://')


@pytest.mark.parametrize('said', ['(unset)\n', 'config get-value project\n', ''])
def test_project__ignores_other_output_of_gcloud(world: World, said: str) -> None:
    world.script(config=[{'prints': said}])
    done = world.call(PROJECT='')
    assert (done.returncode, 'PROJECT: not set' in done.stderr) == (2, True)


def test_gcloud__never_waits_for_input(world: World) -> None:
    (world.bin / 'gcloud').write_text(
        f'#!/bin/sh\necho "$CLOUDSDK_CORE_DISABLE_PROMPTS" >>{world.folder}/prompts\nexit 2\n'
    )
    assert world.call().returncode == 1
    assert set((world.folder / 'prompts').read_text().splitlines()) == {'1'}


def test_help__lists_flags_and_variables(world: World) -> None:
    done = world.call('--help')
    assert (done.returncode, done.stderr, world.log()) == (0, '', [])
    for part in ('--create', '--dry_run', '--help', 'PROJECT=', 'ZONE=', 'BUCKET=', 'TPU_RANGE='):
        assert part in done.stdout
    for line in (
        'TPU_TYPE=v2-8',
        'TPU_VERSION=1.15',
        'MODEL_DIR=gs://$BUCKET/inception_v3',
        'MAX_RESTARTS=5',
        'RESTART_SECONDS=60',
        'PREEMPTIBLE=false',
        'NETWORK=default',
        'TPU_NAME=inception-v3',
        'DATA_DIR=gs://$BUCKET/imagenet',
        'EXPORT_DIR=$MODEL_DIR/export',
        'MAX_RENEWALS=60',
    ):
        assert f'    {line}\n' in done.stdout
    assert 'set -eu' not in done.stdout


@pytest.mark.program
def test_shellcheck__finds_nothing() -> None:
    shellcheck = pathlib.Path(sys.executable).parent / 'shellcheck'
    done = subprocess.run([str(shellcheck), *SCRIPTS], cwd=str(ROOT), stdout=subprocess.PIPE, text=True, timeout=LIMIT)
    assert (done.returncode, done.stdout) == (0, '')
