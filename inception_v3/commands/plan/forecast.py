"""The schedules and sizes of a run, computed from its configuration alone."""

import dataclasses
from typing import List, NamedTuple, Optional, Sequence

import numpy as np

from console.tensorflow_versions import tf
from inception_v3 import batch_norm
from inception_v3.config import Config
from inception_v3.input import infeed
from inception_v3.learning_rate import learning_rate
from inception_v3.run.slow_averages import decay_warnings, initial_share_of_averages, initial_share_of_statistics
from inception_v3.tpu import topology
from preprocessing.inception_preprocessing import whole_image_box
from preprocessing.preprocessings import preprocessing_for

# Seconds of a training step in the published trace: batches of 1,024 on a v2-8.
PUBLISHED_STEP = 0.815
# The most points of a curve; more than a figure has columns of pixels.
_POINTS = 4000
# A float32 error is smaller, an overshoot larger.
_ROUNDING = 1e-6
_LABEL_BYTES = 4
# The fields that make the documented curve.
_SCHEDULE = ('learning_rate', 'schedule', 'learning_rate_decay', 'learning_rate_decay_epochs')


class Overshoot(NamedTuple):
    """The epochs at the end of a warm-up whose rate is above the curve without warm-up.

    Attributes:
      first, last: the epochs, from 0.
      epoch: the epoch with the largest ratio.
      rate: the learning rate of `epoch`.
      plain: the rate without warm-up in `epoch`.
    """

    first: int
    last: int
    epoch: int
    rate: float
    plain: float


class Curve(NamedTuple):
    """Learning rates over the steps of a run: the run's own and the documented ones, without warm-up."""

    steps: Sequence[int]
    rates: Sequence[float]
    documented: Sequence[float]


class Average(NamedTuple):
    """The memory of an exponential average.

    Attributes:
      decay: per step.
      window: its memory in steps, 1 / (1 - decay).
      window_epochs: the same in epochs.
      initial_share: the share of the initial values that is left after the last step.
    """

    decay: float
    window: float
    window_epochs: float
    initial_share: float


@dataclasses.dataclass(frozen=True)
class Forecast:
    """The schedules and sizes of a run.

    Attributes:
      config: of the run.
      steps_per_epoch: may be a fraction.
      epochs: of the whole run.
      hours: of training, at the published time of a step.
      curve: the learning rates.
      peak: the largest learning rate, and `peak_epoch` the epoch in which it begins.
      overshoot: of the warm-up; None if there is none.
      averages: of the weights; None without them.
      statistics: of batch normalization.
      fitting_decay: alpha ** N, the documented decay of batch normalization for this number of cores.
      images_per_second: of each host, at the published time of a step.
      bytes_per_second: that each host sends to its cores, at the published time of a step.
      bytes_per_image: that are sent to a core for an image and its label.
    """

    config: Config
    steps_per_epoch: float
    epochs: float
    hours: float
    curve: Curve
    peak: float
    peak_epoch: float
    overshoot: Optional[Overshoot]
    averages: Optional[Average]
    statistics: Average
    fitting_decay: float
    images_per_second: float
    bytes_per_second: float
    bytes_per_image: int

    @property
    def warnings(self) -> List[str]:
        """Sentences about a warm-up that overshoots, and about a decay of batch normalization for other cores."""
        return [*_overshoot_warnings(self), *decay_warnings(self.config)]


def forecast(config: Config) -> Forecast:
    """Computes the schedules and sizes of a run, without a TensorFlow session."""
    per_epoch = config.num_train_images / config.train_batch_size
    epochs = config.train_steps / per_epoch
    curve = _curve(config)
    peak = int(np.argmax(curve.rates))
    per_image = _bytes_per_image(config)
    per_host = config.train_batch_size / topology.hosts_of(config) / PUBLISHED_STEP
    decay, weights = config.batch_norm_decay, config.moving_average_decay
    averages = _average(weights, initial_share_of_averages(weights, config.train_steps), per_epoch)
    return Forecast(
        config=config,
        steps_per_epoch=per_epoch,
        epochs=epochs,
        hours=config.train_steps * PUBLISHED_STEP / 3600,
        curve=curve,
        peak=curve.rates[peak],
        peak_epoch=curve.steps[peak] / per_epoch,
        overshoot=_overshoot(config),
        averages=averages if config.moving_average else None,
        statistics=_average(decay, initial_share_of_statistics(decay, config.train_steps), per_epoch),
        fitting_decay=batch_norm.decay_for(config.replicas),
        images_per_second=per_host,
        bytes_per_second=per_host * per_image,
        bytes_per_image=per_image,
    )


def _average(decay: float, initial_share: float, steps_per_epoch: float) -> Average:
    window = 1 / (1 - decay)
    return Average(decay, window, window / steps_per_epoch, initial_share)


def _curve(config: Config) -> Curve:
    documented = dataclasses.replace(
        config, **{name: getattr(Config, name) for name in _SCHEDULE}, use_learning_rate_warmup=False
    )
    last = config.train_steps - 1
    steps = [int(step) for step in np.unique(np.linspace(0, last, min(_POINTS, last + 1)).astype(np.int64))]
    rates, plain = ([float(learning_rate(step, each)) for step in steps] for each in (config, documented))
    return Curve(steps, rates, plain)


def _overshoot(config: Config) -> Optional[Overshoot]:
    """The overshoot of the documented warm-up; those of the other schedules rise to the curve and no further."""
    if not config.use_learning_rate_warmup or config.schedule != 'exponential':
        return None
    without = dataclasses.replace(config, use_learning_rate_warmup=False)
    above = []
    for epoch in range(config.cold_epochs + config.warmup_epochs + config.learning_rate_decay_epochs):
        step = -(-epoch * config.num_train_images // config.train_batch_size)
        if step >= config.train_steps:
            break
        rate, plain = float(learning_rate(step, config)), float(learning_rate(step, without))
        if rate > plain * (1 + _ROUNDING):
            above.append((rate / plain, epoch, rate, plain))
    if not above:
        return None
    _, epoch, rate, plain = max(above)
    return Overshoot(above[0][1], above[-1][1], epoch, rate, plain)


def _bytes_per_image(config: Config) -> int:
    """The bytes that are sent to a core for a training image and its label, from the shapes of a graph."""
    with tf.Graph().as_default():
        image = tf.zeros([config.height, config.width, 3])
        drawn = preprocessing_for(config).draw(tf.shape(image), whole_image_box(), tf.random.uniform)
        sent = tf.nest.flatten(infeed.for_training(image, drawn, config))
        return sum(t.shape.num_elements() * t.dtype.size for t in sent) + _LABEL_BYTES


def _overshoot_warnings(plan: Forecast) -> List[str]:
    over = plan.overshoot
    if not over:
        return []
    epochs = f'epoch {over.first}' if over.first == over.last else f'epochs {over.first} to {over.last}'
    return [
        f'the warm-up overshoots in {epochs}: {over.rate:.4g} in epoch {over.epoch}, {over.rate / over.plain - 1:.0%} '
        f'above the {over.plain:.4g} without warm-up. Published results use this formula'
    ]
