"""Sweeps on a Ray cluster of two nodes and a head, all on this machine."""

import json
import pathlib
import re
import signal
import subprocess
import sys
from typing import Any, Iterator

import pytest

from inception_v3.run import trainer_lock
from tests.support.processes import text_of, wait_for
from tests.support.sweeps import WholeSweep, study_file

pytest.importorskip('ray')
from ray._private.services import get_node_to_connect_for_driver
from ray.cluster_utils import Cluster

from studies.study import StudyError
from studies.sweep import ray_cluster

# Resources of a node: one trial at a time.
NODE: Any = {'num_cpus': 1, 'object_store_memory': 80 << 20, 'node_ip_address': '127.0.0.1'}
# A node that does not answer counts as dead after five seconds; Ray's default is half a minute.
HEALTH = {'health_check_initial_delay_ms': 0, 'health_check_period_ms': 1000, 'health_check_failure_threshold': 5}


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


def claim_in(trial: pathlib.Path) -> Any:
    text = text_of(str(trial / 'model' / trainer_lock.CLAIM_FILE))
    return json.loads(text) if text else None


def raylet_of(process: int) -> int:
    """The PID of the node that runs a trial: the daemon starts Ray's worker, which starts the trial's process."""
    for _ in range(2):
        process = int(pathlib.Path(f'/proc/{process}/stat').read_text().rpartition(')')[2].split()[1])
    return process


def has_trained(trial: pathlib.Path) -> bool:
    return bool(list((trial / 'model').glob('model.ckpt-[1-9]*.meta')))


@pytest.mark.program
def test_sweep__runs_on_all_nodes_and_survives_the_loss_of_one(
    digits_dir: str, tmp_path: pathlib.Path, cluster: Cluster
) -> None:
    nodes = [cluster.add_node(**NODE) for _ in range(2)]
    # A sweep connects through one of the nodes at its own address; that node must stay alive.
    entry = get_node_to_connect_for_driver(cluster.gcs_address, NODE['node_ip_address'])['raylet_socket_name']
    doomed = next(node for node in nodes if node.raylet_socket_name != entry)
    flags: Any = {'data_dir': digits_dir, 'save_checkpoints_secs': 1, 'train_steps': 300, 'train_steps_per_eval': 300}
    study = study_file(tmp_path, '[{grid: {optimizer: [sgd, RMS]}}]', **flags)
    folders = [tmp_path / 'out' / 'trials' / f'optimizer={name}' / 'seed-1' for name in ('sgd', 'RMS')]

    whole = WholeSweep(study, f'--out={tmp_path}/out', f'--ray={cluster.address}')
    try:
        wait_for(lambda: all(claim_in(folder) for folder in folders))
        raylets = [raylet_of(claim_in(folder)['process']) for folder in folders]
        of_doomed = doomed.all_processes['raylet'][0].process.pid
        assert len(set(raylets)) == 2 and of_doomed in raylets
        lost = folders[raylets.index(of_doomed)]
        wait_for(lambda: has_trained(lost))
        cluster.remove_node(doomed, allow_graceful=False)
        code, output = whole.end()
    finally:
        whole.process.kill()
    assert code == 0 and '2 of 2 trials done' in output, output
    assert 'resuming from' in (lost / 'log.txt').read_text()

    # Ctrl-C reaches the trial on its node.
    study = study_file(tmp_path, '[]', **{**flags, 'train_steps': 10**6})
    whole = WholeSweep(study, f'--out={tmp_path}/long', f'--ray={cluster.address}')
    trial = tmp_path / 'long' / 'trials' / 'default' / 'seed-1'
    try:
        wait_for(lambda: has_trained(trial))
        whole.process.send_signal(signal.SIGINT)
        code, output = whole.end()
    finally:
        whole.process.kill()
    assert code == 130, output
    assert json.loads((trial / 'outcome.json').read_text())['exit_code'] == 75
    assert not claim_in(trial)

    # A folder that the nodes cannot read; connected in a process of its own, because this one is a node.
    connects = 'import sys; from studies.sweep.ray_cluster import cluster; cluster(sys.argv[1], 1, [], sys.argv[2])'
    connects += '.__enter__()'
    arguments = [sys.executable, '-c', connects, cluster.address, f'{tmp_path}/nowhere']
    refused = subprocess.run(arguments, stderr=subprocess.PIPE, text=True)
    assert refused.returncode == 1
    assert re.search(f'--out={tmp_path}/nowhere: .*All nodes must share both, under the same paths', refused.stderr)


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
