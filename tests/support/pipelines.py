"""Batches of the input pipeline."""

from typing import Any, List, Tuple

import numpy as np

from compat import tf
from inception_v3.config import Config
from inception_v3.input_pipeline import InputPipeline
from tests.support.graphs import plain_session

Batch = Tuple[np.ndarray, np.ndarray]


def read(config: Config, is_training: bool, batch_size: int, batches: int = -1, **params: Any) -> List[Batch]:
    """Returns the first batches of a pipeline, or all of them by default."""
    result: List[Batch] = []
    with tf.Graph().as_default(), plain_session() as session:
        dataset = InputPipeline(is_training, config)({'batch_size': batch_size, **params})
        batch = tf.data.make_one_shot_iterator(dataset).get_next()
        while len(result) != batches:
            try:
                result.append(session.run(batch))
            except tf.errors.OutOfRangeError:
                break
    return result


def labels_of(batches: List[Batch]) -> List[int]:
    return [int(label) for _, labels in batches for label in labels]


class Host:
    """The part of TPUEstimator's context from which an input pipeline gets its host's index and the number of hosts."""

    def __init__(self, index: int, hosts: int):
        self._share = index, hosts

    def current_input_fn_deployment(self) -> Tuple[str, int, int, int]:
        return ('', *self._share, 8)
