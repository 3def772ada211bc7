"""Tests of the settings that `--preset=own_images` derives from the size of a data set."""

import pathlib
from typing import Any, Dict

import pytest

from data.dataset_info import DatasetInfo
from inception_v3 import flags
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import fit_to_data_set
from inception_v3.run.slow_averages import warnings_of


def fitted(folder: pathlib.Path, train: int, validation: int, *arguments: str) -> Config:
    """The configuration of a run on a data set of 3 classes."""
    info = DatasetInfo('flowers', 'a test', train, validation, 4, ['background', 'a', 'b', 'c'], 'f' * 64)
    info.write(str(folder))
    argv = ['main', '--preset=own_images', f'--data_dir={folder}', '--model_dir=unused', *arguments]
    return fit_to_data_set(flags.parse(argv))


@pytest.mark.parametrize(
    ('train', 'expected'),
    [
        # 32,000 images, or 20 epochs of more than 1,600 images.
        (81, {'train_batch_size': 32, 'train_steps': 1000, 'depth_multiplier': 0.25, 'height': 96}),
        (20, {'train_batch_size': 16, 'train_steps': 2000, 'depth_multiplier': 0.25, 'width': 96}),
        (4999, {'train_batch_size': 32, 'train_steps': 3125, 'depth_multiplier': 0.25, 'width': 96}),
        (5000, {'train_steps': 3125, 'depth_multiplier': 0.5, 'height': 160, 'width': 160}),
        (100_000, {'train_steps': 62_500, 'depth_multiplier': 1.0, 'height': 224, 'width': 224}),
    ],
)
def test_own_images__follow_from_the_number_of_images(train: int, expected: Dict[str, Any], tmp_path: Any) -> None:
    config = fitted(tmp_path, train, 9)
    assert {name: getattr(config, name) for name in expected} == expected
    assert (config.num_train_images, config.num_classes, config.eval_batch_size, config.use_tpu) == (train, 4, 9, False)
    assert config.train_steps_per_eval * 4 - config.train_steps in range(4)
    assert not [*warnings_of(config)]


def test_own_images__given_flags_stay_and_others_follow_from_them(tmp_path: pathlib.Path) -> None:
    config = fitted(tmp_path, 81, 1000, '--train_steps=100', '--height=200', '--train_batch_size=8')
    assert (config.train_steps, config.height, config.width, config.train_batch_size) == (100, 200, 96, 8)
    # Averages over the last tenth of the steps; moving statistics, too, since 1,280 images are more than that.
    assert (config.train_steps_per_eval, config.moving_average_decay, config.batch_norm_decay) == (25, 0.9, 0.9)
    assert config.eval_batch_size == 64


@pytest.mark.parametrize(('train', 'batch', 'decay'), [(81, 32, 0.975), (3, 2, 0.9984), (1, 2, 0.9984)])
def test_own_images__statistics_average_over_1280_images(train: int, batch: int, decay: float, tmp_path: Any) -> None:
    config = fitted(tmp_path, train, 1)
    assert (config.train_batch_size, config.batch_norm_decay) == (batch, decay)


def test_own_images__need_a_description(tmp_path: pathlib.Path) -> None:
    argv = ['main', '--preset=own_images', f'--data_dir={tmp_path}', '--model_dir=unused']
    with pytest.raises(ConfigError, match=r'has no dataset\.json\. Make the data set with inception-v3 from-folder'):
        fit_to_data_set(flags.parse(argv))


@pytest.mark.parametrize('network', ['resnet50', 'revnet38'])
def test_own_images__accept_other_networks(network: str, tmp_path: pathlib.Path) -> None:
    assert fitted(tmp_path, 81, 9, f'--network={network}').network == network
