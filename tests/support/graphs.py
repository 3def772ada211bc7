"""Values of tensors in TensorFlow 1 graphs."""

import functools
from typing import Any, Callable, List, Optional, Tuple

from compat import tf

# Data sets whose operations have another type in TensorFlow 2.15.
_TYPES_IN_1_15 = {
    'LegacyParallelInterleaveDatasetV2': 'ParallelInterleaveDataset',
    'ParallelMapDatasetV2': 'ParallelMapDataset',
}


def type_in_1_15(operation_type: str) -> str:
    """Returns the type that an operation has in TensorFlow 1.15."""
    return _TYPES_IN_1_15.get(operation_type, operation_type)


def plain_session() -> tf.Session:
    """A session without TensorFlow's graph optimizations: in a large graph they cost more than a few runs."""
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return tf.Session(config=config)


def evaluate(*tensors: Any) -> Any:
    """Returns the values of tensors of the current graph, after initializing its variables."""
    with plain_session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        values = session.run(tensors)
    return values[0] if len(tensors) == 1 else values


@functools.lru_cache(maxsize=None)
def fed(build: Callable[..., Any], *inputs: Tuple[tf.DType, Tuple[Optional[int], ...]]) -> Callable[..., Any]:
    """Turns a function of tensors into a function of values; its graph is built once for all tests of a process.

    Args:
      build: a function of tensors; its results may depend on nothing else, for example not on a test's patches.
      inputs: the type and shape of each tensor; a string scalar by default.
    """
    with tf.Graph().as_default():
        values = [tf.placeholder(dtype, shape) for dtype, shape in inputs or [(tf.string, ())]]
        return plain_session().make_callable(build(*values), values)


def draw_many(tensors: Any, count: int) -> List[Any]:
    """Returns the values of tensors in `count` runs of one session."""
    with plain_session() as session:
        return [session.run(tensors) for _ in range(count)]


def in_new_graph(build: Callable[..., Any], count: int, *arguments: Any) -> List[Any]:
    """Runs `draw_many` in a new graph with a fixed seed, so that equal graphs draw equal numbers."""
    with tf.Graph().as_default():
        tf.set_random_seed(5)
        return draw_many(build(*arguments), count)
