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
    assert progress.cells() == ('stopped', '', '')
    progress.start()
    progress.read()
    assert progress.cells() == ('running', '', 'starting'), 'the log of an earlier start is skipped'
    append(trial, '12:00:15 step 30 of 1500, loss 2.5000\n12:00:30 step 60 of 15')
    progress.read()
    assert progress.cells() == ('running', '', 'step 30 of 1500, loss 2.5000')
    append(trial, '00, loss 2.2500\n')
    evaluate(trial, 500, 0.25)
    progress.read()
    assert progress.cells() == ('running', '25.00% at 500', 'step 60 of 1500, loss 2.2500')
    assert str(progress) == 'optimizer=sgd/seed-1: step 60 of 1500, loss 2.2500, top-1 25.00% at 500'
    evaluate(trial, 1500, 0.75)
    clock[0] += 30
    progress.end(Outcome(0, '', '', '', 'here'))
    assert progress.cells() == ('done', '75.00% at 1,500', '') and progress.seconds == 30


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


def test_display__shows_a_table_on_a_terminal(two_trials: List[Trial], monkeypatch: Any, clock: List[float]) -> None:
    monkeypatch.setenv('TERM', 'xterm')
    stream = Terminal()
    evaluate(two_trials[1], 1500, 0.5)
    all_progress = [Progress(two_trials[0], State.WAITING), Progress(two_trials[1], State.DONE)]
    with Display(stream, all_progress):
        pass
    text = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', stream.getvalue())
    last = text[text.rindex('log') :]
    assert re.search(r'optimizer=sgd/seed-1 +waiting', last)
    assert re.search(r'optimizer=RMS/seed-1 +done +50\.00% at 1,500', last)
    assert '1 of 2 trials done, 1 waiting' in last


def test_display__short_terminal_shows_running_and_failed_trials(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.setenv('TERM', 'xterm')
    monkeypatch.setenv('LINES', '12')
    monkeypatch.setenv('COLUMNS', '100')
    all_progress = [
        Progress(trial, State.DONE) for trial in trials.trials_of(Study(preset='digits', seeds=40), str(tmp_path))
    ]
    all_progress[20].state, all_progress[30].state = State.RUNNING, State.FAILED
    stream = Terminal()
    display = Display(stream, all_progress)
    with display:
        text = stream.getvalue()
    assert 'seed-21 ' in text and 'seed-31 ' in text and 'seed-40 ' not in text
    assert '38 of 40 trials done, 1 running, 1 failed; 35 not shown' in text
    assert 'seed-40 ' in stream.getvalue(), 'the final table has all trials'
