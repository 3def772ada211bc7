"""Tests of the program of `run_tpu.sh` on a TPU VM: copying it there, following and stopping it."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
from typing import Callable, List

import pytest

from tests.run_tpu.world import BROKEN, LIMIT, NODE, PAUSE, QUEUE_CREATE, QUEUE_DELETE, ROOT, VM, World, program_files
from tests.support.processes import text_of, wait_for


def on_vm(world: World, action: str) -> List[List[str]]:
    """The commands that called `on_vm.sh` with an action."""
    return [call for call in world.log(every=True) if f'on_vm.sh {action} ' in call[-1]]


@pytest.mark.program
def test_program__is_copied_started_and_followed(world: World) -> None:
    flag = "--train_steps=7 '$(x)'  \\"
    world.script(main=[{'prints': 'one\n\ntwo', 'says': 'the end, without a newline'}])
    done = world.call('--create', flag)
    assert done.returncode == 0, done.stderr
    # Quotes and spaces in flags arrive unchanged.
    bucket, preflight = world.checks
    assert world.log() == [bucket, [*preflight, flag], world.create, [*world.train, flag], world.delete]
    assert done.stdout == 'one\n\ntwo\nthe end, without a newline\n'
    (copy,) = [call for call in world.log(every=True) if 'scp' in call]
    assert copy[:4] + copy[6:] == [*VM, 'node:run_tpu.tar.gz', '--worker=0', *NODE[1:]]
    for action in ('start', 'log'):
        (call,) = on_vm(world, action)
        assert call[:-1] == [*VM, 'ssh', *NODE, '--worker=0', '--ssh-flag=-oServerAliveInterval=15']
    assert on_vm(world, 'stop') == []
    assert list(world.temporary.iterdir()) == []


def test_program_files__are_what_the_program_needs() -> None:
    packages = {path.parent.name for path in ROOT.glob('*/__init__.py')} - {'tests', 'docs', 'examples'}
    assert packages | {'requirements.lock', 'requirements-2.15.lock'} | {
        'run',
        'run_tpu',
        'setup.py',
        'README.md',
    } <= set(program_files())
    assert not [name for name in program_files() if not (ROOT / name).exists()]


@pytest.mark.program
def test_archive__has_no_local_files(world: World) -> None:
    for name in ('data', 'console'):
        (world.folder / name).unlink()
        for path in (f'{name}/__pycache__/x.pyc', f'{name}/.cache/x', f'{name}/module.py'):
            (world.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (world.folder / path).touch()
    # The archive is kept until it is unpacked.
    world.script(start=[{'code': 1, 'says': 'ERROR: PERMISSION_DENIED\n'}])
    world.existing_node()
    assert world.call().returncode == 2
    with tarfile.open(str(world.folder / 'vm' / 'run_tpu.tar.gz')) as archive:
        names = set(archive.getnames())
    assert {name.split('/')[0] for name in names} == set(program_files())
    assert {'data/module.py', 'console/module.py', 'run_tpu/on_vm.sh'} <= names
    assert not [name for name in names if '__pycache__' in name or '/.' in name]


@pytest.mark.program
def test_slice__is_driven_by_its_first_host(world: World) -> None:
    done = world.call('--create', TPU_TYPE='v3-32')
    assert done.returncode == 0, done.stderr
    cluster = ['--tpu=node', '--tpu_zone=us-central1-b', '--gcp_project=project', '--num_shards=32', *world.train[7:]]
    create = [*world.create[:-2], '--accelerator-type=v3-32', '--version=tpu-vm-tf-2.15.1-pod-se']
    assert world.log()[2:] == [create, [*world.train[:5], *cluster], world.delete]
    (start,) = on_vm(world, 'start')
    assert ' env TPU_LOAD_LIBRARY=0 TPU_NAME=node ./run --tf=image python ' in start[-1]
    assert [call[8] for call in world.log(every=True) if 'ssh' in call] == ['--worker=0'] * 2


@pytest.mark.program
def test_broken_connection__neither_loses_nor_repeats_the_log(world: World) -> None:
    text = ''.join(f'line {number}\n' for number in range(20))
    world.script(
        main=[{'prints': text[:-1]}],
        # The third piece is complete only after gcloud has repeated the command.
        log=[{'cut': 60}, BROKEN, {'cut': 90, 'again': True}],
    )
    done = world.call('--create')
    assert (done.returncode, done.stdout) == (0, text)
    assert world.course == 'ls preflight create train pause pause delete'
    assert done.stderr.count('no connection to node, which is READY; the program continues there') == 2
    assert str(BROKEN['says']) in done.stderr


@pytest.mark.program
def test_running_program__shows_its_log(world: World) -> None:
    # Attempts to reconnect are counted from the last answer.
    world.script(main=[{'prints': 'step 1', 'waits': True, 'says': 'step 2\n'}], log=[BROKEN, {}, BROKEN])
    script = world.start('--create', TIMEOUT_SECONDS='8', MAX_RENEWALS='2')
    world.waiting()
    wait_for(lambda: 'step 1' in text_of(str(world.folder / 'stdout')), LIMIT)
    world.go_on()
    assert (script.wait(timeout=LIMIT), world.node) == (0, None)
    assert text_of(str(world.folder / 'stdout')) == 'step 1\nstep 2\n'
    # Only the first of these commands is shown.
    assert len(on_vm(world, 'log')) > 3 and world.errors().count('on_vm.sh log') == 1


@pytest.mark.program
def test_restarted_vm__starts_the_program_again(world: World) -> None:
    world.script(main=[{'waits': True}, {}])
    script = world.start('--create', TIMEOUT_SECONDS='20')
    world.waiting()
    (supervisor,) = (world.folder / 'vm' / '.run_tpu').glob('run_tpu.sh-*/supervisor')
    wait_for(lambda: text_of(str(supervisor)), LIMIT)
    supervisor.write_text(f'{supervisor.read_text().split()[0]} another-boot\n')
    assert (script.wait(timeout=LIMIT), world.node) == (0, None)
    assert world.course == 'ls preflight create train checkpoint pause train delete'
    assert ['gcloud', 'storage', 'cat', 'gs://bucket/inception_v3/checkpoint'] in world.log()
    assert 'the program is gone' in world.errors()
    # The disk of the TPU VM is kept, so the program is copied once.
    assert len([call for call in world.log(every=True) if 'scp' in call]) == 1


@pytest.mark.program
def test_program_of_another_start__is_left_alone(world: World) -> None:
    world.existing_node()
    world.script(main=[{'waits': True}])
    first = world.start()
    world.waiting()
    second = world.call('--train_steps=9')
    assert second.returncode == 2
    assert 'another start (run_tpu.sh-' in second.stderr and 'is running another command' in second.stderr
    world.go_on()
    assert (first.wait(timeout=LIMIT), world.node) == (0, 'READY')
    assert [call for call in world.log() if call[:5] == world.train[:5]] == [world.train]


@pytest.mark.program
@pytest.mark.parametrize('interrupted', [False, True])
def test_same_program_of_another_start__is_followed(world: World, interrupted: bool) -> None:
    world.existing_node()
    world.script(main=[{'prints': 'step 1', 'waits': True, 'code': 3}, {}])
    first = world.start()
    program = world.waiting()
    first.kill()
    first.wait()
    second = world.start(TIMEOUT_SECONDS='8')
    world.message(second, 'following the run run_tpu.sh-')
    if interrupted:
        second.send_signal(signal.SIGINT)
        assert (second.wait(timeout=LIMIT), on_vm(world, 'stop')) == (130, [])
        os.kill(program, 0)
        world.go_on()
        return
    world.go_on()
    # The second start gets the exit code and the log; then it restarts the program.
    assert second.wait(timeout=LIMIT) == 0
    assert text_of(str(world.folder / 'stdout')).startswith('step 1\n')
    assert [call for call in world.log() if call == world.train] == [world.train, world.train]


@pytest.mark.program
@pytest.mark.parametrize('reachable', [True, False])
def test_interrupted_run__stops_the_program_of_an_existing_vm(world: World, reachable: bool) -> None:
    world.existing_node()
    world.script(main=[{'prints': 'step 1', 'waits': True}], stop=[] if reachable else [BROKEN])
    script = world.start()
    program = world.waiting()
    script.send_signal(signal.SIGINT)
    assert (script.wait(timeout=LIMIT), world.node) == (130, 'READY')
    assert world.course == 'ls preflight train'
    assert len(on_vm(world, 'stop')) == 1
    if reachable:
        assert text_of(str(world.folder / 'stdout')).startswith('step 1\n')
        assert 'may still run' not in world.errors()
        assert subprocess.call(['kill', '-0', str(program)], stderr=subprocess.DEVNULL) != 0
    else:
        *_, message, command = world.errors().splitlines()
        assert 'the program may still run there' in message
        # The printed command can be pasted into a shell.
        subprocess.run(['/bin/sh', '-c', command], cwd=str(world.folder), env=world.environment)
        assert subprocess.call(['kill', '-0', str(program)], stderr=subprocess.DEVNULL) != 0


def on_vm_script(folder: pathlib.Path) -> Callable[..., str]:
    """Copies `on_vm.sh` into the home folder of a TPU VM, and returns a function that calls it there.

    The time of day there jumps by an hour whenever it is read.
    """
    script = folder / '.run_tpu' / 'run_tpu' / 'on_vm.sh'
    script.parent.mkdir(parents=True)
    shutil.copy(str(ROOT / 'run_tpu' / 'on_vm.sh'), str(script))
    date = folder / 'date'
    date.write_text('#!/bin/sh\necho >>times; echo $(($(wc -l <times) * 3600))\n')
    date.chmod(0o755)
    environment = {'PATH': f'{folder}:/usr/bin:/bin', 'HOME': str(folder)}

    def call(*arguments: str) -> str:
        return subprocess.run(['sh', str(script), *arguments], env=environment, stdout=-1, stderr=-2, text=True).stdout

    return call


def test_stop__waits_for_the_save_although_the_clock_jumps(tmp_path: pathlib.Path) -> None:
    call = on_vm_script(tmp_path)
    call('start', 'run', 'sh', '-c', 'trap "sleep 0.3; exit 7" TERM; sleep 60 & wait; wait')
    assert call('stop', 'run', '0', '60') == '\nrun log\nrun end 0 ended 7.\n'


@pytest.mark.parametrize('name', ['supervisor', 'code', 'current'])
def test_half_written_state_file__is_of_no_running_program(tmp_path: pathlib.Path, name: str) -> None:
    call = on_vm_script(tmp_path)
    folder = tmp_path / '.run_tpu'
    (folder / 'old').mkdir()
    (folder / 'current').write_text('' if name == 'current' else 'old\n')
    (folder / 'old' / name).write_text('')
    assert call('log', 'old', '0', '0') == '\nold log\nold end 0 gone.\n'
    call('start', 'run', 'true')
    assert call('log', 'run', '0', '60') == '\nrun log\nrun end 0 ended 0.\n'


def test_process_of_another_boot__is_not_the_program(tmp_path: pathlib.Path) -> None:
    call = on_vm_script(tmp_path)
    folder = tmp_path / '.run_tpu' / 'old'
    folder.mkdir()
    boot = pathlib.Path('/proc/sys/kernel/random/boot_id').read_text()
    for written, state in ((boot, 'running'), ('another-boot\n', 'gone')):
        (folder / 'supervisor').write_text(f'{os.getpid()} {written}')
        assert call('log', 'old', '0', '0') == f'\nold log\nold end 0 {state}.\n'


def test_start__may_be_repeated_and_its_supervisor_outlives_sigterm(tmp_path: pathlib.Path) -> None:
    call = on_vm_script(tmp_path)
    folder = tmp_path / '.run_tpu' / 'run'
    command = ('sh', '-c', 'echo ran; while ! [ -e end ]; do sleep 0.02; done; exit 7')
    # gcloud repeats a command after a broken connection.
    assert [call('start', 'run', *command) for _ in range(2)] == ['', '']
    wait_for(lambda: (folder / 'program').exists() and text_of(str(folder / 'log')))
    # A shutdown of the machine sends SIGTERM to the supervisor, too: the program may still save.
    os.kill(int((folder / 'supervisor').read_text().split()[0]), signal.SIGTERM)
    (folder.parent / 'end').touch()
    assert call('log', 'run', '0', '60') == '\nrun log\nran\nrun end 1 ended 7.\n'


@pytest.mark.program
def test_stop__sends_one_signal(tmp_path: pathlib.Path) -> None:
    call = on_vm_script(tmp_path)
    program = 'trap "echo saving" TERM; while ! [ -e end ]; do sleep 0.1; done; exit 7'
    call('start', 'run', 'sh', '-c', f'echo begin; {program}')
    supervisor = int((tmp_path / '.run_tpu' / 'run' / 'supervisor').read_text().split()[0])
    # The supervisor leads a session, which outlives the connection.
    assert wait_for(lambda: os.getsid(supervisor) == supervisor)
    assert call('log', 'run', '0', '1') == '\nrun log\nbegin\nrun end 1 running.\n'
    # gcloud repeats a command after a broken connection. A second signal would end the program before it has saved.
    assert [call('stop', 'run', '1', '1') for _ in range(2)] == ['\nrun log\nsaving\nrun end 2 running.\n'] * 2
    (tmp_path / '.run_tpu' / 'end').touch()
    assert call('log', 'run', '2', '60') == '\nrun log\nrun end 2 ended 7.\n'


def queue_state(world: World, state: str) -> None:
    path = world.folder / 'queue'
    path.write_text(json.dumps({**json.loads(path.read_text()), 'state': state}))


@pytest.mark.program
def test_queue__is_waited_for_and_deleted_with_its_vm(world: World) -> None:
    world.script(queue_create=[{'queue': {'state': 'WAITING_FOR_RESOURCES'}, 'node': 'gone'}], main=[{}])
    script = world.start('--create', '--queued', '--spot')
    # The wait for a queued resource has no time limit.
    wait_for(lambda: world.log().count(PAUSE) > 20, LIMIT)
    assert 'node is WAITING_FOR_RESOURCES' in world.errors()
    assert 'train' not in world.course and 'delete' not in world.course
    description = json.loads((world.folder / 'queue').read_text())['description']
    world.existing_node(description=description)
    queue_state(world, 'ACTIVE')
    assert script.wait(timeout=LIMIT) == 0, world.errors()
    calls = [call for call in world.log() if call != PAUSE]
    assert calls == [*world.checks, QUEUE_CREATE, world.train, QUEUE_DELETE]
    assert world.node is None and not (world.folder / 'queue').exists()


@pytest.mark.program
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGHUP])
def test_interrupted_queue__is_deleted(world: World, number: signal.Signals) -> None:
    world.script(queue_create=[{'queue': {'state': 'WAITING_FOR_RESOURCES'}, 'node': 'gone'}])
    script = world.start('--create', '--queued', '--spot')
    world.message(script, 'node is WAITING_FOR_RESOURCES')
    script.send_signal(number)
    assert script.wait(timeout=LIMIT) == 128 + number
    assert world.log()[-1] == QUEUE_DELETE and not (world.folder / 'queue').exists()
