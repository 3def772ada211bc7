"""Sums over the replicas of all machines: a MirroredStrategy for each machine's devices, and sums across machines.

Each machine builds the graph of its own replicas, and runs it in a session of its own server. Only sums leave a
machine: the values of its devices are added first; then one collective operation of TensorFlow adds the machines' sums,
for all tensors of a request. TensorFlow's own MultiWorkerMirroredStrategy has one operation for each gradient, uses one
device per machine without GPUs, numbers the replicas of each machine from 0 on 1.15, and adds in the order of a ring.
"""

import atexit
import functools
import itertools
from typing import Any, Dict, List, Sequence

from compat import tf  # isort: skip  Before TensorFlow is loaded.
from tensorflow.python.distribute import mirrored_strategy
from tensorflow.python.ops import collective_ops

from inception_v3.config import Config
from inception_v3.machines import cluster

# Each machine is a separate job with one task, so that its devices have the same names as without other machines.
_JOB = 'worker{}'
# The numbers of the group of all machines, and of its first operation. TensorFlow's strategies count operations from 1.
_GROUP, _FIRST_INSTANCE = 1, 1000
_SUM = tf.distribute.ReduceOp.SUM


# This process's server for a run's machines. It listens until the process ends, because TensorFlow cannot stop it.
# It is freed at exit: if 1.15 frees it after its own modules, it fails with a traceback.
_servers: Dict[str, tf.train.Server] = {}
atexit.register(_servers.clear)


def set_cluster(session: tf.ConfigProto, config: Config) -> None:
    """Adds the settings for sessions of several machines to the configuration of a run's sessions."""
    if config.machines == 1:
        return
    session.experimental.collective_group_leader = f'/job:{_JOB.format(0)}/replica:0/task:0'
    session.device_filters.append(f'/job:{_JOB.format(config.task_index)}')
    # Otherwise evaluation and training, whose sessions have the same server, would share their variables.
    session.isolate_session_state = True


class AcrossMachines(tf.distribute.MirroredStrategy):
    """As MirroredStrategy, over the devices of all machines of a run; `devices` are this machine's.

    With a seed, the machines' sums are added in the order of the machines, as a machine adds the values of its devices;
    otherwise by a ring, or NCCL, which sends fewer bytes. `within` adds the values of this machine.
    """

    def __init__(self, devices: Sequence[str], within: tf.distribute.CrossDeviceOps, config: Config):
        self._addresses = cluster.addresses_in(config.worker_hosts)
        self._number = int(config.task_index or 0)
        added = _Sums(within, len(self._addresses), config.seed is not None)
        extended = _Extended(self, [*devices], added, len(self._addresses), self._number)
        # Not the constructor of MirroredStrategy, which would make the second argument itself.
        tf.distribute.Strategy.__init__(self, extended)

    def server(self, session_config: tf.ConfigProto) -> str:
        """The address of this machine's server for sessions. The first call starts the server."""
        address = self._addresses[self._number]
        if address not in _servers:
            jobs = {_JOB.format(number): [each] for number, each in enumerate(self._addresses)}
            own = _JOB.format(self._number)
            _servers[address] = tf.train.Server(jobs, job_name=own, task_index=0, config=session_config)
        return str(_servers[address].target)


class _Extended(mirrored_strategy.MirroredExtended):
    def __init__(self, strategy: Any, devices: List[str], sums: '_Sums', machines: int, number: int):
        self._machines, self._sums = machines, sums
        self.first_replica = number * len(devices)
        super().__init__(strategy, devices=devices, cross_device_ops=sums)

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._machines * len(self.worker_devices)

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, *options: Any) -> Any:
        # TensorFlow's own method assumes that the value of a machine's only replica is the same on all replicas; on a
        # CPU, 2.x would add values only within this machine.
        return self._sums.reduce(reduce_op, value, destinations, *options)


class _Sums(tf.distribute.CrossDeviceOps):
    """Adds values within this machine with `within`, and across machines with a collective operation."""

    def __init__(self, within: tf.distribute.CrossDeviceOps, machines: int, is_ordered: bool):
        super().__init__()
        self._within = within
        self._machines = machines
        self._is_ordered = is_ordered
        # The graphs of training and evaluation have the same strategy. Each machine builds them in the same order.
        self._instances = itertools.count(_FIRST_INSTANCE)

    @property
    def _num_between_graph_workers(self) -> int:
        # With 1 here, TensorFlow would take this machine's value for the sum.
        return self._machines

    def reduce_implementation(self, reduce_op: Any, value: Any, destinations: Any, *options: Any) -> Any:
        """Reduces a value, with its number of replicas on this machine, to devices of this machine."""
        # Not in a batch: there, 1.15 takes the first copy of a variable for its value.
        local = self._within.reduce(_SUM, value, destinations, *options)
        return self._reduced(reduce_op, [local], [(value, destinations)])[0]

    def batch_reduce_implementation(self, reduce_op: Any, pairs: Any, *options: Any) -> List[Any]:
        """Reduces pairs of values and destinations together."""
        return self._reduced(reduce_op, self._within.batch_reduce(_SUM, pairs, *options), pairs)

    def _reduced(self, reduce_op: Any, local: Sequence[Any], pairs: Any) -> List[Any]:
        """The results over all machines, from the sums on this machine, for pairs of values and destinations."""
        totals = self._across([each.values[0] if hasattr(each, 'values') else each for each in local])
        if reduce_op != _SUM:
            replicas = self._machines * len(pairs[0][0].values)
            totals = [_divided(total, replicas) for total in totals]
        return [self.broadcast(total, destinations) for total, (_, destinations) in zip(totals, pairs)]

    def _across(self, tensors: Sequence[Any]) -> List[tf.Tensor]:
        """The sums of each tensor over the machines, by one operation for all tensors of a type on a device."""
        together: Dict[Any, List[int]] = {}
        for place, tensor in enumerate(tensors):
            together.setdefault((tensor.dtype.base_dtype, tensor.device), []).append(place)
        sums: Dict[int, tf.Tensor] = {}
        for (_, device), places in together.items():
            with tf.device(device):
                values = [tf.convert_to_tensor(tensors[place]) for place in places]
                sizes = [value.shape.num_elements() for value in values]
                flat = self._sum_of(tf.concat([tf.reshape(value, [-1]) for value in values], 0))
                for place, value, part in zip(places, values, tf.split(flat, sizes)):
                    sums[place] = tf.reshape(part, value.shape)
        return [sums[place] for place in range(len(tensors))]

    def _sum_of(self, flat: tf.Tensor) -> tf.Tensor:
        instance = next(self._instances)
        if not self._is_ordered:
            return collective_ops.all_reduce(flat, self._machines, _GROUP, instance, 'Add', 'Id')
        gathered = collective_ops.all_gather(flat[tf.newaxis], self._machines, _GROUP, instance)
        gathered.set_shape([self._machines, *flat.shape.as_list()])
        return functools.reduce(tf.add, tf.unstack(gathered))


def _divided(total: tf.Tensor, replicas: int) -> tf.Tensor:
    with tf.device(total.device):
        return total / tf.cast(replicas, total.dtype)
