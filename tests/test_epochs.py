"""Tests of the steps that follow from epochs."""

from typing import Any, Tuple

import pytest

from inception_v3 import flags
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import fit_to_data_set
from inception_v3.epochs import steps_of


@pytest.mark.parametrize(
    ('epochs', 'images', 'batch', 'steps'),
    [(10, 1280000, 4096, 3125), (1, 1280000, 4096, 313), (0.1, 1000, 10, 10), (0.5, 3, 8, 1), (3, 7, 7, 3)],
)
def test_steps_of__rounds_up(epochs: float, images: int, batch: int, steps: int) -> None:
    assert steps_of(epochs, images, batch) == steps


def fitted(*arguments: str) -> Tuple[int, int]:
    # 1,000 fake images.
    always = ('--use_tpu=False', '--use_data=fake', '--num_train_images=1000', '--train_batch_size=30')
    config = fit_to_data_set(flags.parse(['main', *always, *arguments]))
    return config.train_steps, config.train_steps_per_eval


def test_fit_to_data_set__computes_the_steps() -> None:
    # 33.3 steps per epoch.
    assert fitted('--train_epochs=2', '--epochs_per_eval=0.5') == (67, 17)
    assert fitted('--train_epochs=2', '--train_steps_per_eval=5') == (67, 5)
    # Those of the preset, unless steps are given.
    assert fitted('--preset=cifar10_stream') == (334, 34)
    assert fitted('--preset=cifar10_stream', '--train_steps=7') == (7, 34)
    assert fitted('--preset=cifar10_stream', '--train_steps_per_eval=5') == (334, 5)


def test_fit_to_data_set__takes_the_number_of_images_from_the_data_set(digits_dir: str) -> None:
    parsed = flags.parse(['main', '--preset=own_images', f'--data_dir={digits_dir}', '--train_epochs=2'])
    config = fit_to_data_set(parsed)
    # 1,438 digits in batches of 32: 89.9 steps; four evaluations.
    assert (config.train_steps, config.train_steps_per_eval) == (90, 23)


def test_parse__counts_the_steps_of_the_images_that_are_known() -> None:
    # Of ImageNet, in the batches of the preset, before any data set is named: what plan and preflight begin with.
    config = flags.parse(['main', '--preset=imagenet_large_batch', '--train_epochs=10']).config
    assert (config.train_steps, config.train_steps_per_eval) == (-(-10 * 1281167 // 4096), 2000)
    # A profile after the preset's 1,500 steps, within the 2,247 of 50 epochs.
    config = flags.parse(['main', '--preset=digits', '--train_epochs=50', '--profile_steps=2001,2010']).config
    assert config.train_steps == 2247


@pytest.mark.parametrize('wrong', ['--train_epochs=inf', '--train_epochs=nan', '--epochs_per_eval=-1'])
def test_parse__refuses_epochs_that_are_no_number_above_0(wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong.split('=')[0]):
        flags.parse(['main', '--use_tpu=False', wrong])


@pytest.mark.parametrize(
    ('steps', 'epochs'), [('train_steps', 'train_epochs'), ('train_steps_per_eval', 'epochs_per_eval')]
)
def test_parse__refuses_both(steps: str, epochs: str) -> None:
    with pytest.raises(ConfigError, match=f'--{epochs}=2.0: replaces --{steps}.* here --{steps}=9. Leave out one'):
        flags.parse(['main', '--use_tpu=False', f'--{steps}=9', f'--{epochs}=2'])


def test_from_json__reads_the_step_lines_of_earlier_versions() -> None:
    text: Any = Config().to_json().replace('"log_steps": 0', '"step_lines": true')
    assert Config.from_json(text) == Config(log_steps=1)
