"""Observations of the weights that a run begins from, and of those that it trains."""

from typing import Any, Dict, List
from unittest import mock

import numpy as np

from console.tensorflow_versions import tf
from inception_v3 import train_and_evaluate
from inception_v3.config import Config
from inception_v3.weights import sources
from inception_v3.weights.beginning import plan
from inception_v3.weights.sources import AVERAGE, Source
from tests.support.observations.step import trained as trained_values
from tests.support.observations.step import training_step


def read(config: Config, patch: Any) -> str:
    """The path of the weights that a training without a checkpoint reads; empty for none."""
    found = ['']

    def note(path: str) -> Any:
        found[0] = path
        return mock.MagicMock(values={})

    patch.setattr(sources, 'read', note)
    run = train_and_evaluate.Run(config, mock.Mock())
    run._data_set, run._start = None, mock.Mock()
    run._prepare_folder()
    return found[0]


def begun(config: Config, patch: Any) -> Dict[str, float]:
    """The values of two weights that begin from a source, where they are 1 and their averages are 2."""
    network = {'Layer/weights': [1], 'Logits/weights': [1]}
    values = {name: np.ones(1, np.float32) for name in network}
    values[f'Logits/weights{AVERAGE}'] = np.full(1, 2.0, np.float32)
    others = [f'Logits/weights{AVERAGE}']
    loaded = plan(network, others, Source('source', 'npz', values, '', None), config).values
    return {name.replace('/weights', ''): float(value[0]) for name, value in loaded.items()}


def trained(config: Config, patch: Any) -> List[str]:
    """The names of the weights that a step trains."""
    training_step(config)
    return sorted(variable.op.name for variable in tf.trainable_variables())


def step_of_biases(config: Config, patch: Any) -> float:
    """The first update of the bias of the right one of six classes; all logits are 0.

    With 0.75 as the gradient, RMSProp's update is 0.75 / sqrt(0.9 + 0.1 * 0.75 ** 2 + 1) = 0.536 of the learning rate,
    which is 8 / 256 of the flag's.
    """
    ((before, after),) = trained_values(config, 'Logits/biases')
    return round(float((after - before)[0]), 4)
