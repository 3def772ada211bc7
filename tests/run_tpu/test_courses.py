"""Courses of `run_tpu.sh` from start to end: its actions after failures, losses and denials, and the TPUs it leaves.

A course is the commands that the script runs, in order, a word for each:

    ls           lists the bucket
    preflight    checks flags and graphs of the run
    create       creates the TPU
    train        runs the program, on the TPU VM or, for a TPU node, on this machine
    checkpoint   reads the name of the newest checkpoint
    pause        waits before the next attempt
    delete       deletes the TPU

`queue_create` and `queue_delete` concern a queued resource, which makes a TPU VM. A course leaves out queries about the
TPU (describe, list) and connections to it (scp, ssh). Without a failure it is

    ls preflight create train delete

Stubs take the place of these commands. A test gives answers for their next calls: with `{'train': [fails(), USUAL]}`,
the program fails at its first start, and runs as usual at all later ones.
"""

import pathlib
import subprocess
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import pytest

from tests.run_tpu.world import ROOT, World

program = pytest.mark.program

# An answer of a stub, by the names of its fields in `stub.py`: exit code, messages, and the TPU's next state.
Answer = Dict[str, Any]


class Course(NamedTuple):
    """A call of the script: the answers that it gets, and its actions.

    Attributes:
      given: the answers of each kind of command to its next calls.
      commands: the course; None if the order of its commands is open.
      code: the exit code of the script.
      says: parts of its messages.
      left: the state of the TPU in the end; None if there is none.
      fast: whether the default tier has it, too: one course of each kind that takes less than a second.
    """

    given: Dict[str, List[Answer]]
    commands: Optional[str]
    code: int = 0
    says: Tuple[str, ...] = ()
    left: Optional[str] = None
    fast: bool = False


def follow(world: World, course: Course, arguments: str = '--create', **environment: Any) -> None:
    """Calls the script with these arguments and variables, and compares its actions with the course."""
    kinds = {'train': 'main', 'ls': 'storage'}
    world.script(**{kinds.get(kind, kind): answers for kind, answers in course.given.items()})
    done = world.call(*arguments.split(), **environment)
    assert (done.returncode, world.node) == (course.code, course.left), done.stderr
    assert course.commands is None or world.course == course.commands
    assert [part for part in course.says if part not in done.stderr] == []


def each(courses: Dict[str, Course]) -> List[Any]:
    """The cases of a test: courses by their claims, of which the default tier has the fast ones."""
    return [pytest.param(course, id=claim, marks=[] if course.fast else [program]) for claim, course in courses.items()]


def fails(says: str = '', code: int = 1, **more: Any) -> Answer:
    """The command fails with this message."""
    return {'code': code, 'says': says and f'{says}\n', **more}


def loses_tpu(state: str = 'PREEMPTED') -> Answer:
    """The program fails because Google Cloud takes its TPU."""
    return fails(node={'state': state})


USUAL: Answer = {}
# The usual answers to the first two queries: no TPU exists before its creation, and one exists after it.
ABSENT, READY = USUAL, USUAL
# The command succeeds, but changes nothing.
WITHOUT_EFFECT: Answer = {'node': {}}
SILENT = fails()
BUSY = fails('ERROR: busy')
DENIED = fails('ERROR: PERMISSION_DENIED', node='gone')
FULL = fails('ERROR: There is no more capacity in the zone', node={'state': 'TERMINATED'})
REFUSED = fails('root@10.0.0.2: Permission denied (publickey).')
BROKEN = fails('ERROR: [/usr/bin/ssh] exited with return code [255].')

