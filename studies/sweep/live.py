"""Shows the progress of a sweep: a live table on a terminal, plain lines elsewhere."""

import contextlib
import os
import re
import time
from typing import Dict, Optional, Sequence, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from console.messages import shown
from console.screen import raw
from inception_v3.run.history import Evaluation
from studies.sweep import trials
from studies.sweep.trials import Outcome, State, Trial

# The time of day at the start of a line.
_CLOCK = re.compile(r'\d\d:\d\d:\d\d ')
# Seconds between plain lines of a running trial, and between reads of its files.
_PLAIN_INTERVAL = 60.0
_READ_INTERVAL = 1.0
_COLOURS = {State.DONE: 'green', State.FAILED: 'bold red', State.RUNNING: 'cyan', State.STOPPED: 'yellow'}


class Progress:
    """The progress of a trial, read from its folder."""

    def __init__(self, trial: Trial, state: State):
        self.trial, self.state = trial, state
        # The newest line of its log since it was started, and the reason for a failure or a stop.
        self.line = self.reason = ''
        self.evaluation: Optional[Evaluation] = trials.last_evaluation(trial)
        # Seconds since this sweep started it, or its duration.
        self.seconds = self._started_at = 0.0
        self._log_read = 0

    def start(self) -> None:
        """Records that the trial starts now."""
        self.state, self.line, self.reason = State.RUNNING, 'starting', ''
        self._started_at = time.monotonic()
        with contextlib.suppress(OSError):
            self._log_read = os.path.getsize(self.trial.log)

    def end(self, outcome: Outcome) -> None:
        """Records the outcome of the trial."""
        self.read()
        self.state, self.reason, self.line = outcome.state, outcome.reason, ''

    def read(self) -> None:
        """Reads what the trial has written since the last call."""
        self.seconds = time.monotonic() - self._started_at
        self.evaluation = trials.last_evaluation(self.trial)
        with contextlib.suppress(OSError), open(self.trial.log, 'rb') as file:
            file.seek(self._log_read)
            whole, newline, _ = file.read().rpartition(b'\n')
            self._log_read += len(whole) + len(newline)
            if whole:
                newest = whole.rpartition(b'\n')[2].decode(errors='replace')
                self.line = shown(_CLOCK.sub('', newest))

    @property
    def evaluated(self) -> str:
        """The last accuracy and its step, as text."""
        return f'{self.evaluation.top_1:.2%} at {self.evaluation.step:,}' if self.evaluation else ''


class Display:
    """Shows the progress of trials while it is open: of those that run or have failed, and at its end of all."""

    def __init__(self, stream: TextIO, all_progress: Sequence[Progress]):
        self._all = all_progress
        self._console = Console(file=raw(stream), highlight=False)
        self._live: Optional[Live] = None
        if stream.isatty():
            self._live = Live(console=self._console, auto_refresh=False, vertical_overflow='crop')
        self._read_at = 0.0
        self._printed_at: Dict[str, float] = {}

    def __enter__(self) -> 'Display':
        if self._live:
            self._live.start()
            self.update()
        return self

    def __exit__(self, *unused: object) -> None:
        if self._live:
            self._live.update(self._table(self._all), refresh=True)
            self._live.stop()

    def say(self, text: str) -> None:
        """Prints a line above the table."""
        self._console.print(Text(f'{time.strftime("%H:%M:%S")} {text}'), soft_wrap=True)

    def update(self) -> None:
        """Updates the table, or prints a line for each running trial that had none for a minute."""
        now = time.monotonic()
        if now - self._read_at < _READ_INTERVAL:
            return
        self._read_at = now
        running = [progress for progress in self._all if progress.state is State.RUNNING]
        for progress in running:
            progress.read()
            if not self._live and now - self._printed_at.get(progress.trial.name, -_PLAIN_INTERVAL) >= _PLAIN_INTERVAL:
                self._printed_at[progress.trial.name] = now
                evaluated = f', top-1 {progress.evaluated}' if progress.evaluated else ''
                self.say(f'{progress.trial.name}: {progress.line}{evaluated}')
        if self._live:
            failed = [progress for progress in self._all if progress.state is State.FAILED]
            self._live.update(self._table([*running, *failed]), refresh=True)

    def _table(self, all_progress: Sequence[Progress]) -> Group:
        table = Table('trial', 'state', 'top-1', Column('log', no_wrap=True), box=None, pad_edge=False)
        for each in all_progress:
            state = Text(each.state.value, _COLOURS.get(each.state, ''))
            table.add_row(Text(each.trial.name), state, Text(each.evaluated), Text(each.line))
        return Group(Text(counts(self._all)), table)


def counts(all_progress: Sequence[Progress]) -> str:
    """The number of trials in each state, in words."""
    states = [progress.state for progress in all_progress]
    others = [f'{states.count(state)} {state.value}' for state in State if state in states and state is not State.DONE]
    return ', '.join([f'{states.count(State.DONE)} of {len(states)} trials done', *others])
