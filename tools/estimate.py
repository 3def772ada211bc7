"""Estimates a run from its configuration; `plan` draws the estimate, and `preflight` checks it."""

import dataclasses
from typing import List, NamedTuple, Optional, Tuple

import numpy as np

from compat import tf
from inception_v3.config import Config
from inception_v3.input.infeed import Infeed
from inception_v3.learning_rate import learning_rate
from inception_v3.model_fn import network_shapes
from inception_v3.run.batch_norm_advice import decay_warning
from inception_v3.run.memory import FLOAT_BYTES, SLOTS, sizes_for
from inception_v3.tpu import topology
from inception_v3.weights import beginning, sources
from preprocessing.steps import whole_image_box

# The TPU time in the guide's sample trace. The guide names no TPU and no batch, and may not mean a single step.
ASSUMED_STEP_MS = 815.0
# The most points of a curve: more than a figure's width in pixels.
_POINTS = 4000
# A tolerance above float32's rounding errors and below any overshoot.
_ROUNDING = 1e-6
_LABEL_BYTES = 4
# A TPU stores the first and the last axis of a tensor in tiles; the compiler chooses which of them is in the lanes.
_SUBLANES, _LANES = 8, 128
_STEP_BYTES = 8
# The fields that determine the documented curve.
_SCHEDULE = ('learning_rate', 'schedule', 'learning_rate_decay', 'learning_rate_decay_epochs')


class Overshoot(NamedTuple):
    """The epoch, from 0, in which a warm-up exceeds the curve most; its `rate`, and the `plain` one without warm-up."""

    epoch: int
    rate: float
    plain: float


class Estimate:
    """The schedules and sizes of a run, computed without a TensorFlow session.

    Hours, and the images per second of each host, assume steps of `step_ms` milliseconds. The curves of the learning
    rate, `rates` of the run and `documented` without warm-up, have points at `steps`.
    """

    def __init__(self, config: Config, step_ms: float = ASSUMED_STEP_MS, chooses_statistics: bool = False):
        self.config = config
        self.chooses_statistics = chooses_statistics
        self.step_ms = step_ms
        self.steps_per_epoch = config.num_train_images / config.train_batch_size
        self.epochs = config.train_steps / self.steps_per_epoch
        self.hours = config.train_steps * step_ms / 3.6e6
        self.images_per_second = 1000 * config.train_batch_size / topology.hosts_of(config) / step_ms
        last = config.train_steps - 1
        self.steps = [int(step) for step in np.unique(np.linspace(0, last, min(_POINTS, last + 1)).astype(np.int64))]
        schedule = {name: getattr(Config, name) for name in _SCHEDULE}
        plain = dataclasses.replace(config, **schedule, use_learning_rate_warmup=False)
        self.rates, self.documented = ([float(learning_rate(n, c)) for n in self.steps] for c in (config, plain))
        self.overshoot = _overshoot(config)

    @property
    def bytes_per_image(self) -> int:
        """Bytes that a host sends to a device for each image and its label."""
        with tf.Graph().as_default():
            image = tf.zeros([self.config.height, self.config.width, 3])
            infeed = Infeed(self.config)
            drawn = infeed.preprocessing.draw(tf.shape(image), whole_image_box(), tf.random.uniform)
            sent = tf.nest.flatten(infeed.for_training(image, drawn))
            return sum(t.shape.num_elements() * t.dtype.size for t in sent) + _LABEL_BYTES

    @property
    def warnings(self) -> List[str]:
        """Warnings about a warm-up that overshoots, and a decay of batch normalization for another number of cores.

        There is no warning about a decay that a preset for few images chooses (`CommandLine.chooses_statistics`).
        """
        found, over = [None if self.chooses_statistics else decay_warning(self.config)], self.overshoot
        if over:
            found.insert(
                0,
                f'the warm-up overshoots: {over.rate:.4g} in epoch {over.epoch}, '
                f'{over.rate / over.plain - 1:.0%} above the {over.plain:.4g} without warm-up. Published results use '
                'this formula; --cap_warmup ends the warm-up at the curve',
            )
        return [*filter(None, found)]


def _overshoot(config: Config) -> Optional[Overshoot]:
    # With the other schedules, the warm-up never exceeds the curve.
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
    return Overshoot(*max(above)[1:]) if above else None


def weights_of(config: Config, checkpoint: Optional[str]) -> Tuple[List[Tuple[str, str]], List[str]]:
    """Rows and warnings about the weights of `--init_from`, which a run that resumes from a checkpoint does not read.

    Raises WeightsError if they cannot be read or do not fit.
    """
    if not config.init_from:
        return [], []
    if checkpoint:
        return [('begins from', f'{checkpoint}, which the run resumes; --init_from is not read')], []
    source = sources.read(config.init_from)
    begun = beginning.plan(network_shapes(config), (), source, config)
    rows = [('begins from', beginning.origin_text(begun, source, config)), *beginning.account(begun).items()]
    return rows, beginning.warnings_of(begun, source, config)


class CoreMemory(NamedTuple):
    """The memory of a step on a TPU core, in bytes: variables by purpose, and activations.

    `activations` include a TPU's padding, `unpadded` are the same without it. `others` are the moving statistics of
    batch normalization and the step counter.
    """

    parameters: int
    optimizer: int
    averages: int
    others: int
    activations: int
    unpadded: int

    @property
    def parameter_count(self) -> int:
        """The number of trainable parameters."""
        return self.parameters // FLOAT_BYTES

    @property
    def total(self) -> int:
        """Bytes of all variables and of the padded activations."""
        return sum(self) - self.unpadded


def core_memory(config: Config, images: int, is_training: bool) -> CoreMemory:
    """The memory of a step of `images` images on a TPU core.

    The activations are those that XLA stores for the backward pass. Inception v3 at 299 pixels has 59.6 MB of them per
    image, without padding; XLA's own temporaries for this step on a CPU (from `--xla_dump_to`) grow by 59.8 MB per
    image between batches of 8 and 24. In evaluation, the input and the output of a layer are in memory: at most twice
    the largest activation. Gradients and scratch space reuse the memory of freed activations.
    """
    sizes, size = sizes_for(config), tf.as_dtype(config.precision).size
    weights = sizes.parameters * FLOAT_BYTES
    stored = [size * _padded(images, *shape) for shape in sizes.kept_by_xla]
    unpadded = [size * images * height * width * depth for height, width, depth in sizes.kept_by_xla]
    if not is_training:
        stored, unpadded = [2 * max(stored)], [2 * max(unpadded)]
    image_size = 1 if config.transfer == 'uint8' else size
    return CoreMemory(
        weights,
        weights * SLOTS[config.optimizer] if is_training else 0,
        weights if is_training and config.moving_average else 0,
        sizes.statistics * FLOAT_BYTES + _STEP_BYTES,
        sum(stored) + image_size * _padded(images, config.height, config.width, 3),
        sum(unpadded) + image_size * images * config.height * config.width * 3,
    )


def _padded(images: int, height: int, width: int, depth: int) -> int:
    """The number of values in a tensor [images, height, width, depth], including the padding of its tiles.

    https://cloud.google.com/tpu/docs/performance-guide: one axis is padded to 128, the other to 8.
    """

    def up(count: int, multiple: int) -> int:
        return -(-count // multiple) * multiple

    in_lanes = up(images, _LANES) * up(depth, _SUBLANES), up(images, _SUBLANES) * up(depth, _LANES)
    return height * width * min(in_lanes)
