"""The progress of trials that write real files, on a terminal and elsewhere."""

import io
import os
import pathlib
import re
from typing import Any, List

import pytest

from inception_v3.run.evaluations import append_evaluation
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
    progress.read()
    clock[0] += 5
    assert progress.cells() == ('training', '60 of 1,500', '2.2500', '', '7:40')
    append_evaluation(trial.model_dir, recorded.evaluation(500, 0.25))
    append(trial, '12:02:30 preparing to evaluate step 500\n')
    progress.read()
    assert progress.cells() == ('evaluating', '500 of 1,500', '', '25.00%', ''), 'the loss is of step 60'
    assert str(progress).startswith('default/seed-1: evaluating, step 500 of 1,500, top-1 25.00%')
    append(trial, '12:01:31 preparing to train, 1500 steps in all\n')
    progress.read()
    assert progress.cells() == ('training', '500 of 1,500', '', '25.00%', ''), 'the time left was before the evaluation'
    append(trial, '12:01:50 step 502 of 1600, loss 2.2500, 100.0 images/s, 0:58 left\n')
    progress.read()
    assert progress.cells() == ('training', '502 of 1,600', '2.2500', '25.00%', '0:58')
    append_evaluation(trial.model_dir, recorded.evaluation(1600, 0.75))
    progress.end(Outcome(0, '', '', '', 'here'))
    assert progress.cells() == ('done', '1,600 of 1,600', '', '75.00%', '') and progress.seconds == 20


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
    assert re.search(r'seed-1 +running +1,500 of 1,500 +50\.00%', text) and re.search(r'seed-10 +failed', text)
    assert 'seed-2 ' not in text and '38 of 40 trials done, 1 running, 1 failed; 35 not shown' in text
    assert 'seed-2 ' in stream.getvalue(), 'the final table has all trials'
