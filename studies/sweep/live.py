"""Shows the progress of a sweep: a live table on a terminal, plain lines elsewhere."""

import os
import time
from typing import Dict, List, Optional, Sequence, TextIO, Tuple

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from console.screen import duration, raw
from inception_v3.run.evaluations import RESULTS_FILE
from inception_v3.run.hooks.progress import Status
from studies.sweep import trials
from studies.sweep.trials import Outcome, State, Trial

# Seconds between plain lines of a running trial, and between reads of its files.
_PLAIN_INTERVAL = 60.0
_READ_INTERVAL = 1.0
# Lines of a terminal that the table's frame and the lines below it take.
_OTHER_LINES = 7
# The colours of states. The first states come first if the terminal has too few lines for all trials.
_COLOURS = {
    State.RUNNING: 'cyan',
    State.FAILED: 'bold red',
    State.STOPPED: 'yellow',
    State.WAITING: '',
    State.DONE: 'green',
}


class Progress:
    """The progress of a trial, read from its folder.

    Attributes:
      trial: the trial.
      state: its state.
      activity: activity of a running trial: starting, training or evaluating; else empty.
      status: the last status line of its training; None before the first.
      evaluation: the evaluation of its highest step with the training settings; None if there is none.
      reason: why it failed or was stopped; else empty.
      seconds: seconds since its start, or its duration; None if this sweep has not started it.
    """

    def __init__(self, trial: Trial, state: State):
        self.trial = trial
        self.state = state
        self.activity = ''
        self.status: Optional[Status] = None
        self.evaluation = trials.last_evaluation(trial)
        outcome = trials.outcome_of(trial)
        self.reason = outcome.reason if outcome else ''
        self.seconds: Optional[float] = None
        self._steps = trials.run_config(trial).train_steps
        self._results_size = -1
        self._log_read = 0
        self._started_at = self._status_at = 0.0

    def start(self) -> None:
        """Records that the trial starts now."""
        self.state, self.activity, self.reason = State.RUNNING, 'starting', ''
        self._started_at = time.monotonic()
        self._log_read = _size(self.trial.log)

    def end(self, outcome: Outcome) -> None:
        """Records the outcome of the trial."""
        self.read()
        self.state, self.reason, self.activity = outcome.state, outcome.reason, ''

    def read(self) -> None:
        """Reads what the trial has written since the last call."""
        self.seconds = time.monotonic() - self._started_at
        for line in self._new_lines():
            status = Status.parse(line)
            if status:
                self.status, self._status_at, self.activity = status, time.monotonic(), 'training'
                self._steps = status.steps
            elif 'preparing to train' in line:
                self.activity = 'training'
                # The last status line is from before the evaluation; its time left is out of date.
                self.status = self.status and self.status._replace(seconds_left=None)
            elif 'preparing to evaluate' in line:
                self.activity = 'evaluating'
        size = _size(os.path.join(self.trial.model_dir, RESULTS_FILE))
        if size != self._results_size:
            self._results_size = size
            self.evaluation = trials.last_evaluation(self.trial)

    def _new_lines(self) -> List[str]:
        try:
            with open(self.trial.log, 'rb') as file:
                file.seek(self._log_read)
                whole, newline, _ = file.read().rpartition(b'\n')
        except OSError:
            return []
        self._log_read += len(whole) + len(newline)
        return whole.decode(errors='replace').splitlines()

    def cells(self) -> Tuple[str, ...]:
        """State, step, loss, top-1 and time left, as texts for a table."""
        status, last = self.status, self.evaluation
        newest = max([known.step for known in (status, last) if known], default=None)
        step = '' if newest is None else f'{newest:,} of {self._steps:,}'
        # The loss of another step than the one shown would mislead.
        loss = f'{status.loss:.4f}' if status and status.step == newest else ''
        top_1 = f'{last.top_1:.2%}' if last else ''
        left = ''
        if self.activity == 'training' and status and status.seconds_left is not None:
            left = duration(max(0.0, status.seconds_left - (time.monotonic() - self._status_at)))
        return self.activity or self.state.value, step, loss, top_1, left

    def __str__(self) -> str:
        state, step, loss, top_1, left = self.cells()
        fields = [('step ', step, ''), ('loss ', loss, ''), ('top-1 ', top_1, ''), ('', left, ' left')]
        parts = [f'{before}{value}{after}' for before, value, after in fields if value]
        return f'{self.trial.name}: {", ".join([state, *parts])}'


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


class Display:
    """Shows the progress of trials, in the order of the table, while it is open."""

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
        if self._live:
            self._live.update(self._table(self._console.size.height - _OTHER_LINES), refresh=True)
            return
        for progress in running:
            if now - self._printed_at.get(progress.trial.name, -_PLAIN_INTERVAL) >= _PLAIN_INTERVAL:
                self._printed_at[progress.trial.name] = now
                self.say(str(progress))

    def _table(self, rows: int) -> Group:
        table = Table('trial', 'state', box=None, pad_edge=False)
        for column in ('step', 'loss', 'top-1', 'time left'):
            table.add_column(column, justify='right')
        by_priority = sorted(self._all, key=lambda progress: [*_COLOURS].index(progress.state))
        shown = {progress.trial.name for progress in by_priority[: max(rows, 1)]}
        for progress in self._all:
            if progress.trial.name in shown:
                state, *others = progress.cells()
                table.add_row(Text(progress.trial.name), Text(state, _COLOURS[progress.state]), *others)
        hidden = len(self._all) - len(shown)
        return Group(table, Text(counts(self._all) + (f'; {hidden} not shown' if hidden else '')))


def counts(all_progress: Sequence[Progress]) -> str:
    """The number of trials in each state, in words."""
    states = [progress.state for progress in all_progress]
    others = [f'{states.count(state)} {state.value}' for state in State if state in states and state is not State.DONE]
    return ', '.join([f'{states.count(State.DONE)} of {len(states)} trials done', *others])
