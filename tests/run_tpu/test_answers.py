"""Tests of what `run_tpu.sh` does after answers of gcloud: about something else, denials, and none at all."""

import signal
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
    [
        {'code': 1, 'says': 'ERROR: 503\n'},
        {'prints': NODE},
        {'says': 'WARNING: Some requests did not succeed\n'},
        {'says': 'WARNING: The following zones did not respond: us-central1-b. List results may be incomplete.\n'},
    ],
)
def test_deletion__is_confirmed_by_the_list(world: World, answer: Any) -> None:
    missing = {'code': 1, 'says': NOT_FOUND}
    world.script(describe=[{}, {}, *[missing] * 99], list=[{}, *[answer] * 99])
    done = world.call('--create')
    assert (done.returncode, world.node) == (2, 'READY')
    assert 'COULD NOT BE DELETED' in done.stderr


def test_deletion__is_confirmed_by_a_list_beside_other_warnings(world: World) -> None:
    warning = {
        'says': 'WARNING: Python 3.7 is no longer officially supported by the Google Cloud CLI\nListed 0 items.\n'
    }
    world.script(list=[warning] * 99)
    assert (world.call('--create').returncode, world.node) == (0, None)


@pytest.mark.parametrize('queued', [False, True])
def test_number_of_the_project__is_its_name(world: World, queued: bool) -> None:
    missing = NOT_FOUND.replace('projects/project', 'projects/123456')
    script = {'describe': [{'code': 1, 'says': missing}]}
    if queued:
        script['queue_describe'] = [{'code': 1, 'says': missing.replace('nodes', 'queuedResources')}]
    world.script(**script)
    assert world.call('--create', *['--queued'] * queued).returncode == 0


@pytest.mark.parametrize('name', ['python', 'proxy', 'other TPU', 'no access'])
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


@pytest.mark.parametrize('name', ['python', 'proxy', 'other TPU', 'no access'])
def test_start__is_repeated_after_another_answer(world: World, name: str) -> None:
    world.script(scp=[answers(name)], start=[answers(name)], describe=[{}, {}, answers(name), answers(name)])
    done = world.call('--create')
    assert (done.returncode, world.node) == (0, None), done.stderr


ENDED = 'ERROR: (gcloud.compute.tpus.create) FAILED_PRECONDITION: TPU Node has been denied. '
ENDED += 'Please migrate to TPU VM Architecture\n'
CASES = [
    ('ERROR: PERMISSION_DENIED: Permission tpu.nodes.create denied\n', 2, 'roles/tpu.admin'),
    ('ERROR: HttpError 403: Forbidden\n', 2, 'roles/tpu.admin'),
    ('ERROR: Cloud TPU API has not been used in project 1 before\n', 2, 'gcloud services enable tpu.googleapis.com'),
    ('ERROR: FAILED_PRECONDITION: Billing is disabled for project\n', 2, 'gcloud billing projects link project'),
    ('ERROR: You do not currently have an active account selected.\n', 2, 'gcloud auth login'),
    ('ERROR: Reauthentication failed. invalid_grant: Bad Request\n', 2, 'gcloud auth login'),
    ('ERROR: 403 Request had insufficient authentication scopes.\n', 2, '--scopes=cloud-platform'),
    ('ERROR: RESOURCE_EXHAUSTED: Quota limit TPUV2 has been exceeded. Limit: 0\n', 2, 'quotas?project=project'),
    ("ERROR: Quota exceeded for metric 'Requests' and limit 'Requests per minute'\n", 1, 'too many requests'),
    ('ERROR: There is no more capacity in the zone "us-central1-b"\n', 1, 'has no free v2-8'),
    ('ERROR: RESOURCE_EXHAUSTED: try again later\n', 1, 'has no free v2-8'),
    ('ERROR: INVALID_ARGUMENT: network is malformed\n', 2, 'check PROJECT, ZONE, NETWORK'),
    ('ERROR: NOT_FOUND: The network default was not found\n', 2, 'does not exist; check'),
    ('ERROR: [/usr/bin/ssh] exited with return code [255].\n', 1, 'allows TCP port 22'),
    ('ERROR: Unable to find the server at tpu.googleapis.com\n', 1, 'check the network'),
    ('ERROR: UNAVAILABLE: 503\n', 1, 'may pass'),
    ('Traceback (most recent call last)\n', 1, 'could not be created'),
]


def test_ended_node__names_the_architecture_that_exists(nodes: World) -> None:
    nodes.script(create=[{'code': 1, 'says': ENDED, 'node': 'gone'}])
    done = nodes.call('--create')
    assert (done.returncode, nodes.log()) == (2, [*nodes.checks, nodes.create])
    assert ENDED in done.stderr
    *_, message = [line for line in done.stderr.splitlines() if line.startswith('run_tpu.sh: ')]
    assert 'ended TPU nodes in April 2025' in message and 'Remove --architecture=node: the default' in message


