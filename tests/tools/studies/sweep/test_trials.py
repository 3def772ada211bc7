"""Trials: their command lines, states and cost, and trials of another sweep."""

import dataclasses
import os
import pathlib
import signal
import subprocess
from typing import Any, Dict, List, Optional, Tuple

import pytest

from data.dataset_info import DatasetInfo
from data.files import write_whole
from inception_v3.fitting import fit_to_data_set
from inception_v3.model_dir import CONFIG_FILE, now
from inception_v3.run.evaluations import append_evaluation
from tests.support import recorded
from tests.support.recorded import evaluation
from tools.studies.study import Study, StudyError, cases
from tools.studies.sweep import trials
from tools.studies.sweep.trials import Outcome, State, Trial


def trial_in(folder: pathlib.Path, **own_flags: Any) -> Trial:
    (trial,) = trials.trials_of(Study(preset='digits', flags={'train_steps': 6, **own_flags}, seeds=1), str(folder))
    os.makedirs(trial.model_dir, exist_ok=True)
    return trial


def outcome(exit_code: int) -> Outcome:
    return Outcome(exit_code, '', now(), now(), 'here')


def test_cost_of__scales_with_the_number_of_images() -> None:
    axes = [cases({'small': {}, 'large': {'train_batch_size': 4096, 'train_steps': 53250}})]
    study = Study(axes=axes, seeds=2, step_ms=815)
    cost = trials.cost_of(study, trials.trials_of(study, 'out'))
    # 213,000 steps of 1,024 images take as long as 53,250 steps of 4,096 images: 48.2 hours.
    assert cost == '4 trials, 532,500 training steps, 193 hours of training on a v2-8'
    assert trials.cost_of(Study(), []) == '0 trials, 0 training steps'


def test_script__runs_the_same_command_line_from_any_folder(tmp_path: pathlib.Path) -> None:
    trial = trial_in(tmp_path / 'out', data_dir="it's $HOME in quotes")
    script = tmp_path / 'a copy' / trials.COMMAND_FILE
    script.parent.mkdir()
    script.write_text(trials.script(trial._replace(program=('printf', r'%s\n'))))
    output = subprocess.run(['sh', str(script)], stdout=subprocess.PIPE, check=True, text=True).stdout
    here = {f'--model_dir={trial.model_dir}': f'--model_dir={script.parent}/model'}
    assert output.splitlines() == [here.get(word, word) for word in trial.arguments]


def test_state_of__is_read_from_the_folder(tmp_path: pathlib.Path) -> None:
    trial = trial_in(tmp_path)
    assert trials.state_of(trial) is State.WAITING
    # A killed trial has no outcome.
    write_whole(os.path.join(trial.model_dir, CONFIG_FILE), trial.config.to_json())
    assert trials.state_of(trial) is State.STOPPED
    for code, state in [(75, State.STOPPED), (130, State.STOPPED), (-15, State.STOPPED), (-2, State.STOPPED)]:
        outcome(code).write(trial.folder)
        assert trials.state_of(trial) is state
    for code in (1, -9):
        outcome(code).write(trial.folder)
        assert trials.state_of(trial) is State.FAILED
    outcome(0).write(trial.folder)
    append_evaluation(trial.model_dir, evaluation(3, 0.5))
    assert trials.state_of(trial) is State.STOPPED, 'its last step was not evaluated'
    otherwise = evaluation(6, 0.99, changed=('preprocessing: inception -> vgg',))
    append_evaluation(trial.model_dir, otherwise)
    assert trials.state_of(trial) is State.STOPPED, 'its last step was not evaluated as it was trained'
    assert trials.last_evaluation(trial) == evaluation(3, 0.5)
    # A repeated evaluation of an earlier checkpoint does not become the last one.
    for each in (evaluation(6, 0.5), otherwise, evaluation(3, 0.5)):
        append_evaluation(trial.model_dir, each)
    assert trials.state_of(trial) is State.DONE and trials.last_evaluation(trial) == evaluation(6, 0.5)
    pathlib.Path(trial.folder, trials.OUTCOME_FILE).write_text('{"exit_')
    assert trials.state_of(trial) is State.STOPPED


