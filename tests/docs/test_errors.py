"""The arithmetic of the page on errors in the documents, computed with the program's own functions."""

import math

import numpy as np
import pytest

from inception_v3.batch_norm import EPSILON, ONE_DEVICE_DECAY, decay_for
from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate
from inception_v3.optimizers import MOMENTUM
from inception_v3.presets import PRESETS
from inception_v3.tpu.topology import CLOUD_TPUS
from preprocessing.finishing import CHANNEL_MEANS
from tests.docs.pages import read


def rate(epoch: int, batch: int = 1024, warmup: bool = True) -> float:
    """The learning rate in the middle of an epoch."""
    config = Config(train_batch_size=batch, use_learning_rate_warmup=warmup)
    return learning_rate((2 * epoch + 1) * config.num_train_images // (2 * batch), config)


V3_32, STREAM = CLOUD_TPUS['v3-32'], Config(**PRESETS['cifar10_stream'])
GIB, IMAGES, MEAN = (V3_32.memory or 0) >> 30, STREAM.num_train_images, CHANNEL_MEANS[0]
NUMBERS = [
    f'256 / {CLOUD_TPUS["v2-256"].cores_per_host} = {CLOUD_TPUS["v2-256"].hosts} hosts',
    f'= {rate(9, warmup=False):.4f} for a',
    f'1.1 adj = {rate(11):.4f}',
    f'0.94 adj = {rate(12):.4f}, so the rate falls by a factor of {rate(11) / rate(12):.2f}',
    f'(factors {1 / (1 + EPSILON):.4f} and {1 / math.sqrt(1 + EPSILON):.4f})',
    f'{1 / EPSILON:,.0f} instead of {1 / math.sqrt(EPSILON):.1f}',
    f'{MOMENTUM}¹⁰⁰ = {MOMENTUM**100:.1e}'.replace('e-0', 'e-'),
    f'α = {ONE_DEVICE_DECAY} and N = 8, {decay_for(8):.4f} + {1 - decay_for(8):.4f}',
    f'{1 / (1 - 0.996):.0f} and {1 / (1 - Config.batch_norm_decay):.0f} steps',
    f'= {-MEAN / 128:.3f} and (1 − {MEAN}) / 128 = {(1 - MEAN) / 128:.3f}'.replace(' -', ' −'),
    f'{V3_32.cores} · {GIB} = {V3_32.cores * GIB} GiB',
    f'8 · {V3_32.cores_per_host} = {8 * V3_32.cores_per_host} processes',
    f'8 · {V3_32.cores} = {8 * V3_32.cores} in all. 640 shards are {640 / (8 * V3_32.cores)} for each',
    f'48,718 = {10 * IMAGES / 48718:.0f} s',
    f'it would be {10 * IMAGES / 45676:.0f} s',
    f'{10 * IMAGES / (3 * 60 + 59):,.0f} examples/s',
    f'{IMAGES:,} / {V3_32.cores} = {IMAGES // V3_32.cores:,}',
    f'lack {IMAGES - V3_32.cores * 39664:,} images',
    f'{IMAGES / STREAM.train_batch_size} steps of {STREAM.train_batch_size:,}',
    f'1 / 1.112 − 1 = {100 * (1 / 1.112 - 1):.1f} %'.replace('-', '−'),
]


@pytest.mark.parametrize('number', NUMBERS)
def test_errors__arithmetic_of_the_page(number: str) -> None:
    assert number in ' '.join(read('docs/errors-in-the-documents.md').split())


def test_errors__the_overshoot_is_alike_for_all_batches() -> None:
    assert rate(11, 16384) / rate(11) == pytest.approx(16)
    assert rate(11, 16384) / rate(12, 16384) == pytest.approx(rate(11) / rate(12))
    assert np.spacing(np.float32(4)) == 2**-21 == pytest.approx(4.8e-7, abs=5e-9)
