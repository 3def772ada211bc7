"""Scheduling at a place that ends each trial after a few polls, the signals that stop it, and the progress shown."""

import io
import os
import pathlib
import signal
import time
from typing import Any, Dict, List, Optional, Tuple

import pytest

from console.screen import Screen
from inception_v3.run.evaluations import append_evaluation
from tests.support import recorded
from tools.studies.study import Study
from tools.studies.sweep import run, trials
from tools.studies.sweep.run import Progress
from tools.studies.sweep.trials import Outcome, Place, RunningTrial, State, Trial

DONE, FAILED, STOPPED, WAITING = State.DONE, State.FAILED, State.STOPPED, State.WAITING


class TwoSlots:
    """A place for two trials, with the exit codes by seed, and the seeds of trials that cannot be started."""

    def __init__(self, codes: Dict[int, int], blocked: Tuple[int, ...] = ()):
        self.codes, self.blocked = codes, blocked
        self.started: List[int] = []
        self.events: List[str] = []
        self.most = self.running = 0

    def start(self, trial: Trial) -> RunningTrial:
        if trial.seed in self.blocked:
            raise OSError('in the way')
        self.started.append(trial.seed)
        self.running += 1
        self.most = max(self.most, self.running)
        return Polled(self, self.codes.get(trial.seed, 0))


class Polled(RunningTrial):
    """A trial that ends at its third poll, at once when killed, and with exit code 75 when stopped."""

    def __init__(self, place: TwoSlots, code: int):
        self._place, self._code, self._polls = place, code, 3

    def poll(self) -> Optional[Outcome]:
        self._polls -= 1
        if self._polls > 0:
            return None
        self._place.running -= 1
        return Outcome(self._code, 'why' if self._code else '', '', '', 'here')

    def stop(self) -> None:
        self._place.events.append('stop')
        self._code = 75

    def kill(self) -> None:
        self._place.events.append('kill')
        self._polls, self._code = 0, -9


@pytest.fixture
def all_progress(tmp_path: pathlib.Path, monkeypatch: Any) -> List[Progress]:
    monkeypatch.setattr(run, '_POLL_INTERVAL', 0)
    return [Progress(t, WAITING) for t in trials.trials_of(Study(preset='digits', seeds=5), str(tmp_path))]


def performed(all_progress: List[Progress], place: TwoSlots, signals: int = 0) -> List[List[State]]:
    """Performs trials, and sends signals at the first report; returns the states at each report."""
    reports: List[List[State]] = []
    received: List[signal.Signals] = []

    def write_report() -> None:
        reports.append([progress.state for progress in all_progress])
        received.extend([signal.SIGTERM] * (signals - len(received)))

    run.perform(all_progress, Place(lambda: 2, place.start), Screen(io.StringIO()), received, write_report)
    return reports


def test_perform__runs_trials_in_order_in_all_slots_and_reports(all_progress: List[Progress], caplog: Any) -> None:
    place = TwoSlots({2: 1})
    reports = performed(all_progress, place)
    assert (place.started, place.most) == ([1, 2, 3, 4, 5], 2)
    assert [progress.state for progress in all_progress] == [DONE, FAILED, DONE, DONE, DONE]
    assert all_progress[1].reason == 'why'
    # A report is written once the next trials run.
    assert reports[0] == [DONE, FAILED, State.RUNNING, State.RUNNING, WAITING]
    texts = [record.getMessage() for record in caplog.records]
    assert texts[0] == '0 of 5 trials done, 3 waiting, 2 running; default/seed-1: starting; default/seed-2: starting'
    assert 'default/seed-2: failed after 0:00: why' in texts and 'default/seed-5: done after 0:00' in texts


def test_perform__runs_failed_and_stopped_trials_again_but_no_finished_one(all_progress: List[Progress]) -> None:
    for progress, state in zip(all_progress, [DONE, FAILED, STOPPED, DONE, WAITING]):
        progress.state = state
    place = TwoSlots({}, blocked=(3,))
    performed(all_progress, place)
    assert place.started == [2, 5] and all_progress[1].state is all_progress[4].state is DONE
    # A trial that cannot be started fails alone.
    assert (all_progress[2].state, all_progress[2].reason) == (FAILED, 'cannot be started: in the way')


@pytest.mark.parametrize(('signals', 'event'), [(1, 'stop'), (2, 'kill')])
def test_perform__first_signal_stops_and_the_second_kills(
    all_progress: List[Progress], signals: int, event: str
) -> None:
    place = TwoSlots({})
    performed(all_progress, place, signals)
    # The signal arrives when the first two have ended and the next two run.
    assert (place.started, place.events, all_progress[4].state) == ([1, 2, 3, 4], [event] * 2, WAITING)


def test_signals__are_recorded_and_ignored_ones_stay_ignored() -> None:
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    before = [signal.getsignal(number) for number in numbers]
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with run.stop_signals() as received:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
        assert [signal.getsignal(number) for number in numbers] == [*before[:2], signal.SIG_IGN]
        assert received == [signal.SIGTERM, signal.SIGINT]
    finally:
        signal.signal(signal.SIGHUP, before[2])


@pytest.fixture
def clock(monkeypatch: Any) -> List[float]:
    now = [1000.0]
    monkeypatch.setattr(time, 'monotonic', lambda: now[0])
    return now


def test_progress__follows_log_and_results(all_progress: List[Progress], clock: List[float]) -> None:
    progress = all_progress[0]
    os.makedirs(progress.trial.model_dir)

    def read(text: str) -> Tuple[str, Optional[float]]:
        with open(progress.trial.log, 'a') as file:
            file.write(text)
        progress.read()
        return progress.line, progress.evaluation and progress.evaluation.top_1

    read('12:00:00 step 900 of 1500, loss 0.1000, 10.0 images/s, 0:01 left\n')
    progress.start()
    assert read('') == ('starting', None), 'the log of an earlier start is skipped'
    assert read('12:00:15 step 30 of 1500, loss 2.5000\n12:00:30 step 60 of 15') == (
        'step 30 of 1500, loss 2.5000',
        None,
    )
    append_evaluation(progress.trial.model_dir, recorded.evaluation(500, 0.25))
    assert read('00, loss 2.2500\n') == ('step 60 of 1500, loss 2.2500', 0.25)
    clock[0] += 30
    progress.end(Outcome(0, '', '', '', 'here'))
    assert (progress.state, progress.line, progress.seconds) == (DONE, '', 30)
