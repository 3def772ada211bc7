"""Batch normalization: which moments normalize, and what becomes of the moving statistics."""

import tensorflow as tf

EPSILON = 1e-3


class BatchNorm:
    """Batch normalization with a shift and no scale, which the next layer's weights make superfluous.

    Ioffe & Szegedy, "Batch Normalization", algorithm 1. Training normalizes with the moments of the batch, and
    moves the moving mean and variance by (1 - decay) towards them (the variance with Bessel's correction);
    otherwise the moving statistics normalize.

    Args:
      is_training: normalize with the batch's moments.
      decay: decay per step of the moving statistics.
      update_in_place: update the moving statistics whenever the layer runs; else their updates are put into
        the collection UPDATE_OPS.
    """

    def __init__(self, is_training: bool, decay: float, update_in_place: bool = True):
        self._is_training = is_training
        self._decay = decay
        self._update_in_place = update_in_place

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """Normalizes each channel of [batch, height, width, channels]; the dtype is kept, the moments are float32."""
        depth = [inputs.shape[-1]]
        with tf.compat.v1.variable_scope('BatchNorm'):
            beta = tf.compat.v1.get_variable('beta', depth, initializer=tf.zeros_initializer())
            mean = tf.compat.v1.get_variable('moving_mean', depth, initializer=tf.zeros_initializer(), trainable=False)
            variance = tf.compat.v1.get_variable(
                'moving_variance', depth, initializer=tf.ones_initializer(), trainable=False
            )
            # The sums over a batch need float32, whatever the activations are.
            x = tf.cast(inputs, tf.float32)
            gamma = tf.ones(depth)
            if not self._is_training:
                outputs, _, _ = tf.compat.v1.nn.fused_batch_norm(
                    x, gamma, beta, mean, variance, epsilon=EPSILON, is_training=False
                )
                return tf.cast(outputs, inputs.dtype)
            outputs, batch_mean, batch_variance = tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, epsilon=EPSILON)
            updates = [self._move(mean, batch_mean), self._move(variance, batch_variance)]
            if self._update_in_place:
                with tf.control_dependencies(updates):
                    outputs = tf.identity(outputs)
            else:
                for update in updates:
                    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
            return tf.cast(outputs, inputs.dtype)

    def _move(self, moving: tf.Variable, current: tf.Tensor) -> tf.Operation:
        return tf.compat.v1.assign_sub(moving, (1 - self._decay) * (moving - current))
