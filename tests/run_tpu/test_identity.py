"""Tests that `run_tpu.sh` checks a TPU before a run, uses none of another kind, and deletes only its own."""

import os
import signal
import time
from typing import Any, Dict, Optional

import pytest

from tests.run_tpu.world import CHECKS, CREATE, DELETE, LIMIT, NOT_FOUND, OTHER, PAUSE, SILENT, TRAIN, World

pytestmark = pytest.mark.program
ERROR = {'code': 1, 'says': 'ERROR: UNAVAILABLE: no answer\n'}


@pytest.mark.parametrize('code', [0, 1, 2])
@pytest.mark.parametrize('fields', [OTHER, {'description': 'run_tpu.sh-another-1'}])
def test_vm_of_another_start__is_neither_used_nor_deleted(world: World, code: int, fields: Dict[str, str]) -> None:
    world.script(main=[{'code': code, 'node': fields}])
    done = world.call('--create')
    # Without a description, it might be that of this start.
    assert (done.returncode, world.node) == (2 if code or fields is OTHER else 0, 'READY')
    assert [call for call in world.log() if call in (CREATE, TRAIN, DELETE)] == [CREATE, TRAIN]
    assert any(text in done.stderr for text in ('another start', 'this start did not make it', 'does not say whether'))


def test_vm_of_another_start__is_kept_after_a_signal(world: World) -> None:
    world.script(main=[{'waits': True, 'node': OTHER}])
    script = world.start('--create')
    world.waiting()
    world.existing_node()
    script.send_signal(signal.SIGQUIT)
    assert script.wait(timeout=LIMIT) == 131
    assert (world.log(), world.node) == ([*CHECKS, CREATE, TRAIN, *[PAUSE] * 9], 'READY')


@pytest.mark.parametrize('says', ['ERROR: UNAVAILABLE: no answer', ''])
@pytest.mark.parametrize('description', ['', 'run_tpu.sh-another-1', None])
@pytest.mark.parametrize('before', [{}, SILENT])
def test_failed_creation__deletes_only_what_has_its_mark(
    world: World, before: Any, description: Any, says: str
) -> None:
    foreign = {} if description is None else {'description': description}
    failed = {'code': 1, 'says': says, 'node': {'state': 'READY', **foreign}}
    world.script(describe=[before], create=[failed])
    done = world.call('--create')
    assert (done.returncode, world.node) == (1, 'READY' if foreign else None)
    assert world.log() == [*CHECKS, CREATE, *([] if foreign else [DELETE])]


@pytest.mark.parametrize('times', [2, 99])
def test_own_vm_without_a_description__is_asked_for_again(world: World, times: int) -> None:
    # Creation succeeded: an empty description does not make it another start's.
    nameless = {'prints': 'READY\tv2-8\ttpu-vm-tf-2.15.1-se\t'}
    world.script(describe=[{}, {}, *[nameless] * times])
    done = world.call('--create')
    assert (done.returncode, world.node) == ((0, None) if times == 2 else (2, 'READY'))
    assert ('COULD NOT BE DELETED' in done.stderr) == (times > 2)


def test_creation_that_failed_while_it_was_waited_for__may_still_appear(world: World) -> None:
    says = "ERROR: Quota exceeded for 'Read requests' and limit 'Read requests per minute' while polling operation\n"
    world.script(create=[{'code': 1, 'says': says, 'node': 'gone'}])
    done = world.call('--create')
    assert done.returncode == 1 and 'IT MAY STILL APPEAR' in done.stderr


@pytest.mark.parametrize('description', ['', 'run_tpu.sh-another-1'])
def test_queue_of_another_start__is_not_deleted(world: World, description: str) -> None:
    world.script(queue_create=[{'code': 1, 'says': 'ERROR: reset\n', 'queue': {'description': description}}])
    assert world.call('--create', '--queued').returncode == 1
    assert (world.folder / 'queue').exists() and not any('delete' in call for call in world.log())


def test_vm_made_late__is_deleted(world: World) -> None:
    # gcloud gets no answer; the node is visible only after the first query.
    missing = {'code': 1, 'says': NOT_FOUND}
    world.script(create=[ERROR], describe=[missing, missing], list=[{}, {'prints': 'another-node', 'node': {}}])
    assert world.call('--create').returncode == 1
    assert (world.log(), world.node) == ([*CHECKS, CREATE, PAUSE, DELETE], None)


