"""Trials on a Ray cluster of two nodes and a head, all on this machine."""

import pathlib
from typing import Any, Iterator

import pytest

from studies.study import Study, StudyError, cases
from studies.sweep import trials
from studies.sweep.trials import State
from tests.support.processes import shell, text_of, wait_for

pytest.importorskip('ray')
from ray._private.services import get_node_to_connect_for_driver
from ray.cluster_utils import Cluster

from studies.sweep import ray_cluster

# Resources of a node: one trial at a time.
NODE: Any = {'num_cpus': 1, 'object_store_memory': 80 << 20, 'node_ip_address': '127.0.0.1'}
# A node that does not answer counts as dead after five seconds; Ray's default is half a minute.
HEALTH = {'health_check_initial_delay_ms': 0, 'health_check_period_ms': 1000, 'health_check_failure_threshold': 5}
LIMIT = 150  # Seconds that a step may take; far more than a busy machine needs.


@pytest.fixture
def cluster(monkeypatch: Any) -> Iterator[Cluster]:
    # Otherwise Ray replaces 127.0.0.1 with another address of this machine.
    monkeypatch.setenv('RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER', '0')
    monkeypatch.setenv('RAY_USAGE_STATS_ENABLED', '0')
    cluster = Cluster(
        initialize_head=True,
        head_node_args={**NODE, 'num_cpus': 0, 'include_dashboard': False, '_system_config': HEALTH},
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


@pytest.mark.program
def test_tasks__run_on_all_nodes_move_from_a_lost_one_and_stop(tmp_path: pathlib.Path, cluster: Cluster) -> None:
    nodes = [cluster.add_node(**NODE) for _ in range(2)]
    # This process connects through one of the nodes, which must stay alive.
    entry = get_node_to_connect_for_driver(cluster.gcs_address, NODE['node_ip_address'])['raylet_socket_name']
    doomed = next(node for node in nodes if node.raylet_socket_name != entry)
    out = tmp_path / 'out'
    pair = trials.trials_of(Study(axes=[cases({'a': {}, 'b': {}})], seeds=1), str(out))
    out.mkdir()
    (out / trials.STUDY_FILE).write_text('{}')
    # A trial ends with code 75 if it is asked to, or well once its file `end` exists.
    ends = 'case "$*" in *trials/a*) end=a ;; *) end=b ;; esac; trap "exit 75" TERM; echo $$'
    program = shell(f'{ends}; until [ -e {tmp_path}/$end ]; do sleep 0.05; done')

    with ray_cluster.cluster(cluster.address, 1, program, str(out)) as place:
        assert place.slots() == 2
        running = {trial.case: (trial, place.start(trial)) for trial in pair}
        started = [int(wait_for(lambda trial=trial: text_of(trial.log), LIMIT)) for trial in pair]
        raylets = [raylet_of(process) for process in started]
        of_doomed = doomed.all_processes['raylet'][0].process.pid
        assert len({*raylets}) == 2 and of_doomed in raylets
        lost, kept = ('a', 'b') if raylets[0] == of_doomed else ('b', 'a')

        cluster.remove_node(doomed, allow_graceful=False)
        assert wait_for(lambda: place.slots() == 1, LIMIT)
        (tmp_path / kept).touch()
        trial, task = running[kept]
        outcome = wait_for(task.poll, LIMIT)
        assert outcome.state is State.DONE and trials.outcome_of(trial) == outcome
        # The trial of the lost node runs on the other one.
        trial, task = running[lost]
        wait_for(lambda: len(text_of(trial.log).splitlines()) == 2, LIMIT)
        assert task.poll() is None
        task.stop()
        outcome = wait_for(task.poll, LIMIT)
        assert outcome.exit_code == 75 and outcome.state is State.STOPPED
        assert trials.outcome_of(trial) == outcome

    nowhere = f'{tmp_path}/nowhere'
    with pytest.raises(StudyError, match=f'--out={nowhere}: .*All nodes must share both, under the same paths'):
        ray_cluster.cluster(cluster.address, 1, [], nowhere).__enter__()


@pytest.mark.parametrize(
    ('address', 'message'),
    [
        ('here', 'must be HOST:PORT or auto'),
        (':', 'must be HOST:PORT'),
        ('127.0.0.1:1', r'cannot be reached: Connection refused'),
    ],
)
def test_connect__missing_cluster_is_reported_at_once(address: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        ray_cluster.cluster(address, 1, ['true'], 'nowhere').__enter__()