# The TPU's path, and the answer of gcloud that it does not exist.
PATH = 'projects/project/locations/us-central1-b/nodes/node'
NOT_FOUND_TEXT = f"ERROR: (gcloud) NOT_FOUND: Resource '{PATH}' was not found"
NOT_FOUND = fails(NOT_FOUND_TEXT)
NUMBERED = NOT_FOUND_TEXT.replace('projects/project', 'projects/123456')
# Answers that do not say that the TPU is gone.
FOREIGN = {
    'python': fails('gcloud: exec: python3: command not found', code=127),
    'account': fails('ERROR: Status: 404 Response: "The service account was not found."'),
    'proxy': fails('<html>404 Not Found: host not found</html>'),
    'address': fails(f'ERROR: https://tpu.googleapis.com/v2/{PATH}: 404 Not Found'),
    'other TPU': fails(NOT_FOUND_TEXT.replace("/node'", "/node-2'")),
    'other zone': fails(NOT_FOUND_TEXT.replace('us-central1-b', 'us-central1-c')),
    'other project': fails(NOT_FOUND_TEXT.replace('projects/project/', 'projects/another-project/')),
    'no resource': fails('ERROR: (gcloud) NOT_FOUND: Resource node was not found'),
    'no access': fails(f"ERROR: Permission denied on resource '{PATH}' (or it may not exist): account not found"),
    'queue': fails(NOT_FOUND_TEXT.replace('nodes/', 'queuedResources/')),
}
SOME_FOREIGN = [FOREIGN[name] for name in ('python', 'proxy', 'other TPU', 'no access')]
# A list without the TPU, although it exists.
LIST_WITHOUT_IT: Answer = {'prints': 'another-node', 'node': {}}
# Lists that do not prove that the TPU is gone: no list, one with the TPU, and lists with a warning that they may
# be incomplete.
NO_PROOFS: List[Answer] = [
    fails('ERROR: 503'),
    {'prints': PATH},
    *(
        {**LIST_WITHOUT_IT, 'says': f'WARNING: {text}.\n'}
        for text in (
            'Some requests did not succeed',
            'us-central1 does not respond',
            'One region is missing',
            'One location is missing',
            'Results may be incomplete',
            'Partial results',
            'A server is unreachable',
            'A server is unavailable',
        )
    ),
]

# The description of a TPU names the start that made it. It is empty if gcloud does not print it, or a user removed it.
ANOTHER = 'run_tpu.sh-another-1'
NAMELESS: Answer = {'prints': 'READY\tv2-8\ttpu-vm-tf-2.15.1-se\t'}
OF_ANOTHER_START = {'state': 'READY', 'acceleratorType': 'v2-8', 'description': ''}

DELETE = 'gcloud compute tpus tpu-vm delete node --project=project --zone=us-central1-b --quiet'
KEPT = ('COULD NOT BE DELETED', 'COSTS MONEY')
EDITED = ('the description is', 'COSTS MONEY', DELETE)
UNFOUND = ('was created, but cannot be used', 'its creation succeeded', 'IT MAY STILL APPEAR')

