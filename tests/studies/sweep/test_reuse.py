"""Trials that other sweeps have finished."""

import json
import os
import pathlib
import re
from typing import Any, List

import pytest

from inception_v3.run.files import CONFIG_FILE
from inception_v3.run.history import read_evaluations
from studies.study import Study, StudyError, cases, grid
from studies.sweep import __main__ as sweep
from studies.sweep import reuse, trials
from studies.sweep.trials import State, Trial
from tests.studies.sweep.test_trials import outcome
from tests.support import recorded
from tests.support.sweeps import PROGRAM, study_file


def optimizers(out: pathlib.Path, **flags: Any) -> List[Trial]:
    """A sweep's trials of RMS and of sgd, with two seeds each; RMS is the default."""
    out.mkdir(exist_ok=True)
    (out / trials.STUDY_FILE).write_text('{}')
    axes = [grid(optimizer=['RMS', 'sgd'])]
    return trials.trials_of(Study(preset='digits', flags={'train_steps': 6, **flags}, axes=axes, seeds=2), str(out))


def colors(out: pathlib.Path) -> List[Trial]:
    """Another sweep's, whose first case is the default, too."""
    axes = [cases({'fast': {}, 'none': {'brightness_distortion_range': 0.0}})]
    return trials.trials_of(Study(preset='digits', flags={'train_steps': 6}, axes=axes, seeds=2), str(out))


def finish(trial: Trial, step: int = 6, code: int = 0) -> None:
    """Writes the files of a trial that ended after a step."""
    recorded.write(trial.model_dir, trial.config, [recorded.evaluation(step, 0.5)])
    outcome(code).write(trial.folder)
    pathlib.Path(trial.log).write_text(f'log of {trial.folder}')


def test_take__copies_finished_trials_with_the_same_flags_and_seed(tmp_path: pathlib.Path) -> None:
    one, two, three = (tmp_path / name for name in ('one', 'two', 'three'))
    finished = [trial for trial in optimizers(one) if trial.name != 'optimizer=RMS/seed-2']
    # The sweeps are searched in order.
    for trial in [*finished, optimizers(three)[0]]:
        finish(trial)
    waiting = colors(two)
    # The first ended before its run began, during a copy.
    os.makedirs(waiting[0].folder)
    (two / 'trials' / 'fast' / '.unfinished-killed' / 'trial').mkdir(parents=True)
    assert reuse.take(waiting, [str(one), str(three)]) == [(waiting[0], finished[0].folder)]
    assert [trials.state_of(trial) for trial in waiting] == [State.DONE] + [State.WAITING] * 3
    assert pathlib.Path(waiting[0].log).read_text() == f'log of {finished[0].folder}'
    assert trials.last_evaluation(waiting[0]) == recorded.evaluation(6, 0.5)
    # The copy is that of a moved folder: it may be resumed, and nothing else is left behind.
    trials.check_unchanged(waiting)
    assert os.listdir(str(two / 'trials')) == ['fast'] and os.listdir(str(two / 'trials' / 'fast')) == ['seed-1']
    assert reuse.take(waiting, [str(one)]) == []


def test_take__leaves_trials_that_did_not_finish_differ_or_cannot_be_read(tmp_path: pathlib.Path) -> None:
    one, two, three, four = (tmp_path / name for name in ('one', 'two', 'three', 'four'))
    stopped, failed, *_ = optimizers(one)
    finish(stopped, step=3)
    finish(failed, code=1)
    for trial in optimizers(three, learning_rate=0.07):
        finish(trial)
    for trial in optimizers(four):
        finish(trial)
        # As another version of the program would write it; and damaged.
        path = pathlib.Path(trial.model_dir, CONFIG_FILE)
        path.write_text('{"a_later_flag": 1}' if trial.seed == 1 else '{"optim')
    assert reuse.take(colors(two), [str(one), str(three), str(four)]) == [] and not two.exists()
    # A trial that has started is left alone.
    finish(optimizers(one)[0])
    first = colors(two)[0]
    recorded.write(first.model_dir, first.config, [])
    assert reuse.take([first], [str(one)]) == [] and trials.state_of(first) is State.STOPPED


def test_take__refuses_a_folder_without_a_sweep(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StudyError, match=re.escape(f'--reuse={tmp_path}: holds no sweep; it has no study.json.')):
        reuse.take([], [str(tmp_path)])
    with pytest.raises(StudyError, match=r'--reuse=one\[1\]: must not contain any of the characters'):
        reuse.take([], ['one[1]'])


def test_take__leaves_nothing_of_a_copy_that_fails(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(optimizers(tmp_path / 'one')[0])

    def full(source: str, target: str) -> None:
        os.mkdir(target)
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(reuse.shutil, 'copytree', full)
    with pytest.raises(StudyError, match=r'two/trials/fast/seed-1: cannot be written: .*No space left'):
        reuse.take(colors(tmp_path / 'two'), [str(tmp_path / 'one')])
    assert os.listdir(str(tmp_path / 'two' / 'trials' / 'fast')) == []


def test_command__takes_a_trial_and_reports_it(tmp_path: pathlib.Path, digits_dir: str, capsys: Any) -> None:
    file = study_file(tmp_path, '[{grid: {optimizer: [RMS]}}]', data_dir=digits_dir)
    trial = optimizers(tmp_path / 'one', **json.loads((tmp_path / 'rates.yaml').read_text().split('flags: ')[1]))[0]
    finish(trial)
    assert sweep.main(['sweep', file, f'--out={tmp_path}/two', f'--reuse={tmp_path}/one'], PROGRAM) == 0
    output = capsys.readouterr()
    assert f'default/seed-1: taken from {trial.folder}' in output.err and '1 of 1 trials done' in output.out
    (copied,) = read_evaluations(str(tmp_path / 'two' / 'trials' / 'default' / 'seed-1' / 'model'))
    assert copied == recorded.evaluation(6, 0.5) and (tmp_path / 'two' / 'report.html').exists()
