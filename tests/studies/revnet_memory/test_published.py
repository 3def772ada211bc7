"""The memory of a published network over iterations: the batch, both curves, resumption, and the command."""

import io
import json
import pathlib
from typing import Any, Dict, List, Optional
from unittest import mock

import numpy as np
import PIL.Image
import pytest

from benchmarks.measurement import MeasurementError
from inception_v3.networks.registry import NETWORKS
from studies.report.palette import sign_of
from studies.revnet_memory import __main__ as revnet_memory
from studies.revnet_memory import published
from studies.revnet_memory import training as training_module
from studies.revnet_memory.measurement import AS_PUBLISHED, OutOfMemoryError, Training

GB = 10**9


@pytest.mark.parametrize(
    ('kept_mb', 'available_gb', 'expected'),
    # 2 GB for the program, and nine tenths of the memory in all.
    [(168, 24, 64), (168, 40, 128), (168, 400, 128), (168, 1, 1), (1000, 20, 16), (1001, 20, 8)],
)
def test_estimated_batch__is_the_largest_that_fits(kept_mb: int, available_gb: int, expected: int) -> None:
    assert published.estimated_batch(kept_mb * 10**6, available_gb * GB) == expected


class Trainings:
    """Takes the place of the processes: ordinary training needs 1 GB an image, reversible 0.1 GB."""

    def __init__(self, fails: bool = False):
        self.made: List[Training] = []
        self.fails = fails

    def __call__(self, training: Training, iterations: int, limit: Optional[int]) -> Dict[str, List[float]]:
        self.made.append(training)
        peak = training.batch_size * (0.1 if training.is_reversible else 1) * GB
        if self.fails and training.is_reversible:
            raise MeasurementError('ended by signal 9')
        if limit is not None and peak > limit:
            raise OutOfMemoryError('more')
        each = {'peak_mb': peak / 1e6, 'held_mb': 1.0, 'seconds': 2.0}
        return {name: [value] * iterations for name, value in each.items()}


def measure(trainings: Trainings, out: pathlib.Path, monkeypatch: Any, *flags: str) -> int:
    monkeypatch.setattr(published, 'memory_of_iterations', trainings)
    monkeypatch.setattr(published, 'memory_bytes', lambda: {'MemAvailable': 20 * GB})
    return revnet_memory.main(['--architecture=published', f'--out={out}', '--iterations=3', *flags])


def test_published__halves_the_batch_until_it_fits_and_draws_both(
    tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    trainings = Trainings()
    assert measure(trainings, tmp_path, monkeypatch) == 0
    # By estimate 64 images fit into 18 GB; the trainings need 1 GB each.
    plain = Training('revnet104', AS_PUBLISHED, 16, 224, is_reversible=False)
    made = [plain._replace(batch_size=64), plain._replace(batch_size=32), plain, plain._replace(is_reversible=True)]
    assert trainings.made == made
    found = json.loads((tmp_path / 'published.json').read_text(encoding='utf-8'))
    assert found['batch'] == 16
    assert {name: curve['peak_mb'] for name, curve in found['curves'].items()} == {
        'plain': [16000.0] * 3,
        'reversible': [1600.0] * 3,
    }
    shown = capsys.readouterr().out
    assert 'revnet104 at 224 pixels, batches of 16 (the largest that fits, up to 128)' in shown and '16,000' in shown
    pixels = np.asarray(PIL.Image.open(io.BytesIO((tmp_path / 'published.png').read_bytes())).convert('RGB'))
    for index in range(2):
        rgb = [int(sign_of(index).light[place : place + 2], 16) for place in (1, 3, 5)]
        assert (pixels == rgb).all(-1).sum() > 50
    assert '| plain | 16,000 |' in (tmp_path / 'published.md').read_text(encoding='utf-8')


def test_published__resumes_after_a_failure(tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any) -> None:
    assert measure(Trainings(fails=True), tmp_path, monkeypatch, '--batch_size=2') == 1
    assert 'ended by signal 9' in capsys.readouterr().out
    again = Trainings()
    assert measure(again, tmp_path, monkeypatch, '--batch_size=2') == 0
    assert [training.is_reversible for training in again.made] == [True]
    assert measure(again, tmp_path, monkeypatch, '--batch_size=4') == 2
    assert 'Name another folder with --out' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        (['--iterations=3'], '--iterations: only with --architecture=published'),
        (['--architecture=published', '--units=1'], '--units: not with --architecture=published'),
        (['--architecture=published', '--batch_sizes=4'], '--batch_sizes: not with --architecture=published'),
    ],
)
def test_command__refuses_flags_of_the_other_study(
    tmp_path: pathlib.Path, capsys: Any, flags: List[str], message: str
) -> None:
    assert revnet_memory.main([f'--out={tmp_path}', *flags]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize('units', [AS_PUBLISHED, 1])
def test_train__changes_the_depth_unless_as_published(units: int, monkeypatch: Any) -> None:
    network = NETWORKS['revnet38']
    monkeypatch.setitem(NETWORKS, 'revnet38', network)
    monkeypatch.setattr(training_module, 'make_estimator', mock.Mock())
    training_module.train(Training('revnet38', units, 2, 32, is_reversible=True), 'runs')
    assert (NETWORKS['revnet38'] is network) == (units == AS_PUBLISHED)
