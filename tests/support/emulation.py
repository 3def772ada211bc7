"""Computations on emulated cores."""

from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from compat import tf
from inception_v3.tpu import topology
from inception_v3.tpu.emulation import EmulatedCores


def on_cores(cores: int, computation: Callable[[int], Any], times: int = 1) -> Tuple[List[Any], Dict[str, np.ndarray]]:
    """The results of a computation on each core in the last of `times` runs, and the variables afterwards."""
    emulated = EmulatedCores(topology.emulated(f'emulated:{cores}'))
    with emulated.in_place_of_a_tpu():
        outputs = emulated.replicate(computation)
    with tf.Session(config=tf.ConfigProto(device_count={'CPU': cores + 1})) as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        for _ in range(times):
            results = session.run(outputs)
        return results, session.run({v.op.name: v for v in tf.global_variables()})
