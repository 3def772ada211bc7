"""Replaces TPUEstimator's queries of a TPU, so that its graphs build without one."""

import contextlib
from typing import Any, Iterator, List, Optional
from unittest import mock

from console.tensorflow_names import tpu_system_metadata_type  # isort: skip  Before TensorFlow is loaded.
from tensorflow.python.client.session import _DeviceAttributes
from tensorflow.python.tpu import tpu_system_metadata

from inception_v3.tpu.topology import Topology

# TensorFlow's job name of the hosts and cores of a Cloud TPU.
TPU_JOB = 'tpu_worker'


@contextlib.contextmanager
def fixed_topology(topology: Topology) -> Iterator[None]:
    """Context manager in which TPUEstimator finds a TPU of this topology at any address, without a connection.

    The topology is all that TPUEstimator needs to build a TPU's graph.
    """

    def answer(master_address: str, cluster_def: Optional[Any] = None, query_topology: bool = False) -> Any:
        return tpu_system_metadata_type()(
            num_cores=topology.cores,
            num_hosts=topology.hosts,
            num_of_cores_per_host=topology.cores_per_host,
            topology=None,
            devices=_devices(topology),
        )

    with mock.patch.object(tpu_system_metadata, '_query_tpu_system_metadata', answer):
        yield


def _devices(topology: Topology) -> List[_DeviceAttributes]:
    devices = []
    for host in range(topology.hosts):
        kinds = [('CPU', 0), *(('TPU', core) for core in range(topology.cores_per_host))]
        for kind, number in kinds:
            name = f'/job:{TPU_JOB}/replica:0/task:{host}/device:{kind}:{number}'
            devices.append(_DeviceAttributes(name, kind, memory_limit_bytes=0, incarnation=0))
    return devices