def test_deletion_without_effect__is_repeated(world: World) -> None:
    world.script(delete=[{'node': {}}])
    assert world.call('--create').returncode == 0
    assert (world.log(), world.node) == ([*CHECKS, CREATE, TRAIN, DELETE, PAUSE, DELETE], None)


@pytest.mark.parametrize(
    ('fields', 'parts'),
    [
        ({'acceleratorType': 'v3-8'}, ['is a v3-8, not a v2-8', 'TPU_TYPE']),
        ({'runtimeVersion': 'tpu-vm-tf-2.14.1'}, ['image tpu-vm-tf-2.14.1, not tpu-vm-tf-2.15.1-se', 'TPU_VERSION']),
        ({'runtimeVersion': 'tpu-vm-tf-2.15.1-pod-se'}, ['has image tpu-vm-tf-2.15.1-pod-se,']),
        ({'acceleratorType': 'v2-32', 'runtimeVersion': 'v2-alpha'}, ['v2-32', 'v2-alpha']),
    ],
)
@pytest.mark.parametrize('moment', ['before', 'created', 'restart'])
def test_vm_of_another_type_or_version__ends_the_run(world: World, fields: Any, parts: Any, moment: str) -> None:
    if moment == 'before':
        world.existing_node(**fields)
    changed = {'code': 1, 'node': fields}
    world.script(create=[{'node': {'state': 'READY', **fields}}] if moment == 'created' else [], main=[changed])
    done = world.call(*(['--create'] if moment != 'before' else []))
    assert done.returncode == 2
    for part in parts:
        assert part in done.stderr
    assert world.node == ('READY' if moment == 'before' else None)
    assert world.log().count(TRAIN) == (moment == 'restart')


@pytest.mark.parametrize(
    'fields',
    [
        {'tensorflowVersion': '1.15.5', 'runtimeVersion': 'tpu-vm-tf-2.15.0-se'},
        {'acceleratorType': 'projects/p/types/v2-8'},
    ],
)
def test_tpu_of_the_type_and_version__is_used(either: World, fields: Dict[str, str]) -> None:
    either.existing_node(**fields)
    assert either.call().returncode == 0
    assert (either.log(), either.node) == ([*either.checks, either.train], 'READY')


def test_given_version__is_the_only_one(world: World) -> None:
    world.existing_node(runtimeVersion='tpu-vm-tf-2.15.1-se')
    done = world.call(TPU_VERSION='tpu-vm-tf-2.15.0-se')
    assert (done.returncode, world.log()) == (2, [])
    assert 'has image tpu-vm-tf-2.15.1-se, not tpu-vm-tf-2.15.0-se' in done.stderr


@pytest.mark.parametrize('garbage', ['', '<html>\n<b>504</b>', '{"error": 1}'])
def test_unreadable_state__ends_a_run_on_an_existing_node(world: World, garbage: str) -> None:
    (world.bin / 'gcloud').write_text(f"#!/bin/sh\nprintf '%s' '{garbage}'\n")
    done = world.call()
    assert (done.returncode, world.log()) == (1, [])
    assert 'cannot tell whether the TPU VM node exists' in done.stderr


def test_vm_not_ready_after_its_creation__is_waited_for(world: World) -> None:
    world.script(create=[{'node': {'state': 'CREATING'}}], sleep=[])
    script = world.start('--create', RESTART_SECONDS='1')
    end = time.time() + LIMIT
    while ['sleep', '1'] not in world.log() and time.time() < end:
        time.sleep(0.02)
    script.send_signal(signal.SIGTERM)
    assert script.wait(timeout=LIMIT) == 75
    assert (world.node, TRAIN in world.log()) == (None, False)


@pytest.mark.parametrize('unwritable', [False, True])
def test_lost_temporary_folder__does_not_keep_the_vm(world: World, unwritable: bool) -> None:
    world.script(main=[{'waits': True}])
    script = world.start('--create', TIMEOUT_SECONDS='8')
    world.waiting()
    for folder in world.temporary.iterdir():
        for name in os.listdir(str(folder)):
            (folder / name).unlink()
            if unwritable:
                (folder / name).mkdir()  # No file can be written there.
        if not unwritable:
            folder.rmdir()
    if not unwritable:
        world.temporary.rmdir()
    world.go_on()
    assert script.wait(timeout=LIMIT) == 0
    assert world.node is None


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
