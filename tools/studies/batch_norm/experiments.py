"""The experiments on batch normalization across replicas.

The published experiment compares eight replicas with one device. It is repeated here, also with unequal replicas, with
groups, and with other decays. The program's layer runs on one device or on emulated cores.

Results have the layout of the JSON file. `KINDS` are the kinds of differences between two ways to normalize the same
rows. Each is the largest absolute difference over steps, rows and channels.
"""

import contextlib
import dataclasses
import itertools
from typing import Any, Dict, Iterable, Iterator, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from compat import tf
from inception_v3.batch_norm import batch_norm_for
from inception_v3.config import Config
from inception_v3.tpu import topology
from inception_v3.tpu.emulation import EmulatedCores

# The published experiment. Its layer is Keras' with the defaults: momentum (the decay) 0.99 and epsilon 1e-3.
REPLICAS, ROWS, CHANNELS, DECAY = 8, 256, 64, 0.99
# Decay of eight sequential updates; its eighth power is the decay of one replica in eight.
ALPHA = 0.9997

ONE_DEVICE = Config(use_tpu=False, train_batch_size=ROWS, eval_batch_size=ROWS, batch_norm_decay=DECAY)
EIGHT_CORES = dataclasses.replace(ONE_DEVICE, use_tpu=True, tpu=f'emulated:{REPLICAS}', num_shards=REPLICAS)
LOCAL, AVERAGED, SYNCHRONIZED = 'local', 'averaged', 'synchronized'
GROUPS = {f'groups of {size}': size for size in (2, 4)}
MODES: Dict[str, Config] = {
    **{mode: dataclasses.replace(EIGHT_CORES, batch_norm=mode) for mode in (LOCAL, AVERAGED, SYNCHRONIZED)},
    **{
        name: dataclasses.replace(EIGHT_CORES, batch_norm=SYNCHRONIZED, batch_norm_group_size=size)
        for name, size in GROUPS.items()
    },
}
SEQUENTIAL = 'one device, eight updates, decay α'
ONE_IN_EIGHT = 'one replica in eight (local), decay α⁸'
MEAN_OF_EIGHT = 'mean of eight replicas (averaged), decay α⁸'

# Training batches of the published experiment; steps of the response to constant rows; steps on noisy rows, and their
# channels; the seed of all draws.
SETTINGS = {'steps': 100, 'response_steps': 400, 'noise_steps': 200, 'noise_channels': 1024, 'seed': 0}


class Statistics(NamedTuple):
    """Moving statistics, or the moments of a batch: one value per channel each."""

    mean: np.ndarray
    variance: np.ndarray


class Trained(NamedTuple):
    """Training outputs [steps, rows, channels], inference outputs [rows, channels], and the moving statistics."""

    training_outputs: np.ndarray
    inference_outputs: np.ndarray
    moving_mean: np.ndarray
    moving_variance: np.ndarray


KINDS = Trained._fields
# For the same weights, only the difference of the inference outputs is published. `mean_and_kept` is the difference
# between the mean of the eight devices' own statistics and the statistics among the layer's weights.
PUBLISHED: Dict[str, Any] = {
    'per_replica': dict(zip(KINDS, (1.4629, 0.0932, 3.1e-9, 0.0199))),
    'synchronized': dict(zip(KINDS, (1.9e-6, 7.2e-7, 4.4e-9, 3.0e-7))),
    'same_weights': 4.8e-7,
    'mean_and_kept': 0.0,
}


# The layer of the program.


def train(config: Config, batches: Iterable[np.ndarray]) -> Iterator[Tuple[np.ndarray, Statistics]]:
    """Trains a single batch normalization layer on batches, float32 [rows, channels], whose rows the cores share.

    Yields the outputs of each step, [rows, channels], and the moving statistics after it.
    """
    batches = iter(batches)
    first = next(batches)
    with _layer(config, first.shape, is_training=True) as (session, rows, outputs, statistics):
        for batch in itertools.chain([first], batches):
            trained = np.concatenate(session.run(outputs, {rows: batch}))
            yield trained[:, 0, 0], Statistics(*session.run(statistics))


def infer(config: Config, batch: np.ndarray, statistics: Statistics) -> np.ndarray:
    """Normalizes a batch, float32 [rows, channels], with given moving statistics, as evaluation does."""
    with _layer(config, batch.shape, is_training=False) as (session, rows, outputs, variables):
        for variable, value in zip(variables, statistics):
            variable.load(value, session)
        return np.concatenate(session.run(outputs, {rows: batch}))[:, 0, 0]


