"""Tests that a new network and a new preprocessing are one entry each: flags, rules, runs and exports follow."""

import io
import pathlib
from typing import Any

import numpy as np
import PIL.Image
import pytest

from compat import tf
from inception_v3 import flags, main
from inception_v3.config import ConfigError
from inception_v3.networks.registry import NETWORKS
from inception_v3.networks.sizes import sizes_of
from preprocessing.preprocessings import PREPROCESSINGS
from tests.support.additions import NETWORK, PREPROCESSING
from tests.support.saved_models import classify

ADDED = ('--network=mean', '--preprocessing=upper_half', '--height=16', '--width=16')


@pytest.fixture(autouse=True)
def added(monkeypatch: Any) -> None:
    """Adds the two entries."""
    monkeypatch.setitem(NETWORKS, 'mean', NETWORK)
    monkeypatch.setitem(PREPROCESSINGS, 'upper_half', PREPROCESSING)


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        (['--network=median'], r'must be inception_v3, .*revnet104 or mean\.'),
        (['--preprocessing=lower_half'], r'must be inception, vgg, cifar or upper_half\.'),
        ([*ADDED, '--width=7'], '--width=7: must be at least 8 with --network=mean'),
        ([*ADDED, '--depth_multiplier=0.5'], '--network=mean has no adjustable number of channels'),
        ([*ADDED, '--crop_area_min=0.5'], r'--preprocessing=upper_half; it needs --preprocessing=inception\.'),
        (['--preprocessing=vgg', '--crop_padding=3'], 'it needs --preprocessing=cifar or upper_half'),
    ],
)
def test_rules__follow_from_the_entries(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        flags.parse(['train', *given])
    assert flags.parse(['train', *ADDED, '--crop_padding=3']).config.network == 'mean'


def test_run__trains_evaluates_and_exports_the_additions(
    few_digits_dir: str, tmp_path: pathlib.Path, capsys: Any
) -> None:
    folders = [f'--data_dir={few_digits_dir}', f'--model_dir={tmp_path}/model', f'--export_dir={tmp_path}/export']
    sizes = ['--train_batch_size=4', '--eval_batch_size=8', '--train_steps=2', '--learning_rate=10', '--seed=1']
    words = [*ADDED, *folders, *sizes, '--transfer=uint8', '--use_tpu=False', '--moving_average=False']
    assert main.main(['main', *words]) == 0, capsys.readouterr().err
    assert 'top-1' in capsys.readouterr().out
    assert sizes_of(NETWORK, 16, 16, 5, {'dropout': lambda net, *_: net}).parameters == 3 * 5 + 5

    checkpoint = tf.train.load_checkpoint(str(tmp_path / 'model'))
    weights, biases = (checkpoint.get_tensor(f'Logits/{name}').squeeze() for name in ('weights', 'biases'))
    assert np.abs(biases).max() > 0.01, 'has learned'
    # Only the upper half of an image counts.
    image, file = np.zeros([20, 30, 3], np.uint8), io.BytesIO()
    image[:10], image[10:] = [200, 100, 50], 255
    PIL.Image.fromarray(image).save(file, 'PNG')
    (exported,) = (tmp_path / 'export').iterdir()
    (found,) = classify(str(exported), [file.getvalue()])['probabilities']
    odds = np.exp((np.array([200, 100, 50]) * 2 / 255 - 1) @ weights + biases)
    np.testing.assert_allclose(found, odds / odds.sum(), rtol=1e-5)
