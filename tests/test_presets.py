"""Tests of the presets: the values that each changes."""

from typing import Any, Dict, List

import pytest

from inception_v3.config import Config
from inception_v3.learning_rate import learning_rate
from inception_v3.presets import DEFAULT_PRESET, PRESETS

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
    **{
        'height': 32,
        'width': 32,
        'preprocessing': 'cifar',
        'crop_padding': 2,
        'train_batch_size': 100,
        'learning_rate': 0.256,
    },
    **{'step_epochs': '80,120', 'weight_decay': 2e-4, 'train_steps': 80000, 'eval_batch_size': 1000},
    **{'train_steps_per_eval': 500},
}
GOMEZ_IMAGENET: Dict[str, Any] = {
    **GOMEZ,
    **{'height': 224, 'width': 224, 'train_batch_size': 256, 'learning_rate': 0.1},
    **{'step_epochs': '32,64,96', 'weight_decay': 1e-4, 'train_steps': 600000, 'eval_batch_size': 256},
    **{'train_steps_per_eval': 5000},
}
CHANGES: Dict[str, Dict[str, Any]] = {
    'imagenet': {},
    'imagenet_large_batch': {
        **{'num_shards': 32, 'train_batch_size': 4096, 'use_learning_rate_warmup': True, 'train_steps': 53250},
        **{'batch_norm_decay': 0.9904},
    },
    'imagenet_batch_8192': {
        **{'num_shards': 64, 'train_batch_size': 8192, 'use_learning_rate_warmup': True, 'train_steps': 26625},
        **{'batch_norm_decay': 0.981, 'train_steps_per_eval': 1000},
    },
    'imagenet_batch_16384': {
        **{'num_shards': 128, 'train_batch_size': 16384, 'use_learning_rate_warmup': True, 'train_steps': 13312},
        **{'batch_norm_decay': 0.9623, 'train_steps_per_eval': 1000},
    },
    'resnet50_imagenet': {
        **GOYAL,
        **{'height': 224, 'width': 224, 'crop_area_min': 0.08, 'precision': 'bfloat16', 'schedule': 'step'},
        **{'learning_rate_decay': 0.1, 'warmup_epochs': 5, 'train_steps': 112603, 'train_steps_per_eval': 1252},
    },
    'cifar10_stream': {
        **{name: value for name, value in GOYAL.items() if 'distortion_range' not in name},
        **{'data_format': 'tar', 'num_train_images': 1280000, 'num_eval_images': 50000, 'num_classes': 11},
        **{'num_shards': 32, 'train_batch_size': 4096, 'eval_batch_size': 2048, 'height': 32, 'width': 32},
        **{'preprocessing': 'cifar', 'precision': 'bfloat16', 'followup_shuffle_buffer_size': 10000, 'iterations': 10},
        **{'schedule': 'cosine', 'warmup_epochs': 1, 'train_steps': 3125},
        **{'train_epochs': 10, 'train_steps_per_eval': 313, 'epochs_per_eval': 1, 'keep_best': True, 'log_steps': 10},
    },
    'revnet38_cifar': {**GOMEZ_CIFAR, 'network': 'revnet38'},
    'revnet110_cifar': {**GOMEZ_CIFAR, 'network': 'revnet110'},
    'revnet56_imagenet': {**GOMEZ_IMAGENET, 'network': 'revnet56'},
    'revnet104_imagenet': {**GOMEZ_IMAGENET, 'network': 'revnet104'},
    'digits': {
        **{'use_tpu': False, 'data_dir': 'runs/digits_data', 'model_dir': 'runs/digits'},
        **{'export_dir': 'runs/digits/export', 'num_train_images': 1438, 'num_eval_images': 359, 'num_classes': 11},
        **{'train_batch_size': 32, 'eval_batch_size': 128, 'height': 75, 'width': 75, 'random_flip': False},
        **{'crop_area_min': 0.7, 'crop_aspect_ratio_max': 1.2, 'depth_multiplier': 0.25, 'auxiliary_head': False},
        **{'batch_norm_decay': 0.95, 'learning_rate': 0.06, 'train_steps': 1500, 'train_steps_per_eval': 500},
        **{'save_summary_steps': 10},
    },
    'own_images': {
        **{'use_tpu': False, 'train_batch_size': 32, 'eval_batch_size': 64, 'height': 96, 'width': 96},
        **{'crop_area_min': 0.5, 'depth_multiplier': 0.25, 'auxiliary_head': False, 'batch_norm_decay': 0.975},
        **{'moving_average_decay': 0.99, 'learning_rate': 0.12, 'schedule': 'cosine', 'train_steps': 1000},
        **{'train_steps_per_eval': 250, 'save_summary_steps': 10},
    },
    'finetune': {
        **{'use_tpu': False, 'train_batch_size': 32, 'eval_batch_size': 64, 'crop_area_min': 0.5},
        **{'auxiliary_head': False, 'batch_norm_decay': 0.99, 'moving_average_decay': 0.99, 'optimizer': 'momentum'},
        **{'schedule': 'cosine', 'learning_rate': 0.04, 'head_learning_rate': 0.4, 'train_steps': 1000},
        **{'train_steps_per_eval': 250, 'save_summary_steps': 10},
    },
}


@pytest.mark.parametrize('preset', sorted({*PRESETS, *CHANGES}))
def test_preset__changes_the_default_as_documented(preset: str) -> None:
    assert Config(**PRESETS[preset]) == Config(**CHANGES[preset])


def test_preset__default_is_imagenet() -> None:
    assert DEFAULT_PRESET == 'imagenet'


@pytest.mark.parametrize(
    ('preset', 'epochs'),
    [
        *(
            ('imagenet', 170),
            ('imagenet_large_batch', 170),
            ('imagenet_batch_8192', 170),
            ('imagenet_batch_16384', 170),
        ),
        *(('resnet50_imagenet', 90), ('cifar10_stream', 10)),
    ],
)
def test_preset__trains_for_the_described_epochs(preset: str, epochs: int) -> None:
    config = Config(**PRESETS[preset])
    images = config.train_steps * config.train_batch_size
    assert images / config.num_train_images == pytest.approx(epochs, abs=0.3)


# The steps at which the rate falls, in the paper.
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
