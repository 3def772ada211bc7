"""Single functions of `run_tpu.sh`: each test loads the parts of the script into a shell, which takes a few ms."""

import os
import pathlib
import signal
import subprocess
from typing import Any, Callable, Dict, List

import pytest

from tests.run_tpu.world import LIMIT, ROOT, World

PARTS = ('gcloud', 'arguments', 'resource', 'vm', 'restarts', 'end', 'cloud_shell')
# Variables of a script that has made a TPU VM and has seen it.
BEGIN = """
PROJECT=project ZONE=us-central1-b TPU_NAME=node TPU_TYPE=v2-8 TPU_VERSION=tpu-vm-tf-2.15.1-se NETWORK=default
MODEL_DIR=gs://bucket/run MAX_RESTARTS=2 MAX_RENEWALS=3 RESTART_SECONDS=0 TIMEOUT_SECONDS=1200 here=. mark=mine
tpu=vm resource=vm noun='TPU VM' software=image cores=8 pod='' default_version='' create=1 dry_run='' silent=1 spot=''
made=vm sure=1 denied='' seen=1 missing=0 asked='' absent='' kind='' cause='' running='' hurry='' prepared=1 runs=0
run='' job='' lines=0 followed='' description=mine state=READY output=output errors=errors scratch=. archive=archive
tab=$(printf '\\t') cr=$(printf '\\r')
touch output errors
exec 3>/dev/null 4>&2
step() { :; }
"""


