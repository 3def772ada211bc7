"""The study of batch normalization: measurements compared with the equations; the command."""

import json
import pathlib
import re
import subprocess
import sys
from typing import Any, List, Tuple

import numpy as np
import pytest

from compat import tf
from tools.studies.batch_norm import __main__ as batch_norm
from tools.studies.batch_norm import experiments
from tools.studies.batch_norm.experiments import (
    AVERAGED,
    DECAY,
    LOCAL,
    MODES,
    PUBLISHED,
    SETTINGS,
    SYNCHRONIZED,
    Statistics,
)

BATCHES = experiments.made_unequal(experiments.normal_rows(4, seed=7))


def shares(batches: np.ndarray, groups: int) -> np.ndarray:
    """Rows as float64 [..., groups, rows of a group, channels]."""
    return batches.reshape([*batches.shape[:-2], groups, -1, batches.shape[-1]]).astype(np.float64)


def normalized(rows: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return (rows - mean) / np.sqrt(variance + 1e-3)


def expected(mode: str, batches: np.ndarray, ddof: int = 1) -> Tuple[np.ndarray, Statistics]:
    """Training outputs and moving statistics by the equations, step by step, in float64."""
    groups = {LOCAL: 8, AVERAGED: 8, SYNCHRONIZED: 1, 'groups of 2': 4, 'groups of 4': 2, 'one device': 1}[mode]
    outputs = []
    moving_mean, moving_variance = np.zeros(64), np.ones(64)
    for rows in shares(batches, groups):
        mean, variance = rows.mean(1), rows.var(1)
        outputs.append(normalized(rows, mean[:, None], variance[:, None]).reshape([-1, 64]))
        unbiased = rows.var(1, ddof=ddof)
        kept = slice(None) if mode == AVERAGED else slice(1)
        moving_mean = DECAY * moving_mean + (1 - DECAY) * mean[kept].mean(0)
        moving_variance = DECAY * moving_variance + (1 - DECAY) * unbiased[kept].mean(0)
    return np.stack(outputs), Statistics(moving_mean, moving_variance)


def test_train_and_infer__agrees_with_the_equations() -> None:
    trained = experiments.train_and_infer(MODES[AVERAGED], BATCHES)
    outputs, statistics = expected(AVERAGED, BATCHES[:-1])
    # float32 represents the mean square of a group with means 6 and 7, 43.5, to 4e-6; the variance is only 1.25.
    np.testing.assert_allclose(trained.training_outputs, outputs, atol=5e-5)
    np.testing.assert_allclose(trained.moving_mean, statistics.mean, atol=1e-6)
    np.testing.assert_allclose(trained.moving_variance, statistics.variance, rtol=1e-5)
    np.testing.assert_allclose(trained.inference_outputs, normalized(BATCHES[-1], *statistics), atol=1e-4)
    # The result if the layer averaged biased variances.
    uncorrected = experiments.without_bessel(MODES[AVERAGED], trained, BATCHES)
    variance = expected(AVERAGED, BATCHES[:-1], ddof=0)[1].variance
    np.testing.assert_allclose(uncorrected.moving_variance, variance, rtol=1e-6)
    np.testing.assert_array_equal(uncorrected.moving_mean, trained.moving_mean)
    inference = normalized(BATCHES[-1], trained.moving_mean, variance)
    np.testing.assert_allclose(uncorrected.inference_outputs, inference, atol=1e-4)


@pytest.mark.program
@pytest.mark.both
def test_compare__agrees_with_the_equations() -> None:
    compared = experiments.compare(BATCHES)
    reference, one_device = expected('one device', BATCHES[:-1])
    assert set(compared['modes']) == {LOCAL, AVERAGED, SYNCHRONIZED, 'groups of 2', 'groups of 4'}
    for mode, differences in compared['modes'].items():
        outputs, statistics = expected(mode, BATCHES[:-1])
        inference = normalized(BATCHES[-1], *statistics) - normalized(BATCHES[-1], *one_device)
        by_the_equations = [
            np.abs(outputs - reference).max(),
            np.abs(inference).max(),
            np.abs(statistics.mean - one_device.mean).max(),
            np.abs(statistics.variance - one_device.variance).max(),
        ]
        np.testing.assert_allclose([*differences.values()], by_the_equations, rtol=1e-3, atol=1e-5, err_msg=mode)
    assert compared['same_weights'] < 1e-5
    # Eight devices alone, each with its own rows; and the mean of their statistics, which `averaged` keeps.
    alone = [expected('one device', rows)[1] for rows in np.split(BATCHES[:-1], 8, axis=1)]
    of_mean = [np.mean(values, 0) for values in zip(*alone)]

    def distances(device: Any) -> List[float]:
        return [np.abs(a - b).max() for a, b in zip(device, one_device)]

    np.testing.assert_allclose(compared['own'], [*map(distances, alone)], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(compared['mean_of_own'], distances(of_mean), rtol=1e-3, atol=1e-5)
    assert compared['mean_and_kept'] < 1e-6
    # The mean of the variances lacks the variance of the means 0 … 7: 5.25.
    assert compared['modes'][AVERAGED]['moving_variance'] > (1 - DECAY**3) * 4


def test_recover__adds_the_variance_of_the_means() -> None:
    recovery = experiments.recover(BATCHES[0])
    rows = shares(BATCHES[0], 8)
    assert recovery['mean_of_variances'] == pytest.approx(rows.var(1).mean(), rel=1e-6)
    assert recovery['variance_of_means'] == pytest.approx(rows.mean(1).var(0).mean(), rel=1e-6)
    assert recovery['variance'] == pytest.approx(BATCHES[0].astype(np.float64).var(0).mean(), rel=1e-6)
    assert recovery['variance_of_means'] > 5
    assert 0 < recovery['largest_error'] < 2e-6


def test_compare_decays__have_the_same_memory_but_different_noise() -> None:
    compared = experiments.compare_decays(response_steps=8, noise_steps=4, noise_channels=500, seed=0)
    assert compared['beta'] == pytest.approx(0.9976, abs=5e-6)
    for way, response in compared['response'].items():
        np.testing.assert_allclose(response, 1 - 0.9997 ** (8 * np.arange(1, 9)), atol=1e-6, err_msg=way)
        assert compared['largest_error'][way] < 1e-6
    for values in compared['noise'].values():
        mean, deviation = values['expected_mean'], values['expected_deviation']
        assert mean == pytest.approx(1 - 0.9997**32, rel=1e-9)
        # Within 5 standard errors.
        assert values['mean'] == pytest.approx(mean, abs=5 * deviation / 500**0.5)
        assert values['deviation'] == pytest.approx(deviation, rel=5 / 1000**0.5)
    sequential, one_in_eight, mean_of_eight = (each['expected_deviation'] for each in compared['noise'].values())
    assert one_in_eight / sequential == pytest.approx(8**0.5, rel=1e-3)
    assert mean_of_eight / sequential == pytest.approx(1, rel=1e-3)


# The command.


def numbers(table: str, label: str) -> List[str]:
    """The cells of the first line with this label, after the label."""
    (line, *_) = re.findall(rf'^ *{re.escape(label)}  +(.*)$', table, re.MULTILINE)
    return line.split()


@pytest.mark.skipif(tf.__version__ >= '2', reason='TensorFlow 2.15 has the layers')
def test_keras__is_refused_on_1_15(tmp_path: pathlib.Path, capsys: Any) -> None:
    assert batch_norm.main(['--keras', f'--out={tmp_path / "new"}']) == 2
    assert 'in a checkout: ./run --tf=2.15 inception-v3 batch-norm --keras' in capsys.readouterr().err
    assert not (tmp_path / 'new').exists()


@pytest.mark.program
@pytest.mark.both
@pytest.mark.skipif(tf.__version__ < '2', reason="TensorFlow 1.15 lacks Keras' synchronized layer")
def test_keras__layers_agree_with_the_equations(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, '-m', 'tools.studies.batch_norm', '--keras', f'--out={tmp_path}']
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    by_keras = json.loads((tmp_path / 'batch_norm.json').read_text(encoding='utf-8'))['measured']['keras']
    assert by_keras.keys() == PUBLISHED.keys()
    batches = experiments.normal_rows(SETTINGS['steps'] + 1, SETTINGS['seed'])
    # The layer averages biased variances.
    (one_outputs, one), *alone = (
        expected('one device', rows, ddof=0) for rows in (batches[:-1], *np.split(batches[:-1], 8, axis=1))
    )
    rows_alone = np.split(batches[-1].astype(np.float64), 8)
    inference = np.concatenate([normalized(rows, *own) for rows, (_, own) in zip(rows_alone, alone)])
    per_replica = [
        np.abs(np.concatenate([outputs for outputs, _ in alone], axis=1) - one_outputs).max(),
        np.abs(inference - normalized(batches[-1].astype(np.float64), *one)).max(),
        np.abs(np.mean([own.variance for _, own in alone], 0) - one.variance).max(),
    ]
    outputs, inference, mean, variance = by_keras['per_replica'].values()
    assert [outputs, inference, variance] == pytest.approx(per_replica, rel=1e-4)
    # The moving mean is the same for all modes.
    assert max(mean, *by_keras['synchronized'].values(), by_keras['same_weights']) < 3e-6
    assert by_keras['mean_and_kept'] == 0
    for label, differences in (('per replica', by_keras['per_replica']), ('synchronized', by_keras['synchronized'])):
        expected_cells = [batch_norm.number(value) for value in differences.values()]
        assert numbers(done.stdout, f"Keras' layers: {label}") == expected_cells
    assert numbers(done.stdout, "Keras' layers: same weights")[1] == batch_norm.number(by_keras['same_weights'])


@pytest.mark.nightly
def test_command__confirms_the_published_figures(tmp_path: pathlib.Path, capsys: Any) -> None:
    assert batch_norm.main([f'--out={tmp_path}']) == 0
    shown = capsys.readouterr().out
    assert numbers(shown, 'published: per replica') == ['1.4629', '0.0932', '3.1e-9', '0.0199']
    content = json.loads((tmp_path / 'batch_norm.json').read_text(encoding='utf-8'))
    published, equal, unequal = content['published'], content['measured']['equal'], content['measured']['unequal']
    assert published == PUBLISHED and content['measured']['settings'] == SETTINGS
    rows = {
        'local': equal['modes'][LOCAL],
        'averaged, biased': equal['without_bessel'][AVERAGED],
        'equal rows, groups of 2': equal['modes']['groups of 2'],
        'unequal rows, groups of 4': unequal['modes']['groups of 4'],
    }
    for label, differences in rows.items():
        assert numbers(shown, label) == [batch_norm.number(value) for value in differences.values()], label
    markdown = (tmp_path / 'batch_norm.md').read_text(encoding='utf-8')
    assert '| published: per replica | 1.4629 | 0.0932 | 3.1e-9 | 0.0199 |' in markdown
    per_replica = {
        **dict.fromkeys(['training_outputs', 'inference_outputs'], equal['without_bessel'][LOCAL]),
        **dict.fromkeys(['moving_mean', 'moving_variance'], equal['without_bessel'][AVERAGED]),
    }
    for kind, differences in per_replica.items():
        assert differences[kind] == pytest.approx(published['per_replica'][kind], rel=0.5), kind
    for kind, value in equal['modes'][SYNCHRONIZED].items():
        assert 0 < value < 3 * published['synchronized'][kind], kind
    assert equal['same_weights'] <= published['same_weights']
