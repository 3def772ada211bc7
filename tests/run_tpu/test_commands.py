"""Tests of the commands of `run_tpu.sh`, of its flags and of its variables."""

import os
import shlex
import shutil
import subprocess
from typing import Any, Dict, List

import pytest

from inception_v3 import flags
from inception_v3.config import Config
from tests.run_tpu.world import CHECKS, CLUSTER, CREATE, DELETE, LIMIT, MARK, TRAIN, World, unmarked


@pytest.mark.program
def test_existing_tpu__is_used_and_kept(either: World) -> None:
    either.node = 'READY'
    done = either.call('--optimizer=momentum')
    assert done.returncode == 0, done.stderr
    bucket, preflight = either.checks
    assert either.log() == [bucket, *([*c, '--optimizer=momentum'] for c in (preflight, either.train))]
    assert either.node == 'READY'
    assert done.stdout == ''
    assert 'tensorboard --logdir=gs://bucket/inception_v3' in done.stderr
    assert os.listdir(str(either.temporary)) == []


@pytest.mark.program
def test_create__creates_the_tpu_after_the_checks_and_deletes_it(either: World) -> None:
    done = either.call('--create')
    assert done.returncode == 0, done.stderr
    assert either.log() == [*either.checks, either.create, either.train, either.delete]
    assert either.node is None


@pytest.mark.program
@pytest.mark.parametrize('arguments', [(), ("--train_steps=7 '$(x)'", '--create', '--freeze=a b')])
def test_dry_run__prints_the_commands_of_a_run(either: World, arguments: Any) -> None:
    dry = either.call('--dry_run', *arguments)
    assert (dry.returncode, either.log(), os.listdir(str(either.temporary))) == (0, [], [])
    if '--create' not in arguments:
        either.node = 'READY'
    assert either.call(*arguments).returncode == 0
    printed = [unmarked(shlex.split(line)) for line in dry.stdout.splitlines()]
    # tar has no stub. The program of a TPU VM runs there.
    calls = [call for call in printed if call[0] != 'tar']
    assert len(printed) - len(calls) == (either.architecture == 'vm')
    assert calls == [call for call in either.log(every=True) if '--tf=image' not in call]

    # The printed commands can be pasted into a shell.
    either.forget()
    pasted = subprocess.run(
        ['/bin/sh'], input=dry.stdout, cwd=str(either.folder), env=either.environment, timeout=LIMIT, text=True
    )
    assert pasted.returncode == 0
    assert calls == [call for call in either.log(every=True) if '--tf=image' not in call]
    assert either.train[:5] in [call[:5] for call in either.log()]


def test_dry_run__needs_no_gcloud(world: World) -> None:
    (world.bin / 'gcloud').unlink()
    (world.folder / 'run').unlink()
    done = world.call('--create', '--dry_run')
    printed = [unmarked(shlex.split(line)) for line in done.stdout.splitlines()]
    assert [call for call in printed if not {'describe', 'list', 'tar', 'scp', 'ssh'} & set(call)] == [
        *CHECKS,
        CREATE,
        DELETE,
    ]


@pytest.mark.parametrize('tpu_type', ['v2-8', 'v2-512', 'v3-2048'])
def test_program__accepts_the_flags_of_a_type(nodes: World, tpu_type: str) -> None:
    done = nodes.call('--dry_run', '--train_batch_size=4096', '--eval_batch_size=4096', TPU_TYPE=tpu_type)
    preflight, train = [shlex.split(line)[1:] for line in done.stdout.splitlines()][2:]
    assert preflight[:4] == ['--tf=1.15', 'inception-v3', 'preflight', f'--topology={tpu_type}']
    assert train[:4] == ['--tf=1.15', 'python', '-m', 'inception_v3.main']
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
    assert flags.parse(['preflight', *preflight[4:]]).config == expected
    assert train[4:] == preflight[4:]


