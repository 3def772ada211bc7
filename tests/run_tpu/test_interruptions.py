"""Tests of how `run_tpu.sh` cleans up after signals and failed deletions."""

import os
import shlex
import shutil
import signal
from typing import Any, Dict

import pytest

from tests.run_tpu.world import CHECKS, CREATE, DELETE, LIMIT, NODE, NOT_FOUND, PAUSE, TRAIN, VM, World

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
