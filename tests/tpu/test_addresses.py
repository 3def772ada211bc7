"""Tests of the TPU of this machine and of TPUs that are looked up: refusals, and the placement of graphs."""

import dataclasses
import pathlib
import socket
import sys
import time
from typing import Any, Dict, List, Set, Tuple

import pytest
from tensorflow.python.client.session import _DeviceAttributes
from tensorflow.python.framework import kernels

from compat import tf
from compat.errors import FIX, RETRY, CommandError, RetryableError
from inception_v3 import seeding, train_and_evaluate
from inception_v3.config import Config
from inception_v3.estimator import make_estimator
from inception_v3.tpu import addresses
from inception_v3.tpu.addresses import check_answers, check_local
from inception_v3.tpu.emulation import fixed_topology
from inception_v3.tpu.topology import CLOUD_TPUS, Topology
from tests.support.runs import execute, make_small_config

IS_2 = not tf.__version__.startswith('1.')
of_2 = pytest.mark.skipif(not IS_2, reason='TensorFlow 1.15 knows no TPU VMs')
SESSION_CONFIG = seeding.session_config(Config())
NAMED = Config(use_tpu=True, tpu='mine', tpu_zone='z', gcp_project='p', model_dir='gs://b/m', data_dir='gs://b/d')


@pytest.fixture
def device(tmp_path: pathlib.Path, monkeypatch: Any) -> str:
    """A stand-in for the device of a TPU's first chip."""
    (tmp_path / 'accel0').touch()
    monkeypatch.setattr(addresses, '_DEVICES', str(tmp_path / 'accel[0-9]*'))
    monkeypatch.delenv('TPU_LOAD_LIBRARY', raising=False)
    return str(tmp_path / 'accel0')


def with_devices(patch: Any, *kinds: str) -> None:
    """Makes sessions list devices of these kinds."""
    listed = [_DeviceAttributes(f'/device:{kind}:0', kind, 0, 0) for kind in kinds]
    patch.setattr(tf.Session, 'list_devices', lambda self: listed)


def found_at(machines: List[str], patch: Any, state: str = 'READY') -> List[str]:
    """Answers each lookup of a TPU with its machines; returns a list that gets the name, zone and project of each."""
    requested: List[str] = []
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver

    def look_up(self: Any) -> Any:
        requested.extend(tf.compat.as_str(value) for value in (self._tpu, self._zone, self._project))
        endpoints = [{'ipAddress': machine, 'port': 8470} for machine in machines]
        return {'state': state, 'health': 'HEALTHY', 'networkEndpoints': endpoints}

    # The resolver of 1.15 looks TPUs up itself; the resolver of 2.15 uses a client.
    name = '_fetch_cloud_tpu_metadata'
    owner = resolver if hasattr(resolver, name) else sys.modules[resolver.__module__].client.Client
    patch.setattr(owner, name, look_up)
    return requested


def refusal(cores: int = 8) -> CommandError:
    with pytest.raises(CommandError) as error:
        check_local(cores, SESSION_CONFIG)
    return error.value