@pytest.mark.program
def test_variables__set_tpu_and_folders(either: World) -> None:
    variables = {
        'BUCKET': '',
        'DATA_DIR': 'gs://their-data/records',
        'MODEL_DIR': 'gs://mine/run',
        'EXPORT_DIR': '',
        'TPU_TYPE': 'v3-8',
        'NETWORK': 'net',
    }
    if either.architecture == 'node':
        more, flags, tpu, tf = ['--range=10.1.0.0/29', '--preemptible'], [], CLUSTER, '1.15'
        variables.update(TPU_VERSION='1.15.5', TPU_RANGE='10.1.0.0/29', PREEMPTIBLE='true')
    else:
        more, flags, tpu, tf = ['--spot'], ['--spot'], ['--tpu=local'], '2.15'
        variables.update(TPU_VERSION='tpu-vm-tf-2.15.0-se')
    done = either.call('--create', *flags, **variables)
    assert done.returncode == 0, done.stderr
    folders = ['--num_shards=8', '--data_dir=gs://their-data/records', '--model_dir=gs://mine/run']
    given = ['--network=net', MARK, '--accelerator-type=v3-8', f'--version={variables["TPU_VERSION"]}']
    assert either.log() == [
        ['gcloud', 'storage', 'ls', 'gs://their-data'],
        ['gcloud', 'storage', 'ls', 'gs://mine'],
        ['./run', f'--tf={tf}', 'inception-v3', 'preflight', '--topology=v3-8', *tpu, *folders],
        [*either.create[: -len(given)], *given, *more],
        [*either.train[:5], *tpu, *folders],
        either.delete,
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
        ({'TPU_TYPE': 'v5litepod-8'}, (), ['TPU_TYPE=v5litepod-8', 'tensorflow/issues/90807', 'v3-8']),
        ({'PREEMPTIBLE': 'yes'}, (), ['PREEMPTIBLE=yes', 'true or false']),
        ({'MAX_RESTARTS': '-1'}, (), ['MAX_RESTARTS=-1', 'whole number']),
        ({'TIMEOUT_SECONDS': '0'}, (), ['TIMEOUT_SECONDS=0', 'whole number']),
        ({'TPU_VERSION': '1.15'}, (), ['TPU_VERSION=1.15', 'must be tpu-vm-tf-2.15.1-se']),
        ({'TPU_VERSION': 'tpu-vm-tf-2.15.1-pjrt'}, (), ['2.15.1-pjrt', 'stream executor', 'use tpu-vm-tf-2.15.1-se']),
        ({'TPU_VERSION': 'tpu-vm-tf-2.15.1-pod-se'}, (), ['pod-se', 'one host', 'use tpu-vm-tf-2.15.1-se']),
        (
            {'TPU_VERSION': 'tpu-vm-tf-2.15.1-se', 'TPU_TYPE': 'v3-32'},
            (),
            ['slice of 4 hosts', 'use tpu-vm-tf-2.15.1-pod-se'],
        ),
        ({'TPU_VERSION': '2.15'}, ('--architecture=node',), ['TPU_VERSION=2.15', 'must be 1.15']),
        ({'PREEMPTIBLE': 'true'}, (), ['PREEMPTIBLE=true', '--architecture=node', 'use --spot']),
        ({'TPU_RANGE': '10.1.0.0/29'}, (), ['TPU_RANGE=10.1.0.0/29', 'only for --architecture=node']),
        ({}, ('--architecture=node', '--spot'), ['--spot: only for TPU VMs', 'PREEMPTIBLE=true']),
        ({}, ('--architecture=node', '--queued'), ['--queued: only for TPU VMs']),
        ({}, ('--architecture=tpu',), ['--architecture=tpu', '--architecture=node']),
        ({}, ('--spot=true',), ['--spot=true', 'no value']),
        ({'TPU_NAME': 'My_Node'}, (), ['TPU_NAME=My_Node', 'begin with a letter']),
        ({'TPU_RANGE': '10.1.0.0/16'}, (), ['TPU_RANGE=10.1.0.0/16', '/29']),
        ({'ZONE': 'us-central1'}, (), ['ZONE=us-central1', 'us-central1-b']),
        ({'TPU_NAME': 'n' * 64}, (), ['at most 63']),
        ({'MAX_RENEWALS': '9' * 20}, (), ['at most 9 digits']),
        ({}, ('--model_dir=gs://bucket/other',), ['--model_dir=gs://bucket/other', 'MODEL_DIR']),
        ({}, ('--num_shards', '32'), ['--num_shards', 'TPU_TYPE']),
        ({}, ('--master=grpc://10.0.0.2:8470',), ['--master=grpc://10.0.0.2:8470', 'TPU_NAME']),
        ({}, ('--topology=v2-8',), ['--topology=v2-8', 'TPU_TYPE']),
        *[({}, (flag,), [flag, 'uses the TPU']) for flag in ('--use_tpu=false', '--nouse_tpu')],
        *[({}, (flag,), [flag, 'preflight']) for flag in ('--noxla', '-json')],
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


@pytest.mark.program
@pytest.mark.parametrize('part', [";touch ${IFS}x;'\x1b[2J", '\nus-central1-b\n'])
def test_names__have_their_grammar(world: World, part: str) -> None:
    values = {
        'ZONE': [f'us-a{part}b1-b', f'us-central1-b{part}'],
        'PROJECT': [f'project{part}'],
        'TPU_NAME': [f'node{part}'],
        'NETWORK': [f'net{part}', f'{part}default', f'projects/{part}/global/networks/default'],
        'TPU_TYPE': [f'v2-8{part}v2-32'],
        'TPU_VERSION': [f'tpu-vm-tf-2.15.1{part}-se'],
        'BUCKET': [f'bucket{part}'],
        'DATA_DIR': [f'gs://bucket{part}/data'],
        'MODEL_DIR': [f'gs://{part}/run'],
        'EXPORT_DIR': [f'gs://b{part}'],
        'PREEMPTIBLE': [f'false{part}'],
        'MAX_RESTARTS': [f'5{part}'],
        'RUN_TPU_MARK': [f'run_tpu.sh-x-1{part}'],
    }
    for name, wrong in values.items():
        for value in wrong:
            done = world.call('--create', **{name: value})
            assert done.returncode == 2, (name, value)
            said = f'{"DATA_DIR=gs://" if name == "BUCKET" else name + "="}{value}'.replace('\x1b', '?')
            assert said in done.stderr and 'must' in done.stderr and '\x1b' not in done.stderr
    assert world.log() == []


def test_network_of_another_project__may_be_named(world: World) -> None:
    network = 'projects/another-project/global/networks/net'
    done = world.call('--create', '--dry_run', NETWORK=network)
    assert done.returncode == 0 and f' --network={network} ' in done.stdout


@pytest.mark.parametrize('flag', ['--spot', '--queued'])
def test_flags_of_creation__need_create(world: World, flag: str) -> None:
    done = world.call(flag)
    assert (done.returncode, world.log()) == (2, [])
    assert f'{flag}: only with --create' in done.stderr


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
    done = world.call('--create', '--helpshort')
    assert (done.returncode, done.stderr, world.log()) == (0, '', [])
    assert world.call('--help').stdout == done.stdout
    flags = '--create --spot --queued --architecture=vm|node --dry_run --help'
    for part in (*flags.split(), 'PROJECT=', 'ZONE=', 'BUCKET=', 'TPU_RANGE='):
        assert part in done.stdout
    for line in (
        'TPU_TYPE=v2-8',
        'MODEL_DIR=gs://$BUCKET/inception_v3',
        'MAX_RESTARTS=5',
        'EXPORT_DIR=$MODEL_DIR/export',
    ):
        assert f'    {line}\n' in done.stdout
    assert 'set -eu' not in done.stdout
