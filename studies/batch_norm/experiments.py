"""Batch normalization across replicas, measured: the published experiment, and what its table leaves out.

A batch of 256 rows of 64 channels is normalized by one device, and by 8 emulated cores with 32 rows each, under each
of the program's settings. What is reported is the largest absolute difference between the two.
"""

import contextlib
import dataclasses
import itertools
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np
import tensorflow as tf

from inception_v3.batch_norm import EPSILON, batch_norm_for
from inception_v3.config import Config
from inception_v3.tpu import topology
from inception_v3.tpu.emulation.cores import EmulatedCores

# The published experiment, but for the decay, which it does not tell; `readings` has the reason for this one.
REPLICAS = 8
ROWS = 256
CHANNELS = 64
DECAY = 0.99

# Decay of eight sequential updates, whose eighth power is that of one replica in eight.
ALPHA = 0.9997

ONE_DEVICE = Config(use_tpu=False, train_batch_size=ROWS, eval_batch_size=ROWS, batch_norm_decay=DECAY)
EIGHT_CORES = dataclasses.replace(ONE_DEVICE, use_tpu=True, tpu=f'emulated:{REPLICAS}', num_shards=REPLICAS)
LOCAL = 'local'
AVERAGED = 'averaged'
SYNCHRONIZED = 'synchronized'
GROUPS = {f'groups of {size}': size for size in (2, 4)}
MODES: Dict[str, Config] = {
    LOCAL: dataclasses.replace(EIGHT_CORES, batch_norm='local'),
    AVERAGED: dataclasses.replace(EIGHT_CORES, batch_norm='averaged'),
    SYNCHRONIZED: dataclasses.replace(EIGHT_CORES, batch_norm='synchronized'),
    **{
        name: dataclasses.replace(EIGHT_CORES, batch_norm='synchronized', batch_norm_group_size=size)
        for name, size in GROUPS.items()
    },
}


class Settings(NamedTuple):
    """How much is measured.

    Attributes:
      steps: training batches of the published experiment.
      draws: draws of it in NumPy, which tell how far its figures depend on chance.
      response_steps: steps of the response to constant rows.
      noise_steps: steps on noisy rows.
      noise_channels: channels of the noisy rows.
      seed: of all draws.
    """

    steps: int = 100
    draws: int = 20
    response_steps: int = 400
    noise_steps: int = 200
    noise_channels: int = 1024
    seed: int = 0


class Statistics(NamedTuple):
    """Moving statistics, or the moments of a batch: one value per channel each."""

    mean: np.ndarray
    variance: np.ndarray


class Differences(NamedTuple):
    """The largest absolute differences of two ways to normalize the same rows, over all steps, rows and channels."""

    training_outputs: float
    inference_outputs: float
    moving_mean: float
    moving_variance: float


class Published(NamedTuple):
    """What was published of the experiment; of the last, inference alone."""

    per_replica: Differences = Differences(1.4629, 0.0932, 3.1e-9, 0.0199)
    synchronized: Differences = Differences(1.9e-6, 7.2e-7, 4.4e-9, 3.0e-7)
    same_weights: float = 4.8e-7


PUBLISHED = Published()


# The program at work: a layer of its batch normalization, on one device or on emulated cores.


def train(config: Config, batches: Iterable[np.ndarray]) -> Iterator[Tuple[np.ndarray, Statistics]]:
    """Trains a batch normalization by itself.

    Args:
      config: how it normalizes, and on how many cores.
      batches: float32 [rows, channels], all of the same shape; each core takes its share of the rows, in order.

    Yields:
      The outputs of a step, [rows, channels], and the moving statistics after it.
    """
    batches = iter(batches)
    first = next(batches)
    with tf.Graph().as_default() as graph:
        rows = tf.compat.v1.placeholder(tf.float32, first.shape)
        outputs = _on_all_replicas(config, rows, batch_norm_for(config, is_training=True))
        statistics = _moving_statistics()
    with _new_session(config, graph) as session:
        for batch in itertools.chain([first], batches):
            trained = np.concatenate(session.run(outputs, {rows: batch}))
            yield trained[:, 0, 0], Statistics(*session.run(statistics))