def test_local__of_1_15_or_without_a_tpu_is_refused_at_once(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    # A folder for other manufacturers' accelerators.
    (tmp_path / 'accel').mkdir()
    monkeypatch.setattr(addresses, '_DEVICES', str(tmp_path / 'accel[0-9]*'))
    config = Config(use_tpu=True, tpu='local', model_dir='m')
    monkeypatch.setattr(addresses.time, 'sleep', lambda seconds: pytest.fail('it waits'))
    with pytest.raises(CommandError) as error:
        make_estimator(config)
    assert error.value.exit_code == FIX
    expected = 'this machine has no TPU: there is no ' if IS_2 else 'TensorFlow 1.15.5 cannot use the TPU of its'
    assert str(error.value).startswith(f'--tpu=local: {expected}')
    assert ('./run --tf=image' in str(error.value)) != IS_2


@of_2
def test_local__of_a_tensorflow_without_tpu_support_is_refused(device: str) -> None:
    error = refusal()
    assert error.exit_code == FIX
    assert 'is built without TPU support' in str(error) and './run --tf=image' in str(error)


@of_2
def test_local__that_another_process_uses_may_be_retried(device: str, monkeypatch: Any) -> None:
    # Any operation with kernels, in place of the operation that starts a TPU.
    monkeypatch.setattr(addresses, '_STARTS_TPU', 'Add')
    assert kernels.get_registered_kernels_for_op('Add').kernel
    error = refusal()
    assert isinstance(error, RetryableError) and error.exit_code == RETRY
    assert f'finds no cores of the TPU at {device}' in str(error) and f'fuser -v {device}' in str(error)
    monkeypatch.setenv('TPU_LOAD_LIBRARY', '0')
    error = refusal()
    assert error.exit_code == FIX and 'TPU_LOAD_LIBRARY=0 in the environment' in str(error)


@of_2
def test_local__has_the_cores_of_the_run(device: str, monkeypatch: Any) -> None:
    with_devices(monkeypatch, 'CPU', 'TPU_SYSTEM', *['TPU'] * 8)
    check_local(8, SESSION_CONFIG)
    with_devices(monkeypatch, 'CPU', 'TPU_SYSTEM', *['TPU'] * 4)
    assert 'this machine has 4 cores, and the run expects 8' in str(refusal())


class BuiltError(Exception):
    """Ends training."""


class Stop(tf.estimator.SessionRunHook):
    """Keeps the graph, and ends training before it starts a session."""

    graph: tf.Graph

    def begin(self) -> None:
        self.graph = tf.get_default_graph()
        raise BuiltError


def feeding(tpu: str, topology: Topology, model_dir: pathlib.Path, patch: Any) -> Tuple[Any, Dict[str, Set[int]]]:
    """The estimator's configuration, and the cores that each host feeds in the graph of training, by its device."""
    # The local folder stands for a folder in a bucket.
    patch.setattr('inception_v3.tpu.topology.unreachable_folders', lambda *arguments, **folders: [])
    batches = {'num_shards': topology.cores, 'train_batch_size': topology.cores, 'eval_batch_size': topology.cores}
    config = make_small_config(
        '', use_tpu=True, tpu=tpu, tpu_zone='z', gcp_project='p', model_dir=str(model_dir), **batches
    )
    estimator = make_estimator(config)
    stop = Stop()
    with fixed_topology(topology), pytest.raises(BuiltError):
        estimator.train(images, hooks=[stop], max_steps=1)
    found: Dict[str, Set[int]] = {}
    for operation in stop.graph.get_operations():
        if operation.type == 'InfeedEnqueueTuple':
            found.setdefault(operation.device, set()).add(operation.get_attr('device_ordinal'))
    return estimator.config, found


def images(params: Dict[str, Any]) -> tf.data.Dataset:
    size = params['batch_size']
    return tf.data.Dataset.from_tensors((tf.zeros([size, 75, 75, 3]), tf.zeros([size], tf.int32))).repeat()


@of_2
@pytest.mark.parametrize('tpu', ['local', 'mine'])
def test_local__graph_is_placed_in_this_process(
    one_layer: None, device: str, tmp_path: pathlib.Path, monkeypatch: Any, tpu: str
) -> None:
    with_devices(monkeypatch, *['TPU'] * 8)
    # A lookup by name finds the one machine of a TPU VM.
    requested = found_at(['127.0.0.1'], monkeypatch)
    config, found = feeding(tpu, CLOUD_TPUS['v2-8'], tmp_path, monkeypatch)
    assert requested[:3] == ([] if tpu == 'local' else ['mine', 'z', 'p'])
    assert (config.master, config.evaluation_master) == ('', '')
    assert found == {'/replica:0/task:0/device:CPU:0': {*range(8)}}


def test_slice__each_machine_feeds_its_own_cores(one_layer: None, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    machines = ['10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5']
    requested = found_at(machines, monkeypatch)
    config, found = feeding('mine', CLOUD_TPUS['v2-32'], tmp_path, monkeypatch)
    assert requested[:3] == ['mine', 'z', 'p']
    assert config.master == 'grpc://10.0.0.2:8470'
    assert config.cluster_spec.as_dict() == {'worker': [f'{machine}:8470' for machine in machines]}
    assert found == {f'/job:worker/task:{host}/device:CPU:0': {*range(8)} for host in range(4)}


@pytest.mark.parametrize(
    ('tpu', 'machines', 'knows_vms'),
    [
        ('grpc://127.0.0.1:8470', [], True),
        ('mine', ['127.0.0.1', '10.0.0.3'], True),
        ('mine', ['192.0.2.1'], True),
        ('mine', ['127.0.0.1'], False),
    ],
)
def test_name__of_a_tpu_with_servers_needs_none_in_this_process(
    tpu: str, machines: List[str], knows_vms: bool, monkeypatch: Any
) -> None:
    found_at(machines, monkeypatch)
    monkeypatch.setattr(addresses, 'knows_tpu_vms', lambda: knows_vms)
    found = addresses.resolver_of(tpu, 'z', 'p', 8, SESSION_CONFIG)
    assert tf.compat.as_str(found.master()) == (f'grpc://{machines[0]}:8470' if machines else tpu)


@of_2
def test_slice__leaves_this_machines_tpu_to_its_server(device: str, monkeypatch: Any) -> None:
    found_at(['10.0.0.2', '10.0.0.3'], monkeypatch)
    config = dataclasses.replace(NAMED, num_shards=16)
    with pytest.raises(CommandError, match='a slice of 2 machines, of which this is one: start the run with TPU_LOAD'):
        make_estimator(config)
    monkeypatch.setenv('TPU_LOAD_LIBRARY', '0')
    assert make_estimator(config).config.master == 'grpc://10.0.0.2:8470'


def test_name__that_is_not_ready_may_be_retried(monkeypatch: Any) -> None:
    found_at(['10.0.0.2'], monkeypatch, state='CREATING')
    with pytest.raises(RetryableError, match='--tpu=mine: TPU "mine" is not yet ready; state: "CREATING"'):
        make_estimator(NAMED)


@pytest.mark.parametrize(
    ('error', 'message'),
    [
        (ImportError('googleapiclient'), "not installed. Install them with pip install '.\\[tpu\\]'"),
        (RuntimeError('Missing runtime dependency on the Google API client.'), 'packages .* are not installed'),
        (OSError('no route'), 'cannot be looked up; outside of Google Cloud, give --tpu_zone .*. no route'),
        # Errors of Google's packages have types of their own.
        (type('OfGoogle', (Exception,), {})('no credentials'), 'cannot be looked up; .* no credentials'),
    ],
)
def test_name__that_cannot_be_looked_up_is_refused(monkeypatch: Any, error: Exception, message: str) -> None:
    def fail(self: Any, *arguments: Any, **named: Any) -> None:
        raise error

    monkeypatch.setattr(tf.distribute.cluster_resolver.TPUClusterResolver, 'master', fail)
    with pytest.raises(CommandError, match=message) as raised:
        make_estimator(NAMED)
    assert raised.value.exit_code == FIX


def test_answers__a_run_does_not_wait_for_a_server(digits_dir: str, tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(time, 'sleep', lambda seconds: None)
    make = train_and_evaluate.make_estimator

    def elsewhere(*arguments: Any, **named: Any) -> Any:
        estimator = make(*arguments, **named)
        estimator._config._master = 'grpc://127.0.0.1:1'
        return estimator

    monkeypatch.setattr(train_and_evaluate, 'make_estimator', elsewhere)
    with pytest.raises(RetryableError, match=r'grpc://127.0.0.1:1: no TensorFlow server of a TPU answers'):
        execute(make_small_config(digits_dir, model_dir=str(tmp_path), train_steps=1))


def test_answers__a_server_that_does_not_listen_is_named(monkeypatch: Any) -> None:
    pauses: List[float] = []
    monkeypatch.setattr(time, 'sleep', pauses.append)
    check_answers('')
    with socket.socket() as server:
        server.bind(('127.0.0.1', 0))
        address = f'grpc://127.0.0.1:{server.getsockname()[1]}'
        with pytest.raises(RetryableError, match=f'{address}: no TensorFlow server .*: Connection refused'):
            check_answers(address)
        assert pauses == [0, 5, 5]
        server.listen()
        check_answers(address)


def test_check_local__names_the_image_for_a_tensorflow_without_tpu_vms(monkeypatch: Any) -> None:
    monkeypatch.setattr(addresses, 'knows_tpu_vms', lambda: False)
    with pytest.raises(CommandError, match=r'--tpu=local: TensorFlow \S+ cannot use the TPU .* ./run --tf=image'):
        check_local(8, SESSION_CONFIG)


def test_is_this_machine__can_bind_its_own_addresses_alone() -> None:
    # The second address belongs to a network for documentation (RFC 5737).
    assert addresses._is_this_machine('127.0.0.1:8470') and not addresses._is_this_machine('192.0.2.1:8470')
    # As for an unknown name, the system finds no IPv4 address, but asks no other machine.
    assert not addresses._is_this_machine('::1:8470')
