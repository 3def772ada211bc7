"""The progress of trials that write real files, on a terminal and elsewhere."""

import io
import os
import pathlib
import re
from typing import Any, List

import pytest

from inception_v3.run.evaluations import Evaluation, append_evaluation
from inception_v3.run.files import now
from studies.study import Study, grid
from studies.sweep import live, trials
from studies.sweep.live import Display, Progress
from studies.sweep.trials import Outcome, State, Trial


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def two_trials(tmp_path: pathlib.Path) -> List[Trial]:
    study = Study(preset='digits', axes=[grid(optimizer=['sgd', 'RMS'])], seeds=1)
    found = trials.trials_of(study, str(tmp_path))
    for trial in found:
        os.makedirs(trial.model_dir)
    return found


@pytest.fixture
def clock(monkeypatch: Any) -> List[float]:
    now = [1000.0]
    monkeypatch.setattr(live.time, 'monotonic', lambda: now[0])
    return now


def append(trial: Trial, text: str) -> None:
    with open(trial.log, 'a') as file:
        file.write(text)


def evaluate(trial: Trial, step: int, top_1: float) -> None:
    values = Evaluation(step, f'model.ckpt-{step}', 'average', top_1, 1.0, 0.5, 359, 1.0, now())
    append_evaluation(trial.model_dir, values)


def test_progress__follows_log_and_results(two_trials: List[Trial], clock: List[float]) -> None:
    trial = two_trials[0]
    append(trial, '12:00:00 step 900 of 1500, loss 0.1000, 10.0 images/s, 0:01 left\n')
    progress = Progress(trial, State.STOPPED)
    assert progress.cells() == ('stopped', '', '', '', '')
    progress.start()
    progress.read()
    assert progress.cells() == ('starting', '', '', '', ''), 'the log of an earlier start is skipped'
    append(trial, '12:00:15 step 30 of 1500, loss 2.5000, 100.0 images/s, 8:00 left\n12:00:30 step 60 of 15')
    progress.read()
    assert progress.cells() == ('training', '30 of 1,500', '2.5000', '', '8:00')
    clock[0] += 15
    append(trial, '00, loss 2.2500, 100.0 images/s, 7:45 left\n')
    assert progress.cells()[-1] == '7:45', 'the clock runs between lines'
    clock[0] += 5
    progress.read()
    clock[0] += 5
    assert progress.cells() == ('training', '60 of 1,500', '2.2500', '', '7:40')
    evaluate(trial, 500, 0.25)
    append(trial, '12:02:30 preparing to evaluate step 500\n')
    progress.read()
    assert progress.cells() == ('evaluating', '500 of 1,500', '', '25.00%', ''), 'the loss is of step 60'
    assert str(progress).startswith('optimizer=sgd/seed-1: evaluating, step 500 of 1,500, top-1 25.00%')
    evaluate(trial, 1500, 0.75)
    clock[0] += 5
    progress.end(Outcome(0, '', '', '', 'here'))
    assert progress.cells() == ('done', '1,500 of 1,500', '', '75.00%', '') and progress.seconds == 30


def test_progress__forgets_the_time_left_of_an_earlier_training(two_trials: List[Trial], clock: List[float]) -> None:
    trial = two_trials[0]
    progress = Progress(trial, State.STOPPED)
    progress.start()
    append(trial, '12:00:00 step 500 of 1500, loss 2.5000, 100.0 images/s, 1:00 left\n')
    append(trial, '12:00:01 preparing to evaluate step 500\n')
    evaluate(trial, 500, 0.25)
    progress.read()
    assert progress.cells() == ('evaluating', '500 of 1,500', '2.5000', '25.00%', '')
    clock[0] += 90
    append(trial, '12:01:31 preparing to train, 1500 steps in all\n')
    progress.read()
    assert progress.cells() == ('training', '500 of 1,500', '2.5000', '25.00%', '')
    # The number of steps may follow from the data set.
    append(trial, '12:01:50 step 502 of 1600, loss 2.2500, 100.0 images/s, 0:58 left\n')
    progress.read()
    assert progress.cells() == ('training', '502 of 1,600', '2.2500', '25.00%', '0:58')


def test_display__prints_plain_lines_without_a_terminal(two_trials: List[Trial], clock: List[float]) -> None:
    stream = io.StringIO()
    all_progress = [Progress(trial, State.WAITING) for trial in two_trials]
    with Display(stream, all_progress) as display:
        all_progress[0].start()
        for _ in range(150):
            display.update()
            clock[0] += 1
        display.say('optimizer=sgd/seed-1: failed: [bold]no[/bold] markup of ' + 'long ' * 40)
    lines = stream.getvalue().splitlines()
    assert [line.partition(' ')[2] for line in lines[:3]] == ['optimizer=sgd/seed-1: starting'] * 3
    assert len(lines) == 4 and lines[3].rstrip().endswith('[bold]no[/bold] markup of' + ' long' * 40)
    assert '\x1b' not in stream.getvalue()


def test_display__short_terminal_shows_running_and_failed_trials(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.setenv('TERM', 'xterm')
    monkeypatch.setenv('LINES', '12')
    monkeypatch.setenv('COLUMNS', '100')
    all_progress = [
        Progress(trial, State.DONE) for trial in trials.trials_of(Study(preset='digits', seeds=40), str(tmp_path))
    ]
    all_progress[20].state, all_progress[30].state = State.RUNNING, State.FAILED
    os.makedirs(all_progress[20].trial.model_dir)
    evaluate(all_progress[20].trial, 1500, 0.5)
    stream = Terminal()
    display = Display(stream, all_progress)
    with display:
        text = stream.getvalue()
    text = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', text)
    assert re.search(r'default/seed-21 +running +1,500 of 1,500 +50\.00%', text)
    assert re.search(r'default/seed-31 +failed', text) and 'seed-40 ' not in text
    assert '38 of 40 trials done, 1 running, 1 failed; 35 not shown' in text
    assert 'seed-40 ' in stream.getvalue(), 'the final table has all trials'
