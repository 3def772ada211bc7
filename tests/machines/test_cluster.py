"""TF_CONFIG and the addresses of workers."""

import json
from typing import Any, Optional

import pytest

from inception_v3 import flags
from inception_v3.config import ConfigError
from inception_v3.machines import cluster

A, B, C = 'a.svc:2222', '10.0.0.5:2222', '[fe80::1]:2222'


def tf_config(kind: Any, index: Any, **tasks: Any) -> str:
    return json.dumps({'cluster': tasks, 'task': {'type': kind, 'index': index}, 'environment': 'cloud'})


@pytest.mark.parametrize(
    ('value', 'hosts', 'index'),
    [
        (tf_config('worker', 1, worker=[A, B]), f'{A},{B}', 1),
        (tf_config('chief', 0, worker=[B, C], chief=[A]), f'{A},{B},{C}', 0),
        (tf_config('worker', 1, worker=[B, C], chief=[A]), f'{A},{B},{C}', 2),
        # Vertex AI adds the job, and more keys to the task.
        (
            f'{{"cluster": {{"chief": ["{A}"], "worker": ["{B}"]}}, "environment": "cloud", "job": "{{}}",'
            ' "task": {"type": "worker", "index": 0, "cloud": "c1", "trial": ""}}',
            f'{A},{B}',
            1,
        ),
        # Shell scripts write the index as a string.
        (tf_config('worker', '1', worker=[A, B]), f'{A},{B}', 1),
        (tf_config('worker', ' 1', worker=[A, B]), f'{A},{B}', 1),
        # Programs in Go write an empty list as null.
        (tf_config('worker', 1, worker=[A, B], chief=None, ps=[]), f'{A},{B}', 1),
        # The ends of the range of ports.
        (tf_config('worker', 0, worker=['a:1', 'b:65535']), 'a:1,b:65535', 0),
        # One machine.
        (tf_config('chief', 0, chief=[A]), None, None),
        (tf_config('worker', 0), None, None),
        ('{}', None, None),
        ('', None, None),
        (' ', None, None),
    ],
)
def test_flags_of__chief_is_the_first_worker(value: str, hosts: Optional[str], index: Optional[int]) -> None:
    expected = {'worker_hosts': hosts, 'task_index': index} if hosts else {}
    assert cluster.flags_of(value) == expected


