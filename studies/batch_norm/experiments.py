"""The experiments on batch normalization across replicas, and their results.

The published experiment compares eight replicas with one device; here also with unequal replicas, with groups, by the
equations with other settings, and with other decays.
"""

import dataclasses
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from inception_v3.batch_norm import EPSILON
from inception_v3.config import Config
from studies.batch_norm.layer import (
    AVERAGED,
    CHANNELS,
    DECAY,
    EIGHT_CORES,
    LOCAL,
    MODES,
    ONE_DEVICE,
    REPLICAS,
    ROWS,
    Statistics,
    infer,
    moments_of,
    train,
)

# Decay of eight sequential updates; its eighth power is the decay of one replica in eight.
ALPHA = 0.9997

SEQUENTIAL = 'one device, eight updates, decay α'
ONE_IN_EIGHT = 'one replica in eight (local), decay α⁸'
MEAN_OF_EIGHT = 'mean of eight replicas (averaged), decay α⁸'


class Differences(NamedTuple):
    """The largest absolute differences between two ways to normalize the same rows, over steps, rows and channels."""

    training_outputs: float
    inference_outputs: float
    moving_mean: float
    moving_variance: float


class Published(NamedTuple):
    """The published differences; for "same weights", only that of the inference outputs.

    `mean_and_kept` is the difference between the mean of the eight devices' own statistics and what the weights give.
    """

    per_replica: Differences = Differences(1.4629, 0.0932, 3.1e-9, 0.0199)
    synchronized: Differences = Differences(1.9e-6, 7.2e-7, 4.4e-9, 3.0e-7)
    same_weights: float = 4.8e-7
    mean_and_kept: float = 0.0


PUBLISHED = Published()


def normal_rows(steps: int, seed: int) -> np.ndarray:
    """Standard-normal rows, float32 [steps, ROWS, CHANNELS]."""
    return np.random.RandomState(seed).standard_normal([steps, ROWS, CHANNELS]).astype(np.float32)


