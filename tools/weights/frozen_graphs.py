"""Reads the constants of a frozen graph: a GraphDef whose variables were replaced by their values."""

from typing import Dict

import numpy as np

from compat import tf
from inception_v3.weights.sources import check_memory


def constants_in(content: bytes) -> Dict[str, np.ndarray]:
    """The constants of floating-point numbers by the names of their nodes.

    Raises any error if it is not a graph or is damaged; ValueError if its tensors need far more memory than its file.
    """
    graph = tf.GraphDef()
    graph.ParseFromString(content)
    tensors = {
        node.name: node.attr['value'].tensor
        for node in graph.node
        if node.op == 'Const' and node.attr['value'].tensor.dtype == tf.float32.as_datatype_enum
    }
    needed = 0
    for tensor in tensors.values():
        # A tensor of one value may claim any shape.
        values = 1
        for dim in tensor.tensor_shape.dim:
            values *= dim.size
        needed += 4 * abs(values)
        check_memory(needed, len(content))
    return {name: tf.make_ndarray(tensor) for name, tensor in tensors.items()}
