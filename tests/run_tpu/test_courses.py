"""Courses of `run_tpu.sh` from start to end: what it does after failures, losses and denials, and what it leaves."""

import pathlib
import subprocess
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import pytest

from tests.run_tpu.world import BROKEN, DELETE, NOT_FOUND, OTHER, ROOT, SILENT, World

program = pytest.mark.program
# The courses of under a second that the default tier runs: one of each kind.
FAST = (
    'fails once',
    'comes after a late creation',
    'spares another TPU run_tpu.sh-another-1 after 0',
    'waits until a TPU is found',
    'request a new TPU after a quota error',
)


class Course(NamedTuple):
    """The expected course of a call of the script.

    Attributes:
      code: the exit code.
      log: the names of the commands after the checks (`World.course`); None: any.
      says: parts of the messages, separated by vertical bars.
      node: the state of the TPU in the end; None if there is none.
    """

    code: int
    log: Optional[str] = None
    says: str = ''
    node: Optional[str] = None


def follow(
    world: World,
    script: Dict[str, Any],
    expected: Course,
    arguments: str = '--create',
    checks: str = 'ls preflight ',
    **environment: Any,
) -> None:
    """Calls the script, for which gcloud and the program do what `script` says, and compares what happens."""
    world.script(**script)
    done = world.call(*arguments.split(), **environment)
    assert (done.returncode, world.node) == (expected.code, expected.node), done.stderr
    assert expected.log is None or world.course == f'{checks}{expected.log}'.strip()
    assert [part for part in expected.says.split('|') if part not in done.stderr] == []


def named(courses: Dict[str, Any]) -> List[Any]:
    """The names of courses, of which the default tier runs the fast ones."""
    return [name if name in FAST else pytest.param(name, marks=program) for name in courses]


def failed(says: str = '', **more: Any) -> Dict[str, Any]:
    return {'code': 1, 'says': says and f'{says}\n', **more}


def lost(state: str = 'PREEMPTED') -> Dict[str, Any]:
    """A program that fails because its TPU is lost."""
    return failed(node={'state': state})


MISSING = {'code': 1, 'says': NOT_FOUND}
FULL = failed('ERROR: There is no more capacity in the zone', node={'state': 'TERMINATED'})
BUSY = failed('ERROR: busy')
REFUSED = failed('root@10.0.0.2: Permission denied (publickey).')
NAMELESS = {'prints': 'READY\tv2-8\ttpu-vm-tf-2.15.1-se\t'}
ANOTHER = 'run_tpu.sh-another-1'
PATH = 'projects/project/locations/us-central1-b/nodes/node'
NUMBERED = NOT_FOUND.replace('projects/project', 'projects/123456')
# Answers of gcloud that do not say that the TPU is gone.
FOREIGN = {
    'python': failed('gcloud: exec: python3: command not found', code=127),
    'account': failed('ERROR: Status: 404 Response: "The service account was not found."'),
    'proxy': failed('<html>404 Not Found: host not found</html>'),
    'address': failed(f'ERROR: https://tpu.googleapis.com/v2/{PATH}: 404 Not Found'),
    'other TPU': failed(NOT_FOUND.replace("/node'", "/node-2'").strip()),
    'other zone': failed(NOT_FOUND.replace('us-central1-b', 'us-central1-c').strip()),
    'other project': failed(NOT_FOUND.replace('projects/project/', 'projects/another-project/').strip()),
    'no resource': failed('ERROR: (gcloud) NOT_FOUND: Resource node was not found'),
    'no access': failed(f"ERROR: Permission denied on resource '{PATH}' (or it may not exist): account not found"),
    'queue': failed(NOT_FOUND.replace('nodes/', 'queuedResources/').strip()),
}
ANSWERS = [*FOREIGN.values()]
NO_ANSWERS = [FOREIGN[name] for name in ('python', 'proxy', 'other TPU', 'no access')]
# Lists that do not prove that it is gone.
LISTS = [
    failed('ERROR: 503'),
    {'prints': PATH},
    {'says': 'WARNING: Some requests did not succeed\n'},
    {'says': 'WARNING: The following zones did not respond: us-central1-b. Results may be incomplete.\n'},
]
MARKS: Tuple[Dict[str, str], ...] = ({'description': ''}, {'description': ANOTHER}, {})
HIDDEN = {'prints': 'another-node', 'node': {}}  # A list without the TPU, which exists.
KEPT = 'COULD NOT BE DELETED|COSTS MONEY'
EDITED = f'the description is|COSTS MONEY|{" ".join(DELETE)}'
UNFOUND = 'was created, but cannot be used|its creation succeeded|IT MAY STILL APPEAR'
RAN, AGAIN, RENEWED = 'create train', ' checkpoint pause train', ' checkpoint pause delete create'

