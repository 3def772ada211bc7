"""Keras layers and models of RevNets, for eager programs: the network of `revnet` with the blocks of `reversible`."""

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

from compat import tf
from inception_v3.networks import layers, reversible
from inception_v3.networks.revnet import Architecture, Builder, revnet

# Makes the normalization of training (True) or of evaluation, such as `lambda training: BatchNorm(training, 0.9)`.
NormMaker = Callable[[bool], layers.Norm]


class _Variables:
    """The variables that functions get within `scope`, by name, as weights of a Keras layer."""

    def __init__(self, layer: tf.keras.layers.Layer):
        self._layer = layer
        self._found: Dict[str, tf.Variable] = {}
        self._of_chains: Dict[str, Dict[str, tf.Variable]] = {}

    def of_chain(self) -> Dict[str, tf.Variable]:
        """The variables of the reversible units in the current variable scope, for `reversible.chain` to fill."""
        return self._of_chains.setdefault(tf.get_variable_scope().name, {})

    @contextlib.contextmanager
    def scope(self, dtype: tf.DType) -> Iterator[None]:
        """In its body, `get_variable` creates weights of the layer once, in a dtype, and then returns them."""

        def weight(getter: Callable, name: str, **options: Any) -> tf.Variable:
            if name not in self._found:
                given = {key: options[key] for key in ('shape', 'dtype', 'initializer')}
                trainable = options.get('trainable') is not False
                self._found[name] = self._layer.add_weight(name, trainable=trainable, **given)
            return self._found[name]

        with tf.variable_scope('', custom_getter=weight, dtype=dtype):
            yield


class Residual(tf.keras.layers.Layer):
    """A reversible block: y1 = x1 + F(x2), y2 = x2 + G(y1), where x1 and x2 are the halves of the channels of x.

    Args:
      filters: the channels of its input and output, [batch, height, width, filters] in float32 or float64.
      norm: the normalization.
    """

    def __init__(self, filters: int, norm: NormMaker, **options: Any):
        super().__init__(**options)
        self._filters = filters
        self._norm = norm
        self._own = _Variables(self)

    def _block(self, x: tf.Tensor, training: bool) -> reversible.Block:
        return Builder(False, x.dtype, layers.conv2d, self._norm(training), layers.NHWC).block(
            'unit', self._filters // 2
        )

    def call(self, x: tf.Tensor, training: bool = True) -> tf.Tensor:
        """Computes y."""
        return self._output(x, training)

    # Not on `call`: Keras would not see its argument `training` and the default.
    @tf.autograph.experimental.do_not_convert
    def _output(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        with self._own.scope(x.dtype):
            x1, x2 = tf.split(x, 2, axis=3)
            return tf.concat(reversible.chain([self._block(x, training)], x1, x2, training), 3)

    def backward_grads(
        self, y: tf.Tensor, dy: tf.Tensor, training: bool = True
    ) -> Tuple[tf.Tensor, tf.Tensor, List[tf.Tensor]]:
        """Computes x, its gradient and those of `trainable_variables`, from y and its gradient."""
        with self._own.scope(y.dtype):
            halves, d_halves = (tf.split(each, 2, axis=3) for each in (y, dy))
            x, dx, gradients = reversible.backward(
                [self._block(y, training)], halves, d_halves, self.trainable_variables
            )
            return tf.concat(x, 3), tf.concat(dx, 3), gradients


class RevNet(tf.keras.Model):
    """The network of a row of the paper's table, such as `revnet.REVNET_38`.

    Args:
      architecture: of the network.
      num_classes: the number of logits.
      norm: the normalization.
      rebuild_activations: recompute activations in the backward pass; False: ordinary backpropagation.
    """

    def __init__(self, architecture: Architecture, num_classes: int, norm: NormMaker, rebuild_activations: bool = True):
        super().__init__()
        self._architecture = architecture
        self._num_classes = num_classes
        self._norm = norm
        self._rebuild_activations = rebuild_activations
        self._own = _Variables(self)

    def call(self, images: tf.Tensor, training: bool = True) -> Tuple[tf.Tensor, List[Any]]:
        """Computes the logits, and the tensors that `compute_gradients` needs: the images and each stage's output."""
        return self._outputs(images, training)

    @tf.autograph.experimental.do_not_convert
    def _outputs(self, images: tf.Tensor, training: bool) -> Tuple[tf.Tensor, List[Any]]:
        hidden: List[Any] = [images]

        def chain(
            blocks: Sequence[reversible.Block], x1: tf.Tensor, x2: tf.Tensor, rebuild: bool
        ) -> Tuple[tf.Tensor, tf.Tensor]:
            hidden.append(reversible.chain(blocks, x1, x2, rebuild, self._own.of_chain()))
            return hidden[-1]

        return self._logits(images, training, self._norm(training), chain), hidden

    def compute_gradients(
        self, hidden: Sequence[Any], labels: tf.Tensor, training: bool = True
    ) -> Tuple[List[tf.Tensor], tf.Tensor]:
        """Computes the gradients of the cross-entropy by `trainable_variables`, and the cross-entropy.

        `hidden` is from `call`. The stem and the units that are not reversible are computed again, as all activations
        of the reversible units are. Moving statistics do not change.
        """
        images, *outputs = hidden
        norm, remaining = self._norm(training), iter(outputs)

        def still(*arguments: Any, **options: Any) -> tf.Tensor:
            return norm(*arguments, **{**options, 'moves_statistics': False})

        def chain(
            blocks: Sequence[reversible.Block], x1: tf.Tensor, x2: tf.Tensor, rebuild: bool
        ) -> Tuple[tf.Tensor, tf.Tensor]:
            return reversible.chain(blocks, x1, x2, rebuild, self._own.of_chain(), next(remaining))

        with tf.GradientTape() as tape:
            logits = self._logits(images, training, still, chain)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = tf.reduce_mean(losses)
        return tape.gradient(loss, self.trainable_variables), loss

    def _logits(self, images: tf.Tensor, training: bool, norm: layers.Norm, chain: Callable[..., Any]) -> tf.Tensor:
        with self._own.scope(images.dtype):
            return revnet(
                self._architecture,
                images,
                self._num_classes,
                training,
                layers.conv2d,
                norm,
                rebuild_activations=self._rebuild_activations,
                chain=chain,
            )[0]
