"""The published experiment: eight replicas compared with one device; also with unequal replicas, and with groups."""

from typing import Dict, List, NamedTuple

import numpy as np

from inception_v3.config import Config
from studies.batch_norm.layer import (
    AVERAGED,
    CHANNELS,
    EIGHT_CORES,
    LOCAL,
    MODES,
    ONE_DEVICE,
    REPLICAS,
    ROWS,
    Statistics,
    infer,
    moments_of_replicas,
    train,
)


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
    """Results of training and inference: outputs [steps, rows, channels], statistics, outputs [rows, channels]."""

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
    return Differences(
        largest_difference(one.training_outputs, other.training_outputs),
        largest_difference(one.inference_outputs, other.inference_outputs),
        largest_difference(one.statistics.mean, other.statistics.mean),
        largest_difference(one.statistics.variance, other.statistics.variance),
    )


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
    """Recovers the variance of a batch, [rows, channels], from the moments that the program computes on each core."""
    replicas = moments_of_replicas(EIGHT_CORES, batch)
    whole = moments_of_replicas(ONE_DEVICE, batch)[0].variance.astype(np.float64) * (len(batch) - 1) / len(batch)
    rows = len(batch) // len(replicas)
    mean_of_variances = np.mean([moments.variance.astype(np.float64) for moments in replicas], 0) * (rows - 1) / rows
    variance_of_means = np.var([moments.mean.astype(np.float64) for moments in replicas], 0)
    error = np.abs((mean_of_variances + variance_of_means) / whole - 1)
    return Recovery(
        *(float(x) for x in (mean_of_variances.mean(), variance_of_means.mean(), whole.mean(), error.max()))
    )
