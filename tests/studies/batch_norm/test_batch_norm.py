"""The study of batch normalization: measurements compared with the equations; report, files and command."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any, List, Tuple

import numpy as np
import PIL.Image
import pytest

from console.tensorflow_versions import tf
from studies.batch_norm import __main__ as batch_norm
from studies.batch_norm import experiments, layer, report
from studies.batch_norm.experiments import Results, Settings
from studies.batch_norm.layer import AVERAGED, LOCAL, MODES, SYNCHRONIZED, Statistics

# Large enough for a figure, small enough to take seconds.
SETTINGS = Settings(steps=3, draws=2, response_steps=5, noise_steps=3, noise_channels=16)
DECAY = layer.DECAY
BATCHES = experiments.made_unequal(experiments.normal_rows(4, seed=7))


def shares(batches: np.ndarray, groups: int) -> np.ndarray:
    """Rows as float64 [..., groups, rows of a group, channels]."""
    return batches.reshape([*batches.shape[:-2], groups, -1, batches.shape[-1]]).astype(np.float64)


def normalized(rows: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return (rows - mean) / np.sqrt(variance + 1e-3)


def expected(mode: str, batches: np.ndarray) -> Tuple[np.ndarray, Statistics]:
    """Training outputs and moving statistics by the equations, step by step, in float64."""
    groups = {LOCAL: 8, AVERAGED: 8, SYNCHRONIZED: 1, 'groups of 2': 4, 'groups of 4': 2, 'one device': 1}[mode]
    outputs = []
    moving_mean, moving_variance = np.zeros(64), np.ones(64)
    for rows in shares(batches, groups):
        mean, variance = rows.mean(1), rows.var(1)
        outputs.append(normalized(rows, mean[:, None], variance[:, None]).reshape([256, 64]))
        unbiased = rows.var(1, ddof=1)
        kept = slice(None) if mode == AVERAGED else slice(1)
        moving_mean = DECAY * moving_mean + (1 - DECAY) * mean[kept].mean(0)
        moving_variance = DECAY * moving_variance + (1 - DECAY) * unbiased[kept].mean(0)
    return np.stack(outputs), Statistics(moving_mean, moving_variance)


# The measurements.


@pytest.mark.parametrize('mode', ['one device', *MODES])
def test_train_and_infer__agrees_with_the_equations(mode: str) -> None:
    config = MODES.get(mode, layer.ONE_DEVICE)
    trained = experiments.train_and_infer(config, BATCHES)
    outputs, statistics = expected(mode, BATCHES[:-1])
    # float32 represents the mean square of a group with means 6 and 7, 43.5, to 4e-6; the variance is only 1.25.
    np.testing.assert_allclose(trained.training_outputs, outputs, atol=5e-5)
    np.testing.assert_allclose(trained.statistics.mean, statistics.mean, atol=1e-6)
    np.testing.assert_allclose(trained.statistics.variance, statistics.variance, rtol=1e-5)
    np.testing.assert_allclose(trained.inference_outputs, normalized(BATCHES[-1], *statistics), atol=1e-4)


def test_compare__agrees_with_the_equations() -> None:
    compared = experiments.compare(BATCHES)
    reference, one_device = expected('one device', BATCHES[:-1])
    assert set(compared.modes) == {LOCAL, AVERAGED, SYNCHRONIZED, 'groups of 2', 'groups of 4'}
    for mode, differences in compared.modes.items():
        outputs, statistics = expected(mode, BATCHES[:-1])
        inference = normalized(BATCHES[-1], *statistics) - normalized(BATCHES[-1], *one_device)
        by_the_equations = [
            np.abs(outputs - reference).max(),
            np.abs(inference).max(),
            np.abs(statistics.mean - one_device.mean).max(),
            np.abs(statistics.variance - one_device.variance).max(),
        ]
        np.testing.assert_allclose(differences, by_the_equations, rtol=1e-3, atol=1e-5, err_msg=mode)
    assert compared.same_weights < 1e-5
    # Eight devices alone, each with its own rows; and the mean of their statistics, which `averaged` keeps.
    rows = shares(BATCHES[:-1], 8)
    mean, variance = np.zeros([8, 64]), np.ones([8, 64])
    for step in rows:
        mean = DECAY * mean + (1 - DECAY) * step.mean(1)
        variance = DECAY * variance + (1 - DECAY) * step.var(1, ddof=1)
    own = [[np.abs(mean[r] - one_device.mean).max(), np.abs(variance[r] - one_device.variance).max()] for r in range(8)]
    np.testing.assert_allclose(compared.own, own, rtol=1e-3, atol=1e-5)
    of_mean = [np.abs(mean.mean(0) - one_device.mean).max(), np.abs(variance.mean(0) - one_device.variance).max()]
    np.testing.assert_allclose(compared.mean_of_own, of_mean, rtol=1e-3, atol=1e-5)
    assert compared.mean_and_kept < 1e-6
    # The mean of the variances lacks the variance of the means 0 … 7: 5.25.
    assert compared.modes[AVERAGED].moving_variance > (1 - DECAY**3) * 4


@pytest.mark.parametrize('mode', ['one device', LOCAL, AVERAGED])
def test_without_bessel__moving_variance_averages_biased_variances(mode: str) -> None:
    config = MODES.get(mode, layer.ONE_DEVICE)
    trained = experiments.train_and_infer(config, BATCHES)
    uncorrected = experiments.without_bessel(config, trained, BATCHES)
    rows = shares(BATCHES[:-1], config.replicas)
    variance = np.ones(64)
    for biased in rows.var(2):
        variance = DECAY * variance + (1 - DECAY) * (biased.mean(0) if mode == AVERAGED else biased[0])
    np.testing.assert_allclose(uncorrected.statistics.variance, variance, rtol=1e-6)
    np.testing.assert_array_equal(uncorrected.statistics.mean, trained.statistics.mean)
    np.testing.assert_allclose(
        uncorrected.inference_outputs, normalized(BATCHES[-1], trained.statistics.mean, variance), atol=1e-4
    )


def test_readings__agree_with_the_program() -> None:
    compared = experiments.compare(experiments.normal_rows(4, seed=3))
    biased, unbiased = experiments.readings([DECAY], steps=3, seeds=[3])
    assert (biased.bessel, unbiased.bessel) == (False, True)
    for reading, measured in ((biased, compared.without_bessel), (unbiased, compared.modes)):
        assert reading.training_outputs.least == pytest.approx(measured[LOCAL].training_outputs, rel=1e-4)
        assert reading.inference_averaged.least == pytest.approx(measured[AVERAGED].inference_outputs, rel=1e-2)
        assert reading.moving_variance.least == pytest.approx(measured[AVERAGED].moving_variance, rel=1e-2)
        # `inference_own` is the largest over eight replicas, and `local` keeps the first.
        assert reading.inference_own.least > 0.5 * measured[LOCAL].inference_outputs


def test_readings__inference_own_uses_the_statistics_of_each_replica() -> None:
    batches = experiments.normal_rows(2, seed=5)
    (reading, _) = experiments.readings([0.5], steps=1, seeds=[5])
    rows, whole = shares(batches, 8), batches.astype(np.float64)
    own = normalized(rows[1], 0.5 * rows[0].mean(1, keepdims=True), 0.5 + 0.5 * rows[0].var(1, keepdims=True))
    one = normalized(whole[1], 0.5 * whole[0].mean(0), 0.5 + 0.5 * whole[0].var(0))
    assert reading.inference_own.least == pytest.approx(np.abs(own.reshape(one.shape) - one).max(), rel=1e-9)


def test_readings__range_over_the_draws() -> None:
    of_each = [experiments.readings([DECAY], 2, [seed])[0].moving_variance for seed in (0, 1)]
    of_all = experiments.readings([DECAY], 2, [0, 1])[0].moving_variance
    assert of_all == (min(of_each).least, max(of_each).greatest) and of_all.least < of_all.greatest


def test_recover__adds_the_variance_of_the_means() -> None:
    recovery = experiments.recover(BATCHES[0])
    rows = shares(BATCHES[0], 8)
    assert recovery.mean_of_variances == pytest.approx(rows.var(1).mean(), rel=1e-6)
    assert recovery.variance_of_means == pytest.approx(rows.mean(1).var(0).mean(), rel=1e-6)
    assert recovery.variance == pytest.approx(BATCHES[0].astype(np.float64).var(0).mean(), rel=1e-6)
    assert recovery.variance_of_means > 5
    assert 0 < recovery.largest_error < 2e-6


# The decay.


def test_compare_decays__same_memory_but_different_noise() -> None:
    compared = experiments.compare_decays(response_steps=20, noise_steps=10, noise_channels=500, seed=0)
    assert compared.beta == pytest.approx(0.9976, abs=5e-6)
    for way, response in compared.response.items():
        np.testing.assert_allclose(response, 1 - 0.9997 ** (8 * np.arange(1, 21)), atol=1e-6, err_msg=way)
        assert compared.largest_error[way] < 1e-6
    noise = compared.noise
    for values in noise.values():
        assert values.expected_mean == pytest.approx(1 - 0.9997**80, rel=1e-9)
        # Within 5 standard errors.
        assert values.mean == pytest.approx(values.expected_mean, abs=5 * values.expected_deviation / 500**0.5)
        assert values.deviation == pytest.approx(values.expected_deviation, rel=5 / 1000**0.5)
    sequential = noise[experiments.SEQUENTIAL].expected_deviation
    assert noise[experiments.ONE_IN_EIGHT].expected_deviation / sequential == pytest.approx(8**0.5, rel=1e-3)
    assert noise[experiments.MEAN_OF_EIGHT].expected_deviation / sequential == pytest.approx(1, rel=1e-3)


def test_moving_after_each__one_device_updates_once_per_share() -> None:
    config = dataclasses.replace(layer.ONE_DEVICE, batch_norm_decay=0.5)
    after_each: List[Statistics] = list(experiments.moving_after_each(config, iter(BATCHES[:2])))
    mean = np.zeros(64)
    for batch, statistics in zip(BATCHES, after_each):
        for rows in shares(batch, 8):
            mean = 0.5 * mean + 0.5 * rows.mean(0)
        np.testing.assert_allclose(statistics.mean, mean, rtol=1e-5)
    assert len(after_each) == 2


def test_noise_deviation__agrees_with_a_simulation() -> None:
    values = np.random.RandomState(0).normal(0, 3, [4000, 6])
    moving = np.zeros(4000)
    for column in values.T:
        moving = 0.8 * moving + 0.2 * column
    assert experiments.noise_deviation(9, 0.8, 6) == pytest.approx(moving.std(), rel=0.05)


# The report.


@pytest.fixture(scope='module')
def results() -> Results:
    return experiments.measure(SETTINGS)


def numbers(table: str, label: str) -> List[str]:
    """The cells of the first line with this label, after the label."""
    (line, *_) = re.findall(rf'^ *{re.escape(label)}  +(.*)$', table, re.MULTILINE)
    return line.split()


def test_text__has_published_and_measured_figures(results: Results) -> None:
    table = report.text(results)
    assert numbers(table, 'published: per replica') == ['1.4629', '0.0932', '3.1e-9', '0.0199']
    assert numbers(table, 'published: synchronized') == ['1.9e-6', '7.2e-7', '4.4e-9', '3.0e-7']
    assert numbers(table, 'published: same weights') == ['-', '4.8e-7', '-', '-']
    rows = {
        'local': results.equal.modes[LOCAL],
        'averaged, biased': results.equal.without_bessel[AVERAGED],
        'synchronized': results.equal.modes[SYNCHRONIZED],
        'equal rows, groups of 2': results.equal.modes['groups of 2'],
        'unequal rows, groups of 4': results.unequal.modes['groups of 4'],
    }
    for label, differences in rows.items():
        assert numbers(table, label) == [report.number(value) for value in differences], label
    assert 'The published decay is 0.99, the default of Keras.' in table
    assert max(len(line) for line in table.splitlines()) <= 120


def test_range__is_marked_if_it_contains_the_published_figure() -> None:
    assert report._range(experiments.Range(0.01, 0.03), 0.0199) == '0.0100 … 0.0300*'
    assert report._range(experiments.Range(0.001, 0.015), 0.0199) == '0.0010 … 0.0150 '


# The command.


@pytest.mark.parametrize('argument', ['--out=', '--steps=3'])
def test_command__refuses_wrong_arguments(argument: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as end:
        batch_norm.main([argument])
    assert end.value.code == 2
    assert argument.strip('=') in capsys.readouterr().err


def test_command__measures_with_its_settings_prints_and_writes(
    results: Results, tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    used: List[Settings] = []

    def measure(settings: Settings) -> Results:
        used.append(settings)
        return results

    monkeypatch.setattr(experiments, 'measure', measure)
    out = tmp_path / 'new'
    assert batch_norm.main([f'--out={out}']) == 0
    assert used == [Settings()]
    shown = capsys.readouterr().out
    assert report.text(results) in shown and f'written: batch_norm.json and batch_norm.png in {out}' in shown
    assert sorted(os.listdir(out)) == ['batch_norm.json', 'batch_norm.png']
    content = json.loads((out / 'batch_norm.json').read_text(encoding='utf-8'))
    assert content['measured'] == experiments.as_dict(results)
    measured = content['measured']['equal']['modes']
    assert {mode: experiments.Differences(**values) for mode, values in measured.items()} == results.equal.modes
    assert Settings(**content['measured']['settings']) == SETTINGS
    assert content['published']['per_replica']['training_outputs'] == 1.4629
    assert content['versions']['tensorflow'] == tf.__version__
    with PIL.Image.open(out / 'batch_norm.png') as image:
        pixels = np.asarray(image.convert('RGB'))
    # All series are drawn, and most of the picture is background.
    for colour in ('#E69F00', '#0072B2', '#009E73', '#D55E00', '#CC79A7'):
        rgb = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
        assert (pixels == rgb).all(-1).sum() > 50, colour
    assert 0.7 < (pixels == 255).all(-1).mean() < 0.99


@pytest.mark.slow
def test_command__confirms_the_published_figures(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, '-m', 'studies.batch_norm', f'--out={tmp_path}']
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert numbers(done.stdout, 'published: per replica') == ['1.4629', '0.0932', '3.1e-9', '0.0199']
    content = json.loads((tmp_path / 'batch_norm.json').read_text(encoding='utf-8'))
    published, equal = content['published'], content['measured']['equal']
    per_replica = {
        **dict.fromkeys(['training_outputs', 'inference_outputs'], equal['without_bessel'][LOCAL]),
        **dict.fromkeys(['moving_mean', 'moving_variance'], equal['without_bessel'][AVERAGED]),
    }
    for kind, differences in per_replica.items():
        assert differences[kind] == pytest.approx(published['per_replica'][kind], rel=0.5), kind
    for kind, value in equal['modes'][SYNCHRONIZED].items():
        assert 0 < value < 3 * published['synchronized'][kind], kind
    assert equal['same_weights'] <= published['same_weights']
    # Only the published decay with biased variance agrees with all published figures per replica.
    lines = re.findall(r'^(0\.\S+, (?:un)?biased) .*$', done.stdout, re.MULTILINE)
    assert len(lines) == 6
    (all_held,) = re.findall(r'^(\S+, \S+) .*\*.*\*.*\*$', done.stdout, re.MULTILINE)
    assert all_held == '0.99, biased'