# A TPU that a failed creation left: its owner, the fields that show this, and whether it is deleted.
LEFT_BEHIND: List[Tuple[str, Dict[str, str], str]] = [
    ('the own TPU', {}, 'deleted'),
    ('the TPU of another start', {'description': ANOTHER}, 'kept'),
    ('a TPU without a description', {'description': ''}, 'kept'),
]
ENDS = {
    'a deletion that fails is repeated': Course(
        {'delete': [BUSY]}, 'ls preflight create train delete pause delete', fast=True
    ),
    'a deletion that fails ten times is given up': Course(
        {'delete': [BUSY] * 10},
        'ls preflight create train' + ' delete pause' * 9 + ' delete',
        code=2,
        says=(*KEPT, DELETE),
        left='READY',
    ),
    'a deletion without effect is repeated': Course(
        {'delete': [WITHOUT_EFFECT]}, 'ls preflight create train delete pause delete'
    ),
    # Each of ten attempts gets another answer.
    'no answer about something else says that the TPU is gone': Course(
        {
            'describe': [ABSENT, READY, *FOREIGN.values()],
            'delete': [*FOREIGN.values()],
            'list': [ABSENT, *FOREIGN.values()],
        },
        'ls preflight create train' + ' pause' * 9,
        code=2,
        says=(*KEPT, 'done: gs'),
        left='READY',
    ),
    # Two proofs in a row would be enough.
    **{
        f'no list of these kinds says that the TPU is gone: {kinds}': Course(
            {
                'describe': [ABSENT, READY, *[NOT_FOUND] * 99],
                'list': [ABSENT, *(each for each in lists for _ in range(2))],
            },
            'ls preflight create train' + ' pause' * 9,
            code=2,
            says=KEPT,
            left='READY',
        )
        for kinds, lists in (('failed, complete, lacking', NO_PROOFS[:5]), ('lacking', NO_PROOFS[5:]))
    },
    'a list with other warnings says that the TPU is gone': Course(
        {'list': [{'says': 'WARNING: Python 3.7 is too old.\n'}] * 99}, 'ls preflight create train delete'
    ),
    'an answer with the number of the project says that the TPU is gone': Course(
        {'describe': [fails(NUMBERED)]}, 'ls preflight create train delete'
    ),
    # The TPU is lost after the end of its program; before it, the program would be started again.
    'a TPU that two answers do not find needs no deletion': Course(
        {'describe': [ABSENT, READY, {**NOT_FOUND, 'node': 'gone'}]}, 'ls preflight create train pause'
    ),
    'a TPU that one answer does not find is deleted': Course(
        {'describe': [ABSENT, READY, NOT_FOUND], 'list': [ABSENT, LIST_WITHOUT_IT]},
        'ls preflight create train pause delete',
    ),
    # Creation succeeded: an empty description does not make the TPU another start's.
    'the deletion waits for the description of the TPU': Course(
        {'describe': [ABSENT, READY, NAMELESS, NAMELESS]}, 'ls preflight create train pause pause delete'
    ),
    'a TPU whose description never comes is kept': Course(
        {'describe': [ABSENT, READY, *[NAMELESS] * 99]},
        'ls preflight create train' + ' pause' * 9,
        code=2,
        says=KEPT,
        left='READY',
    ),
    # The creation gets no answer; the TPU is visible only after the first query.
    'a TPU that appears after a failed creation is deleted': Course(
        {
            'create': [fails('ERROR: UNAVAILABLE')],
            'describe': [NOT_FOUND, NOT_FOUND],
            'list': [ABSENT, LIST_WITHOUT_IT],
        },
        'ls preflight create pause delete',
        code=1,
        fast=True,
    ),
    'a TPU that may still appear is announced': Course(
        {'create': [fails("ERROR: Quota exceeded for 'Requests per minute' while polling operation", node='gone')]},
        'ls preflight create pause pause',
        code=1,
        says=('IT MAY STILL APPEAR',),
    ),
    'a TPU that another start has just made is kept': Course(
        {'create': [fails('ERROR: ALREADY_EXISTS: node', node=OF_ANOTHER_START)]},
        'ls preflight create',
        code=2,
        says=('choose another TPU_NAME',),
        left='READY',
    ),
    # Without a description, the TPU might belong to this start.
    'a TPU in its place without a description is kept when the program ends': Course(
        {'train': [{'node': OF_ANOTHER_START}]},
        'ls preflight create train' + ' pause' * 9,
        code=2,
        says=KEPT,
        left='READY',
    ),
    'a TPU in its place without a description is kept when the program fails': Course(
        {'train': [fails(node=OF_ANOTHER_START)]},
        'ls preflight create train checkpoint' + ' pause' * 10,
        code=2,
        says=KEPT,
        left='READY',
    ),
    'a TPU in its place of another start is kept when the program ends': Course(
        {'train': [{'node': {'description': ANOTHER}}]},
        'ls preflight create train',
        code=2,
        says=EDITED,
        left='READY',
        fast=True,
    ),
    'a TPU in its place of another start is kept when the program fails': Course(
        {'train': [fails(node={'description': ANOTHER})]},
        'ls preflight create train checkpoint pause',
        code=2,
        says=EDITED,
        left='READY',
    ),
    # Google Cloud may not find a new TPU at once.
    'the run waits until its new TPU is found': Course(
        {'describe': [ABSENT, NOT_FOUND, NOT_FOUND], 'list': [ABSENT, LIST_WITHOUT_IT, LIST_WITHOUT_IT]},
        'ls preflight create pause pause train delete',
        fast=True,
    ),
    'the first TPU, which is never found, is announced': Course(
        {'create': [{'node': 'gone'}]}, 'ls preflight create' + ' pause' * 9, code=2, says=UNFOUND
    ),
    'a later TPU, which is never found, is announced': Course(
        {'train': [loses_tpu()], 'create': [USUAL, {'node': 'gone'}]},
        'ls preflight create train checkpoint pause delete create' + ' pause' * 9,
        code=2,
        says=UNFOUND,
    ),
    # A failed creation that left a TPU: its description names the owner, whether or not there was an answer before.
    **{
        f'after a creation that fails with {says or "no message"}, {whose} is {end}': Course(
            {'describe': [before], 'create': [fails(says, node={'state': 'READY', **fields})]},
            'ls preflight create' + (' delete' if end == 'deleted' else ''),
            code=1,
            left=None if end == 'deleted' else 'READY',
        )
        for whose, fields, end in LEFT_BEHIND
        for says, before in (('ERROR: UNAVAILABLE: no answer', ABSENT), ('', SILENT))
    },
}
RESTARTS = {
    **{
        f'exit code {code} restarts the program': Course(
            {'train': [fails(code=code)]}, 'ls preflight create train checkpoint pause train delete'
        )
        for code in (1, 75)
    },
    'exit code 2 ends the run': Course(
        {'train': [fails(code=2)]}, 'ls preflight create train delete', code=2, says=('fix this error first',)
    ),
    'exit code 130 ends the run': Course({'train': [fails(code=130)]}, 'ls preflight create train delete', code=130),
    'a failed question about the TPU does not prevent a restart': Course(
        {'train': [fails()], 'describe': [ABSENT, SILENT]}, 'ls preflight create train checkpoint pause train delete'
    ),
    'two restarts without a checkpoint are the last': Course(
        {'train': [fails(node={'state': 'READY'})] * 9},
        'ls preflight create train' + ' checkpoint pause train' * 2 + ' checkpoint delete',
        code=1,
        says=('stopped after 2 restarts without a new checkpoint',),
    ),
    'two restarts on new TPUs are the last': Course(
        {'train': [loses_tpu()] * 9},
        'ls preflight create train' + ' checkpoint pause delete create train' * 2 + ' checkpoint delete',
        code=1,
        says=('stopped after 2 restarts',),
    ),
    'restarts are counted from the last new checkpoint': Course(
        {'train': [fails(saves=f'model.ckpt-{step}') for step in (100, 100, 200, 200, 300, 300)]},
        'ls preflight create train' + ' checkpoint pause train' * 6 + ' delete',
        says=('restart 2 of at most 2',),
    ),
    'a failed question about checkpoints counts as no new one': Course(
        {'train': [fails()] * 9, 'checkpoint': [USUAL, fails('ERROR: 503')]},
        'ls preflight create train' + ' checkpoint pause train' * 2 + ' checkpoint delete',
        code=1,
    ),
    **{
        f'{says} ends the run': Course(
            {'train': [fails()], 'describe': [ABSENT, READY, fails(f'ERROR: {says}')]},
            'ls preflight create train checkpoint pause delete',
            code=2,
        )
        for says in ('PERMISSION_DENIED', 'gcloud auth login')
    },
    **{
        f'TPUs that are {one} and {other} are replaced': Course(
            {'train': [loses_tpu(one), loses_tpu(other), USUAL]},
            'ls preflight create train' + ' checkpoint pause delete create train' * 2 + ' delete',
            says=(f'node is {one}', f'node is {other}', 'restart 2 of at most 2'),
        )
        for one, other in (('PREEMPTED', 'TERMINATED'), ('STOPPED', 'DELETING'))
    },
    'a TPU that is gone is replaced': Course(
        {'train': [fails(node='gone')]}, 'ls preflight create train checkpoint pause create train delete'
    ),
    # A failed request does not count as a restart.
    'a new TPU is requested until there is capacity': Course(
        {'train': [loses_tpu()], 'create': [USUAL, FULL, FULL]},
        'ls preflight create train checkpoint' + ' pause delete create' * 3 + ' train delete',
        says=('no more capacity',),
    ),
    'a new TPU is requested three times at most': Course(
        {'train': [loses_tpu()], 'create': [USUAL, *[FULL] * 99]},
        'ls preflight create train checkpoint' + ' pause delete create' * 3 + ' delete',
        code=1,
        says=('no new TPU VM in 3 attempts',),
    ),
    # The second TPU is READY, but its creation failed. The third is kept when the program fails on it.
    'a new TPU is requested until a creation succeeds': Course(
        {'train': [loses_tpu(), fails()], 'create': [USUAL, fails('?', node={'state': 'READY'})]},
        'ls preflight create train checkpoint pause delete create pause delete create train'
        ' checkpoint pause train delete',
    ),
    # The quota sufficed before: the lost TPU may count for a while.
    'a new TPU is requested after a quota error': Course(
        {
            'train': [loses_tpu()],
            'create': [USUAL, fails('ERROR: Quota limit TPUV2 has been exceeded', node='gone')],
        },
        'ls preflight create train checkpoint pause delete create pause create train delete',
        fast=True,
    ),
    'no new TPU is requested after a denial': Course(
        {'train': [loses_tpu()], 'create': [USUAL, *[DENIED] * 9]},
        'ls preflight create train checkpoint pause delete create',
        code=2,
    ),
}
CONNECTIONS = {
    'answers about something else are no loss of the TPU': Course(
        {'scp': SOME_FOREIGN, 'start': SOME_FOREIGN, 'describe': [ABSENT, READY, *SOME_FOREIGN * 2]},
        'ls preflight create' + ' pause' * 8 + ' train delete',
    ),
    # The exit code 134 looks like 1 if the connection breaks after its first digit.
    'an exit code that is cut off is read again': Course(
        {'train': [fails(code=134)], 'log': [{'cut': -len('34.\n')}]},
        'ls preflight create train pause checkpoint pause train delete',
    ),
    'five lost connections to a running program end the run': Course(
        {'train': [{'waits': True}], 'log': [BROKEN] * 99},
        'ls preflight create train' + ' pause' * 4 + ' delete',
        code=1,
        says=('stopped: no connection to node in 5 attempts',),
    ),
    # Google Cloud takes the TPU VM while the script connects; the program dies with it.
    'a TPU VM that is preempted before the start is replaced': Course(
        {'start': [{**BROKEN, 'node': {'state': 'PREEMPTED'}}]},
        'ls preflight create checkpoint pause delete create train delete',
        says=('node is PREEMPTED',),
    ),
    'a TPU VM that is preempted with the program is replaced': Course(
        {'log': [{**BROKEN, 'node': {'state': 'PREEMPTED'}}], 'train': [{'waits': True}]},
        'ls preflight create train checkpoint pause delete create train delete',
        says=('node is PREEMPTED',),
    ),
    **{
        f'a new TPU VM that refuses {what} is asked again': Course(
            {kind: [REFUSED, BROKEN]}, 'ls preflight create pause pause train delete'
        )
        for kind, what in (('scp', 'the copy of the program'), ('start', 'its start'))
    },
    'a TPU VM that refuses ten times is deleted': Course(
        {'start': [REFUSED] * 10},
        'ls preflight create' + ' pause' * 9 + ' delete',
        code=1,
        says=('cannot be reached in 10 attempts', 'allows TCP port 22'),
    ),
    'the TPU VM of another start is left alone': Course(
        {'log': [{**BROKEN, 'node': {**OF_ANOTHER_START, 'description': ANOTHER}}]},
        'ls preflight create train',
        code=2,
        says=('was made by another start',),
        left='READY',
    ),
}
QUEUES = {
    **{
        f'a queued resource that is {state} is deleted': Course(
            {'queue_create': [{'queue': {'state': state}, 'node': 'gone'}]},
            'ls preflight queue_create queue_delete',
            code=1,
            says=(f'node is {state} after its creation',),
        )
        for state in ('FAILED', 'SUSPENDED')
    },
    'a preempted TPU VM is replaced with its queued resource': Course(
        {'train': [loses_tpu()]},
        'ls preflight queue_create train checkpoint pause queue_delete queue_create train queue_delete',
    ),
    'a queued resource is deleted beside the TPU VM of another start': Course(
        {'log': [{**BROKEN, 'node': {**OF_ANOTHER_START, 'runtimeVersion': 'tpu-vm-tf-2.15.1-se'}}]},
        'ls preflight queue_create train queue_delete',
        code=2,
        says=('was made by another start',),
    ),
    **{
        f'a queued resource {whose} is kept': Course(
            {'queue_create': [fails('ERROR: reset', queue={'description': description})]},
            'ls preflight queue_create',
            code=1,
            left='CREATING',
        )
        for whose, description in (('without a description', ''), ('of another start', ANOTHER))
    },
    'an answer with the number of the project says that there is none': Course(
        {'describe': [fails(NUMBERED)], 'queue_describe': [fails(NUMBERED.replace('nodes', 'queuedResources'))]},
        'ls preflight queue_create train queue_delete',
    ),
}