def made_unequal(rows: np.ndarray) -> np.ndarray:
    """The same rows, [steps, ROWS, CHANNELS], with r added to the rows of replica r."""
    return rows + np.repeat(np.arange(REPLICAS, dtype=np.float32), ROWS // REPLICAS)[:, np.newaxis]


class Trained(NamedTuple):
    """Training outputs [steps, rows, channels], the moving statistics, and inference outputs [rows, channels]."""

    training_outputs: np.ndarray
    statistics: Statistics
    inference_outputs: np.ndarray


def train_and_infer(config: Config, batches: np.ndarray) -> Trained:
    """Trains on all batches, [steps, rows, channels], except the last, which is for inference."""
    steps = list(train(config, batches[:-1]))
    statistics = steps[-1][1]
    return Trained(np.stack([outputs for outputs, _ in steps]), statistics, infer(config, batches[-1], statistics))


def differences(one: Trained, other: Trained) -> Differences:
    """The largest difference of each kind."""
    kinds = [(each.training_outputs, each.inference_outputs, *each.statistics) for each in (one, other)]
    return Differences(*map(largest_difference, *kinds))


def largest_difference(one: np.ndarray, other: np.ndarray) -> float:
    """The largest absolute difference of two arrays, computed in float64."""
    return float(np.abs(one.astype(np.float64) - other).max())


def without_bessel(config: Config, trained: Trained, batches: np.ndarray) -> Trained:
    """The results of `train_and_infer` if the moving variance averaged biased variances.

    The moving variance is linear in the variances of the batches. The contribution of its initial value, 1, is kept;
    the rest is divided by Bessel's factor n / (n - 1), where n is the number of rows in a variance.
    """
    initial = config.batch_norm_decay ** (len(batches) - 1)
    rows = batches.shape[1] // config.replicas
    variance = initial + (trained.statistics.variance - initial) * (rows - 1) / rows
    statistics = Statistics(trained.statistics.mean, variance)
    return trained._replace(statistics=statistics, inference_outputs=infer(config, batches[-1], statistics))


class Comparison(NamedTuple):
    """Differences of eight cores from one device.

    Attributes:
      modes: the differences in each of `MODES`.
      without_bessel: the same for local and averaged, if cores and device averaged biased variances.
      same_weights: largest difference of inference outputs if the cores use the device's moving statistics.
      own: for each of eight devices that train alone with a core's rows, the differences of its moving mean and moving
        variance. Cores share the first one's statistics at the beginning of each loop; such devices keep their own.
      mean_of_own: the same for the mean of the eight devices' statistics.
      mean_and_kept: largest difference between that mean and the statistics that `averaged` keeps.
    """

    modes: Dict[str, Differences]
    without_bessel: Dict[str, Differences]
    same_weights: float
    own: List[List[float]]
    mean_of_own: List[float]
    mean_and_kept: float


def compare(batches: np.ndarray) -> Comparison:
    """Compares each mode with one device, on batches [steps, rows, channels]; the last is for inference."""
    reference = train_and_infer(ONE_DEVICE, batches)
    trained = {mode: train_and_infer(config, batches) for mode, config in MODES.items()}
    uncorrected = without_bessel(ONE_DEVICE, reference, batches)
    own = [[*train(ONE_DEVICE, rows)][-1][1] for rows in np.split(batches[:-1], REPLICAS, axis=1)]
    mean_of_own = Statistics(*(np.mean([each.astype(np.float64) for each in values], 0) for values in zip(*own)))
    kept = trained[AVERAGED].statistics

    def from_device(statistics: Statistics) -> List[float]:
        return [largest_difference(*pair) for pair in zip(statistics, reference.statistics)]

    return Comparison(
        {mode: differences(reference, other) for mode, other in trained.items()},
        {
            mode: differences(uncorrected, without_bessel(MODES[mode], trained[mode], batches))
            for mode in (LOCAL, AVERAGED)
        },
        largest_difference(reference.inference_outputs, infer(EIGHT_CORES, batches[-1], reference.statistics)),
        [from_device(statistics) for statistics in own],
        from_device(mean_of_own),
        max(largest_difference(*pair) for pair in zip(mean_of_own, kept)),
    )


class Recovery(NamedTuple):
    """The variance of a batch, recovered from the moments of the replicas; means over the channels.

    Attributes:
      mean_of_variances: mean over the replicas of the (biased) variances of their rows.
      variance_of_means: variance over the replicas of the means of their rows.
      variance: the (biased) variance of all rows, from one device.
      largest_error: largest relative error of `mean_of_variances + variance_of_means`, over the channels.
    """

    mean_of_variances: float
    variance_of_means: float
    variance: float
    largest_error: float


def recover(batch: np.ndarray) -> Recovery:
    """Recovers the variance of a batch, [rows, channels], from the moments of the replicas' rows."""
    replicas = [moments_of(rows) for rows in np.split(batch, REPLICAS)]
    whole = moments_of(batch).variance * (len(batch) - 1) / len(batch)
    rows = len(batch) // REPLICAS
    mean_of_variances = np.mean([moments.variance for moments in replicas], 0) * (rows - 1) / rows
    variance_of_means = np.var([moments.mean for moments in replicas], 0)
    error = np.abs((mean_of_variances + variance_of_means) / whole - 1)
    of_channels = (mean_of_variances.mean(), variance_of_means.mean(), whole.mean(), error.max())
    return Recovery(*map(float, of_channels))


class Range(NamedTuple):
    """The minimum and the maximum of several values."""

    least: float
    greatest: float


class Reading(NamedTuple):
    """The published experiment by its equations, for one decay and kind of variance.

    The ranges are of the largest differences between per-replica batch normalization and one device, over the draws.

    Attributes:
      decay: decay of the moving statistics.
      bessel: whether the moving variance averages unbiased variances.
      training_outputs: of training outputs.
      inference_own: of inference outputs, if each replica uses its own moving statistics.
      inference_averaged: of inference outputs, if all replicas use the mean of their moving statistics.
      moving_variance: of the moving variance, averaged over the replicas.
    """

    decay: float
    bessel: bool
    training_outputs: Range
    inference_own: Range
    inference_averaged: Range
    moving_variance: Range


def readings(decays: Sequence[float], steps: int, seeds: Iterable[int]) -> List[Reading]:
    """Repeats the experiment in NumPy, in float64, for each decay, without and with Bessel's correction."""
    settings = [(decay, bessel) for decay in decays for bessel in (False, True)]
    drawn = [_differences(normal_rows(steps + 1, seed), settings) for seed in seeds]
    ranges = [[Range(min(each), max(each)) for each in zip(*of_setting)] for of_setting in zip(*drawn)]
    return [Reading(*setting, *of_setting) for setting, of_setting in zip(settings, ranges)]


def _differences(batches: np.ndarray, settings: Sequence[Tuple[float, bool]]) -> List[Tuple[float, ...]]:
    """The differences of one draw, in the order of `Reading`'s fields, for each (decay, bessel)."""
    # [steps, replicas, rows of a replica, channels]; one device is one replica with all rows.
    replicas, whole = (
        batches.reshape([len(batches), n, -1, batches.shape[-1]]).astype(np.float64) for n in (REPLICAS, 1)
    )
    of_replicas, of_whole = (
        _normalize(rows[:-1], Statistics(rows[:-1].mean(2, keepdims=True), rows[:-1].var(2, keepdims=True)))
        for rows in (replicas, whole)
    )
    training_outputs = largest_difference(of_replicas.reshape(of_whole.shape), of_whole)
    values = []
    for decay, bessel in settings:
        own, (one,) = _moving(replicas[:-1], decay, bessel), _moving(whole[:-1], decay, bessel)
        averaged = Statistics(*np.mean(own, 0))
        reference = _normalize(replicas[-1], one)
        inference_own = np.stack([_normalize(*of_replica) for of_replica in zip(replicas[-1], own)])
        inference = (inference_own, _normalize(replicas[-1], averaged))
        largest = (largest_difference(each, reference) for each in inference)
        values.append((training_outputs, *largest, largest_difference(averaged.variance, one.variance)))
    return values


def _normalize(rows: np.ndarray, statistics: Statistics) -> np.ndarray:
    return (rows - statistics.mean) / np.sqrt(statistics.variance + EPSILON)


def _moving(rows: np.ndarray, decay: float, bessel: bool) -> List[Statistics]:
    """The moving statistics of each replica after training on rows [steps, replicas, rows, channels]."""
    steps = len(rows)
    weights = (1 - decay) * decay ** np.arange(steps - 1, -1, -1.0)
    means = np.tensordot(weights, rows.mean(2), 1)
    variances = decay**steps + np.tensordot(weights, rows.var(2, ddof=int(bessel)), 1)
    return [Statistics(*of_replica) for of_replica in zip(means, variances)]


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
    """Compares eight updates with `ALPHA` to one update with its eighth power, on constant and on noisy rows."""
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


class Settings(NamedTuple):
    """The size of the experiments.

    Attributes:
      steps: training batches of the published experiment.
      draws: repetitions of that experiment in NumPy, which show its random variation.
      response_steps: steps of the response to constant rows.
      noise_steps: steps on noisy rows.
      noise_channels: channels of the noisy rows.
      seed: seed of all draws.
    """

    steps: int = 100
    draws: int = 20
    response_steps: int = 400
    noise_steps: int = 200
    noise_channels: int = 1024
    seed: int = 0


class Results(NamedTuple):
    """The results of the study.

    Attributes:
      settings: the size of the experiments.
      equal: the published experiment.
      unequal: the same experiment with rows of mean r on replica r.
      readings: the experiment by its equations, for several decays, with biased and unbiased variance.
      recovery: the recovered variance of the first batch, with equal and with unequal replicas.
      decay: the decay of one replica in eight.
    """

    settings: Settings
    equal: Comparison
    unequal: Comparison
    readings: List[Reading]
    recovery: Dict[str, Recovery]
    decay: Decay


def measure(settings: Settings) -> Results:
    """Runs all experiments; the same settings give the same numbers."""
    equal = normal_rows(settings.steps + 1, settings.seed)
    unequal = made_unequal(equal)
    return Results(
        settings,
        compare(equal),
        compare(unequal),
        readings((0.9, DECAY, 0.999), settings.steps, range(settings.seed, settings.seed + settings.draws)),
        {'equal': recover(equal[0]), 'unequal': recover(unequal[0])},
        compare_decays(settings.response_steps, settings.noise_steps, settings.noise_channels, settings.seed),
    )


def as_dict(value: Any) -> Any:
    """Results, or any part of them, for JSON: named tuples become objects."""
    if isinstance(value, tuple) and hasattr(value, '_asdict'):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: as_dict(part) for key, part in value.items()}
    return [as_dict(part) for part in value] if isinstance(value, list) else value