class Shell:
    """A folder in which a shell has the functions of the script."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    def start(self, text: str) -> 'subprocess.Popen[str]':
        """Starts a shell with the functions, which then runs a text."""
        parts = ''.join(f'. {ROOT}/run_tpu/{part}.sh\n' for part in PARTS)
        return subprocess.Popen(
            ['/bin/sh', '-euc', f'{parts}{BEGIN}{text}'],
            cwd=str(self.folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, text: str, code: int = 0) -> str:
        """Returns the output of the shell, including its messages; checks its exit code."""
        process = self.start(text)
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == code, err
        return out + err

    def each(self, setting: str, values: Any, text: str) -> List[str]:
        """The lines that a text prints after each setting of a variable, in one shell."""
        return self.run(''.join(f"{setting}='{value}'\n{text}\n" for value in values)).splitlines()


@pytest.fixture
def shell(tmp_path: pathlib.Path) -> Shell:
    return Shell(tmp_path)


def says(condition: str) -> str:
    return f'if {condition}; then echo yes; else echo no; fi'


@pytest.fixture
def programs(tmp_path: pathlib.Path) -> Callable[[str, str], str]:
    """Makes programs; returns the text that puts them first on the PATH."""

    def make(name: str, text: str) -> str:
        path = tmp_path / 'bin' / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\n{text}\n')
        path.chmod(0o755)
        return f'PATH={tmp_path}/bin:$PATH\n'

    return make


def test_launch__limits_gcloud_and_queries_more(shell: Shell, programs: Any) -> None:
    path = programs('setsid', 'echo "$@"')
    calls = {
        'gcloud compute tpus describe node': 120,
        'gcloud storage cat gs://bucket': 120,
        **{f'gcloud compute tpus {verb} node': 1200 for verb in ('create', 'delete', 'scp')},
        'gcloud storage rsync here there': 1200,
        "gcloud ssh '--command=sh on_vm.sh start RUN'": 1200,
        "gcloud ssh '--command=sh on_vm.sh stop RUN'": 1200,
        "gcloud ssh '--command=sh on_vm.sh log RUN'": 120,
    }
    text = ''.join(f'(launch {call})\n' for call in calls)
    expected = [f'timeout -k 10 {limit} {call}'.replace("'", '') for call, limit in calls.items()]
    assert shell.run(path + text).splitlines() == expected
    assert shell.run(f'{path}TIMEOUT_SECONDS=7; (launch gcloud ls); (launch ./run gcloud)').splitlines() == [
        'timeout -k 10 7 gcloud ls',
        './run gcloud',
    ]


@pytest.mark.parametrize(
    ('code', 'message'), [(124, 'timed out'), (137, 'timed out'), (127, 'does not start'), (1, '')]
)
def test_failed_gcloud__leaves_its_message_and_the_reason(shell: Shell, code: int, message: str) -> None:
    text = f"step() {{ printf 'out\\r\\n'; printf 'wrong\\r\\n' >&2; return {code}; }}\n"
    shell.run(text + 'quietly gcloud || echo "$?" >code')
    written = {name: (shell.folder / name).read_bytes() for name in ('code', 'output', 'errors')}
    assert (written['code'], written['output']) == (b'%d\n' % code, b'out\n')
    assert written['errors'].startswith(b'wrong\n') and message in written['errors'].decode()
    assert written['errors'].count(b'\n') == 1 + bool(message)


def test_reasons__are_not_names_and_not_lost_resources(shell: Shell) -> None:
    lasting = {
        'ERROR: projects/billing/zones: 503': 'no',
        'ERROR: billing is disabled': 'yes',
        'ERROR: limit of TPUs exceeded': 'no',
        'ERROR: TPU limit exceeded': 'yes',
        'ERROR: PERMISSION_DENIED': 'yes',
        'ERROR: NOT_FOUND: the node was not found': 'no',
        'gcloud does not start': 'no',
        'ERROR: stockout': 'no',
    }
    found = shell.each('said', lasting, f'echo "$said" >errors; {says("is_lasting")}')
    assert dict(zip(lasting, found)) == lasting


def test_fail_because__exit_code_says_whether_to_retry(shell: Shell) -> None:
    for said, code in (('billing is disabled', 2), ('stockout', 1)):
        assert shell.run(f'echo "{said}" >errors; fail_because subject', code).startswith('run_tpu.sh: subject')


def test_commands__name_their_kind_of_resource(shell: Shell) -> None:
    at = 'node --project=project --zone=us-central1-b'
    for kind, words in (('vm', 'tpus tpu-vm'), ('node', 'tpus'), ('machine', 'instances')):
        assert shell.run(f'erase show {kind}') == f'gcloud compute {words} delete {at} --quiet\n'
    # A queued resource is deleted with its TPU VM.
    assert shell.run('erase show queue') == f'gcloud compute tpus queued-resources delete {at} --force --quiet\n'
    zones = {'vm': '--zone', 'machine': '--zones'}
    for kind, zone in zones.items():
        assert f'list --project=project {zone}=us-central1-b' in shell.run(f'manage show {kind} list')
    quoted = shell.run("show a 'b c' \"it's\" '' 'x;y'")
    assert quoted == "a 'b c' 'it'\\''s' '' 'x;y'\n"


PATHS = {'vm': 'locations/us-central1-b/nodes', 'queue': 'locations/us-central1-b/queuedResources'}
PATHS['machine'] = 'zones/us-central1-b/instances'


@pytest.mark.parametrize('kind', PATHS)
def test_is_gone__needs_the_own_path_and_a_list_without_it(shell: Shell, kind: str) -> None:
    path = f'projects/project/{PATHS[kind]}/node'
    gone = f"Resource '{path}' was not found"
    names = 'another-node\\nnode-2'
    # The answer, the list, the warning of the list, whether the list succeeds, and whether the resource is gone.
    cases = [
        (gone, names, '', 'true', 'yes'),
        (f'{path.replace("project/", "12345/", 1)} not found', names, 'Python 3.7 is too old', 'true', 'yes'),
        *((gone, listed, '', 'true', 'no') for listed in ('node', f'another-node\\n{path}', 'node\\tREADY')),
        (gone, names, '', 'false', 'no'),
        *(
            (gone, names, warning, 'true', 'no')
            for warning in ('a zone did not respond', 'may be incomplete', 'denied')
        ),
    ]
    other_paths = [path.replace('project/', other, 1) for other in ('other-project/', 'xproject/')]
    other_paths += [f'{path}-2', f'v2/{path}', f'{path}: 404', 'node', path.replace('us-central1-b', 'us-central1-c')]
    other_paths += [f'projects/project/{other}/node' for other in PATHS.values() if other != PATHS[kind]]
    cases += [(f'{other} was not found', names, '', 'true', 'no') for other in other_paths]
    text = 'quietly() { printf "$listed\\n" >output; echo "$warning" >errors; $works; }\n'
    for said, listed, warning, works, _ in cases:
        text += (
            f'listed="{listed}" warning="{warning}" works={works}; echo "{said}" >errors\n{says(f"is_gone {kind}")}\n'
        )
    assert list(zip(shell.run(text).split(), cases)) == [(case[-1], case) for case in cases]


def test_answers_that_a_tpu_is_gone__must_suit_its_history(shell: Shell) -> None:
    histories = {
        'denied=1 requested= seen=1 sure=1': '1',
        'denied= requested=1 seen=1 sure=1': '1',
        'denied= requested= seen=1 sure=1': '2',
        'denied= requested= seen= sure=1': '10',
        'denied= requested= seen= sure=': '3',
    }
    text = ''.join(f'{history}; count_answers; echo "$enough"\n' for history in histories)
    assert shell.run(text).split() == list(histories.values())


def test_states__of_a_lost_tpu(shell: Shell) -> None:
    lost = ('PREEMPTED', 'TERMINATED', 'STOPPING', 'STOPPED', 'DELETING', 'NOT_FOUND')
    kept = ('READY', 'CREATING', 'STARTING', 'RESTARTING', 'REPAIRING', 'UNKNOWN', '')
    assert shell.each('state', lost + kept, says('is_lost')) == ['yes'] * len(lost) + ['no'] * len(kept)


def test_version__may_differ_in_its_last_number_only_if_nobody_gave_it(shell: Shell) -> None:
    versions = ('', 'tpu-vm-tf-2.15.1-se', 'tpu-vm-tf-2.15.0-se', 'tpu-vm-tf-2.15.0-pod-se', 'tpu-vm-tf-2.14.1-se')
    check = says('is_wanted_version')
    assert shell.each('version', versions, check) == ['yes', 'yes', 'no', 'no', 'no']
    assert shell.each('default_version=1 version', versions, check) == ['yes', 'yes', 'yes', 'no', 'no']
    of_nodes = ('1.15', '1.15.5', '1.150', '1.14')
    assert shell.each('tpu=node TPU_VERSION=1.15 version', of_nodes, check) == ['yes', 'yes', 'no', 'no']


def ask(answers: str) -> str:
    """A text in which Google Cloud gives these answers about the TPU; the last one is repeated."""
    return f"""
