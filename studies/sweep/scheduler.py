"""Starts trials as workers become free, until all have ended or a signal asks to stop."""

import signal
import time
from typing import Any, Callable, List, Optional, Sequence, Tuple

from console.errors import TerminatedError
from console.screen import duration
from console.tensorflow_versions import tf
from studies.sweep import trials
from studies.sweep.live import Display, Progress
from studies.sweep.trials import State
from studies.sweep.workers import Place, RunningTrial

# Seconds between checks of the running trials.
_POLL_INTERVAL = 0.2


class StopSignals:
    """Records Ctrl-C, SIGTERM and SIGHUP while it is open.

    Attributes:
      first: the first signal received; None if there was none.
      times: the number of signals received.
    """

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.first: Optional[signal.Signals] = None
        self.times = 0

    def __enter__(self) -> 'StopSignals':
        self._before = {number: signal.getsignal(number) for number in self._NUMBERS}
        for number, handler in self._before.items():
            # `nohup` ignores SIGHUP, and it must stay ignored.
            if handler != signal.SIG_IGN:
                signal.signal(number, self._note)
        return self

    def __exit__(self, *unused: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        self.first = self.first or signal.Signals(number)
        self.times += 1

    def check(self) -> None:
        """Raises KeyboardInterrupt after Ctrl-C, and TerminatedError after SIGTERM or SIGHUP."""
        if self.first is signal.SIGINT:
            raise KeyboardInterrupt
        if self.first is not None:
            raise TerminatedError(f'ended by {self.first.name}; the same command resumes the sweep')


def perform(
    all_progress: Sequence[Progress],
    place: Place,
    display: Display,
    signals: StopSignals,
    write_report: Callable[[], None],
) -> None:
    """Runs the trials that are not done.

    Args:
      all_progress: the trials; their progress is kept up to date.
      place: runs the trials.
      display: shows the progress.
      signals: after the first one no trial is started, and running trials are asked to end; the second kills them.
      write_report: called each time after trials have ended and the next ones have been started.
    """
    waiting = [progress for progress in all_progress if progress.state is not State.DONE]
    running: List[Tuple[Progress, RunningTrial]] = []
    signals_handled, has_news = 0, False
    while running or (waiting and not signals.times):
        while waiting and not signals.times and len(running) < place.slots:
            progress = waiting.pop(0)
            progress.start()
            try:
                running.append((progress, place.start(progress.trial)))
            except OSError as error:
                _end(progress, trials.not_run(f'cannot be started: {error}'), display)
        if has_news:
            write_report()
        if signals.times > signals_handled:
            signals_handled = signals.times
            if signals.times == 1 and signals.first and running:
                name = signals.first.name
                display.say(f'{name}: running trials save a checkpoint and end; a second signal kills them')
            for _, trial in running:
                trial.stop() if signals.times == 1 else trial.kill()
        still_running = [pair for pair in running if not _has_ended(*pair, display)]
        has_news = len(still_running) < len(running)
        running = still_running
        display.update()
        time.sleep(_POLL_INTERVAL)


def _has_ended(progress: Progress, running: RunningTrial, display: Display) -> bool:
    try:
        outcome = running.poll()
    except (OSError, tf.errors.OpError) as error:
        running.kill()
        outcome = trials.not_run(f'its outcome cannot be written: {error}')
    if outcome:
        _end(progress, outcome, display)
    return outcome is not None


def _end(progress: Progress, outcome: trials.Outcome, display: Display) -> None:
    progress.end(outcome)
    took = f' after {duration(progress.seconds)}' if progress.seconds is not None else ''
    result = f', top-1 {progress.evaluation.top_1:.2%}' if progress.evaluation else ''
    if progress.state is not State.DONE:
        result = f': {progress.reason}'
    display.say(f'{progress.trial.name}: {progress.state.value}{took}{result}')
