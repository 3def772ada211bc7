"""Tests of the checks of `run_tpu.sh` before a run, and of creating a TPU."""

import signal
from typing import Any, Optional

import pytest

from tests.run_tpu.world import CHECKS, CREATE, LIMIT, OTHER, PAUSE, SILENT, World

pytestmark = pytest.mark.program


@pytest.mark.parametrize('code', [1, 2])
def test_failed_preflight__ends_the_run_with_its_exit_code(world: World, code: int) -> None:
    world.script(preflight=[{'code': code, 'says': 'error: --optimizer=adam: must be sgd, momentum or RMS.\n'}])
    done = world.call('--create')
    assert done.returncode == code
    assert 'must be sgd' in done.stderr and 'preflight failed' in done.stderr
    assert world.log() == CHECKS


@pytest.mark.parametrize('state', ['READY', 'PREEMPTED', 'CREATING'])
def test_create__refuses_an_existing_tpu(either: World, state: str) -> None:
    either.node = state
    done = either.call('--create')
    assert done.returncode == 2
    assert f'already exists and is {state}' in done.stderr
    assert ' '.join(either.delete) in done.stderr
    assert (either.log(), either.node) == ([], state)


@pytest.mark.parametrize(
    ('state', 'part'), [(None, 'does not exist'), ('PREEMPTED', 'is PREEMPTED, and must be READY')]
)
def test_existing_tpu__must_be_ready(world: World, state: Optional[str], part: str) -> None:
    if state:
        world.node = state
    done = world.call()
    assert (done.returncode, world.log(), world.node) == (2, [], state)
    assert part in done.stderr


@pytest.mark.parametrize('answer', ['exit 0', 'echo "$@"', 'case $3 in describe) exit 1 ;; esac'])
def test_create__goes_ahead_if_gcloud_prints_no_state(either: World, answer: str) -> None:
    (either.bin / 'gcloud').write_text(f'#!/bin/sh\n{answer}\n')
    done = either.call('--create', MAX_RENEWALS='2')
    # This gcloud does not run the program of a TPU VM, and does not say that the TPU is gone.
    is_node = either.architecture == 'node'
    assert done.returncode == (2 if is_node else 1)
    assert 'COULD NOT BE DELETED' in done.stderr
    program = [either.train] if is_node else []
    assert [call for call in either.log() if call != PAUSE] == [either.checks[1], *program]


@pytest.mark.parametrize(('arguments', 'cloud_shell'), [((), ''), (('--create',), 'true')])
def test_silent_failure_of_gcloud__ends_the_script(world: World, arguments: Any, cloud_shell: str) -> None:
    world.node = 'READY'
    world.script(describe=[SILENT])
    done = world.call(*arguments, CLOUD_SHELL=cloud_shell)
    assert (done.returncode, world.log(), world.node) == (1, [], 'READY')
    assert 'whether the TPU VM node exists' in done.stderr


@pytest.mark.parametrize('interrupted', [False, True])
def test_tpu_that_existed_before__is_not_deleted(world: World, interrupted: bool) -> None:
    world.node = 'READY'
    world.script(describe=[SILENT], create=[{'code': 1, 'waits': interrupted}])
    script = world.start('--create')
    if interrupted:
        world.waiting()
        script.send_signal(signal.SIGINT)
        world.message(script, 'waiting for gcloud')
        world.go_on()
    assert script.wait(timeout=LIMIT) == (130 if interrupted else 1)
    assert (world.log(), world.node) == ([*CHECKS, CREATE], 'READY')
    assert 'this start did not make it' in world.errors()


def test_create__keeps_a_tpu_that_another_start_just_created(world: World) -> None:
    world.script(create=[{'code': 1, 'node': {**OTHER}, 'says': 'ERROR: ALREADY_EXISTS: node\n'}])
    done = world.call('--create')
    assert (done.returncode, world.log(), world.node) == (2, [*CHECKS, CREATE], 'READY')
    assert 'choose another TPU_NAME' in done.stderr
