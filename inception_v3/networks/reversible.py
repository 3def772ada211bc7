"""Reversible residual blocks, whose activations are rebuilt in the backward pass, where they would be kept otherwise.

Gomez, Ren, Urtasun & Grosse, "The Reversible Residual Network: Backpropagation Without Storing Activations", section 3.
The same code runs in a graph, in a function of a graph, and eagerly.
"""

import contextlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import tensorflow as tf
from tensorflow.python.eager import tape as tapes

# A tensor, and whether this runs again, to rebuild what it has computed; the result is of the tensor's size. Variables
# come from `get_variable`, no tensor comes from elsewhere, and what runs again leaves its variables as they are.
Residual = Callable[[tf.Tensor, bool], tf.Tensor]


# Sums of fewer than so many units are exact.
EXACT_BELOW = 64


class Block(NamedTuple):
    """The residual functions of a block."""

    f: Residual
    g: Residual


@tf.custom_gradient
def on_grid(x: tf.Tensor) -> Any:
    """Rounds to multiples of 2 ** -18 (of float32), which the gradient passes by.

    Between -64 and 64, float32 holds all of these: a sum of two has no rounding, and subtracting gives back what was
    added. What is rebuilt would otherwise drift from what there was, and where a ReLU's argument changes its sign, so
    would the gradients, by some 1e-3 of a variable's largest; beyond 64 they do. A convolution rounds by as much.
    """
    bits = {tf.float32: 24, tf.float64: 53}[x.dtype]
    steps = 2.0**bits / EXACT_BELOW
    return tf.round(x * steps) / steps, lambda d_y: d_y


def forward(block: Block, x1: tf.Tensor, x2: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """y1 = x1 + F(x2) and y2 = x2 + G(y1), equation 6, of arguments on the grid."""
    y1 = x1 + on_grid(block.f(x2, False))
    return y1, x2 + on_grid(block.g(y1, False))


def inverse(block: Block, y1: tf.Tensor, y2: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """x1 = y1 - F(x2) and x2 = y2 - G(y1), equation 7: what `forward` was given, to the bit where sums are exact."""
    x2 = y2 - on_grid(block.g(y1, True))
    return y1 - on_grid(block.f(x2, True)), x2


def chain(
    blocks: Sequence[Block], x1: tf.Tensor, x2: tf.Tensor, rebuild_activations: bool = True
) -> Tuple[tf.Tensor, tf.Tensor]:
    """Blocks, one after the other.

    Args:
      blocks: of which all variables are resource variables.
      x1: half of the channels, [batch, height, width, channels], float32 or float64: bfloat16 has too few bits to add
        without rounding.
      x2: the other half, likewise.
      rebuild_activations: in the backward pass, rebuild the input of each block from its output when its gradients are
        to be computed (algorithm 1); all blocks together keep their last result, and one block at a time has
        activations. False: ordinary backpropagation, which keeps the activations of all.

    Returns:
      y1 and y2 of the last block.
    """
    x1, x2 = on_grid(x1), on_grid(x2)
    if not blocks or not rebuild_activations:
        return _forward(blocks, x1, x2)
    scope = tf.compat.v1.get_variable_scope()
    found: Dict[str, tf.Variable] = {}

    @tf.custom_gradient
    def rebuilt(x1: tf.Tensor, x2: tf.Tensor) -> Any:
        # Else the tape of an eager program would keep what is to be rebuilt.
        with tapes.stop_recording(), _noting_variables(found):
            y1, y2 = _forward(blocks, x1, x2)
        tapes.variables_accessed(found.values())

        def gradient(d_y1: tf.Tensor, d_y2: tf.Tensor, variables: Sequence[tf.Variable] = ()) -> Any:
            with _returning_to(scope, found):
                return _backward(blocks, (y1, y2), (d_y1, d_y2), variables)

        return (y1, y2), gradient

    return rebuilt(x1, x2)


def _forward(blocks: Sequence[Block], x1: tf.Tensor, x2: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    for block in blocks:
        x1, x2 = forward(block, x1, x2)
    return x1, x2


def _backward(
    blocks: Sequence[Block],
    outputs: Tuple[tf.Tensor, tf.Tensor],
    d_outputs: Tuple[tf.Tensor, tf.Tensor],
    variables: Sequence[tf.Variable],
) -> Tuple[List[tf.Tensor], List[tf.Tensor]]:
    """Gradients of the inputs and of the variables: algorithm 1, for one block after the other."""
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
    return [d_y1, d_y2], [d_variables[variable.experimental_ref()] for variable in variables]


def _rerun(residual: Residual, x: tf.Tensor, d_y: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor, Dict[Any, tf.Tensor]]:
    """What a residual function adds; the gradient of its argument; and those of its variables, by reference."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = on_grid(residual(x, True))
    weights = tape.watched_variables()
    d_x, *d_weights = tape.gradient(y, [x, *weights], d_y)
    return y, d_x, {weight.experimental_ref(): d_weight for weight, d_weight in zip(weights, d_weights)}


def _after(first: Sequence[tf.Tensor], tensor: tf.Tensor) -> tf.Tensor:
    """The tensor, for what is not to be computed before others have been.

    Whatever can be computed is computed: without this, all would be rebuilt at once, and wait for its gradients.
    """
    with tf.control_dependencies(first):
        # XLA minds no control dependency, but it does not know that this is 0.
        some = tf.stack([tf.cast(tf.reshape(each, [-1])[0], tensor.dtype) for each in first])
        return tensor + tf.minimum(tf.reduce_max(tf.abs(some)), 0.0)


@contextlib.contextmanager
def _noting_variables(found: Dict[str, tf.Variable]) -> Iterator[None]:
    """Notes by name all variables that are asked for."""

    def note(getter: Callable, name: str, **options: Any) -> tf.Variable:
        return found.setdefault(name, getter(name, **options))

    scope = tf.compat.v1.get_variable_scope()
    with tf.compat.v1.variable_scope(scope, custom_getter=note, auxiliary_name_scope=False):
        yield


@contextlib.contextmanager
def _returning_to(scope: tf.compat.v1.VariableScope, found: Dict[str, tf.Variable]) -> Iterator[None]:
    """Returns to a scope and to the variables that were found there, wherever they are kept."""

    def find(getter: Callable, name: str, **unused: Any) -> tf.Variable:
        return found[name]

    with tf.compat.v1.variable_scope(scope, custom_getter=find, auxiliary_name_scope=False):
        yield