DELETIONS: Dict[str, Tuple[Dict[str, Any], Course]] = {
    'fails once': ({'delete': [BUSY]}, Course(0, f'{RAN} delete pause delete')),
    'fails always': (
        {'delete': [BUSY] * 10},
        Course(2, RAN + ' delete pause' * 9 + ' delete', f'{KEPT}|{" ".join(DELETE)}', 'READY'),
    ),
    'has no effect': ({'delete': [{'node': {}}]}, Course(0, f'{RAN} delete pause delete')),
    # Each of ten attempts gets another answer.
    'is not believed of other answers': (
        {'describe': [{}, {}, *ANSWERS * 9], 'delete': ANSWERS * 9, 'list': [{}, *ANSWERS * 9]},
        Course(2, RAN + ' pause' * 9, f'{KEPT}|done: gs', 'READY'),
    ),
    'is not confirmed by other lists': (
        {'describe': [{}, {}, *[MISSING] * 99], 'list': [{}, *LISTS * 9]},
        Course(2, None, KEPT, 'READY'),
    ),
    'is confirmed beside other warnings': ({'list': [{'says': 'WARNING: Python 3.7 is too old.\n'}] * 99}, Course(0)),
    'is confirmed by the number of the project': ({'describe': [failed(NUMBERED)]}, Course(0)),
    # It is lost when its program's end is known: before, the program would be started again.
    'is not needed, by two answers': ({'describe': [{}, {}, {'node': 'gone', **MISSING}]}, Course(0, f'{RAN} pause')),
    'is needed after one wrong answer': (
        {'describe': [{}, {}, MISSING], 'list': [{}, HIDDEN]},
        Course(0, f'{RAN} pause delete'),
    ),
    # Creation succeeded: an empty description does not make it another start's.
    'waits for the description': ({'describe': [{}, {}, NAMELESS, NAMELESS]}, Course(0)),
    'never gets the description': ({'describe': [{}, {}, *[NAMELESS] * 99]}, Course(2, None, KEPT, 'READY')),
    # gcloud gets no answer; the TPU is visible only after the first query.
    'comes after a late creation': (
        {
            'create': [failed('ERROR: UNAVAILABLE')],
            'describe': [MISSING, MISSING],
            'list': [{}, {'prints': 'another-node', 'node': {}}],
        },
        Course(1, 'create pause delete'),
    ),
    'is announced after a failed wait': (
        {'create': [failed("ERROR: Quota exceeded for 'Requests per minute' while polling operation", node='gone')]},
        Course(1, None, 'IT MAY STILL APPEAR'),
    ),
    'spares the TPU that another start just made': (
        {'create': [failed('ERROR: ALREADY_EXISTS: node', node=OTHER)]},
        Course(2, 'create', 'choose another TPU_NAME', 'READY'),
    ),
    # Without a description, the TPU might be that of this start.
    **{
        f'spares another TPU {fields.get("description")} after {code}': (
            {'main': [{'code': code, 'node': fields}]},
            Course(2, None, KEPT if fields is OTHER else EDITED, 'READY'),
        )
        for fields in (OTHER, {'description': ANOTHER})
        for code in (0, 1)
    },
    # Google Cloud does not find at once what it has made.
    'waits until a TPU is found': (
        {'describe': [{}, *[MISSING] * 2], 'list': [{}, *[HIDDEN] * 2]},
        Course(0, 'create pause pause train delete'),
    ),
    'of a TPU that is never found': (
        {'create': [{'node': 'gone'}]},
        Course(2, 'create' + ' pause' * 9, UNFOUND),
    ),
    'of a new TPU that is never found': (
        {'main': [lost()], 'create': [{}, {'node': 'gone'}]},
        Course(2, RAN + RENEWED + ' pause' * 9, UNFOUND),
    ),
    **{
        f'after a failed creation: {says!r}, {foreign}, {before}': (
            {'describe': [before], 'create': [failed(says, node={'state': 'READY', **foreign})]},
            Course(1, 'create' if foreign else 'create delete', '', 'READY' if foreign else None),
        )
        for foreign in MARKS
        for says, before in (('ERROR: UNAVAILABLE: no answer', {}), ('', SILENT))
    },
}
RESTARTS: Dict[str, Tuple[Dict[str, Any], Course]] = {
    'gcloud fails silently': ({'main': [failed()], 'describe': [{}, SILENT]}, Course(0, f'{RAN}{AGAIN} delete')),
    **{f'exit code {code}': ({'main': [{'code': code}]}, Course(0, f'{RAN}{AGAIN} delete')) for code in (1, 75)},
    **{
        f'exit code {code}': ({'main': [{'code': code}]}, Course(code, f'{RAN} delete', says))
        for code, says in ((2, 'fix this error first'), (130, ''))
    },
    'are limited': (
        {'main': [failed(node={'state': 'READY'})] * 9},
        Course(1, f'{RAN}{AGAIN * 2} checkpoint delete', 'stopped after 2 restarts without a new checkpoint'),
    ),
    'are limited on new TPUs': (
        {'main': [lost()] * 9},
        Course(1, f'{RAN}{f"{RENEWED} train" * 2} checkpoint delete', 'stopped after 2 restarts'),
    ),
    'are counted from the last new checkpoint': (
        {'main': [failed(saves=f'model.ckpt-{step}') for step in (100, 100, 200, 200, 300, 300)]},
        Course(0, f'{RAN}{AGAIN * 6} delete', 'restart 2 of at most 2'),
    ),
    'take a failed query for no new checkpoint': (
        {'main': [failed()] * 9, 'checkpoint': [{}, failed('ERROR: 503')]},
        Course(1, f'{RAN}{AGAIN * 2} checkpoint delete'),
    ),
    **{
        f'end with {says}': (
            {'main': [failed()], 'describe': [{}, {}, failed(says)]},
            Course(2, f'{RAN} checkpoint pause delete'),
        )
        for says in ('ERROR: PERMISSION_DENIED', 'ERROR: gcloud auth login')
    },
    # Lost TPUs.
    **{
        f'replace TPUs that are {one} and {other}': (
            {'main': [lost(one), lost(other), {}]},
            Course(0, f'{RAN}{f"{RENEWED} train" * 2} delete', f'node is {one}|node is {other}|restart 2 of at most 2'),
        )
        for one, other in (('PREEMPTED', 'TERMINATED'), ('STOPPED', 'DELETING'))
    },
    'replace a TPU that is gone': (
        {'main': [failed(node='gone'), {}]},
        Course(0, f'{RAN} checkpoint pause {RAN} delete'),
    ),
    # A failed request does not count as a restart.
    'request a new TPU until there is capacity': (
        {'main': [lost(), {}], 'create': [{}, *[FULL] * 2, {}]},
        Course(0, RAN + RENEWED + ' pause delete create' * 2 + ' train delete', 'no more capacity'),
    ),
    'request a new TPU a limited number of times': (
        {'main': [lost()], 'create': [{}, *[FULL] * 99]},
        Course(1, RAN + RENEWED + ' pause delete create' * 2 + ' delete', 'no new TPU VM in 3 attempts'),
    ),
    # The second TPU is READY, but its creation failed. The third is kept when the program fails on it.
    'request a new TPU until a creation succeeds': (
        {'main': [lost(), failed()], 'create': [{}, failed('?', node={'state': 'READY'}), {}]},
        Course(0, f'{RAN}{RENEWED} pause delete {RAN}{AGAIN} delete'),
    ),
    # The quota sufficed before: the lost TPU may count for a while.
    'request a new TPU after a quota error': (
        {'main': [lost(), {}], 'create': [{}, failed('ERROR: Quota limit TPUV2 has been exceeded', node='gone')]},
        Course(0, f'{RAN}{RENEWED} pause {RAN} delete'),
    ),
    'request no new TPU after a denial': (
        {'main': [lost()], 'create': [{}, *[failed('ERROR: PERMISSION_DENIED', node='gone')] * 9]},
        Course(2, RAN + RENEWED),
    ),
}
CONNECTIONS: Dict[str, Tuple[Dict[str, Any], Course]] = {
    'answer otherwise': (
        {'scp': NO_ANSWERS, 'start': NO_ANSWERS, 'describe': [{}, {}, *NO_ANSWERS * 2]},
        Course(0),
    ),
    # The exit code 134 looks like 1 if the connection breaks before its last digits.
    'cut a state off': (
        {'main': [{'code': 134}, {}], 'log': [{'cut': -len('34.\n')}]},
        Course(0, f'{RAN} pause{AGAIN} delete'),
    ),
    'are lost': (
        {'main': [{'waits': True}], 'log': [BROKEN] * 99},
        Course(1, RAN + ' pause' * 4 + ' delete', 'stopped: no connection to node in 5 attempts'),
    ),
    # Google Cloud takes the TPU VM while the script connects; the program dies with it.
    **{
        f'find a preempted TPU VM at {moment}': (
            {moment: [{**BROKEN, 'node': {'state': 'PREEMPTED'}}], 'main': main},
            Course(0, f'{ran}{RENEWED} train delete', 'node is PREEMPTED'),
        )
        for moment, main, ran in (('start', [], 'create'), ('log', [{'waits': True}, {}], RAN))
    },
    **{
        f'are refused by a new TPU VM: {kind}': (
            {kind: [REFUSED, BROKEN]},
            Course(0, 'create pause pause train delete'),
        )
        for kind in ('scp', 'start')
    },
    'are always refused': (
        {'start': [REFUSED] * 10},
        Course(1, 'create' + ' pause' * 9 + ' delete', 'cannot be reached in 10 attempts|allows TCP port 22'),
    ),
    'avoid the TPU VM of another start': (
        {'log': [{**BROKEN, 'node': {**OTHER, 'description': ANOTHER}}]},
        Course(2, RAN, 'was made by another start', 'READY'),
    ),
}
QUEUES: Dict[str, Tuple[Dict[str, Any], Course]] = {
    **{
        state: (
            {'queue_create': [{'queue': {'state': state}, 'node': 'gone'}]},
            Course(1, 'queue_create queue_delete', f'node is {state} after its creation'),
        )
        for state in ('FAILED', 'SUSPENDED')
    },
    'of a preempted TPU VM': (
        {'main': [lost(), {}]},
        Course(0, 'queue_create train checkpoint pause queue_delete queue_create train queue_delete'),
    ),
    'is deleted, its other TPU VM is not': (
        {'log': [{**BROKEN, 'node': {**OTHER, 'runtimeVersion': 'tpu-vm-tf-2.15.1-se'}}]},
        Course(2, 'queue_create train queue_delete', 'was made by another start'),
    ),
    **{
        f'of another start {description!r}': (
            {'queue_create': [failed('ERROR: reset', queue={'description': description})]},
            Course(1, 'queue_create', '', 'CREATING'),
        )
        for description in ('', ANOTHER)
    },
    'does not exist, by the number of the project': (
        {'describe': [failed(NUMBERED)], 'queue_describe': [failed(NUMBERED.replace('nodes', 'queuedResources'))]},
        Course(0),
    ),
}
HANGING: Dict[str, Tuple[Dict[str, Any], Course]] = {
    kind: ({kind: [{'waits': True}]}, Course(0 if kind == 'delete' else 1, None, 'timed out'))
    for kind in ('describe', 'storage', 'create', 'delete')
}


