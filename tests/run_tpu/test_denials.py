"""Tests that `run_tpu.sh` explains requests that Google Cloud denies, and does not repeat them in vain."""

import signal

import pytest

from tests.run_tpu.world import CHECKS, CREATE, DELETE, LIMIT, TRAIN, World

pytestmark = pytest.mark.program

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