@contextlib.contextmanager
def _layer(config: Config, shape: Sequence[int], is_training: bool) -> Iterator[Tuple[Any, ...]]:
    """A session with the layer, its input, the outputs of each replica, and the moving mean and variance."""
    graph = tf.Graph()
    with graph.as_default():
        rows = tf.placeholder(tf.float32, shape)
        normalize, devices = batch_norm_for(config, is_training), 1
        shares = tf.split(rows[:, tf.newaxis, tf.newaxis], config.replicas)
        if config.is_emulated:
            cores = EmulatedCores(topology.emulated(str(config.tpu)))
            devices = topology.emulated(str(config.tpu)).devices
            with cores.in_place_of_a_tpu():
                outputs = cores.replicate(lambda core: normalize(shares[core]))
        else:
            outputs = [normalize(*shares)]
        # Outside the cores, these are the variables of the first core.
        statistics = [variable for variable in tf.global_variables() if not variable.trainable]
        initial = [tf.global_variables_initializer(), tf.local_variables_initializer()]
    # One intra-op thread makes sums repeatable.
    options = tf.ConfigProto(device_count={'CPU': devices}, intra_op_parallelism_threads=1)
    with contextlib.closing(tf.Session(graph=graph, config=options)) as session:
        session.run(initial)
        yield session, rows, outputs, statistics


def moments_of(batch: np.ndarray) -> Statistics:
    """The mean and the unbiased variance of a batch, [rows, channels], in float64, as the layer computes them."""
    # With a decay of 0, the moving statistics are the moments of the last batch.
    ((_, statistics),) = train(dataclasses.replace(ONE_DEVICE, batch_norm_decay=0.0), [batch])
    return Statistics(*(values.astype(np.float64) for values in statistics))


# The published experiment.


def normal_rows(steps: int, seed: int) -> np.ndarray:
    """Standard-normal rows, float32 [steps, ROWS, CHANNELS]."""
    return np.random.RandomState(seed).standard_normal([steps, ROWS, CHANNELS]).astype(np.float32)


