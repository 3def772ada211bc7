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
from studies.sweep.workers import Place, Running

# Seconds between checks of the running trials.
_POLL_INTERVAL = 0.2


class Stopping:
    """Records Ctrl-C, SIGTERM and SIGHUP while it is open.

    Attributes:
      signal: the first signal received; None if there was none.
      times: the number of signals received.
    """

    _SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.signal: Optional[signal.Signals] = None
        self.times = 0

    def __enter__(self) -> 'Stopping':
        self._before = {number: signal.getsignal(number) for number in self._SIGNALS}
        for number, handler in self._before.items():
            # `nohup` ignores SIGHUP, and it must stay ignored.
            if handler != signal.SIG_IGN:
                signal.signal(number, self._note)
        return self

    def __exit__(self, *unused: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        self.signal = self.signal or signal.Signals(number)
        self.times += 1

    def check(self) -> None:
        """Raises the error of the signal received, if there was one.

        Raises:
          KeyboardInterrupt: Ctrl-C.
          TerminatedError: SIGTERM or SIGHUP.
        """
        if self.signal is signal.SIGINT:
            raise KeyboardInterrupt
        if self.signal is not None:
            raise TerminatedError(f'ended by {self.signal.name}; the same command resumes the sweep')


def perform(
    all_progress: Sequence[Progress],
    place: Place,
    display: Display,
    stopping: Stopping,
    write_report: Callable[[], None],
) -> None:
    """Runs the trials that are not done.

    Args:
      all_progress: the trials; their progress is kept up to date.
      place: runs the trials.
      display: shows the progress.
      stopping: after its first signal no trial is started, and running trials are asked to end.
      write_report: called each time after trials have ended and the next ones have been started.
    """
    waiting = [progress for progress in all_progress if progress.state is not State.DONE]
    running: List[Tuple[Progress, Running]] = []
    signals_handled, has_news = 0, False
    while running or (waiting and not stopping.times):
        while waiting and not stopping.times and len(running) < place.slots:
            progress = waiting.pop(0)
            progress.start()
            try:
                running.append((progress, place.start(progress.trial)))
            except OSError as error:
                _end(progress, trials.not_run(f'cannot be started: {error}'), display)
        if has_news:
            write_report()
        if stopping.times > signals_handled:
            _stop([trial for _, trial in running], stopping, display)
            signals_handled = stopping.times
        ended = [progress for progress, trial in running if _has_ended(progress, trial, display)]
        running = [(progress, trial) for progress, trial in running if progress not in ended]
        has_news = bool(ended)
        display.update()
        time.sleep(_POLL_INTERVAL)


def _has_ended(progress: Progress, running: Running, display: Display) -> bool:
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
    text = f'{progress.trial.name}: {progress.state.value}{took}'
    if progress.state is State.DONE:
        text += f', top-1 {progress.evaluation.top_1:.2%}' if progress.evaluation else ''
    else:
        text += f': {progress.reason}'
    display.say(text)


def _stop(running: Sequence[Running], stopping: Stopping, display: Display) -> None:
    is_first = stopping.times == 1
    if is_first and stopping.signal and running:
        display.say(f'{stopping.signal.name}: running trials save a checkpoint and end; a second signal kills them')
    for trial in running:
        if is_first:
            trial.stop()
        else:
            trial.kill()
