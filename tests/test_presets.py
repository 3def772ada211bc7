"""Tests of the presets: the values that each changes."""

from typing import Any, Dict, List

import numpy as np
import pytest

from data import records
from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate
from inception_v3.presets import PRESETS
from inception_v3.tpu import topology
from tools.datasets.cifar10 import __main__ as cifar10
from tools.datasets.cifar10 import conversion as cifar10_conversion

# Goyal et al., section 5.1: a rate of 0.1 per 256 images after a warm-up, a weight decay of 1e-4, and momentum; images
# are cropped at random and flipped, their colours are not changed.
GOYAL: Dict[str, Any] = {
    **{'network': 'resnet50', 'zero_init_last_scale': True, 'optimizer': 'momentum', 'weight_decay': 1e-4},
    **{'learning_rate': 0.1, 'use_learning_rate_warmup': True, 'batch_norm_decay': 0.9, 'moving_average': False},
    **{'brightness_distortion_range': 0.0, 'cb_distortion_range': 0.0, 'cr_distortion_range': 0.0},
}
# Gomez et al., section 4, and the configuration of the document's TensorFlow program.
GOMEZ: Dict[str, Any] = {
    **{'optimizer': 'momentum', 'schedule': 'step', 'learning_rate_decay': 0.1, 'label_smoothing': 0.0},
    **{'moving_average': False, 'batch_norm_decay': 0.99},
}
GOMEZ_CIFAR: Dict[str, Any] = {
    **GOMEZ,
    **{'use_tpu': False, 'num_train_images': 50000, 'num_eval_images': 10000, 'num_classes': 11},
    **{'height': 32, 'width': 32, 'preprocessing': 'cifar', 'crop_padding': 2, 'train_batch_size': 100},
    **{'learning_rate': 0.256, 'step_epochs': '80,120', 'weight_decay': 2e-4, 'train_steps': 80000},
    **{'eval_batch_size': 1000, 'train_steps_per_eval': 500},
}
GOMEZ_IMAGENET: Dict[str, Any] = {
    **GOMEZ,
    **{'height': 224, 'width': 224, 'train_batch_size': 256, 'learning_rate': 0.1},
    **{'step_epochs': '32,64,96', 'weight_decay': 1e-4, 'train_steps': 600000, 'eval_batch_size': 256},
    **{'train_steps_per_eval': 5000},
}
PUBLISHED: Dict[str, Dict[str, Any]] = {
    'resnet50_imagenet': {**GOYAL, 'height': 224, 'width': 224, 'schedule': 'step', 'warmup_epochs': 5},
    'cifar10_stream': {name: value for name, value in GOYAL.items() if 'distortion_range' not in name},
    **{name: {**GOMEZ_CIFAR, 'network': name[:-6]} for name in ('revnet38_cifar', 'revnet110_cifar')},
    # docs/your-data.md, for fewer than 5,000 images.
    'own_images': {'height': 96, 'width': 96, 'depth_multiplier': 0.25},
    **{name: {**GOMEZ_IMAGENET, 'network': name[:-9]} for name in ('revnet56_imagenet', 'revnet104_imagenet')},
}


@pytest.mark.parametrize('preset', PUBLISHED)
def test_preset__has_the_published_values(preset: str) -> None:
    assert PRESETS[preset].items() >= PUBLISHED[preset].items()


@pytest.mark.parametrize(
    ('preset', 'batch', 'cores', 'decay'),
    [
        ('imagenet_large_batch', 4096, 32, 0.9904),
        ('imagenet_batch_8192', 8192, 64, 0.981),
        ('imagenet_batch_16384', 16384, 128, 0.9623),
        ('imagenet_v2_128', 4096, 128, 0.9623),
        ('imagenet_v2_512', 16384, 512, 0.8576),
    ],
)
def test_preset_imagenet__of_many_cores_keeps_epochs_and_memory(
    preset: str, batch: int, cores: int, decay: float
) -> None:
    config = Config(**PRESETS[preset])
    assert (config.train_batch_size, config.num_shards, config.use_learning_rate_warmup) == (batch, cores, True)
    assert config.batch_norm_decay == decay == pytest.approx(0.9997**cores, abs=5e-5)
    # As many images as the default's 213,000 steps of 1,024, to the last whole step.
    assert config.train_steps == 213000 * 1024 // batch


@pytest.mark.parametrize(
    ('preset', 'epochs'),
    [
        *((name, 170) for name in PRESETS if name.startswith('imagenet')),
        *(('resnet50_imagenet', 90), ('cifar10_stream', 10)),
    ],
)
def test_preset__trains_for_the_described_epochs(preset: str, epochs: int) -> None:
    config = Config(**PRESETS[preset])
    images = config.train_steps * config.train_batch_size
    assert images / config.num_train_images == pytest.approx(epochs, abs=0.3)


# The steps at which the rate falls in the paper.
@pytest.mark.parametrize(
    ('preset', 'falls', 'late_by'),
    [
        ('revnet38_cifar', [40000, 60000], 0),
        ('revnet110_cifar', [40000, 60000], 0),
        ('revnet56_imagenet', [160000, 320000, 480000], 0.001),
        ('revnet104_imagenet', [160000, 320000, 480000], 0.001),
    ],
)
def test_preset_revnet__has_the_published_rates(preset: str, falls: List[int], late_by: float) -> None:
    config = Config(**PRESETS[preset])
    assert learning_rate(0, config) == pytest.approx(0.1)
    for number, step in enumerate(falls):
        assert learning_rate(step - 1, config) == pytest.approx(0.1 / 10**number)
        assert learning_rate(int(step * (1 + late_by)), config) == pytest.approx(0.01 / 10**number)
    assert learning_rate(config.train_steps - 1, config) == pytest.approx(0.1 / 10 ** len(falls))


def test_preset_cifar10_stream__has_the_published_values() -> None:
    config = Config(**PRESETS['cifar10_stream'])
    assert (config.replicas, topology.hosts_of(config)) == (32, 4)
    assert (config.train_batch_size, config.eval_batch_size) == (128 * 32, 64 * 32)
    assert (config.precision, config.preprocessing, config.followup_shuffle_buffer_size) == ('bfloat16', 'cifar', 10000)
    assert (config.train_epochs, config.epochs_per_eval, config.log_steps, config.num_files_infeed) == (10, 1, 10, 8)
    assert config.train_steps * config.train_batch_size == 10 * config.num_train_images == 10 * 1280000
    assert config.num_eval_images == cifar10.IMAGES[records.VALIDATION]
    assert config.num_classes == cifar10_conversion.CLASSES + 1
    # The rate rises for 312 steps to 0.1 per 256 images, and falls from there.
    rates = [learning_rate(step, config) for step in (0, 311, 312, 1718, 3124)]
    np.testing.assert_allclose(rates[:3], [1.6 / 312, 1.6, 1.6])
    assert rates[3] == pytest.approx(0.8, rel=1e-3) and rates[4] == pytest.approx(1.6e-4)
    # Ten evaluations, each at the end of its epoch or later.
    ends = [*range(config.train_steps_per_eval, config.train_steps, config.train_steps_per_eval), config.train_steps]
    assert [end * 4096 // 1280000 for end in ends] == [*range(1, 11)]