@pytest.mark.parametrize(('says', 'code', 'part'), CASES)
def test_denied_creation__is_explained(world: World, says: str, code: int, part: str) -> None:
    world.script(create=[{'code': 1, 'says': says, 'node': 'gone'}])
    done = world.call('--create')
    assert says in done.stderr and part in done.stderr
    assert done.returncode == code
    assert [call for call in world.log() if call[0] != 'sleep'] == [*CHECKS, CREATE]


# A missing node is no error.
@pytest.mark.parametrize(('says', 'code', 'part'), [case for case in CASES[:-1] if 'NOT_FOUND' not in case[0]])
def test_denied_query__is_explained(world: World, says: str, code: int, part: str) -> None:
    world.script(describe=[{'code': 1, 'says': says}])
    done = world.call('--create')
    assert (done.returncode, world.log()) == (code, [])
    assert says in done.stderr and part in done.stderr


@pytest.mark.parametrize(('says', 'lasting'), [('ERROR: PERMISSION_DENIED\n', True), ('ERROR: 503\n', False)])
def test_denied_renewal__is_not_repeated(world: World, says: str, lasting: bool) -> None:
    denied = {'code': 1, 'says': says, 'node': 'gone'}
    world.script(main=[{'code': 1, 'node': {'state': 'PREEMPTED'}}], create=[{}, *[denied] * 9])
    done = world.call('--create', MAX_RENEWALS='3')
    assert done.returncode == (2 if lasting else 1)
    assert world.log().count(CREATE) == (2 if lasting else 4)
    assert world.node is None


@pytest.mark.parametrize('says', ['ERROR: PERMISSION_DENIED\n', 'ERROR: gcloud auth login\n'])
def test_denied_query_after_a_failure__ends_the_run(world: World, says: str) -> None:
    world.script(main=[{'code': 1}], describe=[{}, {}, {'code': 1, 'says': says}])
    done = world.call('--create')
    assert (done.returncode, world.log().count(TRAIN), world.node) == (2, 1, None)


@pytest.mark.parametrize(
    ('says', 'code', 'part'),
    [
        ('ERROR: 404: bucket not found\n', 2, 'gcloud storage buckets create'),
        ('ERROR: HTTPError 403: no storage.objects.list access\n', 2, 'roles/storage.objectAdmin'),
        ('ERROR: Connection reset\n', 1, 'check the network'),
    ],
)
def test_denied_bucket__is_explained(world: World, says: str, code: int, part: str) -> None:
    world.script(storage=[{'code': 1, 'says': says}])
    done = world.call('--create')
    assert (done.returncode, world.log()) == (code, CHECKS[:1])
    assert says in done.stderr and part in done.stderr


@pytest.mark.parametrize('kind', ['describe', 'storage', 'create', 'delete'])
def test_hanging_gcloud__is_stopped(world: World, kind: str) -> None:
    world.script(**{kind: [{'waits': True}]})
    done = world.call('--create', TIMEOUT_SECONDS='2')
    assert 'timed out' in done.stderr
    assert (done.returncode, world.node) == (0 if kind == 'delete' else 1, None)


def test_hanging_program__is_killed_and_the_node_deleted(world: World) -> None:
    world.script(main=[{'waits': True, 'ignores': True}])
    script = world.start('--create', TIMEOUT_SECONDS='3')
    world.waiting()
    script.send_signal(signal.SIGTERM)
    assert script.wait(timeout=LIMIT) == 75
    assert (world.log(), world.node) == ([*CHECKS, CREATE, TRAIN, DELETE], None)


@pytest.mark.parametrize('shell', ['/bin/sh', '/bin/bash'])
@pytest.mark.parametrize('kind', ['main', 'create'])
def test_second_signal__does_not_wait(world: World, shell: str, kind: str) -> None:
    world.script(**{kind: [{'waits': True, 'ignores': True}]})
    script = world.start('--create', shell=[shell])
    world.waiting()
    script.send_signal(signal.SIGINT)
    world.message(script, 'waiting for')
    script.send_signal(signal.SIGINT)
    assert script.wait(timeout=LIMIT) == 130
    assert (world.log()[-1], world.node) == (DELETE, None)


@pytest.mark.parametrize('shell', ['/bin/sh', '/bin/bash'])
def test_ctrl_z__does_not_stop_the_script(world: World, shell: str) -> None:
    world.script(main=[{'waits': True}])
    script = world.start('--create', shell=[shell])
    world.waiting()
    script.send_signal(signal.SIGTSTP)
    world.go_on()
    assert (script.wait(timeout=LIMIT), world.node) == (0, None)


@pytest.mark.parametrize('number', [signal.SIGUSR1, signal.SIGALRM, signal.SIGXCPU, signal.SIGABRT])
def test_other_signals__delete_the_node(world: World, number: signal.Signals) -> None:
    world.script(main=[{'waits': True}])
    script = world.start('--create')
    world.waiting()
    script.send_signal(number)
    assert (script.wait(timeout=LIMIT), world.node) == (128 + number, None)
