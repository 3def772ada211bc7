"""Reversible residual blocks: the backward pass recomputes their activations instead of storing them.

Gomez, Ren, Urtasun & Grosse, "The Reversible Residual Network: Backpropagation Without Storing Activations", section 3.
The code runs in graphs, in graph functions, and eagerly.
"""

import contextlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from compat.names import stop_recording  # isort: skip  Before TensorFlow is loaded.
from compat import tf  # isort: skip
from tensorflow.python.eager import tape as tapes

from inception_v3 import replicas

# Arguments: a tensor, and whether this is the recomputation of an earlier call. The result has the tensor's shape. The
# function takes its variables from `get_variable`, uses no other tensor, and changes no variable in a recomputation.
Residual = Callable[[tf.Tensor, bool], tf.Tensor]


# Sums are exact below this absolute value.
EXACT_BELOW = 64


class Block(NamedTuple):
    """The residual functions of a block."""

    f: Residual
    g: Residual


@tf.custom_gradient
def on_grid(x: tf.Tensor) -> Any:
    """Rounds to multiples of 2 ** -18 (float32); the gradient ignores the rounding.

    Float32 represents all multiples between -64 and 64 exactly, so their sums are exact and a subtraction undoes an
    addition. Without this, recomputed activations drift, the arguments of some ReLUs change their sign, and gradients
    differ by about 1e-3 of a variable's largest gradient. Beyond 64 this still happens. The rounding is about as large
    as the rounding errors of a convolution.
    """
    bits = {tf.float32: 24, tf.float64: 53}[x.dtype]
    steps = 2.0**bits / EXACT_BELOW
    return tf.round(x * steps) / steps, lambda d_y: d_y


def forward(block: Block, x1: tf.Tensor, x2: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """Computes y1 = x1 + F(x2) and y2 = x2 + G(y1), equation 6, for arguments rounded by `on_grid`."""
    y1 = x1 + on_grid(block.f(x2, False))
    return y1, x2 + on_grid(block.g(y1, False))


def inverse(block: Block, y1: tf.Tensor, y2: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """Computes x2 = y2 - G(y1) and x1 = y1 - F(x2), equation 7: the inverse of `forward`, exact if the sums are."""
    x2 = y2 - on_grid(block.g(y1, True))
    return y1 - on_grid(block.f(x2, True)), x2


def chain(
    blocks: Sequence[Block],
    x1: tf.Tensor,
    x2: tf.Tensor,
    rebuild_activations: bool = True,
    found: Optional[Dict[str, tf.Variable]] = None,
    outputs: Optional[Tuple[tf.Tensor, tf.Tensor]] = None,
) -> Tuple[tf.Tensor, tf.Tensor]:
    """Applies blocks one after the other.

    The variables of the blocks must be resource variables. Each argument has half of the channels, [batch, height,
    width, channels], in float32 or float64; bfloat16 has too few bits for exact sums. With `rebuild_activations`, the
    backward pass recomputes the input of each block from its output (algorithm 1): only the last output is stored, and
    one block at a time has activations. Ordinary backpropagation stores the activations of all blocks.

    To run the backward pass separately from the forward pass: a forward pass with `rebuild_activations` adds the
    variables of the blocks to `found`, by name. A later call with this `found` and the `outputs` of the forward pass
    returns these outputs without computing them.
    """
    x1, x2 = on_grid(x1), on_grid(x2)
    if not blocks or not rebuild_activations:
        return _forward(blocks, x1, x2)
    scope = tf.get_variable_scope()
    of_blocks: Dict[str, tf.Variable] = {} if found is None else found

    def rebuilt(x1: tf.Tensor, x2: tf.Tensor) -> Any:
        # Otherwise the tape of an eager program stores the activations.
        with stop_recording(), _noting_variables(of_blocks):
            # Otherwise, in a graph, variables behind the given outputs would be taken for variables of the blocks.
            y1, y2 = map(tf.stop_gradient, outputs) if outputs else _forward(blocks, x1, x2)
        tapes.variables_accessed(of_blocks.values())

        def gradient(d_y1: tf.Tensor, d_y2: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            with _returning_to(scope, of_blocks):
                return backward(blocks, (y1, y2), (d_y1, d_y2), variables)[1:]

        return (y1, y2), gradient

    return replicas.custom_gradient(rebuilt, of_blocks)(x1, x2)


def _forward(blocks: Sequence[Block], x1: tf.Tensor, x2: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    for block in blocks:
        x1, x2 = forward(block, x1, x2)
    return x1, x2


def backward(
    blocks: Sequence[Block],
    outputs: Tuple[tf.Tensor, tf.Tensor],
    d_outputs: Tuple[tf.Tensor, tf.Tensor],
    variables: Sequence[tf.Variable],
) -> Tuple[List[tf.Tensor], List[tf.Tensor], List[tf.Tensor]]:
    """The inputs, their gradients and the variables' gradients, block by block from the last one: algorithm 1."""
    y1, y2 = outputs
    d_y1, d_y2 = d_outputs
    d_variables: Dict[Any, tf.Tensor] = {}
    computed = [d_y2, d_y1]
    for block in reversed(blocks):
        y1 = _after(computed, y1)
        g, d_g, d_weights = _rerun(block.g, y1, d_y2)
        d_y1 += d_g
        y2 -= g
        f, d_f, d_more_weights = _rerun(block.f, y2, d_y1)
        d_y2 += d_f
        y1 -= f
        d_weights.update(d_more_weights)
        d_variables.update(d_weights)
        computed = [d_y2, d_y1, *d_weights.values()]
    return [y1, y2], [d_y1, d_y2], [d_variables[variable.experimental_ref()] for variable in variables]


def _rerun(residual: Residual, x: tf.Tensor, d_y: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor, Dict[Any, tf.Tensor]]:
    """Recomputes a residual function; returns its result and the gradients of its argument and its variables."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = on_grid(residual(x, True))
    weights = tape.watched_variables()
    d_x, *d_weights = tape.gradient(y, [x, *weights], d_y)
    return y, d_x, {weight.experimental_ref(): d_weight for weight, d_weight in zip(weights, d_weights)}


def _after(first: Sequence[tf.Tensor], tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor, so that its users run only after other tensors are computed.

    Without this order, all blocks would be recomputed at once and keep their activations until their gradients run.
    """
    with tf.control_dependencies(first):
        # XLA ignores control dependencies, so add a value that is always 0, which XLA cannot infer.
        some = tf.stack([tf.cast(tf.reshape(each, [-1])[0], tensor.dtype) for each in first])
        return tensor + tf.minimum(tf.reduce_max(tf.abs(some)), 0.0)


@contextlib.contextmanager
def _noting_variables(found: Dict[str, tf.Variable]) -> Iterator[None]:
    """Context manager that records all variables that its body gets, by name."""

    def note(getter: Callable, name: str, **options: Any) -> tf.Variable:
        return found.setdefault(name, getter(name, **options))

    scope = tf.get_variable_scope()
    with tf.variable_scope(scope, custom_getter=note, auxiliary_name_scope=False):
        yield


@contextlib.contextmanager
def _returning_to(scope: tf.VariableScope, found: Dict[str, tf.Variable]) -> Iterator[None]:
    """Enters a scope again; `get_variable` returns the variables that were found there."""

    def find(getter: Callable, name: str, **unused: Any) -> tf.Variable:
        return found[name]

    with tf.variable_scope(scope, custom_getter=find, auxiliary_name_scope=False):
        yield
