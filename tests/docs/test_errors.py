"""The arithmetic of the page on errors in the documents, computed with the program's own functions."""

import math

import numpy as np
import pytest

from inception_v3.batch_norm import EPSILON
from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate
from inception_v3.optimizers import MOMENTUM
from inception_v3.presets import PRESETS
from inception_v3.run.batch_norm_advice import ONE_DEVICE_DECAY, decay_for
from inception_v3.tpu.topology import CLOUD_TPUS
from preprocessing.vgg_preprocessing import CHANNEL_MEANS
from tests.docs.pages import read


def rate(epoch: int, batch: int = 1024, warmup: bool = True) -> float:
    """The learning rate in the middle of an epoch."""
    config = Config(train_batch_size=batch, use_learning_rate_warmup=warmup)
    return learning_rate((2 * epoch + 1) * config.num_train_images // (2 * batch), config)


def float32_epochs(batch: int) -> int:
    """The number of steps, out of 213,000, whose epoch as a float32 quotient is not exact."""
    images, steps = Config.num_train_images, np.arange(Config.train_steps + 1)
    rounded = (steps.astype(np.float32) / np.float32(images / batch)).astype(np.int32)
    return int((rounded != steps * batch // images).sum())


V3_32, STREAM = CLOUD_TPUS['v3-32'], Config(**PRESETS['cifar10_stream'])
GIB, IMAGES, MEAN = (V3_32.memory or 0) >> 30, STREAM.num_train_images, CHANNEL_MEANS[0]
BATCH, EVAL, ALPHA = Config.eval_batch_size, Config.num_eval_images, Config.moving_average_decay
CYCLES = Config.train_steps // Config.train_steps_per_eval
END = CYCLES * Config.train_steps_per_eval
# The weights of the samples of a moving average after 400 updates, from the newest.
NEWEST_FIRST = [(1 - ALPHA) * ALPHA**k for k in range(401)]
GPU = [ONE_DEVICE_DECAY ** (7 - k) for k in range(8)]
NUMBERS = [
    f'256 / {CLOUD_TPUS["v2-256"].cores_per_host} = {CLOUD_TPUS["v2-256"].hosts} hosts',
    f'16 such hosts have {16 * CLOUD_TPUS["v2-256"].cores_per_host} cores',
    f'= {rate(9, warmup=False):.4f} for a',
    f'1.1 adj = {rate(11):.4f}',
    f'0.94 adj = {rate(12):.4f}, so the rate falls by a factor of {rate(11) / rate(12):.2f}',
    f'0.1 adj, {100 * rate(0) / rate(0, warmup=False):.1f} % of base',
    f"in {float32_epochs(16384)} steps, next to an epoch's end, in {float32_epochs(4096)} at 4,096",
    {0: 'in none at 1,024'}[float32_epochs(1024)],
    f'these are {CYCLES}, which end at {END:,}: {Config.train_steps - END:,} steps',
    f'are {EVAL // BATCH} batches, {EVAL - EVAL % BATCH:,} images; {EVAL % BATCH} are',
    f'1 − α = {1 - ALPHA:.3f}. For',
    f'gives {sum(NEWEST_FIRST[1:]):.4f} after 400 updates, where the filter gives {sum(NEWEST_FIRST):.4f}',
    f'for α = {ALPHA}, the window 1 / (1 − α) is {1 / (1 - ALPHA):.0f} updates',
    f'{ALPHA} from step {next(n for n in range(9999) if (1 + n) / (10 + n) >= ALPHA):,} on',
    f'(factors {1 / (1 + EPSILON):.4f} and {1 / math.sqrt(1 + EPSILON):.4f})',
    f'{1 / EPSILON:,.0f} instead of {1 / math.sqrt(EPSILON):.1f}',
    f'{MOMENTUM}¹⁰⁰ = {MOMENTUM**100:.1e}'.replace('e-0', 'e-'),
    f'{decay_for(8):.4f} + {(1 - ONE_DEVICE_DECAY) * sum(GPU):.4f}, add up to 1',
    f'the least weight, {GPU[0] / GPU[7]:.4f} of',
    f'would need |x| = {2 * 0.0932 / 0.0199:.1f}',
    f'1 − 0.99¹⁰⁰ = {100 * (1 - 0.99**100):.0f} % of the way then, after one update {100 * (1 - 0.99):.0f} %',
    f'{1 / (1 - 0.996):.0f} and {1 / (1 - Config.batch_norm_decay):.0f} steps',
    f'= {-MEAN / 128:.3f} and (1 − {MEAN}) / 128 = {(1 - MEAN) / 128:.3f}'.replace(' -', ' −'),
    f'{V3_32.cores} · {GIB} = {V3_32.cores * GIB} GiB',
    f'8 · {V3_32.cores_per_host} = {8 * V3_32.cores_per_host} processes',
    f'8 · {V3_32.cores} = {8 * V3_32.cores} in all. 640 shards are {640 / (8 * V3_32.cores)} for each',
    f'({V3_32.cores} · 8) = {IMAGES // (V3_32.cores * 8):,}, where a device has {IMAGES // V3_32.cores:,}',
    f'1,420.67 times {V3_32.cores} is {1420.67 * V3_32.cores:,.0f}',
    f'An average would be about {45676.5 / V3_32.cores:,.0f}',
    f'48,718 = {10 * IMAGES / 48718:.0f} s',
    f'it would be {10 * IMAGES / 45676:.0f} s',
    f'{10 * IMAGES / (3 * 60 + 59):,.0f} examples/s',
    f'{IMAGES:,} / {V3_32.cores} = {IMAGES // V3_32.cores:,}',
    f'lack {IMAGES - V3_32.cores * 39664:,} images',
    f'{IMAGES / STREAM.train_batch_size} steps of {STREAM.train_batch_size:,}',
    f'1 / 1.112 − 1 = {100 * (1 / 1.112 - 1):.1f} %'.replace('-', '−'),
]


@pytest.mark.parametrize('number', NUMBERS)
def test_errors__the_page_has_the_computed_numbers(number: str) -> None:
    assert number in ' '.join(read('docs/errors-in-the-documents.md').split())


def test_errors__the_overshoot_is_alike_for_all_batches() -> None:
    assert rate(11, 16384) / rate(11) == pytest.approx(16)
    assert rate(11, 16384) / rate(12, 16384) == pytest.approx(rate(11) / rate(12))
    assert np.spacing(np.float32(4)) == 2**-21 == pytest.approx(4.8e-7, abs=5e-9)


def test_errors__the_expansion_without_its_newest_term_is_not_the_filter() -> None:
    values = np.random.RandomState(0).normal(size=50)
    average = 0.0
    for value in values:
        average = ALPHA * average + (1 - ALPHA) * value
    weighted = [(1 - ALPHA) * ALPHA**k * value for k, value in enumerate(values[::-1])]
    assert math.fsum(weighted) == pytest.approx(average)
    # As printed: alpha (1 - alpha) times the sum from the value before the newest.
    printed = ALPHA * (1 - ALPHA) * math.fsum(ALPHA**k * value for k, value in enumerate(values[-2::-1]))
    assert printed == pytest.approx(average - (1 - ALPHA) * values[-1])


def test_errors__eight_sequential_updates_are_the_printed_sum_of_k_ascending() -> None:
    values, y = np.random.RandomState(1).normal(size=8), 0.7
    for value in values:
        y = ONE_DEVICE_DECAY * y + (1 - ONE_DEVICE_DECAY) * value
    ascending, descending = (
        decay_for(8) * 0.7 + (1 - ONE_DEVICE_DECAY) * math.fsum(w * x for w, x in zip(GPU, each))
        for each in (values, values[::-1])
    )
    assert ascending == pytest.approx(y, rel=1e-12) and descending != pytest.approx(y, rel=1e-9)


def test_errors__averaged_statistics_cannot_give_the_published_inference() -> None:
    # The moving variances are near 1, and differ by 0.0199 at most.
    x = np.random.RandomState(0).normal(size=256 * 64)
    for variance in (0.9, 1.0, 1.1):
        roots = [1 / math.sqrt(v + EPSILON) for v in (variance, variance - 0.0199)]
        assert np.abs(x).max() * abs(roots[1] - roots[0]) < 0.6 * 0.0932