answers='{answers}'
ask_for() {{
  count=$((${{count:-0}} + 1))
  state=${{answers%% *}}
  if [ "${{answers#* }}" != "$answers" ]; then answers=${{answers#* }}; fi
  case $state in
    NOT_FOUND) missing=$((missing + 1)) ;;
    UNKNOWN) echo 503 >errors ;;
    *) missing=0 ;;
  esac
}}
"""


@pytest.mark.parametrize(
    ('answers', 'limit', 'count', 'ready'),
    [
        ('CREATING STARTING READY', '20', 3, 'yes'),
        ('CREATING', '20', 20, 'no'),
        ('CREATING ' * 30 + 'READY', '', 31, 'yes'),
        ('CREATING PREEMPTED READY', '', 2, 'no'),
        # Google Cloud may take a while to find a new TPU.
        ('NOT_FOUND ' * 9 + 'READY', '', 10, 'yes'),
        ('NOT_FOUND', '', 10, 'no'),
        # Errors are counted from the last answer.
        ('UNKNOWN ' * 19 + 'CREATING ' + 'UNKNOWN ' * 19 + 'READY', '', 40, 'yes'),
        ('UNKNOWN', '', 20, 'no'),
    ],
)
def test_await__gives_up_after_enough_answers(shell: Shell, answers: str, limit: str, count: int, ready: str) -> None:
    result = 'is_lasting() { false; }\n' + says(f"await vm READY 'NOT_FOUND CREATING STARTING' '{limit}' 2>/dev/null")
    assert shell.run(f'{ask(answers)}{result}; echo "$count"').split() == [ready, str(count)]


def test_checkpoint__is_new_if_its_path_is(shell: Shell) -> None:
    stamps = ('1', '2', '3')
    files = [f'model_checkpoint_path: "model.ckpt-{step}"\\nlast: {stamp}' for step, stamp in zip((1, 1, 2), stamps)]
    text = 'checkpoint=\nquietly() { printf "$file" >output; $works; }\nworks=true\n'
    text += ''.join(f"file='{file}'\n{says('there_is_a_new_checkpoint')}\n" for file in files)
    text += f"file='' works=false\n{says('there_is_a_new_checkpoint')}\n"
    assert shell.run(text).split() == ['yes', 'no', 'yes', 'no']


@pytest.mark.parametrize(
    ('codes', 'checkpoints', 'code', 'runs'),
    [
        ('0', 'no', 0, 1),
        ('1 75 1 0', 'no yes no', 0, 4),
        ('1', 'no', 1, 3),
        ('75', 'no', 75, 3),
        ('1', 'yes no', 1, 3),
        ('1', 'no no yes no', 1, 5),
        *((f'1 {code} 0', 'no', code, 2) for code in (2, 129, 130)),
    ],
)
def test_failed_program__is_restarted_unless_nobody_can_mend_it(
    shell: Shell, codes: str, checkpoints: str, code: int, runs: int
) -> None:
    text = f"""