@pytest.mark.parametrize(
    ('value', 'problem'),
    [
        ('{"cluster"', r'\(char 10\). Set'),
        ("{'cluster': {}}", 'into single quotes'),
        ('{cluster: {}}', 'into single quotes'),
        ('[1]', 'not a JSON object'),
        ('{"cluster": 3}', 'must be JSON objects'),
        (tf_config('worker', 0, worker=[A, B], ps=[C]), 'ps: this program has no parameter servers'),
        (tf_config('ps', 0, worker=[A, B]), 'ps: '),
        (tf_config('evaluator', 0, worker=[A, B]), 'evaluator: the workers evaluate .*--mode=eval'),
        (tf_config('evaluator', 0), 'evaluator: '),
        # The form of Kubeflow's TFJobs with enableDynamicWorker.
        ('{"sparseCluster": {"worker": {"0": "a:2222"}}, "task": {"type": "worker"}}', 'enableDynamicWorker'),
        (tf_config('worker', 0, worker={'0': A}), '"worker" must be a list'),
        (tf_config('master', 0, master=[A], worker=[B]), 'master: name it chief'),
        (tf_config('worker', 0, workers=[A, B]), 'unknown tasks: workers'),
        (tf_config('worker', 0, worker=A), '"worker" must be a list'),
        (tf_config('worker', 0, worker=[A, 3]), '"worker" must be a list'),
        (tf_config('worker', 0, worker=[A], chief=[B, C]), '"chief" must be one machine'),
        (tf_config('worker', 2, worker=[A, B]), '"task" is "worker" 2, and "cluster" has worker 0, worker 1'),
        (tf_config('worker', True, worker=[A, B]), '"task" is "worker" true, and'),
        (tf_config('worker', '', worker=[A, B]), '"task" is "worker" "", and'),
        (tf_config('worker', None, worker=[A, B]), '"task" is "worker" null, and'),
        (tf_config(['worker'], 0, worker=[A, B]), r'"task" is \["worker"\] 0, and'),
        (json.dumps({'cluster': {'worker': [A, B]}}), '"task" has no type, and "cluster" has worker 0, worker 1'),
        # If these were accepted, each of several machines would train alone.
        (json.dumps({'Cluster': {'worker': [A, B]}, 'task': {'index': 1}}), '"Cluster" must be written "cluster"'),
        (json.dumps({'TASK': {'type': 'worker', 'index': 1}}), '"TASK" must be written "task"'),
        (json.dumps({'task': {'type': 'worker', 'Index': 1}}), '"Index" must be written "index"'),
        (tf_config('worker', 0, worker=[]), '"cluster" names no machine'),
        (tf_config('worker', 1), 'there is no "cluster", but "task" is "worker" 1'),
        (tf_config('trainer', 0), 'there is no "cluster", but "task" is "trainer" 0'),
        (json.dumps({'worker': [A, B], 'task': {'type': 'worker', 'index': 0}}), '"worker" must be inside "cluster"'),
        (tf_config('worker', 0, worker=['a:1', 'A:1']), 'a:1 is the address of two workers'),
        (tf_config('worker', 0, worker=[A, A]), 'is the address of two workers'),
        (tf_config('worker', 0, worker=[A, 'b']), '"b" is not an address HOST:PORT'),
        (tf_config('worker', 0, worker=[A, 'b:0']), '"b:0" is not an address'),
        (tf_config('worker', 0, worker=[A, '10.0.0..5:1']), '"10.0.0..5:1" is not an address'),
        (tf_config('worker', 0, worker=[A, f'{"b" * 64}:1']), 'bb:1" is not an address'),
        (tf_config('worker', 0, worker=[A, 'b:65536']), '"b:65536" is not an address'),
        (tf_config('worker', 0, worker=[A, 'grpc://b:1']), 'is not an address'),
        (tf_config('worker', 0, worker=[A, 'b:1\nx']), r'"b:1\\nx" is not an address'),
    ],
)
def test_flags_of__refuses_what_it_cannot_use(value: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f'^TF_CONFIG=.*: .*{problem}.*unset it, and use --worker_hosts') as info:
        cluster.flags_of(value)
    assert '\n' not in str(info.value)


@pytest.mark.parametrize(
    ('addresses', 'port'),
    [(['a:2222', 'b:2222'], 2223), (['a:2222', 'a:2223'], 2224), (['a:65535', 'b:1'], 65534)],
)
def test_channel_port__is_next_to_the_first_workers_and_no_ones(addresses: Any, port: int) -> None:
    assert cluster.channel_port(addresses) == port


def test_host_and_port__leaves_out_brackets() -> None:
    assert cluster.host_and_port(C) == ('fe80::1', 2222)


def test_parse__tf_config_stands_for_flags() -> None:
    of_environment = tf_config('worker', 1, worker=[A, B])
    config = flags.parse(['main', '--num_gpus=2'], tf_config=of_environment).config
    assert (config.worker_hosts, config.task_index, config.use_tpu) == (f'{A},{B}', 1, False)
    assert (config.machines, config.is_first, config.replicas) == (2, False, 4)
    given = flags.parse(['main', f'--worker_hosts={A},{B}', '--task_index=1', '--num_gpus=2'], tf_config='')
    assert given.config == config
    assert flags.parse(['main'], tf_config='').config.is_first
    # For other commands, TF_CONFIG belongs to a run beside them; but flags for several machines are refused.
    with pytest.raises(ConfigError, match='--worker_hosts: only training runs on several machines'):
        flags.parse(['main', f'--worker_hosts={A},{B}', '--task_index=1'])


@pytest.mark.parametrize(
    'arguments',
    [
        '--learning_rate=-1',
        '--learning_rate=x --num_gpus 2',
        '--no_such_flag --nomoving_average stray',
        '--worker_timeout=x',
        '--worker_timeout=0',
    ],
)
def test_place_of__is_known_although_other_flags_are_wrong(arguments: str) -> None:
    with pytest.raises(ConfigError):
        flags.parse(['main', f'--worker_hosts={A},{B}', '--task_index=1', *arguments.split()], tf_config='')
    place = cluster.Place((A, B), 1, 60)
    own = ['--worker_hosts', f'{A},{B}', '--task_index=1']
    assert flags.place_of(['main', *arguments.split(), *own], '') == place
    assert flags.place_of(['main', *arguments.split()], tf_config('worker', 1, worker=[A, B])) == place
    # Flags override TF_CONFIG.
    assert flags.place_of(['main', *arguments.split(), *own], tf_config('worker', 0, worker=[B, A])) == place


