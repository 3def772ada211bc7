"""The study of the size of the data set: its trials, the power law, and the table and figure of their results."""

import json
import pathlib
import types
from typing import Any, List

import numpy as np
import pytest

from tools.datasets import digits
from tools.studies import data_size
from tools.studies.sweep import run, trials


def test_study__has_a_data_set_for_each_number_and_the_same_steps() -> None:
    study = data_size.study('OUT', [2, 16], seeds=2, steps=7)
    configs = {trial.name: trial.config for trial in trials.trials_of(study, 'OUT/data_size')}
    assert {name: config.data_dir for name, config in configs.items()} == {
        f'{count}/seed-{seed}': f'OUT/data/{count}' for count in (2, 16) for seed in (1, 2)
    }
    assert {(config.train_steps, config.train_steps_per_eval) for config in configs.values()} == {(7, 7)}


def test_fit__agrees_with_least_squares_of_numpy() -> None:
    errors = {20: [50.0, 40.0], 80: [20.0], 320: [13.0], 1280: [6.0, 5.0]}
    # numpy.polyfit scales its covariance by the residuals with n - 2 degrees of freedom; the interval of four points
    # has Student's factor for two.
    means = [45.0, 20.0, 13.0, 5.5]
    (slope, intercept), covariance = np.polyfit(np.log([*errors]), np.log(means), 1, cov=True)
    law = data_size.fit(errors)
    assert law == pytest.approx((np.exp(intercept), -slope, 4.302653 * np.sqrt(covariance[0, 0])), rel=1e-6)
    assert law is not None and law.error(320) == pytest.approx(np.exp(intercept + slope * np.log(320)))
    # Sizes without any error are left out, and two others have no interval.
    assert data_size.fit({**errors, 5000: [0.0]}) == law
    assert data_size.fit({20: [50.0], 80: [20.0], 320: [0.0, 0.0]}) is None


def test_command__writes_errors_and_law_of_its_sweep(
    tmp_path: pathlib.Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: List[Any] = []

    def swept(planned: run.Plan, screen: Any, workers: int) -> int:
        written.append((planned.out, workers))
        return 0

    monkeypatch.setattr(digits, 'build_if_missing', lambda *arguments: written.append(arguments))
    monkeypatch.setattr(run, 'run', swept)
    # The error is 400 % · images^-0.5, without a seed's deviation.
    top_1 = {2: 1 - 4 / 20**0.5, 8: 1 - 4 / 80**0.5, 32: 1 - 4 / 320**0.5}
    evaluation = lambda trial: types.SimpleNamespace(step=9, top_1=top_1[int(trial.case)])  # noqa: E731
    monkeypatch.setattr(trials, 'last_evaluation', evaluation)
    flags = [f'--out={tmp_path}', '--images=2,8,32', '--seeds=2', '--steps=9', '--workers=3']
    assert data_size.main(flags) == 0
    assert written == [
        *((f'{tmp_path}/data/{count}', tuple(range(10)), count) for count in (2, 8, 32)),
        (f'{tmp_path}/data_size', 3),
    ]
    content = json.loads((tmp_path / 'data_size.json').read_text())
    assert content['power_law'] == pytest.approx({'factor': 400, 'exponent': 0.5, 'margin': 0}, abs=1e-6)
    markdown = (tmp_path / 'data_size.md').read_text()
    assert '| 20 | 89.4 ± 0.0 | 89.4 |' in markdown and '| 320 | 22.4 ± 0.0 | 22.4 |' in markdown
    assert 'power law: error = 400 % · images^−0.50; 95 % interval of the exponent: ± 0.00' in markdown
    assert '(data_size.svg)' in markdown
    # The figure's text is text, and the page's colour scheme changes its colours.
    figure = (tmp_path / 'data_size.svg').read_text()
    assert 'training images</text>' in figure and '@media(prefers-color-scheme:dark)' in figure
    capsys.readouterr()
    with pytest.raises(SystemExit):
        data_size.main(['--images=5,140'])
    assert 'from 1 to 139' in capsys.readouterr().err