@pytest.mark.parametrize('course', each(ENDS))
def test_end__deletes_the_own_tpu_or_says_how(world: World, course: Course) -> None:
    follow(world, course)


@pytest.mark.parametrize('course', each(RESTARTS))
def test_failure__restarts_the_program_or_ends_the_run(world: World, course: Course) -> None:
    follow(world, course, MAX_RESTARTS='2', MAX_RENEWALS='3')


@pytest.mark.parametrize('course', each(CONNECTIONS))
def test_broken_connections__lose_no_run(world: World, course: Course) -> None:
    follow(world, course, MAX_RENEWALS='5')


@program
def test_connection_that_breaks_in_a_start__does_not_start_twice(world: World) -> None:
    # The connection breaks after the program was started; gcloud, then the script, repeat the command.
    follow(world, Course({'start': [{'cut': 0}, {'cut': 0, 'again': True}]}, None))
    # The program may begin before the pause or after it.
    assert sorted(world.course.split()) == sorted(['ls', 'preflight', 'create', 'train', 'pause', 'delete'])


@pytest.mark.parametrize('course', each(QUEUES))
def test_queued_resource__is_waited_for_and_deleted(world: World, course: Course) -> None:
    follow(world, course, '--create --queued --spot')


@program
@pytest.mark.parametrize(
    ('hanging', 'commands', 'code'),
    [
        ('describe', '', 1),
        ('ls', 'ls', 1),
        ('create', 'ls preflight create delete', 1),
        ('delete', 'ls preflight create train delete pause delete', 0),
    ],
)
def test_hanging_gcloud__is_stopped(world: World, hanging: str, commands: str, code: int) -> None:
    course = Course({hanging: [{'waits': True}]}, commands, code=code, says=('timed out',))
    follow(world, course, TIMEOUT_SECONDS='2')


