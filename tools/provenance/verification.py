"""Repeats the first steps of a run, and compares them with the recorded ones."""

import dataclasses
import os
import subprocess
import sys
import tempfile
from typing import List, Sequence, Tuple

from compat.errors import CommandError
from console import processes, program
from console.screen import Screen, set_up_logging
from data import remote
from inception_v3.config import Config
from inception_v3.run import history
from inception_v3.run.history import FirstStep, Start


def verify(model_dir: str) -> Tuple[List[Tuple[FirstStep, FirstStep]], Start, Start]:
    """Repeats the recorded first steps of a run in a process of its own.

    Returns the steps as recorded and as repeated, the start of the run and that of the repetition.

    Raises:
      CommandError: the run cannot be repeated; the message gives the reason.
    """
    all_starts, recorded = history.read_starts(model_dir), history.read_first_steps(model_dir)
    if not all_starts:
        path = os.path.join(model_dir, history.STARTS_FILE)
        raise CommandError(f'{path}: contains no start of training; name the model_dir of a run.')
    # A run that was killed before its first checkpoint starts at step 0 again.
    start = ([start for start in all_starts if start.step == 0] or all_starts[:1])[-1]
    config = Config(**start.config)
    for is_so, reason in (
        (start.step, f'the run began at step {start.step}, from {start.checkpoint} of another run. Verify that run.'),
        (config.seed is None, 'the run had no --seed, so its first steps cannot be repeated.'),
        (config.use_tpu and not config.is_emulated, 'the run was on a TPU, where steps cannot be repeated.'),
        (not recorded, f'{history.FIRST_STEPS_FILE} contains no steps: the run ended before it recorded any.'),
    ):
        if is_so:
            raise CommandError(f'{model_dir}: {reason}')
    with tempfile.TemporaryDirectory(prefix='first_steps_') as folder:
        _run(_repetition_of(config, start.directory, folder, recorded[-1].step))
        repeated = {step.step: step for step in history.read_first_steps(folder)}
        (new_start,) = history.read_starts(folder)
    pairs = [(step, repeated[step.step]) for step in recorded if step.step in repeated]
    return pairs, start, new_start


def _repetition_of(config: Config, directory: str, model_dir: str, last: int) -> Config:
    """The configuration that trains the same steps up to `last`, and does nothing else."""

    def found(path: str) -> str:
        return os.path.join(directory, path) if path and not remote.is_remote(path) else path

    return dataclasses.replace(
        config,
        mode='train',
        # Without a folder, patterns are relative to the one where the run was started.
        data_dir=found(config.data_dir) or (directory if config.train_files else ''),
        init_from=found(config.init_from),
        model_dir=model_dir,
        export_dir=None,
        train_steps=last,
        keep_best=False,
        profile_steps='',
    )


def _run(config: Config) -> None:
    code = subprocess.run(processes.module(__name__, config.to_json()), stdout=subprocess.DEVNULL).returncode
    if code:
        raise CommandError(f'Repeating the first steps failed: the program ended with exit code {code}.')


def main(argv: Sequence[str]) -> int:
    """Runs the configuration that `argv` has as JSON, and returns the exit code.

    It is a run's final configuration, not a command line: its settings do not follow from a data set or a preset, and
    are not judged as flags that a user gave.
    """

    def command(screen: Screen) -> None:
        from inception_v3.train_and_evaluate import Run

        set_up_logging(screen, False)
        Run(Config.from_json(argv[1]), screen).execute()

    return program.run(command)


if __name__ == '__main__':
    sys.exit(main(sys.argv))
