"""Observations of the learning rate."""

import dataclasses
from typing import Any, List

import numpy as np

from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate


def rates(config: Config, patch: Any) -> List[float]:
    """The learning rates of the first 16 epochs, of five steps each, scaled to a batch of 256."""
    return [round(learning_rate(5 * epoch, config) / (8 / 256), 4) for epoch in range(16)]


def first_rate(config: Config, patch: Any) -> float:
    return rates(config, patch)[0]


def first_decay(config: Config, patch: Any) -> float:
    """The ratio of the rate after the first decay to that before it."""
    return rates(config, patch)[3] / rates(config, patch)[0]


def epochs_at_first_rate(config: Config, patch: Any) -> int:
    return rates(config, patch).count(rates(config, patch)[0])


def epochs_with_steps(config: Config, patch: Any) -> int:
    return epochs_at_first_rate(dataclasses.replace(config, schedule='step'), patch)


def last_rate(config: Config, patch: Any) -> float:
    """The learning rate at the end of the run, scaled to a batch of 256."""
    return round(learning_rate(config.train_steps, config) / (8 / 256), 5)


def cold_epochs(config: Config, patch: Any) -> int:
    return epochs_at_first_rate(dataclasses.replace(config, use_learning_rate_warmup=True), patch)


def highest_epoch(config: Config, patch: Any) -> int:
    return int(np.argmax(rates(dataclasses.replace(config, use_learning_rate_warmup=True), patch)))
