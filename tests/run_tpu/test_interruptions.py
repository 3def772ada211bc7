"""Tests of how `run_tpu.sh` restarts a failed program, replaces a lost TPU, and cleans up after signals."""

import os
import re
import shlex
import shutil
import signal
from typing import Any, Dict

import pytest

from tests.run_tpu.world import (
    ASK,
    CHECKPOINT,
    CHECKS,
    CREATE,
    DELETE,
    LIMIT,
    NODE,
    NOT_FOUND,
    PAUSE,
    RENEW,
    RESTART,
    SILENT,
    TRAIN,
    VM,
    World,
)

pytestmark = pytest.mark.program


def test_failed_deletion__is_retried_and_reported(world: World) -> None:
    world.script(delete=[{'code': 1, 'says': 'ERROR: busy\n'}])
    assert world.call('--create').returncode == 0
    assert world.log() == [*CHECKS, CREATE, TRAIN, DELETE, PAUSE, DELETE]
    world.forget()

    world.script(delete=[{'code': 1, 'says': 'ERROR: busy\n'}] * 10)
    done = world.call('--create')
    assert done.returncode == 2
    assert world.log() == [*CHECKS, CREATE, TRAIN, *[DELETE, PAUSE] * 9, DELETE]
    *_, message, command = done.stderr.splitlines()
    assert 'COULD NOT BE DELETED' in message and world.node
    assert shlex.split(command) == DELETE


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.parametrize(('shell', 'to_all'), [('/bin/sh', False), ('/bin/bash', True)])
def test_signal_in_training__stops_it_and_deletes_the_node(
    world: World, shell: str, number: signal.Signals, to_all: bool
) -> None:
    world.script(main=[{'waits': True}])
    script = world.start('--create', shell=[shell])
    program = world.waiting()
    if to_all:  # As a terminal does for Ctrl-C, Ctrl-\\ and when it closes.
        os.killpg(script.pid, number)
    else:
        script.send_signal(number)
    script.wait(timeout=LIMIT)
    assert script.returncode == (75 if number == signal.SIGTERM else 128 + number)
    assert world.log() == [*CHECKS, CREATE, TRAIN, DELETE]
    assert world.node is None
    with pytest.raises(ProcessLookupError):
        os.kill(program, 0)


@pytest.mark.parametrize(('shell', 'number'), [('/bin/sh', signal.SIGINT), ('/bin/bash', signal.SIGHUP)])
def test_signal_in_creation__waits_and_deletes_the_node(world: World, shell: str, number: signal.Signals) -> None:
    world.script(create=[{'waits': True}])
    script = world.start('--create', shell=[shell])
    world.waiting()
    os.killpg(script.pid, number)
    world.message(script, 'waiting for gcloud')
    world.go_on()
    script.wait(timeout=LIMIT)
    assert script.returncode == 128 + number
    assert (world.folder / 'waiting').read_text() == 'done'
    assert world.log() == [*CHECKS, CREATE, DELETE]
    assert world.node is None


def test_closed_output__ends_the_run_and_deletes_the_node(world: World) -> None:
    world.script(main=[{'waits': True, 'code': 1, 'node': {'state': 'PREEMPTED'}}])
    reader, writer = os.pipe()
    script = world.start('--create', output=writer)
    os.close(writer)
    world.waiting()
    os.close(reader)
    world.go_on()
    assert script.wait(timeout=LIMIT) == 128 + signal.SIGPIPE
    assert (world.log(), world.node) == ([*CHECKS, CREATE, TRAIN, DELETE], None)


def test_nohup__outlives_the_terminal(world: World) -> None:
    world.script(main=[{'waits': True}])
    script = world.start('--create', shell=[str(shutil.which('nohup')), '/bin/sh'])
    world.waiting()
    os.killpg(script.pid, signal.SIGHUP)
    world.go_on()
    script.wait(timeout=LIMIT)
    assert (script.returncode, world.node) == (0, None)
    assert world.log() == [*CHECKS, CREATE, TRAIN, DELETE]


