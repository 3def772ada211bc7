"""The learning rate: stepwise exponential decay, with a warm-up for large batches."""

from typing import Any

import tensorflow as tf

from inception_v3.config import Config

# The learning rate is given for batches of this size, and grows in proportion to the batch:
# Goyal et al., "Accurate, Large Minibatch SGD", section 2.1.
REFERENCE_BATCH_SIZE = 256
# The rate never falls below this fraction of the base rate.
FLOOR = 0.0001
# The fraction of the rate at which a warm-up starts.
COLD_FRACTION = 0.1


def learning_rate(step: Any, config: Config) -> Any:
    """The learning rate at a step.

    With B images in a batch, E = num_train_images / B steps in an epoch, and base = learning_rate * B / 256, the
    plain schedule is base * decay ^ floor(step / floor(decay_epochs * E)).

    A warm-up replaces its first epochs. Let adj = base * decay ^ ((warmup + cold) / decay_epochs), the plain
    rate where the warm-up is meant to end, and e = floor(step / E). The rate is 0.1 adj while e < cold; then, while
    e < warmup + cold + decay_epochs, it is 0.1 adj + (e - (cold - 1)) * 0.9 adj / (warmup + decay_epochs - 1).
    This passes adj in its last but one epoch and ends a step above it: at the defaults and a batch of 1,024 it is
    0.548 in epoch 10, 0.603 in epoch 11, and plain, 0.515, from epoch 12. Published results were made so.

    Neither falls below 0.0001 base.

    Args:
      step: the global step, from 0: a whole number, or an integer tensor of any shape.
      config: the schedule, the batch size and the number of training images.

    Returns:
      The rate, as a float for a number and as a float32 tensor for a tensor.
    """
    batch, images = config.train_batch_size, config.num_train_images
    decay, decay_epochs = config.learning_rate_decay, config.learning_rate_decay_epochs
    base = config.learning_rate * batch / REFERENCE_BATCH_SIZE

    on_tensors = isinstance(step, (tf.Tensor, tf.Variable))
    if on_tensors:
        step = tf.cast(step, tf.int64)

    def real(whole: Any) -> Any:
        return tf.cast(whole, tf.float32) if on_tensors else float(whole)

    def choose(condition: Any, then: Any, otherwise: Any) -> Any:
        if on_tensors:
            return tf.where(condition, then + tf.zeros_like(otherwise), otherwise)
        return then if condition else otherwise

    # Whole numbers throughout, so that a decay comes at its very step: a float32 step / E can miss it.
    steps_per_decay = max(1, decay_epochs * images // batch)
    rate = base * decay ** real(step // steps_per_decay)
    if config.use_learning_rate_warmup:
        cold, warmup = config.cold_epochs, config.warmup_epochs
        epoch = real(step * batch // images)
        adjusted = base * decay ** ((warmup + cold) / decay_epochs)
        slope = (1 - COLD_FRACTION) * adjusted / (warmup + decay_epochs - 1)
        rising = COLD_FRACTION * adjusted + (epoch - (cold - 1)) * slope
        rate = choose(epoch < warmup + cold + decay_epochs, rising, rate)
        rate = choose(epoch < cold, COLD_FRACTION * adjusted, rate)
    floor = FLOOR * base
    return tf.maximum(rate, floor) if on_tensors else max(rate, floor)
