"""Tests of how `run_tpu.sh` cleans up after signals and failed deletions."""

import os
import shlex
import shutil
import signal

import pytest

from tests.run_tpu.world import CHECKS, CREATE, DELETE, PAUSE, TRAIN, World


def test_failed_deletion__is_retried_and_reported(world: World) -> None:
    world.script(delete=[{'code': 1, 'says': 'ERROR: busy\n'}])
    assert world.call('--create').returncode == 0
    assert world.log() == [*CHECKS, CREATE, TRAIN, DELETE, PAUSE, DELETE]
    (world.folder / 'log').unlink()

    world.script(delete=[{'code': 1, 'says': 'ERROR: busy\n'}] * 3)
    done = world.call('--create')
    assert done.returncode == 2
    assert world.log() == [*CHECKS, CREATE, TRAIN, *[DELETE, PAUSE] * 2, DELETE]
    *_, message, command = done.stderr.splitlines()
    assert 'COULD NOT BE DELETED' in message
    assert shlex.split(command) == DELETE


@pytest.mark.parametrize('shell', ['/bin/sh', '/bin/bash'])
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize('to_all', [False, True])
def test_signal_in_training__stops_it_and_deletes_the_node(
    world: World, shell: str, number: signal.Signals, to_all: bool
) -> None:
    world.script(main=[{'seconds': 60}])
    script = world.start('--create', shell=[shell])
    program = world.wait_for_a_command_that_waits()
    if to_all:  # As a terminal does for Ctrl-C and when it closes.
        os.killpg(script.pid, number)
    else:
        script.send_signal(number)
    script.communicate(timeout=30)
    assert script.returncode == (75 if number == signal.SIGTERM else 128 + number)
    assert world.log() == [*CHECKS, CREATE, TRAIN, DELETE]
    assert world.node is None
    with pytest.raises(ProcessLookupError):
        os.kill(program, 0)


@pytest.mark.parametrize('shell', ['/bin/sh', '/bin/bash'])
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGHUP])
def test_signal_in_creation__waits_and_deletes_the_node(world: World, shell: str, number: signal.Signals) -> None:
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


def test_closed_output__ends_the_run_and_deletes_the_node(world: World) -> None:
    world.script(main=[{'seconds': 1, 'code': 1, 'node': 'PREEMPTED'}])
    script = world.start('--create')
    world.wait_for_a_command_that_waits()
    assert script.stdout and script.stderr
    script.stdout.close()
    script.stderr.close()
    assert script.wait(timeout=30) == 128 + signal.SIGPIPE
    assert (world.log(), world.node) == ([*CHECKS, CREATE, TRAIN, DELETE], None)


def test_nohup__outlives_the_terminal(world: World) -> None:
    world.script(main=[{'seconds': 1}])
    script = world.start('--create', shell=[str(shutil.which('nohup')), '/bin/sh'])
    world.wait_for_a_command_that_waits()
    os.killpg(script.pid, signal.SIGHUP)
    script.communicate(timeout=30)
    assert (script.returncode, world.node) == (0, None)
    assert world.log() == [*CHECKS, CREATE, TRAIN, DELETE]


def test_second_signal__does_not_stop_the_deletion(world: World) -> None:
    world.script(main=[{'code': 2}], delete=[{'seconds': 1}])
    script = world.start('--create')
    world.wait_for_a_command_that_waits()
    os.killpg(script.pid, signal.SIGINT)
    os.killpg(script.pid, signal.SIGTERM)
    script.communicate(timeout=30)
    assert script.returncode == 2
    assert (world.log()[-1], world.node) == (DELETE, None)
