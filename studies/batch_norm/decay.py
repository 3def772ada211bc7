"""The decay of moving statistics: eight updates with α, compared with one update with β = α⁸."""

import dataclasses
from typing import Dict, Iterable, Iterator, List, NamedTuple

import numpy as np

from inception_v3.config import Config
from studies.batch_norm.comparison import largest_difference
from studies.batch_norm.layer import AVERAGED, LOCAL, MODES, ONE_DEVICE, REPLICAS, ROWS, Statistics, train

# Decay of eight sequential updates; its eighth power is the decay of one replica in eight.
ALPHA = 0.9997

SEQUENTIAL = 'one device, eight updates, decay α'
ONE_IN_EIGHT = 'one replica in eight (local), decay α⁸'
MEAN_OF_EIGHT = 'mean of eight replicas (averaged), decay α⁸'


class Noise(NamedTuple):
    """The final moving mean of normal rows with mean 1 and variance 1, over many channels, starting at 0.

    Attributes:
      mean: mean over the channels.
      expected_mean: the same by the equations.
      deviation: standard deviation over the channels.
      expected_deviation: the same by the equations.
    """

    mean: float
    expected_mean: float
    deviation: float
    expected_deviation: float


class Decay(NamedTuple):
    """Ways to update the moving statistics for the same rows: one device in sequence, or one of eight replicas.

    Attributes:
      alpha: decay of the sequential updates.
      beta: alpha to the eighth power.
      response: by way, the moving mean after each global step if all rows are 1, starting at 0.
      largest_error: by way, the largest difference between the response and 1 - alpha^(8 · step).
      noise: by way, the moving mean of noisy rows.
    """

    alpha: float
    beta: float
    response: Dict[str, List[float]]
    largest_error: Dict[str, float]
    noise: Dict[str, Noise]


def compare_decays(response_steps: int, noise_steps: int, noise_channels: int, seed: int) -> Decay:
    """Compares eight updates with `ALPHA` to one update with its eighth power.

    Args:
      response_steps: steps on constant rows.
      noise_steps: steps on noisy rows.
      noise_channels: channels of the noisy rows.
      seed: seed of the noisy rows.
    """
    beta = ALPHA**REPLICAS
    ways = {
        SEQUENTIAL: dataclasses.replace(ONE_DEVICE, batch_norm_decay=ALPHA),
        ONE_IN_EIGHT: dataclasses.replace(MODES[LOCAL], batch_norm_decay=beta),
        MEAN_OF_EIGHT: dataclasses.replace(MODES[AVERAGED], batch_norm_decay=beta),
    }
    exact = 1 - beta ** np.arange(1, response_steps + 1)
    response, noise = {}, {}
    for way, config in ways.items():
        ones = (np.ones([ROWS, 1], np.float32) for _ in range(response_steps))
        response[way] = np.array([statistics.mean[0] for statistics in moving_after_each(config, ones)])
        for statistics in moving_after_each(config, _noisy_ones(noise_steps, noise_channels, seed)):
            mean = statistics.mean.astype(np.float64)
        rows = ROWS if way == MEAN_OF_EIGHT else ROWS // REPLICAS
        updates = noise_steps * REPLICAS // config.replicas
        noise[way] = Noise(
            float(mean.mean()),
            1 - config.batch_norm_decay**updates,
            float(mean.std(ddof=1)),
            noise_deviation(1 / rows, config.batch_norm_decay, updates),
        )
    return Decay(
        ALPHA,
        beta,
        {way: values.tolist() for way, values in response.items()},
        {way: largest_difference(values, exact) for way, values in response.items()},
        noise,
    )


def noise_deviation(variance: float, decay: float, updates: int) -> float:
    """Standard deviation of a moving average of independent values, after updates from a constant."""
    return float(np.sqrt(variance * (1 - decay) / (1 + decay) * (1 - decay ** (2 * updates))))


def _noisy_ones(steps: int, channels: int, seed: int) -> Iterator[np.ndarray]:
    random = np.random.RandomState(seed)
    for _ in range(steps):
        yield (1 + random.standard_normal([ROWS, channels])).astype(np.float32)


def moving_after_each(config: Config, batches: Iterable[np.ndarray]) -> Iterator[Statistics]:
    """The moving statistics after each batch; one device takes the replicas' shares of it in turn."""
    updates = REPLICAS // config.replicas
    shares = (share for batch in batches for share in np.split(batch, updates))
    for update, (_, statistics) in enumerate(train(config, shares), 1):
        if update % updates == 0:
            yield statistics