def test_run__asks_a_trial_to_end_once_for_each_interrupt(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    stops: List[int] = []

    class Interrupted:
        def __init__(self, trial: Trial):
            self.outcomes = iter([None, None, None, outcome(75)])
            os.kill(os.getpid(), signal.SIGINT)

        def stop(self) -> None:
            stops.append(1)

        def poll(self) -> Optional[Outcome]:
            return next(self.outcomes)

    monkeypatch.setattr(trials, 'Process', Interrupted)
    monkeypatch.setattr(trials, '_POLL_INTERVAL', 0)
    assert trials.run(trial_in(tmp_path)).exit_code == 75 and stops == [1]


def test_check_unchanged__refuses_runs_with_other_flags(tmp_path: pathlib.Path) -> None:
    trial = trial_in(tmp_path)
    path = os.path.join(trial.model_dir, CONFIG_FILE)
    # Automatic settings and a moved folder are not changes, unless the study sets them.
    settled = dataclasses.replace(trial.config, num_train_images=7, intra_op_threads=2, model_dir='elsewhere')
    write_whole(path, settled.to_json())
    trials.check_unchanged([trial])
    with pytest.raises(StudyError, match='intra_op_threads: 2 -> 1'):
        trials.check_unchanged([trial_in(tmp_path, intra_op_threads=1)])
    # Nor are flags that have no effect: without a warm-up, these have none.
    plain = trial_in(tmp_path, use_learning_rate_warmup=False)
    warmed_up = dataclasses.replace(plain.config, cold_epochs=2, warmup_epochs=7)
    write_whole(path, warmed_up.to_json())
    trials.check_unchanged([plain])
    write_whole(path, dataclasses.replace(warmed_up, use_learning_rate_warmup=True).to_json())
    with pytest.raises(StudyError, match='use_learning_rate_warmup: True -> False; cold_epochs: 2 -> 1; warmup'):
        trials.check_unchanged([plain])
    write_whole(path, dataclasses.replace(trial.config, learning_rate=0.5, optimizer='sgd').to_json())
    changes = r'other flags .*\(optimizer: sgd -> RMS; learning_rate: 0\.5 -> 0\.06\)\. Name another folder with --out'
    with pytest.raises(StudyError, match=f'^{trial.folder}: was run with {changes}'):
        trials.check_unchanged([trial])
    write_whole(path, '{"a_later_flag": 1}')
    with pytest.raises(StudyError, match=f'{path}: .*a_later_flag.* or remove {trial.folder}, to run it again'):
        trials.check_unchanged([trial])


@pytest.mark.parametrize(
    ('preset', 'own', 'images', 'steps'),
    [
        ('digits', {'train_epochs': 2, 'train_batch_size': 10}, (100, 20), 20),
        ('own_images', {'class_weights': 'balanced'}, (400, 20), 1000),
    ],
)
def test_trials__whose_steps_follow_from_the_data_set_are_done_and_unchanged(
    preset: str, own: Dict[str, Any], images: Tuple[int, int], steps: int, tmp_path: pathlib.Path
) -> None:
    study = Study(preset=preset, flags={'data_dir': str(tmp_path / 'data'), **own}, seeds=1)
    (trial,) = trials.trials_of(study, str(tmp_path / 'out'))
    (tmp_path / 'data').mkdir()
    info = DatasetInfo('mine', 'here', *images, 3, ['background', 'cat', 'dog'])
    dataclasses.replace(info, train_images_per_class=[0, images[0] - 5, 5]).write(str(tmp_path / 'data'))
    recorded.write(trial.model_dir, fit_to_data_set(trial.command_line), [evaluation(steps - 1, 0.5)])
    outcome(0).write(trial.folder)
    assert trials.state_of(trial) is State.STOPPED
    append_evaluation(trial.model_dir, evaluation(steps, 0.5))
    assert trials.state_of(trial) is State.DONE and f'1 trials, {steps:,} training' in trials.cost_of(study, [trial])
    trials.check_unchanged([trial])
    (longer,) = trials.trials_of(study.with_flags({'train_batch_size': 5}), str(tmp_path / 'out'))
    with pytest.raises(StudyError, match=r'train_batch_size: .* -> 5.*train_steps: '):
        trials.check_unchanged([longer])
    (weighted,) = trials.trials_of(study.with_flags({'class_weights': 'w.csv'}), str(tmp_path / 'out'))
    with pytest.raises(StudyError, match=r'class_weights: .* -> w\.csv'):
        trials.check_unchanged([weighted])