def infer(config: Config, batch: np.ndarray, statistics: Statistics) -> np.ndarray:
    """Normalizes a batch with given moving statistics, as an evaluation with those of a checkpoint does.

    Args:
      config: on how many cores.
      batch: float32 [rows, channels].
      statistics: moving statistics.

    Returns:
      The outputs, [rows, channels].
    """
    with tf.Graph().as_default() as graph:
        rows = tf.compat.v1.placeholder(tf.float32, batch.shape)
        outputs = _on_all_replicas(config, rows, batch_norm_for(config, is_training=False))
        variables = _moving_statistics()
    with _new_session(config, graph) as session:
        for variable, value in zip(variables, statistics):
            variable.load(value, session)
        return np.concatenate(session.run(outputs, {rows: batch}))[:, 0, 0]


def moments_of_replicas(config: Config, batch: np.ndarray) -> List[Statistics]:
    """The mean and the unbiased variance that each replica takes of its rows of a batch, [rows, channels]."""
    config = dataclasses.replace(config, batch_norm_decay=0.0)
    normalize = batch_norm_for(config, is_training=True)

    def moments(rows: tf.Tensor) -> List[tf.Tensor]:
        # Without a memory, a core's moving statistics are the moments of its last rows.
        with tf.control_dependencies([normalize(rows)]):
            return [variable.read_value() for variable in _moving_statistics()]

    with tf.Graph().as_default() as graph:
        rows = tf.compat.v1.placeholder(tf.float32, batch.shape)
        statistics = _on_all_replicas(config, rows, moments)
    with _new_session(config, graph) as session:
        return [Statistics(*values) for values in session.run(statistics, {rows: batch})]


def _on_all_replicas(config: Config, rows: tf.Tensor, computation: Callable[[tf.Tensor], Any]) -> List[Any]:
    """Builds a computation on every replica's share of the rows, [batch, 1, 1, channels]."""
    shares = tf.split(rows[:, tf.newaxis, tf.newaxis], config.replicas)
    if not config.is_emulated:
        return [computation(*shares)]
    cores = EmulatedCores(topology.emulated(str(config.tpu)))
    with cores.in_place_of_a_tpu():
        return cores.replicate(lambda core: computation(shares[core]))


def _moving_statistics() -> List[tf.Variable]:
    """The moving mean and variance: inside an emulated core its own, outside of all those of the first."""
    return [variable for variable in tf.compat.v1.global_variables() if not variable.trainable]


@contextlib.contextmanager
def _new_session(config: Config, graph: tf.Graph) -> Iterator[tf.compat.v1.Session]:
    """A session with its variables initialized, which gives the same sums every time."""
    devices = topology.emulated(str(config.tpu)).devices if config.is_emulated else 1
    options = tf.compat.v1.ConfigProto(device_count={'CPU': devices}, intra_op_parallelism_threads=1)
    with graph.as_default():
        initial = [tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()]
    with contextlib.closing(tf.compat.v1.Session(graph=graph, config=options)) as session:
        session.run(initial)
        yield session


# The published experiment, and the same with unequal replicas and with groups.


def normal_rows(steps: int, seed: int) -> np.ndarray:
    """Standard-normal rows, float32 [steps, ROWS, CHANNELS]."""
    return np.random.RandomState(seed).standard_normal([steps, ROWS, CHANNELS]).astype(np.float32)