codes='{codes}' checkpoints='{checkpoints}'
train() {{
  echo ran
  code=${{codes%% *}} codes=${{codes#* }}
  return "$code"
}}
there_is_a_new_checkpoint() {{ new=${{checkpoints%% *}} checkpoints=${{checkpoints#* }}; [ "$new" = yes ]; }}
get_tpu_back() {{ :; }}
train_until_done
"""
    assert shell.run(text, code).count('ran\n') == runs


@pytest.mark.parametrize(
    ('states', 'refusals', 'code', 'calls'),
    [
        ('READY', '', 0, ''),
        ('CREATING', '', 0, ''),
        ('PREEMPTED', '', 0, 'delete create'),
        # The quota sufficed before.
        ('PREEMPTED', 'Quota_exceeded', 0, 'delete create delete create'),
        ('PREEMPTED', 'stockout stockout', 0, 'delete create delete create delete create'),
        ('PREEMPTED', 'stockout stockout stockout', 1, 'delete create delete create delete create'),
        ('PREEMPTED', 'PERMISSION_DENIED', 2, 'delete create'),
        # The TPU is lost, whatever the next answers say.
        ('PREEMPTED UNKNOWN', 'stockout', 0, 'delete create delete create'),
    ],
)
def test_lost_tpu__is_renewed_until_it_is_denied(
    shell: Shell, states: str, refusals: str, code: int, calls: str
) -> None:
    text = f"""
refusals='{refusals} '
check_type_and_version() {{ :; }}
delete_it() {{ echo delete >>calls; }}
create_tpu() {{
  echo create >>calls
  echo "${{refusals%% *}}" >errors
  case $refusals in ' ' | '') return 0 ;; esac
  refusals=${{refusals#* }} state=READY
  return 1
}}
touch calls
get_tpu_back
"""
    shell.run(ask(states) + text, code)
    assert (shell.folder / 'calls').read_text().split() == calls.split()


def test_piece_of_the_log__begins_at_its_last_header(shell: Shell) -> None:
    answer = 'run log\none\n\nrun log\none\ntwo\nrun end 2 running.\n'
    text = 'run=run; print_piece; echo "$lines $piece"'
    (shell.folder / 'output').write_text(answer)
    assert shell.run(text) == 'one\ntwo\n2 running\n'
    # An answer that is cut off has no state.
    (shell.folder / 'output').write_text(answer[:-2])
    assert shell.run(f'piece=; {text}') == '0 \n'


@pytest.mark.parametrize(
    ('answers', 'code', 'asked'),
    [
        ('running ended_0', 0, 2),
        ('ended_134', 134, 1),
        ('gone', 1, 1),
        ('cut cut running cut cut running ended_7', 7, 7),
        ('cut', 1, 3),
    ],
)
def test_connections__are_given_up_when_none_answers_in_between(
    shell: Shell, answers: str, code: int, asked: int
) -> None:
    text = f"""
replies='{answers}' run=run job=1
on_vm() {{
  echo ask >>asked
  reply=${{replies%% *}} replies=${{replies#* }}
  if [ "$reply" = cut ]; then : >output; return 255; fi
  printf 'run log\\nrun end 0 %s.\\n' "$reply" | sed s/_/' '/ >output
}}
follow
"""
    shell.run(ask('READY') + text, code)
    assert (shell.folder / 'asked').read_text().count('ask') == asked


def test_restarted_program__shows_its_log_from_the_first_line(shell: Shell) -> None:
    text = """
reach() { shift 3; echo "$@"; }
follow() { echo "$run after $lines"; lines=7; }
train_on_vm --flag
train_on_vm --flag
# A run of this start that still runs is followed from where its log was.
reach() { run=mine-1; }
train_on_vm --flag
pod=-pod
reach() { shift 4; echo "$@"; }
train_on_vm --flag
"""
    command = './run --tf=image python -m inception_v3.main --flag'
    assert shell.run(text).splitlines() == [
        f'mine-1 {command}',
        'mine-1 after 0',
        f'mine-2 {command}',
        'mine-2 after 0',
        'mine-1 after 7',
        f'env TPU_LOAD_LIBRARY=0 TPU_NAME=node {command}',
        'mine-4 after 0',
    ]


CODES: Dict[str, int] = {'HUP': 129, 'INT': 130, 'QUIT': 131, 'USR1': 138, 'PIPE': 141, 'ALRM': 142, 'TERM': 75}


def test_signals__have_exit_codes_and_cannot_stop_the_script(shell: Shell) -> None:
    text = 'clean_up() { echo "$?"; }\nset_traps\n'
    for name, code in CODES.items():
        assert shell.run(f'{text}kill -s {name} $$\necho alive', code) == f'{code}\n'
    # In an orphaned session, the signal would stop no process.
    process = shell.start(f'{text}echo ready; read -r line || :; sleep 60')
    assert process.stdout is not None and process.stdout.readline() == 'ready\n'
    status = pathlib.Path(f'/proc/{process.pid}/status').read_text()
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    ignored = int(status.split('SigIgn:')[1].split()[0], 16)
    for number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        assert ignored >> (number - 1) & 1, number


def test_program_that_ignores_sigterm__is_killed_at_the_time_limit(shell: Shell) -> None:
    # Like the program of a TPU node, it leads a session, and its child process must not outlive it.
    text = """
set +e
TIMEOUT_SECONDS=1
setsid sh -c 'trap "" TERM; sleep 60 & echo "$!" >inner; wait' </dev/null >/dev/null 2>&1 &
while ! [ -s inner ]; do sleep 0.01; done
wait_for_command
echo "$status $(cat inner)"
"""
    # The shell says "Killed", too.
    status, inner = map(int, shell.run(text).splitlines()[0].split())
    assert status == 128 + signal.SIGKILL
    state = pathlib.Path(f'/proc/{inner}/stat')
    assert not state.exists() or state.read_text().split()[2] == 'Z'


def test_running_program_of_a_node__is_asked_before_it_is_killed(shell: Shell) -> None:
    text = """
set_traps
made='' job=''
running="$here/run --tf=1.15 python -m inception_v3.main"
exec </dev/null
setsid sh -c 'trap "echo saved >saved; exit 5" TERM; echo >ready; while :; do sleep 0.02; done' >/dev/null 2>&1 &
while ! [ -e ready ]; do sleep 0.01; done
scratch=/dev/null
exit 75
"""
    assert 'waiting for the program to save its last step' in shell.run(text, 75)
    assert (shell.folder / 'saved').exists()


@pytest.mark.parametrize('flag', ['-model_dir=gs://bucket/other', '--data_dir=x', '-tpu=x', '--zone=x'])
def test_flag_of_a_variable__is_refused_with_one_dash_or_two(shell: Shell, flag: str) -> None:
    assert 'set the variable' in shell.run(f"parse_flag '{flag}'", 2)


def test_preflight__ends_the_script_with_its_own_exit_code(world: World) -> None:
    world.node = 'READY'
    world.script(preflight=[{'code': 2, 'says': 'error: --optimizer\n'}])
    done = world.call()
    assert (done.returncode, world.node) == (2, 'READY')
    assert 'error: --optimizer' in done.stderr and 'the preflight failed, so nothing was started' in done.stderr


def test_denied_creation__ends_the_script_with_2(world: World) -> None:
    world.script(create=[{'code': 1, 'says': 'ERROR: PERMISSION_DENIED\n', 'node': 'gone'}])
    assert world.call('--create').returncode == 2
    assert world.course == 'ls preflight create'


def test_slice__is_driven_by_its_name(world: World) -> None:
    done = world.call('--create', '--dry_run', TPU_TYPE='v3-32')
    assert done.returncode == 0 and '--tpu=local' not in done.stdout
    cluster = '--tpu=node --tpu_zone=us-central1-b --gcp_project=project --num_shards=32'
    assert done.stdout.count(cluster) == 2  # For the preflight, and for the program on the TPU VM.
    assert 'TPU_LOAD_LIBRARY=0' in done.stdout


def test_folders__each_bucket_is_listed_and_an_empty_export_is_none(world: World) -> None:
    variables = {'BUCKET': 'gs://bucket/', 'DATA_DIR': 'gs://data/records', 'EXPORT_DIR': ''}
    done = world.call('--create', '--dry_run', **variables)
    lists = [line for line in done.stdout.splitlines() if ' storage ls ' in line]
    assert lists == ['gcloud storage ls gs://data', 'gcloud storage ls gs://bucket']
    folders = '--data_dir=gs://data/records --model_dir=gs://bucket/inception_v3'
    assert done.stdout.count(folders) == 2 and '--export_dir' not in done.stdout
    # If two slashes stayed, the list of checkpoints would not be found.
    done = world.call('--create', '--dry_run', MODEL_DIR='gs://bucket/run//')
    assert done.stdout.count('--model_dir=gs://bucket/run\n') + done.stdout.count('--model_dir=gs://bucket/run ') == 2


@pytest.mark.parametrize(
    'flag',
    ['--class_weights=w.csv', '-init_from=runs/x', '--train_files=/d/*', '--eval_files=~/x', '--flagfile=my.flags'],
)
def test_new_tpu_vm__lacks_files_of_this_machine(world: World, flag: str) -> None:
    done = world.call('--create', '--dry_run', flag)
    assert (done.returncode, world.log()) == (2, [])
    assert f'{flag}: names a file of this machine, which the new TPU VM does not have' in done.stderr


def test_new_tpu_vm__has_the_stores_files_and_no_local_export(world: World) -> None:
    flags = ['--class_weights=balanced', '--init_from=gs://bucket/run', '--train_files=train-*']
    assert world.call('--create', '--dry_run', *flags).returncode == 0
    done = world.call('--create', '--dry_run', EXPORT_DIR='my_export')
    assert done.returncode == 2 and 'EXPORT_DIR=my_export: must be gs://' in done.stderr
    for architecture in ('--architecture=vm', '--architecture=node'):
        assert world.call('--dry_run', architecture, '--init_from=runs/x').returncode == 0
    assert world.call('--dry_run', '--architecture=node', EXPORT_DIR='my_export').returncode == 0


@pytest.mark.parametrize(
    ('arguments', 'command'),
    [
        ((), 'tpus tpu-vm create node'),
        (('--spot', '--queued'), 'tpus queued-resources create node'),
        (('--spot',), 'tpus tpu-vm create node'),
    ],
)
def test_flags_of_creation__choose_kind_and_price(world: World, arguments: Any, command: str) -> None:
    done = world.call('--create', '--dry_run', *arguments)
    (create,) = [line for line in done.stdout.splitlines() if ' create ' in line]
    assert create.startswith(f'gcloud compute {command} ') and create.endswith(' --spot') == ('--spot' in arguments)


def test_ask_for__reads_the_fields_and_counts_answers_in_a_row(shell: Shell) -> None:
    text = """
quietly() { printf "$answer" >output; [ -n "$answer" ]; }
is_gone() { [ -n "$gone" ]; }
ask() { ask_for "$1"; echo "$state $missing $type $version [$description]"; }
answer='' gone=1
ask vm; ask vm; ask queue; ask vm
answer='READY\\tprojects/p/types/v2-8\\timages/tpu-vm-tf-2.15.1-se\\ta run of mine\\n'
ask vm
answer='' gone=
ask vm
gone=1
ask vm
answer='RUNNING\\tmine\\n'
ask machine
# Not a state: a message, or a value that was not printed.
answer='Listed 0 items.\\n'
ask vm
"""
    assert shell.run(text).splitlines() == [
        'NOT_FOUND 1   []',
        'NOT_FOUND 2   []',
        'NOT_FOUND 1   []',
        'NOT_FOUND 1   []',
        'READY 0 v2-8 tpu-vm-tf-2.15.1-se [a run of mine]',
        'UNKNOWN 0   []',
        'NOT_FOUND 1   []',
        'RUNNING 0   [mine]',
        ' 0   []',
    ]


def test_failed_creation__is_denied_only_if_the_request_was(shell: Shell) -> None:
    said = {
        'ERROR: PERMISSION_DENIED': '1 lasting',
        'ERROR: stockout': '1 refused',
        'ERROR: Quota exceeded while polling operation': ' passing',
        'ERROR: 503': ' passing',
    }
    text = 'denied=; creation_failed 2>/dev/null; echo "$denied $kind"'
    assert shell.each('said', said, f'echo "$said" >errors; {text}') == list(said.values())


def test_tpu_of_another_start__ends_a_run_of_a_made_one(shell: Shell) -> None:
    assert shell.run('must_be_ours; description=; made=; must_be_ours; echo kept') == 'kept\n'
    for description in ('', 'mine-too'):
        assert 'made by another start' in shell.run(f"description='{description}'; must_be_ours", 2)


def test_reach__retries_ten_times_and_gives_up_at_once_if_denied(shell: Shell) -> None:
    connect = 'connect() { echo try >>tries; echo "$said" >errors; false; }\n'
    for said, answers, code, tries in (
        ('Permission denied (publickey)', 'READY', 1, 10),
        ('PERMISSION_DENIED', 'READY', 2, 1),
        ('publickey', 'READY PREEMPTED', 7, 2),
    ):
        (shell.folder / 'tries').write_text('')
        shell.run(f"{ask(answers)}{connect}said='{said}'; reach connect || exit 7", code)
        assert (shell.folder / 'tries').read_text().count('try') == tries


def test_lost_temporary_folder__is_replaced_or_done_without(shell: Shell) -> None:
    text = """
show_place() { prepare_files; echo "${output#$PWD/}"; }
export TMPDIR=$PWD/tmp
mkdir tmp
scratch=$PWD/lost
mkdir lost; show_place
rm -r lost; show_place | sed 's/run_tpu.*output/X/'
# Neither a folder nor a place where one can be made.
mktemp() { return 1; }
scratch=$PWD/gone; show_place
"""
    assert shell.run(text).splitlines() == ['lost/output', 'tmp/.X', '/dev/null']
