"""Batch normalization with local, averaged or synchronized moments over the TPU cores."""

import dataclasses
from typing import Any, Callable, List, Optional, Sequence, Tuple

from compat import tf  # isort: skip  Before TensorFlow is loaded.
from tensorflow.python.tpu.ops import tpu_ops

from inception_v3 import replicas
from inception_v3.config import Config
from inception_v3.networks.layers import NHWC, Layout

EPSILON = 1e-3


def batch_norm_for(
    config: Config, is_training: bool, layout: Layout = NHWC, is_frozen: Optional[Callable[[str], bool]] = None
) -> 'BatchNorm':
    """Makes the batch normalization that `--batch_norm` selects; see `BatchNorm` for `layout` and `is_frozen`."""
    return BatchNorm(
        is_training,
        config.batch_norm_decay,
        config.clear_update_collections,
        synchronized_over=groups_of(config) if config.batch_norm == 'synchronized' else None,
        averaged_over=groups_of(config) if config.batch_norm == 'averaged' else None,
        layout=layout,
        is_frozen=is_frozen,
    )


def groups_of(config: Config) -> List[List[int]]:
    """The groups of cores that share moments, each a list of consecutive core numbers."""
    size = config.batch_norm_group_size or config.replicas
    return [list(range(first, first + size)) for first in range(0, config.replicas, size)]


