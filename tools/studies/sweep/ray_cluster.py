"""Runs trials as tasks of a Ray cluster.

The nodes share the sweep's folder and the working directory, under the same paths: trials write there, and the sweep
reads their progress there. When a node dies, its trials resume on other nodes from their last checkpoints.
"""

import contextlib
import os
import socket
import time
from typing import Any, Callable, Iterator, List, Optional

import ray
from ray.exceptions import RayError, TaskCancelledError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from compat.errors import RESUME, RETRY, RetryableError
from compat.messages import shown
from inception_v3.run import trainer_lock
from tools.studies.study import StudyError
from tools.studies.sweep import trials
from tools.studies.sweep.trials import Outcome, Place, RunningTrial, Trial

# Seconds: for the cluster to answer, for a node to answer, and between checks of a claim.
_CONNECT_TIMEOUT = 10.0
_ANSWER_TIMEOUT = 60.0
_CLAIM_INTERVAL = 1.0


class ClusterError(StudyError, RetryableError):
    """A cluster or a node that does not answer."""


@contextlib.contextmanager
def cluster(address: str, workers: int, out: str, gpus_of: Callable[[bool], int]) -> Iterator[Place]:
    """Connects to the Ray cluster at HOST:PORT, or `auto`; the sweep's folder `out` holds `study.json` already.

    `workers` trials run at a time on the smallest node; larger nodes run more, in proportion to their cores. `gpus_of`
    returns the number of GPUs of a trial, given whether any node has GPUs. Nodes with fewer GPUs run no trials, and no
    node runs more trials than its GPUs allow. A trial without GPUs of its own sees none: Ray hides them.

    Raises:
      ClusterError: the cluster or one of its nodes does not answer.
      StudyError: no node has a core and the GPUs of a trial, or nodes do not share the folder or the working directory.
    """
    study = os.path.abspath(os.path.join(out, trials.STUDY_FILE))
    _connect(address)
    try:
        if not _nodes():
            raise StudyError(f'--ray={address}: no node of the cluster has a CPU core.')
        gpus = gpus_of(any(map(_gpus_of, _nodes())))
        fitting = [node for node in _nodes() if _gpus_of(node) >= gpus]
        if not fitting:
            most = max(map(_gpus_of, _nodes()))
            raise StudyError(f'--gpus_per_trial={gpus}: no node of the cluster at {address} has more than {most} GPUs.')
        cores = max(1, min(map(_cores_of, fitting)) // workers)

        def slots_on(node: dict) -> int:
            slots = _cores_of(node) // cores
            return min(slots, _gpus_of(node) // gpus) if gpus else slots

        for node in fitting:
            here = NodeAffinitySchedulingStrategy(node['NodeID'], soft=False)
            sees: Any = ray.remote(_sees)
            task = sees.options(num_cpus=0, scheduling_strategy=here).remote(os.getcwd(), study)
            try:
                is_shared = ray.get(task, timeout=_ANSWER_TIMEOUT)
            except RayError as error:
                raise ClusterError(f'--ray: {node["NodeManagerHostname"]} does not answer: {error}')
            if not is_shared:
                raise StudyError(
                    f'--out={out}: {node["NodeManagerHostname"]} cannot read this folder or the working directory '
                    f'{os.getcwd()}. All nodes must share both, under the same paths.'
                )
        yield Place(lambda: sum(map(slots_on, _nodes())), lambda trial: Task(trial, cores, gpus, study))
    finally:
        ray.shutdown()


def _connect(address: str) -> None:
    host, _, port = address.rpartition(':')
    if address != 'auto' and not (host and port.isdigit()):
        raise StudyError(f'--ray={shown(address)}: must be HOST:PORT or auto.')
    try:
        if address != 'auto':
            # Ray itself would wait for more than a minute without a message.
            socket.create_connection((host, int(port)), _CONNECT_TIMEOUT).close()
        ray.init(address, log_to_driver=False, logging_level='ERROR')
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        reason = (
            getattr(error, 'strerror', None)
            or str(error).partition('\n')[0]
            or 'there is no Ray cluster at this address'
        )
        raise ClusterError(f'--ray={address}: cannot be reached: {reason}')


def _nodes() -> List[dict]:
    return [node for node in ray.nodes() if node['Alive'] and _cores_of(node)]


def _cores_of(node: dict) -> int:
    return int(node['Resources'].get('CPU', 0))


def _gpus_of(node: dict) -> int:
    return int(node['Resources'].get('GPU', 0))


def _sees(directory: str, study: str) -> bool:
    return os.path.isdir(directory) and os.path.isfile(study)


class Task(RunningTrial):
    """A trial that was submitted to a cluster, and reserves cores and GPUs on its node.

    Ray names the GPUs in `CUDA_VISIBLE_DEVICES`, which the trial's process inherits. `study` is the path of
    `study.json`.
    """

    def __init__(self, trial: Trial, cores: int, gpus: int, study: str):
        self._trial = trial
        trials.remove_outcome(trial)
        task = ray.remote(num_cpus=cores, num_gpus=gpus, max_retries=-1)(_run)
        self._result = task.remote(trial, os.getcwd(), study)

    def poll(self) -> Optional[Outcome]:
        """The outcome, if the task has ended; None before."""
        ready, _ = ray.wait([self._result], timeout=0)
        if not ready:
            return None
        try:
            return ray.get(self._result)
        except RayError as error:
            exit_code = RESUME if isinstance(error, TaskCancelledError) else RETRY
            return trials.outcome_of(self._trial) or trials.not_run(str(error), exit_code)

    def stop(self) -> None:
        """Interrupts the task, which asks the trial to save a checkpoint and end."""
        ray.cancel(self._result)

    def kill(self) -> None:
        """Kills the task's process; the trial ends with it."""
        ray.cancel(self._result, force=True)


def _run(trial: Trial, directory: str, study: str) -> Outcome:
    if not _sees(directory, study):
        return trials.not_run(f'{study} or {directory} is missing on this node; all nodes must share them')
    os.chdir(directory)
    # Ray sets this variable, which would change the results from those of the trial run alone.
    os.environ.pop('OMP_NUM_THREADS', None)
    # A trial on a node that died leaves its claim to the folder behind; wait until the claim is stale.
    until = time.monotonic() + trainer_lock.STALE_AFTER
    while trainer_lock.is_claimed_elsewhere(trial.model_dir) and time.monotonic() < until:
        time.sleep(_CLAIM_INTERVAL)
    return trials.run(trial)