def test_place_of__reads_the_timeout_and_flag_files(tmp_path: Any) -> None:
    (tmp_path / 'flags').write_text(f'--worker_hosts={A},{B}\n--worker_timeout=5\n')
    flag_file = f'--flagfile={tmp_path}/flags'
    for number in (['--task_index=0'], ['--task_index', '0']):
        assert flags.place_of(['main', *number, flag_file], '') == ((A, B), 0, 5)
    # Values that are refused afterwards.
    for value in ('1', '99999999999', 'long'):
        own = [flag_file, '--task_index=0', f'--worker_timeout={value}']
        assert flags.place_of(['main', *own], '') == ((A, B), 0, 60)


@pytest.mark.parametrize(
    'arguments',
    [
        '',
        f'--worker_hosts={A},{B}',
        f'--worker_hosts={A},{B} --task_index=2',
        f'--worker_hosts={A},{B} --task_index=-1',
        f'--worker_hosts={A},{B} --task_index=x',
        f'--worker_hosts={A} --task_index=0',
        f'--worker_hosts={A},b --task_index=0',
        f'--worker_hosts={A},{B} --task_index=0 --helpshort',
        f'--worker_hosts={A},{B} --task_index=0 --flagfile=/no/such',
    ],
)
def test_place_of__is_none_without_addresses_and_a_number(arguments: str) -> None:
    assert flags.place_of(['main', *arguments.split()], '') is None
    assert flags.place_of(['main', *arguments.split()], '{"cluster": {"ps": []}}') is None


@pytest.mark.parametrize(
    ('arguments', 'value', 'message'),
    [
        ('--task_index=0', '', '--task_index=0: needs --worker_hosts'),
        (f'--worker_hosts={A},{B}', '', '--worker_hosts=.*: needs --task_index.* from 0 to 1'),
        (
            f'--worker_hosts={A},{B} --task_index=2',
            '',
            f'^--task_index=2: must be at most 1; --worker_hosts={A},{B} has 2 machines.$',
        ),
        (f'--worker_hosts={A},{B},d:1 --train_batch_size=3 --eval_batch_size=3', '', 'among them, from 0 to 2.$'),
        (f'--worker_hosts={A} --task_index=0', '', 'must be the addresses of at least two machines'),
        (f'--worker_hosts={A},,{B} --task_index=0', '', '"" is not an address HOST:PORT'),
        (f'--worker_hosts={A},{A} --task_index=0', '', 'is the address of two workers'),
        (f'--worker_hosts={A},{B} --task_index=0 --tpu=emulated:8', '', 'is for machines without a TPU'),
        (f'--worker_hosts={A},{B} --task_index=0 --mode=eval', '', 'only in turn with training'),
        (f'--worker_hosts={A},{B} --task_index=0 --skip_host_call=False', '', 'needs --skip_host_call=True'),
        (f'--worker_hosts={A},{B} --task_index=0 --worker_timeout=1', '', '--worker_timeout=1: must be at least 2'),
        (
            f'--worker_hosts={A},{B} --task_index=0 --num_gpus=2 --train_batch_size=6',
            '',
            '--train_batch_size=6: must be a multiple .* on each of 2 machines; the nearest is 8',
        ),
        ('--task_index=0', tf_config('worker', 1, worker=[A, B]), '--task_index=0: TF_CONFIG says 1'),
        ('--tpu=emulated:8', tf_config('worker', 1, worker=[A, B]), 'or TF_CONFIG'),
        ('', tf_config('ps', 0, worker=[A, B]), 'TF_CONFIG=.*no parameter servers'),
    ],
)
def test_parse__refuses_contradictions_about_machines(arguments: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        flags.parse(['main', *arguments.split()], tf_config=value)
