"""The progress of trials that write real files, on a terminal and elsewhere."""

import io
import os
import pathlib
import re
from typing import Any, List

import pytest

from inception_v3.run.history import append_evaluation
from studies.study import Study
from studies.sweep import live, trials
from studies.sweep.live import Display, Progress
from studies.sweep.trials import Outcome, State, Trial
from tests.support import recorded


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def all_trials(tmp_path: pathlib.Path) -> List[Trial]:
    found = trials.trials_of(Study(preset='digits', seeds=40), str(tmp_path))
    os.makedirs(found[0].model_dir)
    return found


@pytest.fixture
def clock(monkeypatch: Any) -> List[float]:
    now = [1000.0]
    monkeypatch.setattr(live.time, 'monotonic', lambda: now[0])
    return now


def append(trial: Trial, text: str) -> None:
    with open(trial.log, 'a') as file:
        file.write(text)


def test_progress__follows_log_and_results(all_trials: List[Trial], clock: List[float]) -> None:
    trial = all_trials[0]
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
    append_evaluation(trial.model_dir, recorded.evaluation(500, 0.25))
    progress.read()
    assert progress.cells() == ('running', '25.00% at 500', 'step 60 of 1500, loss 2.2500')
    assert str(progress) == 'default/seed-1: step 60 of 1500, loss 2.2500, top-1 25.00% at 500'
    append_evaluation(trial.model_dir, recorded.evaluation(1500, 0.75))
    clock[0] += 30
    progress.end(Outcome(0, '', '', '', 'here'))
    assert progress.cells() == ('done', '75.00% at 1,500', '') and progress.seconds == 30


def test_display__prints_plain_lines_without_a_terminal(all_trials: List[Trial], clock: List[float]) -> None:
    stream = io.StringIO()
    all_progress = [Progress(trial, State.WAITING) for trial in all_trials]
    with Display(stream, all_progress) as display:
        all_progress[0].start()
        for _ in range(150):
            display.update()
            clock[0] += 1
        display.say('default/seed-1: failed: [bold]no[/bold] markup of ' + 'long ' * 40)
    lines = stream.getvalue().splitlines()
    assert [line.partition(' ')[2] for line in lines[:3]] == ['default/seed-1: starting'] * 3
    assert len(lines) == 4 and lines[3].rstrip().endswith('[bold]no[/bold] markup of' + ' long' * 40)
    assert '\x1b' not in stream.getvalue()


def test_display__short_terminal_shows_running_and_failed_trials(all_trials: List[Trial], monkeypatch: Any) -> None:
    for name, value in {'TERM': 'xterm', 'LINES': '12', 'COLUMNS': '100'}.items():
        monkeypatch.setenv(name, value)
    append_evaluation(all_trials[0].model_dir, recorded.evaluation(1500, 0.5))
    all_progress = [Progress(trial, State.DONE) for trial in reversed(all_trials)]
    all_progress[-1].state, all_progress[30].state = State.RUNNING, State.FAILED
    stream = Terminal()
    with Display(stream, all_progress):
        text = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', stream.getvalue())
    assert re.search(r'seed-1 +running +50\.00% at 1,500', text) and re.search(r'seed-10 +failed', text)
    assert 'seed-2 ' not in text and '38 of 40 trials done, 1 running, 1 failed; 35 not shown' in text
    assert 'seed-2 ' in stream.getvalue(), 'the final table has all trials'