@program
@pytest.mark.parametrize(
    ('fields', 'says'),
    [
        ({'acceleratorType': 'v3-8'}, ('is a v3-8, not a v2-8', 'TPU_TYPE')),
        ({'runtimeVersion': 'tpu-vm-tf-2.14.1'}, ('image tpu-vm-tf-2.14.1, not tpu-vm-tf-2.15.1-se', 'TPU_VERSION')),
    ],
)
def test_tpu_of_another_type_or_version__ends_the_run(
    world: World, fields: Dict[str, str], says: Tuple[str, ...]
) -> None:
    world.existing_node(**fields)
    follow(world, Course({}, '', code=2, says=says, left='READY'), '')
    (world.folder / 'node').unlink()
    created = {'create': [{'node': {'state': 'READY', **fields}}]}
    follow(world, Course(created, 'ls preflight create delete', code=2, says=says))
    world.forget()
    changed = {'train': [fails(node=fields)]}
    follow(world, Course(changed, 'ls preflight create train checkpoint pause delete', code=2, says=says))


@program
def test_given_version__is_the_only_one(world: World) -> None:
    world.existing_node()
    says = ('has image tpu-vm-tf-2.15.1-se, not tpu-vm-tf-2.15.0-se',)
    follow(world, Course({}, '', code=2, says=says, left='READY'), '', TPU_VERSION='tpu-vm-tf-2.15.0-se')