def test_second_signal__does_not_stop_the_deletion(world: World) -> None:
    world.script(main=[{'code': 2}], delete=[{'waits': True}])
    script = world.start('--create')
    world.waiting()
    os.killpg(script.pid, signal.SIGINT)
    os.killpg(script.pid, signal.SIGTERM)
    world.go_on()
    script.wait(timeout=LIMIT)
    assert script.returncode == 2
    assert (world.log()[-1], world.node) == (DELETE, None)


def test_vm_that_appears_after_the_end__is_announced(world: World) -> None:
    missing: Dict[str, Any] = {'code': 1, 'says': NOT_FOUND}
    unlisted: Dict[str, Any] = {'node': {}}
    world.script(
        create=[{'waits': True, 'ignores': True}], describe=[{}, missing, missing, missing], list=[{}, *[unlisted] * 3]
    )
    script = world.start('--create')
    world.waiting()
    script.send_signal(signal.SIGINT)
    world.message(script, 'waiting for gcloud')
    script.send_signal(signal.SIGINT)
    assert (script.wait(timeout=LIMIT), world.node) == (130, 'CREATING')
    *_, message, command = world.errors().splitlines()
    assert 'IT MAY STILL APPEAR, AND COSTS MONEY' in message
    assert shlex.split(command) == [*VM, 'describe', *NODE]


def test_restart__keeps_the_vm_when_gcloud_fails_silently(world: World) -> None:
    world.script(main=[{'code': 1}], describe=[{}, SILENT])
    assert world.call('--create').returncode == 0
    assert world.log() == [*CHECKS, CREATE, TRAIN, *RESTART, DELETE]


@pytest.mark.parametrize('state', ['PREEMPTED', 'TERMINATED', 'STOPPED', 'DELETING'])
def test_lost_vm__is_replaced(world: World, state: str) -> None:
    world.script(main=[{'code': 1, 'node': {'state': state}}, {'code': 1, 'node': {'state': state}}, {}])
    done = world.call('--create', '--spot')
    assert done.returncode == 0, done.stderr
    create = [*CREATE, '--spot']
    again = [*ASK, DELETE, create, TRAIN]
    assert world.log() == [*CHECKS, create, TRAIN, *again, *again, DELETE]
    assert f'node is {state}' in done.stderr and 'restart 2 of at most 5' in done.stderr


def test_lost_vm__is_replaced_if_it_no_longer_exists(world: World) -> None:
    world.script(main=[{'code': 1, 'node': 'gone'}, {}])
    assert world.call('--create').returncode == 0
    assert [line for line in world.log() if line in (CREATE, TRAIN)] == [CREATE, TRAIN, CREATE, TRAIN]


def test_lost_vm__is_requested_until_there_is_capacity(world: World) -> None:
    no_capacity = {'code': 1, 'says': 'ERROR: There is no more capacity in the zone\n', 'node': {'state': 'TERMINATED'}}
    world.script(main=[{'code': 1, 'node': {'state': 'PREEMPTED'}}, {}], create=[{}, *[no_capacity] * 9, {}])
    # A failed request does not count as a restart.
    done = world.call('--create', MAX_RESTARTS='1')
    assert done.returncode == 0, done.stderr
    assert world.log() == [*CHECKS, CREATE, TRAIN, *RENEW, *[PAUSE, DELETE, CREATE] * 9, TRAIN, DELETE]
    assert 'no more capacity' in done.stderr


def test_lost_vm__is_requested_a_limited_number_of_times(world: World) -> None:
    no_capacity = {'code': 1, 'says': 'ERROR: There is no more capacity in the zone\n', 'node': {'state': 'TERMINATED'}}
    world.script(main=[{'code': 1, 'node': {'state': 'PREEMPTED'}}], create=[{}, *[no_capacity] * 9])
    done = world.call('--create', MAX_RENEWALS='2')
    assert done.returncode == 1
    assert world.log() == [*CHECKS, CREATE, TRAIN, *RENEW, PAUSE, DELETE, CREATE, DELETE]
    assert 'no new TPU VM in 2 attempts' in done.stderr
    assert world.node is None


def test_lost_vm__is_replaced_until_a_creation_succeeds(world: World) -> None:
    # The second node is READY, but its creation failed. The third is kept when the program fails on it.
    world.script(
        main=[{'code': 1, 'node': {'state': 'PREEMPTED'}}, {'code': 1}],
        create=[{}, {'code': 1, 'says': '?', 'node': {'state': 'READY'}}, {}],
    )
    assert world.call('--create').returncode == 0
    assert world.log() == [*CHECKS, CREATE, TRAIN, *RENEW, PAUSE, DELETE, CREATE, TRAIN, *RESTART, DELETE]