def made_unequal(rows: np.ndarray) -> np.ndarray:
    """The same rows, [steps, ROWS, CHANNELS], with r added to the rows of replica r."""
    return rows + np.repeat(np.arange(REPLICAS, dtype=np.float32), ROWS // REPLICAS)[:, np.newaxis]


def train_and_infer(config: Config, batches: np.ndarray) -> Trained:
    """Trains on all batches, [steps, rows, channels], except the last, which is for inference."""
    steps = list(train(config, batches[:-1]))
    statistics = steps[-1][1]
    outputs = np.stack([outputs for outputs, _ in steps])
    return Trained(outputs, infer(config, batches[-1], statistics), *statistics)


def largest_difference(one: np.ndarray, other: np.ndarray) -> float:
    """The largest absolute difference of two arrays, computed in float64."""
    return float(np.abs(one.astype(np.float64) - other).max())


def differences(one: Trained, other: Trained) -> Dict[str, float]:
    """The largest difference of each kind."""
    return dict(zip(KINDS, map(largest_difference, one, other)))


def without_bessel(config: Config, trained: Trained, batches: np.ndarray) -> Trained:
    """The results of `train_and_infer` if the moving variance averaged biased variances.

    The moving variance is linear in the variances of the batches. The contribution of its initial value, 1, is kept;
    the rest is divided by Bessel's factor n / (n - 1), where n is the number of rows in a variance.
    """
    initial = config.batch_norm_decay ** (len(batches) - 1)
    rows = batches.shape[1] // config.replicas
    variance = initial + (trained.moving_variance - initial) * (rows - 1) / rows
    outputs = infer(config, batches[-1], Statistics(trained.moving_mean, variance))
    return trained._replace(inference_outputs=outputs, moving_variance=variance)


def compare(batches: np.ndarray) -> Dict[str, Any]:
    """Compares each mode with one device, on batches [steps, rows, channels]; the last is for inference.

    Returns:
      modes: the differences in each of `MODES`.
      without_bessel: the same for local and averaged, if cores and device averaged biased variances.
      same_weights: largest difference of inference outputs if the cores use the device's moving statistics.
      own: for each of eight devices that train alone with a core's rows, the differences of its moving mean and moving
        variance. Cores share the first one's statistics at the beginning of each loop; such devices keep their own.
      mean_of_own: the same for the mean of the eight devices' statistics.
      mean_and_kept: largest difference between that mean and the statistics that `averaged` keeps.
    """
    reference = train_and_infer(ONE_DEVICE, batches)
    trained = {mode: train_and_infer(config, batches) for mode, config in MODES.items()}
    uncorrected = without_bessel(ONE_DEVICE, reference, batches)
    own = [[*train(ONE_DEVICE, rows)][-1][1] for rows in np.split(batches[:-1], REPLICAS, axis=1)]
    mean_of_own = [np.mean([each.astype(np.float64) for each in values], 0) for values in zip(*own)]
    one_device = Statistics(*reference[2:])
    return {
        'modes': {mode: differences(reference, other) for mode, other in trained.items()},
        'without_bessel': {
            mode: differences(uncorrected, without_bessel(MODES[mode], trained[mode], batches))
            for mode in (LOCAL, AVERAGED)
        },
        'same_weights': largest_difference(reference.inference_outputs, infer(EIGHT_CORES, batches[-1], one_device)),
        'own': [[*map(largest_difference, each, one_device)] for each in own],
        'mean_of_own': [*map(largest_difference, mean_of_own, one_device)],
        'mean_and_kept': max(map(largest_difference, mean_of_own, trained[AVERAGED][2:])),
    }


def recover(batch: np.ndarray) -> Dict[str, float]:
    """Recovers the variance of a batch, [rows, channels], from the moments of the replicas' rows.

    Returns means over the channels of the mean of the replicas' (biased) variances, of the variance of their means, and
    of the (biased) variance of all rows, from one device; and the largest relative error of the sum of the first two.
    """
    replicas = [moments_of(rows) for rows in np.split(batch, REPLICAS)]
    whole = moments_of(batch).variance * (len(batch) - 1) / len(batch)
    rows = len(batch) // REPLICAS
    mean_of_variances = np.mean([moments.variance for moments in replicas], 0) * (rows - 1) / rows
    variance_of_means = np.var([moments.mean for moments in replicas], 0)
    return {
        'mean_of_variances': float(mean_of_variances.mean()),
        'variance_of_means': float(variance_of_means.mean()),
        'variance': float(whole.mean()),
        'largest_error': float(np.abs((mean_of_variances + variance_of_means) / whole - 1).max()),
    }


# The decay.


def compare_decays(response_steps: int, noise_steps: int, noise_channels: int, seed: int) -> Dict[str, Any]:
    """Compares eight updates with `ALPHA` to one update with its eighth power, on constant and on noisy rows.

    Returns:
      alpha: decay of the sequential updates.
      beta: alpha to the eighth power.
      response: by way, the moving mean after each global step if all rows are 1, starting at 0.
      largest_error: by way, the largest difference between the response and 1 - alpha^(8 · step).
      noise: by way, mean and standard deviation over the channels of the final moving mean of normal rows with mean 1
        and variance 1, starting at 0; and the same by the equations.
    """
    beta = ALPHA**REPLICAS
    ways = {
        SEQUENTIAL: dataclasses.replace(ONE_DEVICE, batch_norm_decay=ALPHA),
        ONE_IN_EIGHT: dataclasses.replace(MODES[LOCAL], batch_norm_decay=beta),
        MEAN_OF_EIGHT: dataclasses.replace(MODES[AVERAGED], batch_norm_decay=beta),
    }
    exact = 1 - beta ** np.arange(1, response_steps + 1)
    response, errors, noise = {}, {}, {}
    for way, config in ways.items():
        ones = (np.ones([ROWS, 1], np.float32) for _ in range(response_steps))
        moving = np.array([statistics.mean[0] for statistics in moving_after_each(config, ones)])
        response[way], errors[way] = moving.tolist(), largest_difference(moving, exact)
        random = np.random.RandomState(seed)
        noisy = ((1 + random.standard_normal([ROWS, noise_channels])).astype(np.float32) for _ in range(noise_steps))
        mean = [*moving_after_each(config, noisy)][-1].mean.astype(np.float64)
        rows = ROWS if way == MEAN_OF_EIGHT else ROWS // REPLICAS
        updates = noise_steps * REPLICAS // config.replicas
        noise[way] = {
            'mean': float(mean.mean()),
            'expected_mean': 1 - config.batch_norm_decay**updates,
            'deviation': float(mean.std(ddof=1)),
            'expected_deviation': noise_deviation(1 / rows, config.batch_norm_decay, updates),
        }
    return {'alpha': ALPHA, 'beta': beta, 'response': response, 'largest_error': errors, 'noise': noise}


def noise_deviation(variance: float, decay: float, updates: int) -> float:
    """Standard deviation of a moving average of independent values, after a number of updates from a constant."""
    return float(np.sqrt(variance * (1 - decay) / (1 + decay) * (1 - decay ** (2 * updates))))


def moving_after_each(config: Config, batches: Iterable[np.ndarray]) -> Iterator[Statistics]:
    """The moving statistics after each batch; one device takes the replicas' shares of a batch in turn."""
    updates = REPLICAS // config.replicas
    shares = (share for batch in batches for share in np.split(batch, updates))
    return (statistics for _, statistics in itertools.islice(train(config, shares), updates - 1, None, updates))


def measure(settings: Mapping[str, int]) -> Dict[str, Any]:
    """Runs all experiments with settings like `SETTINGS`; the same settings give the same numbers."""
    steps, response_steps, noise_steps, noise_channels, seed = settings.values()
    equal = normal_rows(steps + 1, seed)
    unequal = made_unequal(equal)
    return {
        'settings': {**settings},
        'equal': compare(equal),
        'unequal': compare(unequal),
        'recovery': {'equal': recover(equal[0]), 'unequal': recover(unequal[0])},
        'decay': compare_decays(response_steps, noise_steps, noise_channels, seed),
    }
