"""Computations on replicas, on virtual devices of the CPU."""

from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from console.tensorflow_versions import tf
from inception_v3 import distribution, replicas
from inception_v3.config import Config


def strategy_for(number: int) -> tf.distribute.Strategy:
    """The strategy of a run with a number of replicas on the CPU."""
    strategy = distribution.strategy_of(Config(use_tpu=False, accelerator='cpu', num_gpus=number, seed=1))
    assert strategy is not None
    return strategy


def on_replicas(
    number: int, computation: Callable[[], Any], times: int = 1
) -> Tuple[List[Any], Dict[str, List[np.ndarray]]]:
    """The results of a computation on each replica, in the last of `times` runs, and the copies of each variable."""
    strategy = strategy_for(number)
    with strategy.scope():
        found = strategy.extended.call_for_each_replica(computation)
        outputs = [
            tf.nest.map_structure(lambda each, index=index: strategy.experimental_local_results(each)[index], found)
            if isinstance(found, (list, tuple))
            else strategy.experimental_local_results(found)[index]
            for index in range(number)
        ]
        variables = {variable.op.name: replicas.copies(variable) for variable in tf.global_variables()}
        initializers = [tf.global_variables_initializer(), tf.local_variables_initializer()]
    with tf.Session(config=tf.ConfigProto(device_count={'CPU': number})) as session:
        session.run(initializers)
        for _ in range(times):
            results = session.run(outputs)
        return results, session.run(variables)