def test_missing_vm__needs_no_deletion(world: World) -> None:
    # It is lost when its program's end is known: before, the program would be started again.
    gone = {'node': 'gone', 'code': 1, 'says': NOT_FOUND}
    world.script(describe=[{}, {}, gone])
    done = world.call('--create')
    assert (done.returncode, world.log()) == (0, [*CHECKS, CREATE, TRAIN])
    assert 'COULD NOT' not in done.stderr


def test_existing_tpu__is_never_replaced(either: World) -> None:
    either.node = 'READY'
    either.script(main=[{'code': 1}, {'code': 1, 'node': {'state': 'PREEMPTED'}}, {}])
    done = either.call(MAX_RESTARTS='2')
    # The program of a TPU node can run without it, until it connects.
    on_node = either.architecture == 'node'
    assert done.returncode == (0 if on_node else 1)
    assert either.log().count(either.train) == (3 if on_node else 2)
    assert (either.create in either.log(), either.delete in either.log()) == (False, False)
    assert either.node == 'PREEMPTED'


def test_lost_node__is_replaced_for_the_program_of_this_machine(nodes: World) -> None:
    nodes.script(main=[{'code': 1, 'node': {'state': 'PREEMPTED'}}, {'code': 2}])
    done = nodes.call('--create', PREEMPTIBLE='true')
    create = [*nodes.create, '--preemptible']
    again = [*ASK, nodes.delete, create, nodes.train]
    assert done.returncode == 2
    assert nodes.log() == [*nodes.checks, create, nodes.train, *again, nodes.delete]


@pytest.mark.parametrize('state', ['READY', 'PREEMPTED'])
def test_restarts__are_limited(world: World, state: str) -> None:
    world.script(main=[{'code': 1, 'node': {'state': state}}] * 9)
    done = world.call('--create', MAX_RESTARTS='2')
    assert done.returncode == 1
    again = RESTART if state == 'READY' else [*RENEW, TRAIN]
    assert world.log() == [*CHECKS, CREATE, TRAIN, *again, *again, CHECKPOINT, DELETE]
    assert 'stopped after 2 restarts without a new checkpoint' in done.stderr


def test_restarts__are_counted_from_the_last_new_checkpoint(world: World) -> None:
    saves = [f'model.ckpt-{step}' for step in (100, 100, 200, 200, 300, 300)]
    world.script(main=[{'code': 1, 'saves': path} for path in saves])
    done = world.call('--create', MAX_RESTARTS='2')
    assert done.returncode == 0, done.stderr
    assert world.log() == [*CHECKS, CREATE, TRAIN, *RESTART * 6, DELETE]
    assert re.findall('restart ([0-9]) of at most 2', done.stderr) == list('121212')


def test_restarts__take_a_failed_query_for_no_new_checkpoint(world: World) -> None:
    world.script(main=[{'code': 1}] * 9, checkpoint=[{}, {'code': 1, 'says': 'ERROR: 503\n'}])
    assert world.call('--create', MAX_RESTARTS='2').returncode == 1
    assert world.log() == [*CHECKS, CREATE, TRAIN, *RESTART * 2, CHECKPOINT, DELETE]


@pytest.mark.parametrize('code', [2, 129, 130])
def test_errors_to_fix_and_interruptions__end_the_run_at_once(world: World, code: int) -> None:
    world.script(main=[{'code': code, 'says': 'error: a bad record\n'}])
    done = world.call('--create')
    assert (done.returncode, world.log()) == (code, [*CHECKS, CREATE, TRAIN, DELETE])
    assert ('fix this error first' in done.stderr) == (code == 2)


@pytest.mark.parametrize('code', [1, 75, 137])
def test_other_exit_codes__restart_the_program_on_the_same_vm(world: World, code: int) -> None:
    world.script(main=[{'code': code}])
    done = world.call('--create')
    assert done.returncode == 0
    assert world.log() == [*CHECKS, CREATE, TRAIN, *RESTART, DELETE]
