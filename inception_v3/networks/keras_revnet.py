"""Keras layers and models of RevNets: the network of `revnet` with the blocks of `reversible`.

They run eagerly, in a `tf.function`, and in the graph of an Estimator's model function:

    logits, hidden = model(features, training=True)
    gradients, loss = model.compute_gradients(hidden, labels)
    with tf.control_dependencies(model.get_updates_for(features)):
        train_op = optimizer.apply_gradients(zip(gradients, model.trainable_variables), global_step)

In a graph, `get_updates_for` returns the updates of the moving statistics, which nothing else may run. Without
`global_step`, which the published text leaves out, an Estimator trains forever.
"""

import contextlib
import functools
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from compat import tf
from inception_v3.batch_norm import BatchNorm
from inception_v3.networks import layers, reversible
from inception_v3.networks.revnet import Architecture, Builder, revnet

# Makes the normalization for training (True) or evaluation, such as `lambda training: BatchNorm(training, 0.9)`.
NormMaker = Callable[[bool], layers.Norm]
# The decay of Keras' batch normalization.
DECAY = 0.99
# Both halves of the channels, each [batch, height, width, channels / 2], or one tensor of all channels.
Halves = Union[tf.Tensor, Tuple[tf.Tensor, tf.Tensor]]


_CHANNELS = {'channels_last': 3, 'channels_first': 1}


class _Variables:
    """The variables that functions create within `scope`, by name, as weights of a Keras layer."""

    def __init__(self, layer: tf.keras.layers.Layer):
        self._layer = layer
        self._found: Dict[str, tf.Variable] = {}
        self._of_chains: Dict[str, Dict[str, tf.Variable]] = {}

    def of_chain(self) -> Dict[str, tf.Variable]:
        """The variables of the reversible units in the current variable scope, for `reversible.chain` to fill."""
        return self._of_chains.setdefault(tf.get_variable_scope().name, {})

    @contextlib.contextmanager
    def scope(self, dtype: tf.DType) -> Iterator[None]:
        """Context manager in which `get_variable` creates each weight of the layer once, in a dtype."""

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
      filters: the channels of x or, as in the published text, of each half; None: the channels of the first x.
      norm: the normalization, for [batch, height, width, channels]; None: BatchNorm with Keras' decay, 0.99.
      data_format: 'channels_last': x is [batch, height, width, channels]; 'channels_first', as in the published test:
        [batch, channels, height, width], which is transposed for the convolutions, because CPUs have no convolution in
        this order.

    Attributes:
      axis: the axis of the channels.

    x is float32 or float64.
    """

    def __init__(
        self,
        filters: Optional[int] = None,
        norm: Optional[NormMaker] = None,
        data_format: str = 'channels_last',
        **options: Any,
    ):
        super().__init__(**options)
        if data_format not in _CHANNELS:
            raise ValueError(f"data_format={data_format!r}: is neither 'channels_last' nor 'channels_first'.")
        self.axis = _CHANNELS[data_format]
        self._filters = filters
        self._norm = norm or functools.partial(BatchNorm, decay=DECAY)
        self._own = _Variables(self)

    def _block(self, half: tf.Tensor, training: bool) -> reversible.Block:
        """The functions F and G for a half: [batch, height, width, channels / 2]."""
        channels = int(half.shape[3])
        if self._filters not in (None, channels, 2 * channels):
            raise ValueError(
                f'filters={self._filters}: x has {2 * channels} channels, {channels} in each half. Pass one of these '
                'numbers, or none.'
            )
        return Builder(False, half.dtype, layers.conv2d, self._norm(training), layers.NHWC).block('unit', channels)

    def _halves(self, x: Halves) -> Tuple[tf.Tensor, tf.Tensor]:
        """The halves with their channels last."""
        x1, x2 = x if isinstance(x, (tuple, list)) else tf.split(x, 2, axis=self.axis)
        if self.axis == 1:
            return tf.transpose(x1, [0, 2, 3, 1]), tf.transpose(x2, [0, 2, 3, 1])
        return tf.convert_to_tensor(x1), tf.convert_to_tensor(x2)

    def _as_given(self, halves: Sequence[tf.Tensor], like: Halves) -> Halves:
        """Halves from `_halves`, in the form and order of axes of `like`."""
        x1, x2 = (tf.transpose(each, [0, 3, 1, 2]) if self.axis == 1 else each for each in halves)
        return (x1, x2) if isinstance(like, (tuple, list)) else tf.concat([x1, x2], self.axis)

    def call(self, x: tf.Tensor, training: bool = True) -> tf.Tensor:
        """Computes y."""
        return self._output(x, training)

    # Not on `call`: Keras would not see the argument `training` and its default.
    @tf.autograph.experimental.do_not_convert
    def _output(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        with self._own.scope(x.dtype):
            x1, x2 = self._halves(x)
            return self._as_given(reversible.chain([self._block(x1, training)], x1, x2, training), like=x)

    def backward_grads(self, y: Halves, dy: Halves, training: bool = True) -> Tuple[Halves, Halves, List[tf.Tensor]]:
        """Computes x and the gradients of x and of `trainable_variables`, from y and its gradient.

        This is the method of the published text, where y and dy are pairs of halves; x and its gradient are pairs then,
        too. The text's test also passes x, and expects two results; this form does not exist.

        Raises:
          TypeError: three tensors are passed.
          ValueError: the block has not been called, so that it has no variables.
        """
        if isinstance(training, (tf.Tensor, tuple, list)):
            raise TypeError(
                'backward_grads(x, y, dy): x follows from y. Call x, dx, gradients = backward_grads(y, dy).'
            )
        if not self.built:
            raise ValueError('backward_grads: the block has no variables yet. Compute y with it first.')
        halves, d_halves = self._halves(y), self._halves(dy)
        with self._own.scope(halves[0].dtype):
            x, dx, gradients = reversible.backward(
                [self._block(halves[0], training)], halves, d_halves, self.trainable_variables
            )
        return self._as_given(x, like=y), self._as_given(dx, like=dy), gradients


class RevNet(tf.keras.Model):
    """The network of a row of the paper's table, such as `revnet.REVNET_38`.

    Args:
      architecture: the architecture of the network.
      num_classes: the number of logits; 10, CIFAR-10's, by default.
      norm: the normalization; None: BatchNorm with Keras' decay, 0.99.
      rebuild_activations: recompute activations in the backward pass; False: ordinary backpropagation.
    """

    def __init__(
        self,
        architecture: Architecture,
        num_classes: int = 10,
        norm: Optional[NormMaker] = None,
        rebuild_activations: bool = True,
    ):
        super().__init__()
        self._architecture = architecture
        self._num_classes = num_classes
        self._norm = norm or functools.partial(BatchNorm, decay=DECAY)
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

        logits = self._logits(images, training, self._norm(training), chain)
        if training:
            # The last normalization moves its statistics with these logits; `compute_gradients` moves none.
            self.add_update(logits)
        return logits, hidden

    def compute_gradients(
        self, hidden: Sequence[Any], labels: tf.Tensor, training: bool = True
    ) -> Tuple[List[tf.Tensor], tf.Tensor]:
        """Computes the gradients of the cross-entropy with respect to `trainable_variables`, and the cross-entropy.

        `hidden` is the second result of `call`. The stem and the units that are not reversible are computed again, and
        so are all activations of the reversible units. Moving statistics do not change.
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
