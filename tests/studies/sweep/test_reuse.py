"""Trials that other sweeps have finished."""

import json
import os
import pathlib
import re
from typing import Any, List

import pytest

from inception_v3.run.evaluations import read_evaluations
from inception_v3.run.files import CONFIG_FILE
from studies.study import Study, StudyError, cases, grid
from studies.sweep import __main__ as sweep
from studies.sweep import reuse, trials
from studies.sweep.trials import State, Trial
from tests.studies.sweep.test_trials import evaluation, outcome
from tests.support import recorded
from tests.support.sweeps import PROGRAM, study_file

FLAGS = {'train_steps': 6, 'learning_rate': 0.06}


def trials_in(out: pathlib.Path, study: Study) -> List[Trial]:
    return trials.trials_of(study, str(out))


def optimizers(out: pathlib.Path, **flags: Any) -> List[Trial]:
    """A sweep's trials of RMS and of sgd, with two seeds each; RMS is the default."""
    axes = [grid(optimizer=['RMS', 'sgd'])]
    return trials_in(out, Study(preset='digits', flags={**FLAGS, **flags}, axes=axes, seeds=2))


def colors(out: pathlib.Path) -> List[Trial]:
    """Another sweep's, whose first case is the default, too."""
    axes = [cases({'fast': {}, 'none': {'brightness_distortion_range': 0.0}})]
    return trials_in(out, Study(preset='digits', flags=FLAGS, axes=axes, seeds=2))


def finish(trial: Trial, step: int = 6) -> None:
    """Writes the files of a trial that ended after a step."""
    recorded.write(trial.model_dir, trial.config, [evaluation(step)])
    outcome(0).write(trial.folder)
    pathlib.Path(trial.log).write_text(f'log of {trial.folder}')


def mark(out: pathlib.Path) -> str:
    out.mkdir(exist_ok=True)
    (out / trials.STUDY_FILE).write_text('{}')
    return str(out)


def test_take__copies_finished_trials_with_the_same_flags_and_seed(tmp_path: pathlib.Path) -> None:
    one, two = tmp_path / 'one', tmp_path / 'two'
    finished = [trial for trial in optimizers(one) if trial.name != 'optimizer=RMS/seed-2']
    for trial in finished:
        finish(trial)
    waiting = colors(two)
    # The sweeps are searched in order.
    finish(optimizers(tmp_path / 'another')[0])
    taken = reuse.take(waiting, [mark(one), mark(tmp_path / 'another')])
    assert taken == [(waiting[0], finished[0].folder)]
    assert [trials.state_of(trial) for trial in waiting] == [State.DONE] + [State.WAITING] * 3
    assert pathlib.Path(waiting[0].log).read_text() == f'log of {finished[0].folder}'
    assert trials.last_evaluation(waiting[0]) == evaluation(6)
    # The copy is that of a moved folder: it may be resumed, and nothing else is left behind.
    trials.check_unchanged(waiting)
    assert os.listdir(str(two / 'trials')) == ['fast'] and os.listdir(str(two / 'trials' / 'fast')) == ['seed-1']
    assert reuse.take(waiting, [str(one)]) == []


def test_take__leaves_trials_that_did_not_finish_differ_or_cannot_be_read(tmp_path: pathlib.Path) -> None:
    one, three, four = tmp_path / 'one', tmp_path / 'three', tmp_path / 'four'
    stopped, failed, *_ = optimizers(one)
    finish(stopped, step=3)
    finish(failed)
    outcome(1).write(failed.folder)
    for trial in optimizers(three, learning_rate=0.07):
        finish(trial)
    for trial in optimizers(four):
        finish(trial)
        # As another version of the program would write it; and damaged.
        path = pathlib.Path(trial.model_dir, CONFIG_FILE)
        path.write_text('{"a_later_flag": 1}' if trial.seed == 1 else '{"optim')
    assert reuse.take(colors(tmp_path / 'two'), [mark(one), mark(three), mark(four)]) == []
    assert not (tmp_path / 'two').exists()
    # A trial that has started is left alone.
    finish(optimizers(one)[0])
    first = colors(tmp_path / 'two')[0]
    recorded.write(first.model_dir, first.config, [])
    assert reuse.take([first], [mark(one)]) == [] and trials.state_of(first) is State.STOPPED


def test_take__replaces_what_was_left_before_a_run_began(tmp_path: pathlib.Path) -> None:
    one, two = tmp_path / 'one', tmp_path / 'two'
    (finished, *_), (waiting, *_) = optimizers(one), colors(two)
    finish(finished)
    os.makedirs(waiting.folder)
    pathlib.Path(waiting.log).write_text('killed before its run began')
    (two / 'trials' / 'fast' / '.unfinished-killed' / 'trial').mkdir(parents=True)
    assert reuse.take([waiting], [mark(one)]) == [(waiting, finished.folder)]
    assert pathlib.Path(waiting.log).read_text() == f'log of {finished.folder}'
    assert os.listdir(str(two / 'trials' / 'fast')) == ['seed-1']


def test_take__refuses_a_folder_without_a_sweep(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StudyError, match=re.escape(f'--reuse={tmp_path}: holds no sweep; it has no study.json.')):
        reuse.take([], [str(tmp_path)])
    with pytest.raises(StudyError, match=r'--reuse=.*/one\[1\]: must not contain any of the characters'):
        reuse.take([], [mark(tmp_path / 'one[1]')])


def test_take__leaves_nothing_of_a_copy_that_fails(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / 'one', tmp_path / 'two'
    finish(optimizers(one)[0])

    def full(source: str, target: str) -> None:
        os.mkdir(target)
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(reuse.shutil, 'copytree', full)
    with pytest.raises(StudyError, match=r'two/trials/fast/seed-1: cannot be written: .*No space left'):
        reuse.take(colors(two), [mark(one)])
    assert os.listdir(str(two / 'trials' / 'fast')) == []


def test_command__takes_a_trial_and_reports_it(tmp_path: pathlib.Path, digits_dir: str, capsys: Any) -> None:
    file = study_file(tmp_path, '[{grid: {optimizer: [RMS]}}]', data_dir=digits_dir)
    fields = json.loads((tmp_path / 'rates.yaml').read_text().split('flags: ')[1])
    study = Study(preset='digits', flags=fields, axes=[grid(optimizer=['RMS'])], seeds=1)
    (trial,) = trials_in(tmp_path / 'one', study)
    finish(trial)
    mark(tmp_path / 'one')
    command = ['sweep', file, f'--out={tmp_path}/two', f'--reuse={tmp_path}/one']
    assert sweep.main(command, PROGRAM) == 0
    output = capsys.readouterr()
    assert f'default/seed-1: taken from {trial.folder}' in output.err and '1 of 1 trials done' in output.out
    (taken,) = read_evaluations(str(tmp_path / 'two' / 'trials' / 'default' / 'seed-1' / 'model'))
    assert taken == evaluation(6) and (tmp_path / 'two' / 'report.html').exists()
    assert sweep.main(['sweep', file, f'--out={tmp_path}/three', f'--reuse={tmp_path}'], PROGRAM) == 2
    assert 'holds no sweep' in capsys.readouterr().err
