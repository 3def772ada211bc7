"""Tests that no answer but one about the TPU ends a run of `run_tpu.sh`, restarts it, or counts as a deletion."""

from typing import Any, Dict

import pytest

from tests.run_tpu.world import CHECKS, CREATE, DELETE, LIMIT, NOT_FOUND, PAUSE, RESTART, TRAIN, World
from tests.support.processes import text_of, wait_for

pytestmark = pytest.mark.program
NODE = 'projects/project/locations/us-central1-b/nodes/node'
FOREIGN = {
    'python': (127, 'gcloud: exec: python3: command not found'),
    'account': (1, 'ERROR: Status: 404 Response: "The service account was not found."'),
    'proxy': (1, '<html>404 Not Found: host not found</html>'),
    'address': (1, f'ERROR: https://tpu.googleapis.com/v2/{NODE}: 404 Not Found'),
    'other TPU': (1, NOT_FOUND.replace("/node'", "/node-2'")),
    'other zone': (1, NOT_FOUND.replace('us-central1-b', 'us-central1-c')),
    'other project': (1, NOT_FOUND.replace('projects/project/', 'projects/another-project/')),
    'no resource': (1, 'ERROR: (gcloud) NOT_FOUND: Resource node was not found'),
    'no access': (1, f"ERROR: Permission denied on resource '{NODE}' (or it may not exist): account not found"),
    'queue': (1, NOT_FOUND.replace('nodes/', 'queuedResources/')),
}


def answers(name: str) -> Dict[str, Any]:
    code, text = FOREIGN[name]
    return {'code': code, 'says': f'{text}\n'}


@pytest.mark.parametrize('name', FOREIGN)
def test_deletion__is_not_believed_of_another_answer(world: World, name: str) -> None:
    answer = answers(name)
    world.script(describe=[{}, {}, *[answer] * 99], delete=[answer] * 99, list=[{}, *[answer] * 99])
    done = world.call('--create')
    assert (done.returncode, world.node) == (2, 'READY')
    assert world.log() == [*CHECKS, CREATE, TRAIN, *[PAUSE] * 9]
    assert 'COULD NOT BE DELETED' in done.stderr and 'COSTS MONEY' in done.stderr
    assert FOREIGN[name][1].strip() in done.stderr and 'done: gs' in done.stderr


@pytest.mark.parametrize(
    'answer',
    [{'code': 1, 'says': 'ERROR: 503\n'}, {'prints': NODE}, {'says': 'WARNING: Some requests did not succeed\n'}],
)
def test_deletion__is_confirmed_by_the_list(world: World, answer: Any) -> None:
    missing = {'code': 1, 'says': NOT_FOUND}
    world.script(describe=[{}, {}, *[missing] * 99], list=[{}, *[answer] * 99])
    done = world.call('--create')
    assert (done.returncode, world.node) == (2, 'READY')
    assert 'COULD NOT BE DELETED' in done.stderr


@pytest.mark.parametrize('queued', [False, True])
def test_number_of_the_project__is_its_name(world: World, queued: bool) -> None:
    missing = NOT_FOUND.replace('projects/project', 'projects/123456')
    script = {'describe': [{'code': 1, 'says': missing}]}
    if queued:
        script['queue_describe'] = [{'code': 1, 'says': missing.replace('nodes', 'queuedResources')}]
    world.script(**script)
    assert world.call('--create', *['--queued'] * queued).returncode == 0


@pytest.mark.parametrize('name', FOREIGN)
def test_running_program__is_neither_ended_nor_restarted(world: World, name: str) -> None:
    world.script(main=[{'prints': 'step 1', 'waits': True}], log=[{}, answers(name)], describe=[{}, {}, answers(name)])
    script = world.start('--create', TIMEOUT_SECONDS='8')
    world.waiting()
    world.message(script, FOREIGN[name][1].strip())
    wait_for(lambda: PAUSE in world.log(), LIMIT)
    world.go_on()
    assert (script.wait(timeout=LIMIT), world.node) == (0, None)
    assert world.log() == [*CHECKS, CREATE, TRAIN, PAUSE, DELETE]
    assert text_of(str(world.folder / 'stdout')) == 'step 1\n'


def test_empty_answer__is_not_the_end_of_the_program(world: World) -> None:
    (world.bin / 'gcloud').rename(world.bin / 'real')
    path = world.bin / 'gcloud'
    path.write_text(
        '#!/bin/sh\ncase "$*" in *"on_vm.sh log"*) [ -e asked ] || { true >asked; exit 0; } ;; esac\nexec real "$@"\n'
    )
    path.chmod(0o755)
    world.script(main=[{'code': 2}])
    assert (world.call('--create').returncode, world.node) == (2, None)


def test_program_of_this_start_that_still_runs__is_followed(world: World) -> None:
    # Google Cloud stops the TPU VM, it seems; then it is there, with its program.
    broken = {'code': 1, 'says': 'ERROR: [/usr/bin/ssh] exited with return code [255].\n'}
    main = [{'prints': 'step 1', 'waits': True, 'says': 'step 2\n'}]
    world.script(main=main, log=[{}, broken], describe=[{}, {}, {'prints': 'STOPPED'}])
    script = world.start('--create', TIMEOUT_SECONDS='8')
    world.waiting()
    world.message(script, 'restart 1 of')
    world.message(script, 'is running the program on this TPU VM')
    world.go_on()
    assert (script.wait(timeout=LIMIT), world.node) == (0, None)
    assert text_of(str(world.folder / 'stdout')) == 'step 1\nstep 2\n'
    assert world.log() == [*CHECKS, CREATE, TRAIN, *RESTART[:2], DELETE]


@pytest.mark.parametrize('name', FOREIGN)
def test_start__is_repeated_after_another_answer(world: World, name: str) -> None:
    world.script(scp=[answers(name)], start=[answers(name)], describe=[{}, {}, answers(name), answers(name)])
    done = world.call('--create')
    assert (done.returncode, world.node) == (0, None), done.stderr