@pytest.mark.parametrize('name', named(DELETIONS))
def test_end__deletes_the_vm_or_says_how(world: World, name: str) -> None:
    follow(world, *DELETIONS[name])


@pytest.mark.parametrize('name', named(RESTARTS))
def test_preemption__restarts_or_ends_as_told(world: World, name: str) -> None:
    follow(world, *RESTARTS[name], MAX_RESTARTS='2', MAX_RENEWALS='3')


@program
@pytest.mark.parametrize('name', CONNECTIONS)
def test_broken_connections__lose_no_run(world: World, name: str) -> None:
    follow(world, *CONNECTIONS[name], MAX_RENEWALS='5')


@program
def test_connection_that_breaks_in_a_start__does_not_start_twice(world: World) -> None:
    # It breaks after the program was started, and gcloud, then the script, repeat the command.
    follow(world, {'start': [{'cut': 0}, {'cut': 0, 'again': True}]}, Course(0))
    # The program may begin before the pause or after it.
    assert sorted(world.course.split()) == sorted(['ls', 'preflight', 'create', 'train', 'pause', 'delete'])


@program
@pytest.mark.parametrize('name', QUEUES)
def test_queued_resource__is_waited_for_and_deleted(world: World, name: str) -> None:
    follow(world, *QUEUES[name], '--create --queued --spot')


