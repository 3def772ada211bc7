"""The learning rate: decay schedules, and a warm-up for large batches."""

import math
from typing import Any, Callable

import numpy as np

from compat import tf, tf2
from inception_v3.config import Config

# `--learning_rate` is for batches of this size; the rate is proportional to the batch size:
# Goyal et al., "Accurate, Large Minibatch SGD", section 2.1.
REFERENCE_BATCH_SIZE = 256
# The lower limit of the rate, as a fraction of the base rate.
FLOOR = 0.0001
# The rate at the start of a warm-up, as a fraction of the rate at its end.
COLD_FRACTION = 0.1


def learning_rate(step: Any, config: Config) -> Any:
    """The learning rate at a step.

    With B images in a batch, E = num_train_images / B steps in an epoch, and base = learning_rate * B / 256, the
    plain exponential schedule is base * decay ^ floor(step / floor(decay_epochs * E)).

    A warm-up replaces its first epochs. Let adj = base * decay ^ ((warmup + cold) / decay_epochs), the plain
    rate where the warm-up is meant to end, and e = floor(step / E). The rate is 0.1 adj while e < cold; then, while
    e < warmup + cold + decay_epochs, it is 0.1 adj + (e - (cold - 1)) * 0.9 adj / (warmup + decay_epochs - 1).
    This overshoots: the last epoch of the warm-up is above adj. At the defaults and a batch of 1,024 the rate is 0.548
    in epoch 10, 0.603 in epoch 11, and the plain rate of 0.515 from epoch 12. Published results use this formula.
    With `cap_warmup`, the rate is at most the plain one: 0.548 in epochs 10 and 11.

    The step schedule is base * decay ^ n from the n-th of `step_epochs` on. The cosine schedule is
    base / 2 * (1 + cos(pi * t)), where t is the fraction of `train_steps` that is done (Loshchilov & Hutter, "SGDR",
    equation 5, without restarts). Both warm up gradually, as in Goyal et al., section 2.2, but from 0 instead of the
    rate of one worker: in the first W = floor(warmup * E) steps the rate is base * (step + 1) / W. The cosine begins
    after the warm-up.

    The rate never falls below 0.0001 * base.

    Args:
      step: the global step, from 0: a Python int, or an integer tensor of any shape.
      config: the schedule, the batch size and the number of training images.

    Returns:
      The rate: a float for an int, a float32 tensor for a tensor.
    """
    schedule = {'exponential': _exponential, 'step': _step, 'cosine': _cosine}[config.schedule]
    base = config.learning_rate * config.train_batch_size / REFERENCE_BATCH_SIZE
    if isinstance(step, (tf.Tensor, tf2.Variable)):
        rate = schedule(tf.cast(step, tf.int64), base, config, tf, lambda whole: tf.cast(whole, tf.float32))
        return tf.maximum(rate, FLOOR * base)
    return float(max(schedule(int(step), base, config, np, float), FLOOR * base))


# `xp` is the array module, `tf` for a tensor and `np` for a number; `real` casts to real numbers.
# Integer arithmetic finds the exact step of a decay: a float32 step / E can miss it.
_Real = Callable[[Any], Any]


def _exponential(step: Any, base: float, config: Config, xp: Any, real: _Real) -> Any:
    batch, images = config.train_batch_size, config.num_train_images
    decay, decay_epochs = config.learning_rate_decay, config.learning_rate_decay_epochs
    steps_per_decay = max(1, decay_epochs * images // batch)
    rate = base * decay ** real(step // steps_per_decay)
    if not config.use_learning_rate_warmup:
        return rate
    cold, warmup = config.cold_epochs, config.warmup_epochs
    epoch = real(step * batch // images)
    adjusted = base * decay ** ((warmup + cold) / decay_epochs)
    slope = (1 - COLD_FRACTION) * adjusted / (warmup + decay_epochs - 1)
    rising = COLD_FRACTION * adjusted + (epoch - (cold - 1)) * slope
    if config.cap_warmup:
        rising = xp.minimum(rising, rate)
    rate = xp.where(epoch < warmup + cold + decay_epochs, rising, rate)
    return xp.where(epoch < cold, COLD_FRACTION * adjusted + xp.zeros_like(rate), rate)


def _step(step: Any, base: float, config: Config, xp: Any, real: _Real) -> Any:
    epoch = step * config.train_batch_size // config.num_train_images
    decays = sum(real(epoch >= start) for start in config.steps_down)
    return _after_rising(step, base, base * config.learning_rate_decay**decays, config, xp, real)


def _cosine(step: Any, base: float, config: Config, xp: Any, real: _Real) -> Any:
    rising = _rising_steps(config)
    part = real(step - rising) / max(1, config.train_steps - rising)
    return _after_rising(step, base, base / 2 * (1 + xp.cos(math.pi * xp.minimum(part, 1.0))), config, xp, real)


def _rising_steps(config: Config) -> int:
    return config.warmup_epochs * config.num_train_images // config.train_batch_size * config.use_learning_rate_warmup


def _after_rising(step: Any, base: float, rate: Any, config: Config, xp: Any, real: _Real) -> Any:
    """Applies the warm-up of the step and cosine schedules to a rate."""
    rising = _rising_steps(config)
    return xp.where(step < rising, base * real(step + 1) / rising, rate) if rising else rate
