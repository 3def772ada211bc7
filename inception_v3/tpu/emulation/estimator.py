"""A TPUEstimator whose TPU is emulated."""

import contextlib
from typing import Any, Dict, Iterator, Optional

import tensorflow as tf

from inception_v3.tpu.emulation.cores import EmulatedCores
from inception_v3.tpu.emulation.system import TPU_JOB, answering_as
from inception_v3.tpu.topology import Topology


def notice(topology: Topology) -> str:
    """What a user is to know of results that an emulated TPU gave."""
    cores, hosts = (
        f'{count} {noun}{"" if count == 1 else "s"}'
        for count, noun in ((topology.cores, 'core'), (topology.hosts, 'host'))
    )
    return '\n'.join(
        [
            f'THE TPU IS EMULATED: {cores} on {hosts}, devices of the CPU here.',
            "  as on a TPU: TPUEstimator's program, infeed and outfeed, host calls, --iterations steps between visits",
            "    of the host, sums over cores, variables of each core's own, of which the first core's are kept",
            '  not as on a TPU: speed, memory, XLA and its arithmetic (a CPU multiplies bfloat16 in float32)',
        ]
    )


class EmulatedTPUEstimator(tf.compat.v1.estimator.tpu.TPUEstimator):
    """A TPUEstimator that trains and evaluates on a TPU which the CPU of this machine emulates.

    Args:
      topology: the TPU.
      config: the `RunConfig`, without an address; the emulated devices and job are added to it.
      **arguments: the others of TPUEstimator.
    """

    def __init__(self, topology: Topology, config: Any, **arguments: Any):
        self._topology = topology
        self._cores: Optional[EmulatedCores] = None
        session_config = tf.compat.v1.ConfigProto()
        session_config.CopyFrom(config.session_config)
        session_config.device_count['CPU'] = topology.devices
        # Optimizing a graph of so many copies would take minutes, and save seconds.
        session_config.graph_options.rewrite_options.disable_meta_optimizer = True
        tpu_config = config.tpu_config._replace(tpu_job_name=TPU_JOB)
        super().__init__(config=config.replace(session_config=session_config, tpu_config=tpu_config), **arguments)

    @staticmethod
    def _assert_members_are_not_overridden(estimator: Any) -> None:
        """Lets `train` and `evaluate` be extended here, which Estimator refuses its users."""

    @contextlib.contextmanager
    def _emulating(self) -> Iterator[None]:
        self._cores = EmulatedCores(self._topology)
        try:
            with answering_as(self._topology), self._cores.in_place_of_a_tpu():
                yield
        finally:
            self._cores = None

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As TPUEstimator's."""
        with self._emulating():
            return super().train(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        """As TPUEstimator's."""
        with self._emulating():
            return super().evaluate(*args, **kwargs)

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        # For a TPU, the input pipelines are built in here, too; an export, which is not for a TPU, as ever.
        with tf.device(self._cores.device_of if self._cores else None):
            return super()._call_model_fn(features, labels, mode, config)