def made_unequal(rows: np.ndarray) -> np.ndarray:
    """The same rows, [steps, ROWS, CHANNELS], with r added to all of replica r."""
    return rows + np.repeat(np.arange(REPLICAS, dtype=np.float32), ROWS // REPLICAS)[:, np.newaxis]


class Trained(NamedTuple):
    """What training and inference gave: outputs [steps, rows, channels], statistics, outputs [rows, channels]."""

    training_outputs: np.ndarray
    statistics: Statistics
    inference_outputs: np.ndarray


def train_and_infer(config: Config, batches: np.ndarray) -> Trained:
    """Trains on all batches, [steps, rows, channels], but the last, which is for inference."""
    steps = list(train(config, batches[:-1]))
    statistics = steps[-1][1]
    return Trained(np.stack([outputs for outputs, _ in steps]), statistics, infer(config, batches[-1], statistics))


def differences(one: Trained, other: Trained) -> Differences:
    """The largest differences of each kind."""
    return Differences(
        _largest_difference(one.training_outputs, other.training_outputs),
        _largest_difference(one.inference_outputs, other.inference_outputs),
        _largest_difference(one.statistics.mean, other.statistics.mean),
        _largest_difference(one.statistics.variance, other.statistics.variance),
    )


def _largest_difference(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(np.float64) - other).max())


def without_bessel(config: Config, trained: Trained, batches: np.ndarray) -> Trained:
    """What `train_and_infer` would have given if the moving variance took the biased variance of each batch.

    The moving variance is linear in those of the batches: what is left of its first value, 1, stays; the rest loses
    Bessel's factor n / (n - 1), for the n rows that a variance is of.
    """
    initial = config.batch_norm_decay ** (len(batches) - 1)
    rows = batches.shape[1] // config.replicas
    variance = initial + (trained.statistics.variance - initial) * (rows - 1) / rows
    statistics = Statistics(trained.statistics.mean, variance)
    return trained._replace(statistics=statistics, inference_outputs=infer(config, batches[-1], statistics))


class Comparison(NamedTuple):
    """Settings on eight cores against one device.

    Attributes:
      modes: for each of `MODES`.
      without_bessel: the same for local and averaged, if neither they nor the one device corrected their variances.
      same_weights: largest difference of the inference outputs if the cores get the one device's moving statistics.
    """

    modes: Dict[str, Differences]
    without_bessel: Dict[str, Differences]
    same_weights: float


def compare(batches: np.ndarray) -> Comparison:
    """Compares every setting with one device, on [steps, rows, channels], of which the last are for inference."""
    reference = train_and_infer(ONE_DEVICE, batches)
    trained = {mode: train_and_infer(config, batches) for mode, config in MODES.items()}
    uncorrected = without_bessel(ONE_DEVICE, reference, batches)
    return Comparison(
        {mode: differences(reference, other) for mode, other in trained.items()},
        {
            mode: differences(uncorrected, without_bessel(MODES[mode], trained[mode], batches))
            for mode in (LOCAL, AVERAGED)
        },
        _largest_difference(reference.inference_outputs, infer(EIGHT_CORES, batches[-1], reference.statistics)),
    )


# What the published figures are of: the same experiment by its equations, over many draws and possible readings.


class Range(NamedTuple):
    """The least and the greatest of some values."""

    least: float
    greatest: float


class Reading(NamedTuple):
    """Differences that a per-replica batch normalization has from one device, over draws of the experiment.

    Attributes:
      decay: of the moving statistics.
      bessel: whether the moving variance takes unbiased variances.
      training_outputs: largest differences of training outputs.
      inference_own: of inference outputs, if each replica infers with its own moving statistics.
      inference_averaged: of inference outputs, if all infer with the mean over the replicas of those.
      moving_variance: of the moving variance, as the mean over the replicas.
    """

    decay: float
    bessel: bool
    training_outputs: Range
    inference_own: Range
    inference_averaged: Range
    moving_variance: Range


def readings(decays: Sequence[float], steps: int, seeds: Iterable[int]) -> List[Reading]:
    """The experiment in NumPy, in float64, for each decay without and with Bessel's correction."""
    settings = [(decay, bessel) for decay in decays for bessel in (False, True)]
    drawn = [_read(normal_rows(steps + 1, seed), settings) for seed in seeds]
    return [
        Reading(decay, bessel, *(Range(min(values), max(values)) for values in zip(*of_setting)))
        for (decay, bessel), of_setting in zip(settings, zip(*drawn))
    ]


