"""Shows the progress of a sweep: a live table on a terminal, plain lines elsewhere."""

import contextlib
import os
import re
import time
from typing import Dict, Optional, Sequence, TextIO, Tuple

from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from console.messages import shown
from console.screen import raw
from inception_v3.run.history import RESULTS_FILE, Evaluation
from studies.sweep import trials
from studies.sweep.trials import Outcome, State, Trial

# The time of day at the start of a line.
_CLOCK = re.compile(r'\d\d:\d\d:\d\d ')
# Seconds between plain lines of a running trial, and between reads of its files.
_PLAIN_INTERVAL = 60.0
_READ_INTERVAL = 1.0
# Lines of a terminal that the table's frame and the lines below it take.
_OTHER_LINES = 7
_COLOURS = {State.DONE: 'green', State.FAILED: 'bold red', State.RUNNING: 'cyan', State.STOPPED: 'yellow'}
# The states whose trials are shown first if the terminal has too few lines for all.
_PRIORITY = [State.RUNNING, State.FAILED, State.STOPPED, State.WAITING, State.DONE]


class Progress:
    """The progress of a trial, read from its folder.

    Args:
      trial: the trial.
      state: its state before it is started.

    Attributes:
      trial: the trial.
      state: its state.
      line: the newest line of its log since it was started; empty before the first and after its end.
      evaluation: the evaluation of its highest step with the training settings; None if there is none.
      reason: why it failed or was stopped; else empty.
      seconds: seconds since its start, or its duration; None if this sweep has not started it.
    """

    def __init__(self, trial: Trial, state: State):
        self.trial = trial
        self.state = state
        self.line = ''
        self.evaluation: Optional[Evaluation] = trials.last_evaluation(trial)
        self.reason = ''
        self.seconds: Optional[float] = None
        self._results_size = -1
        self._log_read = 0
        self._started_at = 0.0

    def start(self) -> None:
        """Records that the trial starts now."""
        self.state, self.line, self.reason = State.RUNNING, 'starting', ''
        self._started_at = time.monotonic()
        self._log_read = _size(self.trial.log)

    def end(self, outcome: Outcome) -> None:
        """Records the outcome of the trial."""
        self.read()
        self.state, self.reason, self.line = outcome.state, outcome.reason, ''

    def read(self) -> None:
        """Reads what the trial has written since the last call."""
        self.seconds = time.monotonic() - self._started_at
        with contextlib.suppress(OSError), open(self.trial.log, 'rb') as file:
            file.seek(self._log_read)
            whole, newline, _ = file.read().rpartition(b'\n')
            self._log_read += len(whole) + len(newline)
            if whole:
                newest = whole.rpartition(b'\n')[2].decode(errors='replace')
                self.line = shown(_CLOCK.sub('', newest))
        size = _size(os.path.join(self.trial.model_dir, RESULTS_FILE))
        if size != self._results_size:
            self._results_size = size
            self.evaluation = trials.last_evaluation(self.trial)

    def cells(self) -> Tuple[str, ...]:
        """State, last evaluation and newest line of the log, as texts for a table."""
        evaluated = f'{self.evaluation.top_1:.2%} at {self.evaluation.step:,}' if self.evaluation else ''
        return self.state.value, evaluated, self.line

    def __str__(self) -> str:
        state, evaluated, line = self.cells()
        parts = [line or state, *([f'top-1 {evaluated}'] if evaluated else [])]
        return f'{self.trial.name}: {", ".join(parts)}'


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


class Display:
    """Shows the progress of trials while it is open.

    Args:
      stream: the output; standard error for a program.
      all_progress: the trials, in the order of the table.
    """

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
            self._live.update(self._table(len(self._all)), refresh=True)
            self._live.stop()

    def say(self, text: str) -> None:
        """Prints a line above the table."""
        clock = time.strftime('%H:%M:%S')
        self._console.print(Text(f'{clock} {text}'), soft_wrap=True)

    def update(self) -> None:
        """Updates the table, or prints a line for each running trial that had none for a minute."""
        now = time.monotonic()
        if now - self._read_at < _READ_INTERVAL:
            return
        self._read_at = now
        running = [progress for progress in self._all if progress.state is State.RUNNING]
        for progress in running:
            progress.read()
        if self._live:
            self._live.update(self._table(self._console.size.height - _OTHER_LINES), refresh=True)
            return
        for progress in running:
            if now - self._printed_at.get(progress.trial.name, -_PLAIN_INTERVAL) >= _PLAIN_INTERVAL:
                self._printed_at[progress.trial.name] = now
                self.say(str(progress))

    def _table(self, rows: int) -> Group:
        table = Table('trial', 'state', 'top-1', Column('log', no_wrap=True), box=None, pad_edge=False)
        by_priority = sorted(self._all, key=lambda progress: _PRIORITY.index(progress.state))
        shown = {progress.trial.name for progress in by_priority[: max(rows, 1)]}
        for progress in self._all:
            if progress.trial.name in shown:
                state, *others = progress.cells()
                colour = _COLOURS.get(progress.state, '')
                table.add_row(Text(progress.trial.name), Text(state, colour), *map(Text, others))
        hidden = len(self._all) - len(shown)
        return Group(table, Text(counts(self._all) + (f'; {hidden} not shown' if hidden else '')))


def counts(all_progress: Sequence[Progress]) -> str:
    """The number of trials in each state, in words."""
    states = [progress.state for progress in all_progress]
    others = [f'{states.count(state)} {state.value}' for state in State if state in states and state is not State.DONE]
    return ', '.join([f'{states.count(State.DONE)} of {len(states)} trials done', *others])