@program
@pytest.mark.parametrize('kind', HANGING)
def test_hanging_gcloud__is_stopped(world: World, kind: str) -> None:
    follow(world, *HANGING[kind], TIMEOUT_SECONDS='2')


@program
@pytest.mark.parametrize(
    ('fields', 'says'),
    [
        ({'acceleratorType': 'v3-8'}, 'is a v3-8, not a v2-8|TPU_TYPE'),
        ({'runtimeVersion': 'tpu-vm-tf-2.14.1'}, 'image tpu-vm-tf-2.14.1, not tpu-vm-tf-2.15.1-se|TPU_VERSION'),
    ],
)
def test_tpu_of_another_type_or_version__ends_the_run(world: World, fields: Dict[str, str], says: str) -> None:
    world.existing_node(**fields)
    follow(world, {}, Course(2, '', says, 'READY'), '', '')
    (world.folder / 'node').unlink()
    follow(world, {'create': [{'node': {'state': 'READY', **fields}}]}, Course(2, 'create delete', says))
    world.forget()
    follow(world, {'main': [failed(node=fields)]}, Course(2, f'{RAN} checkpoint pause delete', says))


@program
def test_given_version__is_the_only_one(world: World) -> None:
    world.existing_node()
    says = 'has image tpu-vm-tf-2.15.1-se, not tpu-vm-tf-2.15.0-se'
    follow(world, {}, Course(2, '', says, 'READY'), '', '', TPU_VERSION='tpu-vm-tf-2.15.0-se')