@dataclasses.dataclass(frozen=True, eq=False)
class BatchNorm:
    """Batch normalization with a shift, and with a scale if the network asks for one.

    Ioffe & Szegedy, "Batch Normalization", algorithm 1. Training normalizes with the moments of the batch, and
    moves the moving mean and variance towards them by a fraction of 1 - decay (the variance with Bessel's correction).
    Evaluation normalizes with the moving statistics.

    Attributes:
      is_training: normalize with the batch's moments.
      decay: decay per step of the moving statistics.
      update_in_place: update the moving statistics whenever the layer runs; False: add the updates to the collection
        UPDATE_OPS.
      synchronized_over: groups of TPU cores, each a list of core numbers; the moments are over the images of all cores
        in a group. None: each core uses its own moments.
      averaged_over: groups of TPU cores; each core normalizes with its own moments, but the moving statistics are
        means over the group. They leave out the variance between the cores' means. None: each core's own.
      layout: the order of the inputs' axes. Synchronized moments and float64 need NHWC.
      is_frozen: a predicate of a layer's name, the scope of its variables. In training, layers for which it holds
        normalize as in evaluation, and keep their moving statistics. None: no layer is frozen.
    """

    is_training: bool
    decay: float
    update_in_place: bool = True
    synchronized_over: Optional[Sequence[Sequence[int]]] = None
    averaged_over: Optional[Sequence[Sequence[int]]] = None
    layout: Layout = NHWC
    is_frozen: Optional[Callable[[str], bool]] = None

    def __call__(
        self,
        inputs: tf.Tensor,
        scale_initializer: Any = None,
        epsilon: float = EPSILON,
        moves_statistics: bool = True,
    ) -> tf.Tensor:
        """Normalizes each channel.

        The result has the dtype of the inputs. Moments are float32, or float64 for float64 inputs.

        Args:
          inputs: [batch, height, width, channels], or as the layout says; float32, float64, bfloat16 or float16.
          scale_initializer: initializer of the variable `gamma`, which multiplies the normalized values. None: no
            scale, which is redundant if only a ReLU comes before the next layer's weights.
          epsilon: added to the variance.
          moves_statistics: False: do not update the moving statistics in training, because this is a recomputation.
        """
        depth = [inputs.shape[self.layout.channels]]
        with tf.variable_scope('BatchNorm'):
            # Sums over a batch need float32, even for activations of 16 bits.
            x = inputs if inputs.dtype == tf.float64 else tf.cast(inputs, tf.float32)
            gamma = tf.ones(depth, x.dtype)
            if scale_initializer is not None:
                gamma = tf.get_variable('gamma', depth, initializer=scale_initializer)
            beta = tf.get_variable('beta', depth, initializer=tf.zeros_initializer())
            statistics = {'trainable': False, **replicas.FIRST_IS_KEPT}
            mean = tf.get_variable('moving_mean', depth, initializer=tf.zeros_initializer(), **statistics)
            variance = tf.get_variable('moving_variance', depth, initializer=tf.ones_initializer(), **statistics)
            gamma, beta = tf.cast(gamma, x.dtype), tf.cast(beta, x.dtype)
            is_frozen = self.is_frozen is not None and self.is_frozen(tf.get_variable_scope().name)
            if is_frozen or not self.is_training:
                center, spread = tf.cast(mean, x.dtype), tf.cast(variance, x.dtype)
                return tf.cast(self._normalize_with(center, spread, x, gamma, beta, epsilon), inputs.dtype)
            # A recomputation reads the shift after the update, so that it is the same for all replicas.
            with tf.control_dependencies([] if moves_statistics else [inputs]):
                shift = tf.cast(mean, x.dtype)
            outputs, batch_mean, batch_variance = self._normalize(x, gamma, beta, shift, epsilon)
            if not moves_statistics:
                return tf.cast(outputs, inputs.dtype)
            updates = [self._move(mean, batch_mean), self._move(variance, batch_variance)]
            if self.update_in_place:
                with tf.control_dependencies(updates):
                    outputs = tf.identity(outputs)
            else:
                for update in updates:
                    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, update)
            return tf.cast(outputs, inputs.dtype)

    def _normalize(
        self, x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, moving_mean: tf.Tensor, epsilon: float
    ) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Normalizes a batch; returns it with the mean and the unbiased variance for the moving statistics."""
        if self.synchronized_over or x.dtype == tf.float64:
            # A shift by the moving mean, which all cores of a group share, keeps the variance exact for large means.
            shift = tf.stop_gradient(moving_mean)
            groups = self.synchronized_over or [[0]]
            outputs, mean, variance = _normalize_synchronized(x, gamma, beta, shift, groups, epsilon)
        else:
            outputs, mean, variance = tf.nn.fused_batch_norm(
                x, gamma, beta, epsilon=epsilon, data_format=self.layout.name
            )
        if self.averaged_over:
            (mean, variance), _ = _means_over(self.averaged_over, mean, variance)
        return outputs, mean, variance

    def _normalize_with(
        self, mean: tf.Tensor, variance: tf.Tensor, x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float
    ) -> tf.Tensor:
        if x.dtype == tf.float64:
            # TensorFlow's fused batch normalization supports float32 only.
            return tf.nn.batch_normalization(x, mean, variance, beta, gamma, epsilon)
        options = {'epsilon': epsilon, 'is_training': False, 'data_format': self.layout.name}
        return tf.nn.fused_batch_norm(x, gamma, beta, mean, variance, **options)[0]

    def _move(self, moving: tf.Variable, current: tf.Tensor) -> tf.Operation:
        return tf.assign_sub(moving, (1 - self.decay) * (moving - tf.cast(current, moving.dtype)))


def _normalize_synchronized(
    x: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    shift: tf.Tensor,
    groups: Sequence[Sequence[int]],
    epsilon: float,
) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Normalizes with the moments of a group of cores: one all-reduce forward and one backward.

    Returns:
      The normalized batch, the mean, and the unbiased variance. Mean and variance have no gradient. On replicas, they
      are the first group's, so that the shift (the moving mean) stays the same on all.
    """
    elements = int(x.shape.num_elements() // x.shape[-1])
    count = elements * len(groups[0])

    @replicas.custom_gradient
    def normalize(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> Any:
        shifted = x - shift
        own, first = _means_over(groups, _mean(shifted), _mean(tf.square(shifted)))
        mean, variance = _moments(*own)
        inverse = tf.math.rsqrt(variance + epsilon)
        normalized = (shifted - mean) * inverse

        def gradient(d_outputs: tf.Tensor, *unused: Any) -> Tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            """The gradient of Ioffe & Szegedy, section 3, with sums over the group, one axis at a time; see `_mean`."""
            d_mean, d_scale = _mean(d_outputs), _mean(d_outputs * normalized)
            (group_mean, group_scale), _ = _means_over(groups, d_mean, d_scale)
            d_x = (d_outputs - group_mean - normalized * group_scale) * (gamma * inverse)
            return d_x, d_scale * elements, d_mean * elements

        if first is not own:
            mean, variance = _moments(*first)
        # Bessel's correction; a single value gets none.
        return (normalized * gamma + beta, mean + shift, variance * (count / max(count - 1, 1))), gradient

    return normalize(x, gamma, beta)


def _mean(x: tf.Tensor) -> tf.Tensor:
    """The mean of each channel.

    Sums one axis at a time, because a CPU adds sequentially: summing all three axes at once has rounding errors of up
    to 1e-4 of the mean, as in TensorFlow's fused batch normalization.
    """
    count = int(x.shape.num_elements() // x.shape[-1])
    for _ in range(3):
        x = tf.reduce_sum(x, 0)
    return x / count


def _moments(mean: tf.Tensor, mean_square: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance. Rounding can make the variance of a constant channel slightly negative."""
    return mean, tf.maximum(mean_square - tf.square(mean), 0.0)


def _means_over(
    groups: Sequence[Sequence[int]], *tensors: tf.Tensor
) -> Tuple[Sequence[tf.Tensor], Sequence[tf.Tensor]]:
    """Means of tensors over this core's group and, on replicas, over the first group, by one all-reduce."""
    if len(groups[0]) == 1 and not replicas.are_several():
        return tensors, tensors
    stacked = tf.stack(tensors)
    if not replicas.are_several():
        own = tf.unstack(tpu_ops.cross_replica_sum(stacked, groups) / len(groups[0]))
        return own, own
    own, first = (tf.unstack(total / len(groups[0])) for total in replicas.sums(groups, stacked))
    return own, own if len(groups) == 1 else first