ENDED = 'ERROR: (gcloud.compute.tpus.create) FAILED_PRECONDITION: TPU Node has been denied. '
ENDED += 'Please migrate to TPU VM Architecture'
# A message of gcloud, whether retrying helps, and a part of the explanation.
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


def test_explain__says_whether_retrying_can_help(tmp_path: pathlib.Path) -> None:
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
    ('says', 'pauses', 'code', 'part'),
    [
        ('ERROR: PERMISSION_DENIED: Permission tpu.nodes.create denied', '', 2, 'roles/tpu.admin'),
        ('ERROR: There is no more capacity in the zone "us-central1-b"', '', 1, 'has no free v2-8'),
        # The TPU might appear.
        ('Traceback (most recent call last)', ' pause pause', 1, 'could not be created'),
    ],
)
def test_denied_creation_and_query__are_explained(world: World, says: str, pauses: str, code: int, part: str) -> None:
    given = {'create': [fails(says, node='gone')]}
    follow(world, Course(given, f'ls preflight create{pauses}', code=code, says=(says, part)))
    if 'Traceback' not in says:
        world.forget()
        follow(world, Course({'describe': [fails(says)]}, '', code=code, says=(says, part)))


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
    follow(world, Course({'ls': [fails(says)]}, 'ls', code=code, says=(says, part)))