ENDED = 'ERROR: (gcloud.compute.tpus.create) FAILED_PRECONDITION: TPU Node has been denied. '
ENDED += 'Please migrate to TPU VM Architecture'
# What gcloud says, whether retrying helps, and a part of the explanation.
REASONS = [
    ('ERROR: HttpError 403: Forbidden', 'lasting', 'roles/tpu.admin'),
    ('ERROR: Cloud TPU API has not been used in project 1 before', 'lasting', 'services enable tpu.googleapis.com'),
    ('ERROR: FAILED_PRECONDITION: Billing is disabled for project', 'lasting', 'gcloud billing projects link project'),
    ('ERROR: You do not currently have an active account selected.', 'lasting', 'gcloud auth login'),
    ('ERROR: Reauthentication failed. invalid_grant: Bad Request', 'lasting', 'gcloud auth login'),
    ('ERROR: 403 Request had insufficient authentication scopes.', 'lasting', '--scopes=cloud-platform'),
    ('ERROR: RESOURCE_EXHAUSTED: Quota limit TPUV2 has been exceeded. Limit: 0', 'lasting', 'quotas?project=project'),
    ("ERROR: Quota exceeded for metric 'Requests' and limit 'Requests per minute'", 'refused', 'too many requests'),
    ('ERROR: RESOURCE_EXHAUSTED: try again later', 'refused', 'has no free v2-8'),
    ('ERROR: INVALID_ARGUMENT: network is malformed', 'lasting', 'check PROJECT, ZONE, NETWORK'),
    ('ERROR: NOT_FOUND: The network default was not found', 'lasting', 'does not exist; check'),
    ('ERROR: [/usr/bin/ssh] exited with return code [255].', 'passing', 'allows TCP port 22'),
    ('ERROR: Unable to find the server at tpu.googleapis.com', 'passing', 'check the network'),
    ('ERROR: UNAVAILABLE: 503', 'passing', 'may pass'),
    ('Traceback (most recent call last)', 'passing', ''),
]


