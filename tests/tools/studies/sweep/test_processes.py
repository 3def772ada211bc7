"""Trials as real processes: their outcomes, and their end with the process that started them."""

import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

import pytest

from data.files import write_whole
from tests.support.processes import shell, text_of, wait_for
from tools.studies.study import Study
from tools.studies.sweep import trials
from tools.studies.sweep.trials import Outcome, Process, Trial

pytestmark = pytest.mark.program

STARTS_ONE = """
import sys, time
from tools.studies.study import Study
from tools.studies.sweep.trials import Process, trials_of
(trial,) = trials_of(Study(seeds=(7,)), sys.argv[1], ('sh', '-c', 'echo $$; exec sleep 600'))
Process(trial)
time.sleep(600)
"""


@pytest.fixture
def trial(tmp_path: pathlib.Path) -> Trial:
    (trial,) = trials.trials_of(Study(seeds=(7,)), str(tmp_path / 'out'))
    return trial


@pytest.mark.parametrize(
    ('script', 'exit_code', 'reason'),
    [
        ('echo "error: it was fine"', 0, ''),
        ('echo "error: one"; echo "error: --width=1: too narrow" >&2; echo late; exit 2', 2, '--width=1: too narrow'),
        ('echo "  File"; echo "MemoryError: no more" >&2; echo; exit 1', 1, 'MemoryError: no more'),
        ('exit 3', 3, 'exit code 3'),
        ('kill -KILL $$', -9, 'ended by SIGKILL'),
    ],
)
def test_run__outcome_has_code_and_reason(trial: Trial, script: str, exit_code: int, reason: str) -> None:
    outcome = trials.run(trial._replace(program=shell(script)))
    assert (outcome.exit_code, outcome.reason) == (exit_code, reason)
    assert outcome == trials.outcome_of(trial) and outcome.start <= outcome.end


def test_start__appends_to_the_log_and_removes_an_earlier_outcome(trial: Trial) -> None:
    trials.run(trial._replace(program=shell('echo "error: first"; exit 1')))
    process = Process(trial._replace(program=shell('echo "$@"; sleep 0.2; exit 1')))
    assert process.poll() is None and trials.outcome_of(trial) is None
    outcome: Outcome = wait_for(process.poll)
    # The reason is that of the last start.
    assert outcome.reason == ' '.join(trial.arguments) and 'seed=7' in outcome.reason
    assert text_of(trial.log) == f'error: first\n{outcome.reason}\n'
    assert os.access(os.path.join(trial.folder, 'command.sh'), os.X_OK)


def test_stop__waits_for_the_trial_to_end(trial: Trial, tmp_path: pathlib.Path) -> None:
    ends = f'trap "echo asked; until [ -e {tmp_path}/saved ]; do sleep 0.02; done; exit 75" TERM'
    process = Process(trial._replace(program=shell(f'{ends}; echo ready; while :; do sleep 0.02; done')))
    # Ctrl-C at a terminal reaches all processes of its session.
    assert os.getsid(process._process.pid) == process._process.pid != os.getsid(0)
    wait_for(lambda: 'ready' in text_of(trial.log))
    process.stop()
    wait_for(lambda: 'asked' in text_of(trial.log))
    assert process.poll() is None
    (tmp_path / 'saved').touch()
    outcome: Outcome = wait_for(process.poll)
    assert outcome.exit_code == 75 and outcome.state is trials.State.STOPPED


def test_run__an_interrupt_while_the_trial_starts_ends_it(trial: Trial, monkeypatch: Any) -> None:
    def interrupted(*arguments: Any) -> None:
        write_whole(*arguments)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(trials, 'write_whole', interrupted)
    outcome = trials.run(trial._replace(program=shell('exec sleep 600')))
    assert outcome.state is trials.State.STOPPED and outcome == trials.outcome_of(trial)


def test_start__trial_dies_with_its_parent(trial: Trial) -> None:
    parent = subprocess.Popen([sys.executable, '-c', STARTS_ONE, str(pathlib.Path(trial.folder).parents[2])])
    try:
        child = int(wait_for(lambda: text_of(trial.log).endswith('\n') and text_of(trial.log)))
        os.kill(child, 0)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    # A zombie is still listed.
    status = pathlib.Path(f'/proc/{child}/stat')
    wait_for(lambda: not status.exists() or status.read_text().rpartition(')')[2].split()[0] == 'Z')
