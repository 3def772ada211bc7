"""The study of fine-tuning: its trials, and the table and figure of their results."""

import json
import pathlib
import types
from typing import Any, List

import pytest

from inception_v3.weights.selection import Patterns
from tools.datasets import digits
from tools.studies import fine_tuning
from tools.studies.sweep import run, trials
from tools.studies.sweep.trials import Trial

WAYS = ['classifier', 'last-blocks', 'all-layers', 'from-nothing']


def of_way(found: List[Trial], way: str) -> Trial:
    return next(trial for trial in found if trial.case == f'{way},20')


@pytest.fixture
def planned() -> List[Trial]:
    return trials.trials_of(fine_tuning.study('OUT', [5, 20], seeds=2, steps=7), 'OUT/fine_tuning')


def test_study__has_a_trial_for_each_way_number_of_images_and_seed(planned: List[Trial]) -> None:
    assert [trial.name for trial in planned] == [
        f'{way},{images}/seed-{seed}' for way in WAYS for images in (5, 20) for seed in (1, 2)
    ]
    for trial in planned:
        assert trial.config.data_dir == f'OUT/data/new-{trial.case.split(",")[1]}'
        assert trial.config.train_steps == trial.config.train_steps_per_eval == 7


def test_study__begins_from_the_run_of_the_source(planned: List[Trial]) -> None:
    (source,) = trials.trials_of(fine_tuning.source_study('OUT'), 'OUT/source')
    assert source.config.data_dir == 'OUT/data/old'
    begun = {trial.config.init_from for trial in planned if not trial.case.startswith('from-nothing')}
    assert begun == {source.model_dir}
    scratch = of_way(planned, 'from-nothing').config
    assert (scratch.init_from, scratch.freeze, scratch.optimizer) == ('', '', 'RMS')
    # The same network, so that the weights fit.
    names = ('network', 'depth_multiplier', 'height', 'width', 'auxiliary_head', 'num_classes')
    for trial in planned:
        assert [getattr(trial.config, name) for name in names] == [getattr(source.config, name) for name in names]


def test_study__freezes_what_is_not_trained(planned: List[Trial]) -> None:
    scopes = ['Conv2d_1a_3x3', 'Mixed_5b', 'Mixed_6e', 'Mixed_7a', 'Mixed_7c', 'Logits']
    for way, trained in (('classifier', scopes[-1:]), ('last-blocks', scopes[3:]), ('all-layers', scopes)):
        config = of_way(planned, way).config
        frozen = Patterns(config.freeze)
        assert [scope for scope in scopes if not frozen.match(f'InceptionV3/{scope}/weights')] == trained
        # The classes are other digits, although there are as many.
        assert config.init_except == 'Logits'


def test_command__runs_both_sweeps_and_reports_the_last_steps(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    def evaluation(trial: Trial) -> Any:
        if trial.name == 'last-blocks,20/seed-2':
            return types.SimpleNamespace(step=6, top_1=0.1)
        if trial.case == 'from-nothing,20':
            return None
        return types.SimpleNamespace(step=7, top_1=0.5 + 0.01 * trial.seed + (0.2 if trial.case.endswith('20') else 0))

    ran: List[Any] = []
    monkeypatch.setattr(digits, 'build_if_missing', lambda *arguments: ran.append(arguments))

    def swept(planned: run.Plan, screen: Any, workers: int) -> int:
        ran.append((planned.study.name, planned.out, workers))
        return 0

    monkeypatch.setattr(run, 'run', swept)
    monkeypatch.setattr(trials, 'last_evaluation', evaluation)
    out = tmp_path / 'out'
    assert fine_tuning.main([f'--out={out}', '--images=5,20', '--seeds=2', '--steps=7', '--workers=3']) == 0
    new = [(f'{out}/data/new-{count}', (5, 6, 7, 8, 9), count) for count in (5, 20)]
    sweeps = [(name, f'{out}/{name}', 3) for name in ('source', 'fine_tuning')]
    assert ran == [(f'{out}/data/old', (0, 1, 2, 3, 4), None), *new, *sweeps]
    written = json.loads((out / 'fine_tuning.json').read_text())
    both, one = pytest.approx([71.0, 72.0]), pytest.approx([71.0])
    assert 'versions' in written and written['top_1'] == {
        '5': dict.fromkeys(WAYS, pytest.approx([51.0, 52.0])),
        '20': {'classifier': both, 'last-blocks': one, 'all-layers': both, 'from-nothing': []},
    }
    markdown = (out / 'fine_tuning.md').read_text()
    assert '| images of each digit | classifier | last blocks | all layers | from nothing |' in markdown
    # The standard deviation of two values that differ by 1 is √½.
    assert f'| 5 |{" 51.5 ± 0.7 |" * 4}' in markdown
    assert '| 20 | 71.5 ± 0.7 | 71.0 | 71.5 ± 0.7 | – |' in markdown
    assert (out / 'fine_tuning.png').exists()
