"""The addresses of a run's machines, from `--worker_hosts` or from the environment variable TF_CONFIG.

TF_CONFIG, which Kubeflow, Vertex AI and others set on each machine, is JSON like this:

    {"cluster": {"chief": ["A:2222"], "worker": ["B:2222", "C:2222"]}, "task": {"type": "worker", "index": 0}}

The chief, if there is one, is the first worker. This module needs no TensorFlow.
"""

import json
import re
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from compat.messages import shown
from console.json_content import from_json

# HOST:PORT, with an IPv6 address in brackets. A part of a name has 1 to 63 characters (RFC 1035, section 2.3.4).
_PART = '[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?'
_ADDRESS = re.compile(rf'(?:\[[0-9A-Fa-f:.]+\]|{_PART}(?:\.{_PART})*):([0-9]{{1,5}})')
_LARGEST_PORT = 65535
# Settings that may differ between the machines of one run: paths, and settings of a single machine.
FILES = frozenset(['model_dir', 'export_dir', 'data_dir', 'train_files', 'eval_files'])
OF_MACHINE = FILES | {'task_index', 'log_device_placement'}
# Settings of a run's place, which do not affect its results.
OF_PLACE = OF_MACHINE | {
    *('worker_hosts', 'worker_timeout', 'profile_steps'),
    *('tpu', 'master', 'tpu_zone', 'gcp_project'),
}

_KEYS = ('cluster', 'task', 'type', 'index')
_KINDS = ('chief', 'worker')
# Other tasks, and the reason why they are refused.
_INSTEAD = {
    'master': 'name it chief, as TensorFlow 2 does',
    'ps': 'this program has no parameter servers; workers add their gradients themselves. Make them workers, too',
    'evaluator': 'the workers evaluate together, in turn with training. Leave the task out, or run --mode=eval with '
    'TF_CONFIG unset',
}


class Place(NamedTuple):
    """This machine's place among a run's machines: all addresses, its number, and the seconds of `--worker_timeout`."""

    addresses: Tuple[str, ...]
    number: int
    timeout: int


def addresses_in(worker_hosts: str) -> Tuple[str, ...]:
    """The addresses in a value of `--worker_hosts`; empty for one machine."""
    return tuple(worker_hosts.split(',')) if worker_hosts else ()


def problem_with(addresses: Sequence[str]) -> str:
    """The reason why a run's machines cannot have these addresses, as the end of a sentence; empty if they can."""
    for address in addresses:
        match = _ADDRESS.fullmatch(address)
        if not match or not 0 < int(match.group(1)) <= _LARGEST_PORT:
            return f'"{shown(address)}" is not an address HOST:PORT, such as 10.0.0.5:2222'
    # Names of hosts are not case-sensitive.
    alike = [address.lower() for address in addresses]
    doubled = next((each for each in alike if alike.count(each) > 1), None)
    return f'{doubled} is the address of two workers; each needs a port of its own' if doubled else ''


def host_and_port(address: str) -> Tuple[str, int]:
    """The parts of an address, without brackets."""
    host, _, port = address.rpartition(':')
    return host.strip('[]'), int(port)


def name_of(addresses: Sequence[str], number: int) -> str:
    """The number and the address of a worker, for messages."""
    return f'worker {number} ({addresses[number]})'


def channel_port(addresses: Sequence[str]) -> int:
    """The port of the first worker for `channel`, beside its TensorFlow port.

    It is the next higher port that no worker has, so that several workers may share a machine.
    """
    first, ports = host_and_port(addresses[0])[1], {host_and_port(each)[1] for each in addresses}
    others = [*range(first + 1, _LARGEST_PORT + 1), *range(first - 1, 0, -1)]
    return next(port for port in others if port not in ports)


def flags_of(tf_config: str) -> Dict[str, Any]:
    """The flags equivalent to a value of TF_CONFIG: `worker_hosts` and `task_index`; none for one machine.

    Raises:
      ValueError: the value cannot be used. The message is for the user, and names TF_CONFIG.
    """
    try:
        return from_json(tf_config, _flags) if tf_config.strip() else {}
    except ValueError as error:
        is_unquoted = '{' in tf_config and '"' not in tf_config
        hint = ' JSON has double quotes; in a shell, put the value into single quotes.' if is_unquoted else ''
        raise ValueError(
            f'TF_CONFIG={shown(tf_config)}: {error}.{hint} Set "cluster" with lists of HOST:PORT for worker, and for '
            'chief if there is one, and "task" with the type and index of this machine; or unset it, and use '
            '--worker_hosts.'
        )


def _flags(values: Any) -> Dict[str, Any]:
    if not isinstance(values, dict):
        raise ValueError('it is not a JSON object')
    cluster, task = values.get('cluster') or {}, values.get('task') or {}
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        raise ValueError('"cluster" and "task" must be JSON objects')
    for name in (*values, *task):
        if name.lower() in _KEYS and name not in _KEYS:
            # Otherwise, each of several machines would train alone.
            raise ValueError(f'"{name}" must be written "{name.lower()}"')
    # Programs in Go write an empty list as null.
    cluster = {name: listed for name, listed in cluster.items() if listed not in (None, [])}
    kind, index = task.get('type'), task.get('index', 0)
    if type(index) is str and index.strip().isdigit():
        # Shell scripts write a string.
        index = int(index)
    this_machine = f'"task" is {shown(json.dumps(kind))} {shown(json.dumps(index))}' if kind else '"task" has no type'
    for name in [*cluster, kind]:
        if type(name) is str and name in _INSTEAD:
            raise ValueError(f'{name}: {_INSTEAD[name]}')
    if 'sparseCluster' in values:
        raise ValueError('"sparseCluster" names no other workers; switch off dynamic workers (enableDynamicWorker)')
    for name in (*_KINDS, *_INSTEAD):
        if name in values:
            raise ValueError(f'"{name}" must be inside "cluster"')
    if not cluster:
        if values.get('cluster'):
            raise ValueError('"cluster" names no machine')
        if index != 0 or kind not in (None, *_KINDS):
            # Otherwise, each of several machines would train alone.
            raise ValueError(f'there is no "cluster", but {this_machine}')
        return {}
    tasks = [(name, number, address) for name in _KINDS for number, address in enumerate(_listed(cluster, name))]
    unknown = sorted({*cluster} - {*_KINDS})
    if unknown:
        raise ValueError(f'"cluster" has unknown tasks: {shown(", ".join(unknown))}')
    addresses = [address for _, _, address in tasks]
    if problem_with(addresses):
        raise ValueError(problem_with(addresses))
    place = next((n for n, (name, number, _) in enumerate(tasks) if (name, number) == (kind, index)), None)
    if place is None or type(index) is not int:
        names = ', '.join(f'{name} {number}' for name, number, _ in tasks)
        raise ValueError(f'{this_machine}, and "cluster" has {shown(names)}')
    if len(addresses) == 1:
        return {}
    return {'worker_hosts': ','.join(addresses), 'task_index': place}


def _listed(cluster: Dict[str, Any], name: str) -> List[str]:
    listed = cluster.get(name, [])
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise ValueError(f'"{name}" must be a list of addresses')
    if name == 'chief' and len(listed) > 1:
        raise ValueError('"chief" must be one machine')
    return listed
