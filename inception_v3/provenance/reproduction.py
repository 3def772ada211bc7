"""A run's first steps, made again elsewhere and compared with what it recorded of them."""

import dataclasses
import os
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from console.errors import CommandError
from data import remote
from inception_v3.config import Config
from inception_v3.model_dir import first_steps, starts
from inception_v3.model_dir.first_steps import Step
from inception_v3.model_dir.starts import Start


class CannotRepeatError(CommandError):
    """A run whose first steps cannot be repeated."""


class Repetition(NamedTuple):
    """First steps made again.

    Attributes:
      compared: the steps that were compared.
      different: the first that differs, as it was recorded and as it is now; None if none does.
      old_start: the start of the run.
      new_start: that of the repetition.
    """

    compared: List[int]
    different: Optional[Tuple[Step, Step]]
    old_start: Start
    new_start: Start


def repeat(model_dir: str, steps: Optional[int]) -> Repetition:
    """Runs the first steps of a run again, in a process of its own, with its model_dir in a temporary folder.

    Args:
      model_dir: of the run, which is read only.
      steps: how many at least; None: all that were recorded.

    Raises:
      CannotRepeatError: why not.
      RemoteError: what is to be read is refused, or cannot be reached.
    """
    start = _first_start(model_dir)
    config = Config(**start.config)
    if config.seed is None:
        raise CannotRepeatError(
            f'{model_dir}: the run had no --seed, so its first steps were random, and would be others. A run with '
            '--seed can be verified.'
        )
    if config.use_tpu and not config.is_emulated:
        raise CannotRepeatError(
            f'{model_dir}: the run was on a TPU. Runs on the CPU and on emulated cores can be verified.'
        )
    recorded = first_steps.read(model_dir)
    if not recorded:
        raise CannotRepeatError(
            f'{os.path.join(model_dir, first_steps.FIRST_STEPS_FILE)}: does not hold the first steps of the run; it '
            'ended before them, or began with an older version of this program.'
        )
    until = _until(recorded, steps)
    with tempfile.TemporaryDirectory(prefix='first_steps_') as folder:
        _run(_repeating(config, start.directory, folder, until))
        again = {step.step: step for step in first_steps.read(folder)}
        (new_start,) = starts.read(folder)
    pairs = [(step, again[step.step]) for step in recorded if step.step in again and step.step <= until]
    different = [pair for pair in pairs if not _same(*pair)]
    return Repetition([step.step for step, _ in pairs], different[0] if different else None, start, new_start)


def _first_start(model_dir: str) -> Start:
    recorded = starts.read(model_dir)
    if not recorded:
        raise CannotRepeatError(
            f'{os.path.join(model_dir, starts.STARTS_FILE)}: does not hold a start of training; name the model_dir of '
            'a run.'
        )
    # A run that was killed before its first checkpoint began anew.
    at_the_beginning = [start for start in recorded if start.step == 0]
    if not at_the_beginning:
        raise CannotRepeatError(
            f'{model_dir}: the run began at step {recorded[0].step}, from {recorded[0].checkpoint}, which another run '
            'had trained. That one can be verified.'
        )
    return at_the_beginning[-1]


def _until(recorded: List[Step], steps: Optional[int]) -> int:
    """The recorded step that has at least as many steps."""
    last = recorded[-1].step
    if steps is None:
        return last
    if steps > last:
        raise CannotRepeatError(f'--steps={steps}: the run has recorded its first {last} steps only.')
    return next(step.step for step in recorded if step.step >= steps)


def _repeating(config: Config, directory: str, model_dir: str, until: int) -> Config:
    """The configuration that trains the same steps and nothing more."""
    data_dir = config.data_dir
    if data_dir and not remote.is_remote(data_dir):
        data_dir = os.path.join(directory, data_dir)
    return dataclasses.replace(
        config,
        mode='train',
        data_dir=data_dir,
        model_dir=model_dir,
        export_dir=None,
        train_steps=until,
        keep_best=False,
    )


def _run(config: Config) -> None:
    values: Dict[str, Any] = dataclasses.asdict(config)
    # All of them: what is not given is taken from the data set.
    flags = [f'--{name}={value}' for name, value in values.items() if value is not None]
    code = subprocess.run([sys.executable, '-m', 'inception_v3.main', *flags], stdout=subprocess.DEVNULL).returncode
    if code:
        raise CannotRepeatError(f'The program ended with exit code {code} when it was to train the first steps again.')


def _same(recorded: Step, repeated: Step) -> bool:
    # As text: a loss that is not a number is the same as another.
    return str(recorded) == str(repeated)
