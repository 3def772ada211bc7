"""Keras' batch normalization with moments over all cores of a TPU, for networks that are written with Keras."""

from typing import Any, Tuple

from compat import tf  # isort: skip  Before TensorFlow is loaded.
from tensorflow.python.tpu import tpu_function
from tensorflow.python.tpu.ops import tpu_ops


class SynchronizedBatchNormalization(tf.keras.layers.BatchNormalization):
    """Replaces `tf.keras.layers.BatchNormalization`, with the same arguments, variables and defaults.

        outputs = SynchronizedBatchNormalization()(inputs, training=True)

    In training on several cores of a TPU, the moments are over the rows of all cores: an all-reduce for the mean, and
    one for the variance. On one device, and in inference, it computes the same as the class that it replaces. The
    moving variance lacks Bessel's correction, as in Keras without its fused operation.

    Args:
      **options: the arguments of `tf.keras.layers.BatchNormalization`, except `fused` and `virtual_batch_size`: their
        moments are over one core, or over a part of its rows.
    """

    def __init__(self, **options: Any):
        if options.pop('fused', False):
            raise ValueError('fused=True: the fused operation has the moments of one core only. Leave it out.')
        if options.get('virtual_batch_size') is not None:
            raise ValueError('virtual_batch_size: the moments are over all rows of all cores. Leave it out.')
        super().__init__(fused=False, **options)

    def get_config(self) -> Any:
        """The arguments, for `from_config`."""
        return {name: value for name, value in super().get_config().items() if name != 'fused'}

    def _moments(
        self, inputs: tf.Tensor, reduction_axes: Any, keep_dims: bool, **options: Any
    ) -> Tuple[tf.Tensor, tf.Tensor]:
        cores = tpu_function.get_tpu_context().number_of_shards or 1
        if cores == 1:
            return super()._moments(inputs, reduction_axes, keep_dims, **options)
        if any(value is not None for value in options.values()):
            raise ValueError(f'{", ".join(options)}: not possible on several cores, where all rows count.')

        def over_all_cores(values: tf.Tensor) -> tf.Tensor:
            return tpu_ops.cross_replica_sum(tf.reduce_mean(values, reduction_axes, keepdims=True)) / cores

        # As in Keras, the variance is computed from the distances to the mean: it is exact also for means far from 0.
        mean = over_all_cores(inputs)
        variance = over_all_cores(tf.math.squared_difference(inputs, mean))
        return (
            (mean, variance) if keep_dims else (tf.squeeze(mean, reduction_axes), tf.squeeze(variance, reduction_axes))
        )