def _read(batches: np.ndarray, settings: Sequence[Tuple[float, bool]]) -> List[Tuple[float, float, float, float]]:
    """The differences of a draw, in the order of `Reading`, for each decay without or with the correction."""
    # [steps, replicas, rows of a replica, channels], and one device as a replica with all the rows.
    replicas, whole = (
        batches.reshape([len(batches), n, -1, batches.shape[-1]]).astype(np.float64) for n in (REPLICAS, 1)
    )
    outputs = [
        _normalize(rows[:-1], Statistics(rows[:-1].mean(2, keepdims=True), rows[:-1].var(2, keepdims=True)))
        for rows in (replicas, whole)
    ]
    training_outputs = _largest_difference(outputs[0].reshape(outputs[1].shape), outputs[1])
    values = []
    for decay, bessel in settings:
        own, (one,) = _moving(replicas[:-1], decay, bessel), _moving(whole[:-1], decay, bessel)
        averaged = Statistics(*np.mean(own, 0))
        reference = _normalize(replicas[-1], one)
        each = np.stack([_normalize(*of_replica) for of_replica in zip(replicas[-1], own)])
        values.append(
            (
                training_outputs,
                _largest_difference(each, reference),
                _largest_difference(_normalize(replicas[-1], averaged), reference),
                _largest_difference(averaged.variance, one.variance),
            )
        )
    return values


def _normalize(rows: np.ndarray, statistics: Statistics) -> np.ndarray:
    return (rows - statistics.mean) / np.sqrt(statistics.variance + EPSILON)


def _moving(rows: np.ndarray, decay: float, bessel: bool) -> List[Statistics]:
    """Each replica's moving statistics after training on [steps, replicas, rows, channels]."""
    steps = len(rows)
    weights = (1 - decay) * decay ** np.arange(steps - 1, -1, -1.0)
    means = np.tensordot(weights, rows.mean(2), 1)
    variances = decay**steps + np.tensordot(weights, rows.var(2, ddof=int(bessel)), 1)
    return [Statistics(*of_replica) for of_replica in zip(means, variances)]


# The variance of the means, recovered.


class Recovery(NamedTuple):
    """The variance of a batch from the moments of the replicas; means over the channels, but for the last.

    Attributes:
      mean_of_variances: mean over the replicas of the (biased) variances of their rows.
      variance_of_means: variance over the replicas of the means of their rows.
      variance: the (biased) variance of all rows, from one device.
      largest_error: over the channels, of the sum of the first two as the third, relative to it.
    """

    mean_of_variances: float
    variance_of_means: float
    variance: float
    largest_error: float


def recover(batch: np.ndarray) -> Recovery:
    """The variance of a batch, [rows, channels], from the moments that the program takes on each core."""
    replicas = moments_of_replicas(EIGHT_CORES, batch)
    whole = moments_of_replicas(ONE_DEVICE, batch)[0].variance.astype(np.float64) * (len(batch) - 1) / len(batch)
    rows = len(batch) // len(replicas)
    mean_of_variances = np.mean([moments.variance.astype(np.float64) for moments in replicas], 0) * (rows - 1) / rows
    variance_of_means = np.var([moments.mean.astype(np.float64) for moments in replicas], 0)
    error = np.abs((mean_of_variances + variance_of_means) / whole - 1)
    return Recovery(
        *(float(x) for x in (mean_of_variances.mean(), variance_of_means.mean(), whole.mean(), error.max()))
    )


# The decay of one replica in eight.

SEQUENTIAL = 'one device, eight updates, decay α'
ONE_IN_EIGHT = 'one replica in eight (local), decay α⁸'
MEAN_OF_EIGHT = 'mean of eight replicas (averaged), decay α⁸'


