"""Trials as tasks of a Ray cluster, each on any of its nodes.

The nodes share the sweep's folder and the working directory, under the same paths: there a trial leaves what it leaves,
and there its progress is read. What a node that died was running is run again on another, from its last checkpoint.
"""

import contextlib
import os
import socket
import time
from typing import Any, List, Optional, Sequence

import ray
from ray.exceptions import RayError, TaskCancelledError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from console.errors import RESUME
from console.messages import shown
from inception_v3.model_dir import trainer_lock
from studies.study import StudyError
from studies.sweep import trials, workers
from studies.sweep.trials import Outcome, Trial
from studies.sweep.workers import Place, Running

# Seconds that a cluster has to answer, and a node to say what it sees.
_CONNECT_WITHIN = 10.0
_ANSWER_WITHIN = 60.0
_CLAIM_INTERVAL = 1.0


class RayCluster(Place):
    """The nodes of a cluster, while it is connected.

    Args:
      address: of the cluster, HOST:PORT or `auto`.
      workers: trials at a time on the smallest node; larger ones have as many more as they have more cores.
      program: the command before their arguments; `python` is the nodes' Python.
      out: the sweep's folder, in which a study has been written.

    Raises:
      StudyError: there is no such cluster, or its nodes do not share the folder or the working directory.
    """

    def __init__(self, address: str, workers: int, program: Sequence[str], out: str):
        self._program = program
        self._study = os.path.abspath(os.path.join(out, trials.STUDY_FILE))
        _connect(address)
        try:
            nodes = _nodes()
            if not nodes:
                raise StudyError(f'--ray={address}: has no node with a core for a trial.')
            self._cores = max(1, min(_cores_of(node) for node in nodes) // workers)
            self._check_shared(nodes, out)
        except BaseException:
            self.close()
            raise

    @property
    def slots(self) -> int:
        """As many trials as the cores of the nodes that are there now allow."""
        return sum(_cores_of(node) // self._cores for node in _nodes())

    def start(self, trial: Trial) -> 'Task':
        """Hands a trial in; a node takes it."""
        return Task(trial, self._cores, self._program, self._study)

    def close(self) -> None:
        """Leaves the cluster."""
        ray.shutdown()

    def _check_shared(self, nodes: List[dict], out: str) -> None:
        blind = []
        for node in nodes:
            here = NodeAffinitySchedulingStrategy(node['NodeID'], soft=False)
            sees: Any = ray.remote(_sees)
            task = sees.options(num_cpus=0, scheduling_strategy=here).remote(os.getcwd(), self._study)
            try:
                is_shared = ray.get(task, timeout=_ANSWER_WITHIN)
            except RayError as error:
                raise StudyError(f'--ray: {node["NodeManagerHostname"]} does not answer: {error}')
            if not is_shared:
                blind.append(node['NodeManagerHostname'])
        if blind:
            raise StudyError(
                f'--out={out}: {", ".join(blind)} cannot see it, or not the working directory {os.getcwd()}. All nodes '
                'must share both, under the same paths.'
            )


def _connect(address: str) -> None:
    host, _, port = address.rpartition(':')
    if address != 'auto' and not (host and port.isdigit()):
        raise StudyError(f'--ray={shown(address)}: must be HOST:PORT or auto.')
    try:
        if address != 'auto':
            # Ray would wait for more than a minute, and not say what for.
            socket.create_connection((host, int(port)), _CONNECT_WITHIN).close()
        ray.init(address, log_to_driver=False, logging_level='ERROR')
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        reason = getattr(error, 'strerror', None) or str(error).partition('\n')[0] or 'it does not answer as a cluster'
        raise StudyError(f'--ray={address}: cannot be reached: {reason}')


def _nodes() -> List[dict]:
    return [node for node in ray.nodes() if node['Alive'] and _cores_of(node)]


def _cores_of(node: dict) -> int:
    return int(node['Resources'].get('CPU', 0))


def _sees(directory: str, study: str) -> bool:
    return os.path.isdir(directory) and os.path.isfile(study)


class Task(Running):
    """A trial that has been handed to a cluster.

    Args:
      trial: what to run.
      cores: that it takes of a node.
      program: the command before its arguments.
      study: the absolute path of the study that the sweep has written.
    """

    def __init__(self, trial: Trial, cores: int, program: Sequence[str], study: str):
        self._trial = trial
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(trial.folder, trials.OUTCOME_FILE))
        task = ray.remote(num_cpus=cores, max_retries=-1)(_run)
        self._result = task.remote(trial, tuple(program), os.getcwd(), study)

    def poll(self) -> Optional[Outcome]:
        """The outcome, if the task has ended."""
        ready, _ = ray.wait([self._result], timeout=0)
        if not ready:
            return None
        try:
            return ray.get(self._result)
        except RayError as error:
            exit_code = RESUME if isinstance(error, TaskCancelledError) else 1
            return trials.outcome_of(self._trial) or trials.not_run(str(error), exit_code)

    def stop(self) -> None:
        """Interrupts the task, which passes it on."""
        ray.cancel(self._result)

    def kill(self) -> None:
        """Kills the task's process, with which the trial ends."""
        ray.cancel(self._result, force=True)


def _run(trial: Trial, program: Sequence[str], directory: str, study: str) -> Outcome:
    """What a node does."""
    if not _sees(directory, study):
        return trials.not_run(f'{study} or {directory} is not there on this node; all nodes must share them')
    os.chdir(directory)
    # Ray sets it, and the trial is to be what it is when it is run alone.
    os.environ.pop('OMP_NUM_THREADS', None)
    # What ran on a node that has died cannot give its claim to the folder back.
    until = time.monotonic() + trainer_lock.STALE_AFTER
    while trainer_lock.is_claimed_elsewhere(trial.model_dir) and time.monotonic() < until:
        time.sleep(_CLAIM_INTERVAL)
    return workers.run(trial, program)