def test_explain__tells_what_retrying_can_help_from_what_it_cannot(tmp_path: pathlib.Path) -> None:
    names = 'PROJECT=project ZONE=us-central1-b TPU_TYPE=v2-8 NETWORK=default TPU_NAME=node resource=vm errors=said'
    loop = 'while IFS= read -r line; do echo "$line" >said; explain; echo "$kind $cause"; done'
    says = ''.join(f'{said}\n' for said, _, _ in REASONS)
    command = ['/bin/sh', '-c', f'. {ROOT}/run_tpu/gcloud.sh; {names}; {loop}']
    done = subprocess.run(command, input=says, cwd=str(tmp_path), stdout=subprocess.PIPE, check=True, text=True)
    explained = [line.partition(' ') for line in done.stdout.splitlines()]
    for (said, kind, part), (found, _, cause) in zip(REASONS, explained):
        assert (found, part in cause, bool(cause)) == (kind, True, bool(part)), said
    assert len(explained) == len(REASONS)


@program
@pytest.mark.parametrize(
    ('says', 'code', 'part'),
    [
        ('ERROR: PERMISSION_DENIED: Permission tpu.nodes.create denied', 2, 'roles/tpu.admin'),
        ('ERROR: There is no more capacity in the zone "us-central1-b"', 1, 'has no free v2-8'),
        ('Traceback (most recent call last)', 1, 'could not be created'),
    ],
)
def test_denied_creation_and_query__are_explained(world: World, says: str, code: int, part: str) -> None:
    follow(world, {'create': [failed(says, node='gone')]}, Course(code, None, f'{says}|{part}'))
    assert world.course.replace(' pause', '') == 'ls preflight create'
    if 'Traceback' not in says:
        world.forget()
        follow(world, {'describe': [failed(says)]}, Course(code, '', f'{says}|{part}'), '--create', '')


@program
@pytest.mark.parametrize(
    ('says', 'code', 'part'),
    [
        ('ERROR: 404: bucket not found', 2, 'gcloud storage buckets create'),
        ('ERROR: HTTPError 403: no storage.objects.list access', 2, 'roles/storage.objectAdmin'),
        ('ERROR: Connection reset', 1, 'check the network'),
    ],
)
def test_denied_bucket__is_explained(world: World, says: str, code: int, part: str) -> None:
    follow(world, {'storage': [failed(says)]}, Course(code, '', f'{says}|{part}'), checks='ls')


@program
@pytest.mark.parametrize('code', [1, 2])
def test_failed_preflight__ends_the_run_with_its_exit_code(world: World, code: int) -> None:
    says = 'error: --optimizer=adam: must be sgd, momentum or RMS.'
    follow(world, {'preflight': [failed(says, code=code)]}, Course(code, '', f'{says}|preflight failed'))


@program
def test_ended_node__names_the_architecture_that_exists(nodes: World) -> None:
    says = f'{ENDED}|ended TPU nodes in April 2025|Remove --architecture=node: the default'
    follow(nodes, {'create': [failed(ENDED, node='gone')]}, Course(2, 'create', says))


@program
def test_lost_node__is_replaced_for_the_program_of_this_machine(nodes: World) -> None:
    expected = Course(2, f'{RAN}{RENEWED} train delete')
    follow(nodes, {'main': [lost(), {'code': 2}]}, expected, PREEMPTIBLE='true')


@program
def test_existing_tpu__is_never_replaced(either: World) -> None:
    either.node = 'READY'
    # The program of a TPU node can run without it, until it connects.
    on_node = either.architecture == 'node'
    log = f'train{AGAIN * 2}' if on_node else f'train{AGAIN} checkpoint pause checkpoint'
    expected = Course(0 if on_node else 1, log, '', 'PREEMPTED')
    follow(either, {'main': [failed(), lost(), {}]}, expected, '', MAX_RESTARTS='2')


