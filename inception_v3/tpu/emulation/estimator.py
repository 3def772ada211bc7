"""A TPUEstimator whose TPU is emulated."""

import contextlib
from typing import Any, Dict, Iterator, Optional

from console.messages import counted
from console.tensorflow_versions import tf
from inception_v3.tpu.emulation.cores import EmulatedCores
from inception_v3.tpu.emulation.system import TPU_JOB, fixed_topology
from inception_v3.tpu.supported import python_flaws, refuse
from inception_v3.tpu.topology import Topology


def notice(topology: Topology) -> str:
    """The notice that a run shows when its TPU is emulated."""
    cores, hosts = counted(topology.cores, 'core'), counted(topology.hosts, 'host')
    return f"""THE TPU IS EMULATED: {cores} on {hosts}, as virtual devices of this CPU.
  as on a TPU: TPUEstimator's program, infeed and outfeed, host calls, --iterations steps per loop,
    sums over cores, and a copy of the variables for each core, of which the first core's is kept
  not as on a TPU: speed, memory, XLA and its arithmetic (a CPU multiplies bfloat16 in float32)"""


class EmulatedTPUEstimator(tf.estimator.tpu.TPUEstimator):
    """A TPUEstimator that trains and evaluates on a TPU emulated by this machine's CPU.

    The `RunConfig` has no address; the emulated devices and their job are added to it.
    """

    def __init__(self, topology: Topology, config: Any, **arguments: Any):
        self._topology = topology
        self._cores: Optional[EmulatedCores] = None
        session_config = tf.ConfigProto()
        session_config.CopyFrom(config.session_config)
        session_config.device_count['CPU'] = topology.devices
        # Optimizing a graph that has a copy for each core would take minutes, and save seconds.
        session_config.graph_options.rewrite_options.disable_meta_optimizer = True
        tpu_config = config.tpu_config._replace(tpu_job_name=TPU_JOB)
        super().__init__(config=config.replace(session_config=session_config, tpu_config=tpu_config), **arguments)

    @staticmethod
    def _assert_members_are_not_overridden(estimator: Any) -> None:
        """Allows this subclass to override `train` and `evaluate`, which Estimator forbids."""

    @contextlib.contextmanager
    def _emulating(self) -> Iterator[None]:
        self._cores = EmulatedCores(self._topology, self._session_config)
        try:
            with fixed_topology(self._topology), self._cores.in_place_of_a_tpu():
                yield
        finally:
            self._cores = None

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As `TPUEstimator.train`."""
        with self._emulating():
            return super().train(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        """As `TPUEstimator.evaluate`."""
        with self._emulating():
            return super().evaluate(*args, **kwargs)

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        # TPUEstimator builds the input pipelines in this call, too. An export is built for the CPU, without these
        # devices.
        with tf.device(self._cores.device_of if self._cores else None):
            specification = super()._call_model_fn(features, labels, mode, config)
        if self._cores:
            refuse(python_flaws(tf.get_default_graph()), 'Python in a graph')
        return specification