@program
@pytest.mark.parametrize('code', [1, 2])
def test_failed_preflight__ends_the_run_with_its_exit_code(world: World, code: int) -> None:
    says = 'error: --optimizer=adam: must be sgd, momentum or RMS.'
    given = {'preflight': [fails(says, code)]}
    follow(world, Course(given, 'ls preflight', code=code, says=(says, 'preflight failed')))


@program
def test_ended_node__names_the_architecture_that_exists(nodes: World) -> None:
    says = (ENDED, 'ended TPU nodes in April 2025', 'Remove --architecture=node: the default')
    follow(nodes, Course({'create': [fails(ENDED, node='gone')]}, 'ls preflight create', code=2, says=says))


@program
def test_lost_node__is_replaced_for_the_program_of_this_machine(nodes: World) -> None:
    course = 'ls preflight create train checkpoint pause delete create train delete'
    follow(nodes, Course({'train': [loses_tpu(), fails(code=2)]}, course, code=2), PREEMPTIBLE='true')


@program
def test_existing_tpu__is_never_replaced(either: World) -> None:
    either.node = 'READY'
    given = {'train': [fails(), loses_tpu(), USUAL]}
    # The program of a TPU node can run without it, until it connects.
    if either.architecture == 'node':
        expected = Course(given, 'ls preflight train checkpoint pause train checkpoint pause train', left='PREEMPTED')
    else:
        commands = 'ls preflight train checkpoint pause train checkpoint pause checkpoint'
        expected = Course(given, commands, code=1, left='PREEMPTED')
    follow(either, expected, '', MAX_RESTARTS='2')


@program
@pytest.mark.parametrize('state', ['READY', 'PREEMPTED', 'CREATING'])
def test_create__refuses_an_existing_tpu(either: World, state: str) -> None:
    either.node = state
    says = (f'already exists and is {state}', ' '.join(either.delete))
    follow(either, Course({}, '', code=2, says=says, left=state))


@program
def test_create__refuses_an_existing_queue_or_its_vm(world: World) -> None:
    world.existing('queue', state='ACTIVE', description=ANOTHER)
    follow(world, Course({}, '', code=2, says=('already exists and is ACTIVE',)), '--create --queued')
    (world.folder / 'queue').unlink()
    world.node = 'READY'
    says = ('this TPU VM already exists and is READY',)
    follow(world, Course({}, '', code=2, says=says, left='READY'), '--create --queued')


@program
def test_existing_tpu__must_be_ready(world: World) -> None:
    follow(world, Course({}, '', code=2, says=('does not exist',)), '')
    world.node = 'PREEMPTED'
    says = ('is PREEMPTED, and must be READY',)
    follow(world, Course({}, '', code=2, says=says, left='PREEMPTED'), '')


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
    follow(either, Course({}, 'ls preflight train', left='READY'), '')


@program
@pytest.mark.parametrize(('arguments', 'cloud_shell'), [('', ''), ('--create', 'true')])
def test_silent_failure_of_gcloud__ends_the_script(world: World, arguments: str, cloud_shell: str) -> None:
    world.node = 'READY'
    says = ('whether the TPU VM node exists',)
    expected = Course({'describe': [SILENT]}, '', code=1, says=says, left='READY')
    follow(world, expected, arguments, CLOUD_SHELL=cloud_shell)


@program
@pytest.mark.parametrize('answer', ['exit 0', 'echo "$@"', 'case $3 in describe) exit 1 ;; esac'])
def test_create__continues_if_gcloud_prints_no_state(either: World, answer: str) -> None:
    (either.bin / 'gcloud').write_text(f'#!/bin/sh\n{answer}\n')
    # This gcloud does not run the program of a TPU VM, and does not say that the TPU is gone.
    commands = 'preflight train' + ' pause' * 9 if either.architecture == 'node' else 'preflight' + ' pause' * 10
    follow(either, Course({}, commands, code=2, says=('COULD NOT BE DELETED',)), MAX_RENEWALS='2')


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
    follow(world, Course({'train': [{'prints': 'step 1'}]}, 'ls preflight create train delete'))
    assert (world.folder / 'stdout').read_text() == 'step 1\n'


@program
def test_empty_answer__is_not_the_end_of_the_program(world: World) -> None:
    around_gcloud(
        world, 'case "$*" in *"on_vm.sh log"*) [ -e asked ] || { true >asked; exit 0; } ;; esac\nexec real "$@"'
    )
    follow(world, Course({'train': [fails(code=2)]}, 'ls preflight create train pause delete', code=2))
