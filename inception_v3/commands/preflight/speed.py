"""Lower bound of a step's duration: the multiplications of its graph at the peak of a core."""

from typing import Iterable

from console.tensorflow_versions import tf
from inception_v3.commands.preflight.graphs import is_used

# The inputs that hold the filters and the results of a convolution; None: its output.
_FILTERS_AND_RESULTS = {
    'Conv2D': (1, None),
    'Conv2DBackpropInput': (1, 2),
    'Conv2DBackpropFilter': (None, 2),
}


def operations_per_step(core: Iterable[tf.Operation]) -> int:
    """Counts the multiplications and additions in the convolutions of a step.

    Args:
      core: the operations of a core.
    """
    total = 0
    for operation in core:
        # Gradients of the images are built, but used by nothing.
        if operation.type in _FILTERS_AND_RESULTS and is_used(operation.outputs[0]):
            filters, results = (
                operation.outputs[0] if index is None else operation.inputs[index]
                for index in _FILTERS_AND_RESULTS[operation.type]
            )
            if filters.shape.is_fully_defined() and results.shape.is_fully_defined():
                # Each result is a sum over the window and the input channels.
                total += 2 * results.shape.num_elements() * filters.shape[:3].num_elements()
    return total
