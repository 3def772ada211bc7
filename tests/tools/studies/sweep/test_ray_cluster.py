"""Trials on a Ray cluster of two nodes and a head, all on this machine."""

import pathlib
import re
import subprocess
import sys
from typing import Any, Iterator, List

import pytest

from tests.support.processes import shell, text_of, wait_for
from tests.support.sweeps import PROGRAM, study_file
from tools.studies.study import Study, cases
from tools.studies.sweep import __main__ as sweep
from tools.studies.sweep import trials
from tools.studies.sweep.trials import State, Trial

pytest.importorskip('ray')
from ray.cluster_utils import Cluster

# Resources of a node: one trial at a time. Ray does not check that its GPUs exist.
NODE: Any = {'num_cpus': 1, 'num_gpus': 2, 'object_store_memory': 80 << 20, 'node_ip_address': '127.0.0.1'}
# A node that does not answer counts as dead after five seconds; Ray's default is half a minute. Trials do not run at
# Ray's low priority, at which they would wait for minutes on a busy machine.
SETTINGS = {
    'health_check_initial_delay_ms': 0,
    'health_check_period_ms': 1000,
    'health_check_failure_threshold': 5,
    'worker_niceness': 0,
}
LIMIT = 150  # Seconds that a step may take; far more than a busy machine needs.


@pytest.fixture
def cluster(monkeypatch: Any) -> Iterator[Cluster]:
    # Otherwise Ray replaces 127.0.0.1 with another address of this machine.
    monkeypatch.setenv('RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER', '0')
    monkeypatch.setenv('RAY_USAGE_STATS_ENABLED', '0')
    cluster = Cluster(
        initialize_head=True,
        head_node_args={**NODE, 'num_cpus': 0, 'num_gpus': 0, 'include_dashboard': False, '_system_config': SETTINGS},
    )
    try:
        yield cluster
    finally:
        cluster.shutdown()


def raylet_of(process: int) -> int:
    """The PID of the node that runs a trial: the daemon starts Ray's worker, which starts the trial's process."""
    for _ in range(2):
        process = int(pathlib.Path(f'/proc/{process}/stat').read_text().rpartition(')')[2].split()[1])
    return process


# Starts trials in a process of its own, because the process that made the cluster cannot connect to it. It prints the
# errors for a folder that does not exist, and for too many GPUs of a trial. Then it evaluates each line that it reads,
# and prints the value after a mark, because Ray prints, too.
DRIVER = """
import sys
import ray
from tools.studies.study import StudyError
from tools.studies.sweep.ray_cluster import cluster
from tests.tools.studies.sweep.test_ray_cluster import trials_in
address, folder, *program = sys.argv[1:]
for out, gpus in ((f'{folder}/nowhere', 0), (folder, 3)):
    try:
        cluster(address, 1, out, lambda there: gpus).__enter__()
    except StudyError as error:
        print('>', error, flush=True)
with cluster(address, 1, folder, lambda there: 2 * there) as place:
    tasks = [place.start(trial._replace(program=tuple(program))) for trial in trials_in(folder)]
    for line in sys.stdin:
        print('>', eval(line), flush=True)
"""


def trials_in(folder: str) -> List[Trial]:
    return trials.trials_of(Study(axes=[cases({'a': {}, 'b': {}})], seeds=1), folder)


@pytest.mark.program
def test_tasks__run_on_all_nodes_move_from_a_lost_one_and_stop(tmp_path: pathlib.Path, cluster: Cluster) -> None:
    nodes = [cluster.add_node(**NODE) for _ in range(2)]
    (tmp_path / trials.STUDY_FILE).write_text('{}')
    # A trial ends with code 75 when it is stopped, and with code 0 once a file named after it exists.
    ends = 'case "$*" in *trials/a/*) end=a ;; *) end=b ;; esac; trap "exit 75" TERM; echo $$'
    ends = f'{ends}; echo $CUDA_VISIBLE_DEVICES > {tmp_path}/$end.gpus'
    program = shell(f'{ends}; until [ -e {tmp_path}/$end ]; do sleep 0.05; done')
    driver = subprocess.Popen(
        [sys.executable, '-c', DRIVER, cluster.address, str(tmp_path), *program], stdin=-1, stdout=-1, text=True
    )

    def answer() -> str:
        assert driver.stdout
        return next(line[2:].strip() for line in driver.stdout if line.startswith('> '))

    def ask(line: str) -> str:
        assert driver.stdin
        driver.stdin.write(f'{line}\n')
        driver.stdin.flush()
        return answer()

    try:
        refused = f'--out={tmp_path}/nowhere: .*All nodes must share both, under the same paths'
        assert re.match(refused, answer())
        assert re.match('--gpus_per_trial=3: no node of the cluster at .* has more than 2 GPUs', answer())
        # The sweep connects through one of the nodes; that node must stay alive.
        here = 'ray.get_runtime_context().get_node_id()'
        entry = ask(f"[node['RayletSocketName'] for node in ray.nodes() if node['NodeID'] == {here}]")
        doomed = next(node for node in nodes if node.raylet_socket_name not in entry)
        assert ask('place.slots()') == '2'
        pair = trials_in(str(tmp_path))
        wait_for(lambda: all(text_of(trial.log) for trial in pair), LIMIT)
        seen = [str(tmp_path / f'{trial.case}.gpus') for trial in pair]
        wait_for(lambda: all(map(text_of, seen)), LIMIT)
        assert [*map(text_of, seen)] == ['0,1\n', '0,1\n']
        raylets = [raylet_of(int(text_of(trial.log))) for trial in pair]
        of_doomed = doomed.all_processes['raylet'][0].process.pid
        assert len({*raylets}) == 2 and of_doomed in raylets
        lost = raylets.index(of_doomed)

        cluster.remove_node(doomed, allow_graceful=False)
        wait_for(lambda: ask('place.slots()') == '1', LIMIT)
        (tmp_path / pair[1 - lost].case).touch()
        wait_for(lambda: ask(f'tasks[{1 - lost}].poll()') != 'None', LIMIT)
        outcome = trials.outcome_of(pair[1 - lost])
        assert outcome and outcome.state is State.DONE
        # The trial of the lost node runs on the other one.
        wait_for(lambda: len(text_of(pair[lost].log).splitlines()) == 2, LIMIT)
        assert ask(f'tasks[{lost}].poll()') == 'None'
        ask(f'tasks[{lost}].stop()')
        wait_for(lambda: ask(f'tasks[{lost}].poll()') != 'None', LIMIT)
        outcome = trials.outcome_of(pair[lost])
        assert outcome and outcome.exit_code == 75 and outcome.state is State.STOPPED, ask(f'tasks[{lost}].poll()')
    finally:
        driver.kill()
        driver.communicate()


@pytest.mark.parametrize(
    ('address', 'code', 'message'),
    [
        ('here', 2, '--ray=here: must be HOST:PORT or auto'),
        (':', 2, '--ray=:: must be HOST:PORT'),
        ('127.0.0.1:1', 1, '--ray=127.0.0.1:1: cannot be reached: Connection refused'),
    ],
)
def test_sweep__reports_a_missing_cluster_at_once(
    address: str, code: int, message: str, digits_dir: str, tmp_path: pathlib.Path, capsys: Any
) -> None:
    study = study_file(tmp_path, data_dir=digits_dir)
    assert sweep.main(['sweep', study, f'--out={tmp_path}/out', f'--ray={address}'], PROGRAM) == code
    assert message in capsys.readouterr().err
