"""Tests of the comparison of TensorFlow 1.15 and 2.15, and by it, that both do the same with one seed."""

import argparse
import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest

from benchmarks.measurement import MeasurementError
from inception_v3.config import Config
from studies.versions import __main__ as command
from studies.versions import comparison, environments, part, report
from studies.versions.comparison import Place
from tests.support.runs import make_small_config

MODULE = 'tests.support.one_layer_part'
MADE = {'date': '2026-11-23', 'command': './run X', 'machine': 'a machine'}
ROOT = pathlib.Path(__file__).resolve().parents[3]

both_versions = pytest.mark.skipif(
    not all((ROOT / folder / 'installed.lock').exists() for folder in ('.venv', '.venv-2.15')),
    reason='needs .venv and .venv-2.15: ./run true and ./run --tf=2.15 true make them',
)


@pytest.fixture
def seeded(digits_dir: str) -> Config:
    return make_small_config(digits_dir, seed=1, intra_op_threads=2, learning_rate=0.3)


@pytest.mark.program
@both_versions
def test_versions__prepare_the_same_bits(photo_dir: str, seeded: Config, tmp_path: pathlib.Path) -> None:
    changes = {'data_dir': photo_dir, 'num_train_images': 5, 'num_eval_images': 5, 'num_classes': 6}
    config = dataclasses.replace(seeded, eval_batch_size=3, train_batch_size=3, **changes)
    names = ['train, colours by hue, full', 'train, vgg', 'train, uint8', 'eval']
    found = comparison.compare_batches({'photos': config}, names, 2, Place(str(tmp_path)), lambda text: None)
    assert {*found} == {f'photos: {name}' for name in names}
    for arrays in found.values():
        assert {'records', 'images', 'labels'} <= {*arrays}
        assert arrays['images']['values'] == 2 * 3 * 75 * 75 * 3
        assert not any(of['differing'] for of in arrays.values())


@pytest.mark.program
@both_versions
def test_versions__train_alike_and_take_over_from_each_other(seeded: Config, tmp_path: pathlib.Path) -> None:
    place = Place(str(tmp_path), MODULE)
    found = comparison.compare_training(seeded, 2, 16, place, lambda text: None, has_one_thread=False)
    one, other = found['loss_of_step_1'].values()
    assert other == pytest.approx(one, rel=2e-6)
    assert found['variables'].pop('initial weights')['absolute'] == 0
    assert {*found['variables']} == {'both versions', '1.15, and resumed in 2.15', '2.15, and resumed in 1.15'}
    for of in found['variables'].values():
        assert of['of_the_change'] < 1e-4
    # A version that resumed has trained the same number of steps, from the same weights.
    resumed = comparison.values_of(place.path('training', '1.15-resumed'), 2)
    assert np.abs(
        resumed['Logits/weights'] - comparison.values_of(place.path('training', '1.15'), 1)['Logits/weights']
    ).max()
    for of in found['served'].values():
        assert (of['images'], of['same_top_1']) == (16, 16)
        assert of['greatest'] < 1e-5


def test_perform__names_the_version_and_the_error(monkeypatch: Any, seeded: Config) -> None:
    monkeypatch.setattr(environments, 'command', lambda *arguments: ['sh', '-c', 'echo error: no disk >&2; exit 3'])
    with pytest.raises(MeasurementError, match=r'TensorFlow 2\.15: exit code 3: error: no disk'):
        environments.perform('2.15', [part.job(part.train, config=seeded)])


def test_difference_of__counts_bits_and_measures() -> None:
    one = np.array([1.0, 2.0, -0.0], np.float32)
    assert comparison.difference_of(one, one) == {'values': 3, 'differing': 0, 'greatest': 0.0}
    other = np.array([1.0, 2.5, 0.0], np.float32)
    assert comparison.difference_of(one, other) == {'values': 3, 'differing': 2, 'greatest': 0.5}
    names = np.array(['ab', 'cd'])
    assert comparison.difference_of(names, names[::-1]) == {'values': 2, 'differing': 2, 'greatest': None}


def test_distance__is_relative_to_variables_and_to_the_change() -> None:
    initial = {'a': np.array([0.0, 0.0], np.float32), 'b': np.array([0.0], np.float32)}
    one = {'a': np.array([3.0, 4.0], np.float32), 'b': np.array([0.0], np.float32)}
    other = {'a': np.array([3.0, 4.5], np.float32), 'b': np.array([0.0], np.float32)}
    assert comparison.distance(one, other, initial) == {'absolute': 0.5, 'relative': 0.125, 'of_the_change': 0.1}


def test_difference_of_means__is_students_paired_test() -> None:
    # Differences of 1, 2 and 3: mean 2, standard error 1/√3; t of 2 degrees of freedom at 97.5 % is 4.3027.
    found = comparison.difference_of_means([1.0, 5.0, 2.0], [2.0, 7.0, 5.0])
    assert found['difference'] == pytest.approx(2)
    assert found['low'] == pytest.approx(2 - 4.3027 / 3**0.5, abs=1e-4)
    assert found['high'] == pytest.approx(2 + 4.3027 / 3**0.5, abs=1e-4)
    # t = 2√3 with 2 degrees of freedom: p = 1 - t/√(t² + 2).
    assert found['p'] == pytest.approx(1 - 12**0.5 / 14**0.5)
    assert comparison.difference_of_means([1.0], [2.0]) == {'difference': 1.0, 'low': None, 'high': None, 'p': None}


def test_section__shows_differences_in_words() -> None:
    arrays = {
        'images': {'values': 4000, 'differing': 2, 'greatest': 0.25},
        'records': {'values': 8, 'differing': 0, 'greatest': None},
    }
    found = report.section(report.BATCHES, {'photographs: train': arrays}, MADE)
    assert found.rows == [['photographs: train', 'images, records', 'images: 2 of 4,000 values, by at most 0.25']]
    assert found.notes == ['2026-11-23, a machine: `./run X`']
    accuracy = {'steps': 500, 'top_1': {'1.15': [95.0, 96.0], '2.15': [94.0, 96.0]}, 'difference': -0.5}
    shown = report.section(report.ACCURACY, {**accuracy, 'low': -7.0, 'high': 6.0, 'p': 0.5}, MADE)
    assert shown.rows == [['1.15', '95.00', '96.00', '95.50'], ['2.15', '94.00', '96.00', '95.00']]
    assert '-0.50 points, 95 % interval -7.00 to +6.00, p = 0.50' in shown.notes[0]


def test_command__runs_chosen_comparisons_and_keeps_the_others(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    def compare(arguments: argparse.Namespace, place: Place, screen: Any) -> Any:
        return {'a job': {'1.15': [1.0, 3.0], '2.15': [1.0], 'ratio': 0.5}}

    monkeypatch.setitem(command._COMPARISONS, report.COST, compare)
    monkeypatch.setitem(command._COMPARISONS, report.BATCHES, lambda *unused: {})
    assert command.main(['--only=cost', f'--out={tmp_path}']) == 0
    assert command.main(['--only=batches', f'--out={tmp_path}']) == 0
    text = (tmp_path / command.MARKDOWN_FILE).read_text()
    assert text.index('## First batches') < text.index('| a job | 2 (1–3) | 1 (1–1) | 0.50 |')
    with pytest.raises(SystemExit):
        command.main(['--only=speed'])
