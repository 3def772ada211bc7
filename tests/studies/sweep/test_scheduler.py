"""The scheduling of trials at a place that ends each trial after a few polls, and the signals that stop it."""

import io
import os
import pathlib
import signal
from typing import Any, Dict, List, Optional, Tuple

import pytest

from console.errors import TerminatedError
from studies.study import Study
from studies.sweep import scheduler, trials
from studies.sweep.live import Display, Progress
from studies.sweep.scheduler import StopSignals, perform
from studies.sweep.trials import Outcome, State, Trial
from studies.sweep.workers import Place, RunningTrial


class Polled(RunningTrial):
    """A trial that ends at its third poll, at once when killed, and with exit code 75 when stopped."""

    def __init__(self, place: 'TwoSlots', trial: Trial):
        self._place = place
        self._polls = 3
        self._code = place.codes.get(trial.seed, 0)
        place.running += 1
        place.most = max(place.most, place.running)

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


class TwoSlots(Place):
    """A place for two trials."""

    def __init__(self, codes: Dict[int, int], blocked: Tuple[int, ...] = ()):
        self.codes, self.blocked = codes, blocked
        self.running = self.most = 0
        self.started: List[int] = []
        self.events: List[str] = []

    @property
    def slots(self) -> int:
        return 2

    def start(self, trial: Trial) -> Polled:
        if trial.seed in self.blocked:
            raise OSError('in the way')
        self.started.append(trial.seed)
        return Polled(self, trial)


@pytest.fixture
def all_progress(tmp_path: pathlib.Path, monkeypatch: Any) -> List[Progress]:
    monkeypatch.setattr(scheduler, '_POLL_INTERVAL', 0)
    return [Progress(t, State.WAITING) for t in trials.trials_of(Study(preset='digits', seeds=5), str(tmp_path))]


def performed(
    all_progress: List[Progress], place: TwoSlots, stopping: StopSignals, **changes: Any
) -> List[List[State]]:
    """Performs trials; returns their states at each report."""
    reports: List[List[State]] = []

    def write_report() -> None:
        reports.append([progress.state for progress in all_progress])

    perform(all_progress, place, Display(io.StringIO(), all_progress), stopping, changes.get('report', write_report))
    return reports


def test_perform__runs_trials_in_order_in_all_slots_and_reports(all_progress: List[Progress]) -> None:
    place = TwoSlots({2: 1})
    reports = performed(all_progress, place, StopSignals())
    assert (place.started, place.most) == ([1, 2, 3, 4, 5], 2)
    assert [progress.state for progress in all_progress] == [State.DONE, State.FAILED, *[State.DONE] * 3]
    assert all_progress[1].reason == 'why'
    # A report is written once the next trials run.
    assert reports[0] == [State.DONE, State.FAILED, State.RUNNING, State.RUNNING, State.WAITING]


def test_perform__runs_failed_and_stopped_trials_again_but_no_finished_one(all_progress: List[Progress]) -> None:
    for progress, state in zip(all_progress, [State.DONE, State.FAILED, State.STOPPED, State.DONE, State.WAITING]):
        progress.state = state
    place = TwoSlots({}, blocked=(3,))
    performed(all_progress, place, StopSignals())
    assert place.started == [2, 5] and all_progress[1].state is all_progress[4].state is State.DONE
    # A trial that cannot be started fails alone.
    assert (all_progress[2].state, all_progress[2].reason) == (State.FAILED, 'cannot be started: in the way')


def test_perform__first_signal_stops_and_the_second_kills(all_progress: List[Progress]) -> None:
    for times, event in ((1, 'stop'), (2, 'kill')):
        place, stopping = TwoSlots({}), StopSignals()

        def signals(times: int = times, stopping: StopSignals = stopping) -> None:
            stopping.first, stopping.times = signal.SIGTERM, times

        for progress in all_progress:
            progress.state = State.WAITING
        performed(all_progress, place, stopping, report=signals)
        # The signal arrives when the first two have ended and the next two run.
        assert (place.started, place.events) == ([1, 2, 3, 4], [event] * 2)
        assert all_progress[4].state is State.WAITING


def test_stopping__restores_handlers_and_leaves_ignored_signals_ignored() -> None:
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    before = [signal.getsignal(number) for number in numbers]
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with StopSignals() as stopping:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGTERM)
            assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGINT) == stopping._note
        assert [signal.getsignal(number) for number in numbers] == [*before[:2], signal.SIG_IGN]
        assert (stopping.first, stopping.times) == (signal.SIGTERM, 1)
        with pytest.raises(TerminatedError, match='SIGTERM'):
            stopping.check()
    finally:
        signal.signal(signal.SIGHUP, before[2])