class Noise(NamedTuple):
    """The moving mean over many channels of normal rows of mean 1 and variance 1, from 0 on.

    Attributes:
      mean: mean over the channels, in the end.
      expected_mean: by the equations, for any channel.
      deviation: standard deviation over the channels, in the end.
      expected_deviation: by the equations.
    """

    mean: float
    expected_mean: float
    deviation: float
    expected_deviation: float


class Decay(NamedTuple):
    """Ways to update the moving statistics for the same rows: one device in sequence, or one of eight replicas.

    Attributes:
      alpha: decay of the sequential updates.
      beta: its eighth power.
      response: moving mean after each global step, from 0 on, if all rows are 1, by way.
      largest_error: of each way's response, from 1 - alpha^(8 · step).
      noise: what is left of the rows' noise, by way.
    """

    alpha: float
    beta: float
    response: Dict[str, List[float]]
    largest_error: Dict[str, float]
    noise: Dict[str, Noise]


def compare_decays(settings: Settings) -> Decay:
    """Shows in what `ALPHA` in eight updates agrees with its eighth power in one."""
    beta = ALPHA**REPLICAS
    ways = {
        SEQUENTIAL: dataclasses.replace(ONE_DEVICE, batch_norm_decay=ALPHA),
        ONE_IN_EIGHT: dataclasses.replace(MODES[LOCAL], batch_norm_decay=beta),
        MEAN_OF_EIGHT: dataclasses.replace(MODES[AVERAGED], batch_norm_decay=beta),
    }
    exact = 1 - beta ** np.arange(1, settings.response_steps + 1)
    response, noise = {}, {}
    for way, config in ways.items():
        ones = (np.ones([ROWS, 1], np.float32) for _ in range(settings.response_steps))
        response[way] = np.array([statistics.mean[0] for statistics in _moving_after_each(config, ones)])
        for statistics in _moving_after_each(config, _noisy_ones(settings)):
            mean = statistics.mean.astype(np.float64)
        rows = ROWS if way == MEAN_OF_EIGHT else ROWS // REPLICAS
        updates = settings.noise_steps * REPLICAS // config.replicas
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
        {way: _largest_difference(values, exact) for way, values in response.items()},
        noise,
    )


def noise_deviation(variance: float, decay: float, updates: int) -> float:
    """Standard deviation of a moving average of independent values of some variance, after updates from a constant."""
    return float(np.sqrt(variance * (1 - decay) / (1 + decay) * (1 - decay ** (2 * updates))))


def _noisy_ones(settings: Settings) -> Iterator[np.ndarray]:
    random = np.random.RandomState(settings.seed)
    for _ in range(settings.noise_steps):
        yield (1 + random.standard_normal([ROWS, settings.noise_channels])).astype(np.float32)


def _moving_after_each(config: Config, batches: Iterable[np.ndarray]) -> Iterator[Statistics]:
    """The moving statistics after each batch; one device takes the replicas' shares of it one after the other."""
    updates = REPLICAS // config.replicas
    shares = (share for batch in batches for share in np.split(batch, updates))
    for update, (_, statistics) in enumerate(train(config, shares), 1):
        if update % updates == 0:
            yield statistics


# All of it.


class Results(NamedTuple):
    """What the study measures.

    Attributes:
      settings: how much of it.
      equal: the published experiment.
      unequal: the same with rows of mean r on replica r.
      readings: what the published figures of it may be of.
      recovery: the variance of the first batch, of equal and of unequal replicas.
      decay: of one replica in eight.
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
        compare_decays(settings),
    )


def as_dict(value: Any) -> Any:
    """Results, or any part of them, as what JSON has: named tuples become objects with their names."""
    if isinstance(value, tuple) and hasattr(value, '_asdict'):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: as_dict(part) for key, part in value.items()}
    return [as_dict(part) for part in value] if isinstance(value, list) else value