@program
@pytest.mark.parametrize('state', ['READY', 'PREEMPTED', 'CREATING'])
def test_create__refuses_an_existing_tpu(either: World, state: str) -> None:
    either.node = state
    says = f'already exists and is {state}|{" ".join(either.delete)}'
    follow(either, {}, Course(2, '', says, state), checks='')


@program
def test_create__refuses_an_existing_queue_or_its_vm(world: World) -> None:
    world.existing('queue', state='ACTIVE', description=ANOTHER)
    follow(world, {}, Course(2, '', 'already exists and is ACTIVE'), '--create --queued', '')
    (world.folder / 'queue').unlink()
    world.node = 'READY'
    says = 'this TPU VM already exists and is READY'
    follow(world, {}, Course(2, '', says, 'READY'), '--create --queued', '')


@program
def test_existing_tpu__must_be_ready(world: World) -> None:
    follow(world, {}, Course(2, '', 'does not exist'), '', '')
    world.node = 'PREEMPTED'
    follow(world, {}, Course(2, '', 'is PREEMPTED, and must be READY', 'PREEMPTED'), '', '')


@program
@pytest.mark.parametrize(
    'fields',
    [
        {'tensorflowVersion': '1.15.5', 'runtimeVersion': 'tpu-vm-tf-2.15.0-se'},
        {'acceleratorType': 'projects/p/types/v2-8'},
    ],
)
def test_tpu_of_the_type_and_version__is_used(either: World, fields: Dict[str, str]) -> None:
    either.existing_node(**fields)
    follow(either, {}, Course(0, 'train', '', 'READY'), '')


@program
@pytest.mark.parametrize(('arguments', 'cloud_shell'), [('', ''), ('--create', 'true')])
def test_silent_failure_of_gcloud__ends_the_script(world: World, arguments: str, cloud_shell: str) -> None:
    world.node = 'READY'
    expected = Course(1, '', 'whether the TPU VM node exists', 'READY')
    follow(world, {'describe': [SILENT]}, expected, arguments, '', CLOUD_SHELL=cloud_shell)


@program
@pytest.mark.parametrize('answer', ['exit 0', 'echo "$@"', 'case $3 in describe) exit 1 ;; esac'])
def test_create__goes_ahead_if_gcloud_prints_no_state(either: World, answer: str) -> None:
    (either.bin / 'gcloud').write_text(f'#!/bin/sh\n{answer}\n')
    # This gcloud does not run the program of a TPU VM, and does not say that the TPU is gone.
    is_node = either.architecture == 'node'
    follow(either, {}, Course(2, None, 'COULD NOT BE DELETED'), MAX_RENEWALS='2')
    assert either.course.replace(' pause', '') == ('preflight train' if is_node else 'preflight')


def around_gcloud(world: World, script: str) -> None:
    """Puts a shell script in the place of gcloud, which becomes `real`."""
    (world.bin / 'gcloud').rename(world.bin / 'real')
    path = world.bin / 'gcloud'
    path.write_text(f'#!/bin/sh\n{script}\n')
    path.chmod(0o755)


def test_lines_that_end_in_cr_lf__are_read_like_others(world: World) -> None:
    crlf = 'sed "s/\\$/$(printf "\\r")/"'
    around_gcloud(
        world, f'{{ {{ real "$@"; echo $? >code; }} 2>&1 >&3 | {crlf} >&2; }} 3>&1 | {crlf}; exit "$(cat code)"'
    )
    follow(world, {'main': [{'prints': 'step 1'}]}, Course(0, f'{RAN} delete'))
    assert (world.folder / 'stdout').read_text() == 'step 1\n'


@program
def test_empty_answer__is_not_the_end_of_the_program(world: World) -> None:
    around_gcloud(
        world, 'case "$*" in *"on_vm.sh log"*) [ -e asked ] || { true >asked; exit 0; } ;; esac\nexec real "$@"'
    )
    follow(world, {'main': [{'code': 2}]}, Course(2))
