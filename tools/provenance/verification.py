"""Repeats the first steps of a run, and compares them with the recorded ones."""

import dataclasses
import os
import subprocess
import sys
import tempfile
from typing import List, Sequence, Tuple

from compat import tf
from compat.errors import CommandError
from console import processes, program
from console.screen import Screen, set_up_logging
from data import records, remote
from data.records import DataError
from data.sources import Source
from inception_v3.config import Config
from inception_v3.data_set import description_of
from inception_v3.run.starts import FIRST_STEPS_FILE, STARTS_FILE, FirstStep, Start, read_first_steps, read_starts
from inception_v3.run.trained_data import changes_between
from tools.datasets import fingerprints
from tools.provenance.record import Difference

# The largest data set, in bytes, of which all images and labels are compared.
_LARGEST_READ = 16 << 30


def verify(model_dir: str) -> Tuple[List[Tuple[FirstStep, FirstStep]], Start, Start]:
    """Repeats the recorded first steps of a run in a new process.

    Returns pairs of recorded and repeated steps, the start of the run and the start of the repetition.

    Raises:
      CommandError: the run cannot be repeated; the message gives the reason.
    """
    all_starts, recorded = read_starts(model_dir), read_first_steps(model_dir)
    if not all_starts:
        path = os.path.join(model_dir, STARTS_FILE)
        raise CommandError(f'{path}: contains no start of training; name the model_dir of a run.')
    # A run that was killed before its first checkpoint starts at step 0 again.
    start = ([start for start in all_starts if start.step == 0] or all_starts[:1])[-1]
    config = Config(**start.config)
    for is_so, reason in (
        (start.step, f'the run began at step {start.step:,}, from {start.checkpoint} of another run. Verify that run.'),
        (config.seed is None, 'the run had no --seed, so its first steps cannot be repeated.'),
        (config.use_tpu and not config.is_emulated, 'the run was on a TPU, where steps cannot be repeated.'),
        (config.machines > 1, f'the run was on {config.machines} machines; a single one cannot repeat its steps.'),
        (not recorded, f'{FIRST_STEPS_FILE} contains no steps: the run ended before it recorded any.'),
    ):
        if is_so:
            raise CommandError(f'{model_dir}: {reason}')
    with tempfile.TemporaryDirectory(prefix='first_steps_') as folder:
        _run(_repetition_of(config, start.directory, folder), recorded[-1].step)
        repeated = {step.step: step for step in read_first_steps(folder)}
        (new_start,) = read_starts(folder)
    pairs = [(step, repeated[step.step]) for step in recorded if step.step in repeated]
    return pairs, start, new_start


def changes_of_data(start: Start) -> Tuple[List[Difference], bool]:
    """The differences of the present data set from that of a start, and whether every image and label was compared.

    Every image and label is compared if `dataset.json` has a fingerprint, and the files are local and at most 16 GiB.
    Otherwise, the description and samples of the files are compared.
    """
    config = Config(**start.config)
    config = dataclasses.replace(config, data_dir=_found(config.data_dir, config, start.directory))
    try:
        changes = changes_between(start, config, description_of(config))
        info, source = start.info, config.source
        is_read = bool(info and start.fingerprint and config.use_data == 'real' and _is_small(source, config.splits))
        taken = fingerprints.fingerprint_of(source, info) if info and is_read else start.fingerprint
    except (DataError, remote.RemoteError, tf.errors.OpError) as error:
        return [Difference('data set', start.data_set, str(error))], False
    found = [Difference(name, *values.split(' -> ', 1)) for name, _, values in (c.partition(': ') for c in changes)]
    if taken != start.fingerprint:
        found.append(Difference('fingerprint of the images and labels', start.fingerprint, taken))
    return found, is_read


def _is_small(source: Source, splits: Sequence[str]) -> bool:
    paths = [path for split in splits for path in source.find(split)]
    return not any(map(remote.is_remote, paths)) and sum(records.sizes_of(paths)) <= _LARGEST_READ


def _found(path: str, config: Config, directory: str) -> str:
    """A folder of a run that was started in a directory. An empty folder is that directory, for relative patterns."""
    if not path:
        return directory if config.train_files else ''
    return path if remote.is_remote(path) else os.path.join(directory, path)


def _repetition_of(config: Config, directory: str, model_dir: str) -> Config:
    """The configuration that trains the same steps, and does nothing else."""
    return dataclasses.replace(
        config,
        mode='train',
        data_dir=_found(config.data_dir, config, directory),
        init_from=_found(config.init_from, config, directory) if config.init_from else '',
        model_dir=model_dir,
        export_dir=None,
        keep_best=False,
        profile_steps='',
    )


def _run(config: Config, last: int) -> None:
    """Trains up to the step `last`, in a new process."""
    # Not as an argument: the weights of many classes would exceed the limit of Linux.
    content = config.to_json().encode()
    command = processes.module(__name__, str(last))
    code = subprocess.run(command, input=content, stdout=subprocess.DEVNULL).returncode
    if code:
        raise CommandError(f'Repeating the first steps failed: the program ended with exit code {code}.')


def main() -> int:
    """Runs the configuration that standard input has as JSON, up to the step in the arguments; returns the exit code.

    This is a run's final configuration, not a command line: no settings are derived from a data set or a preset, and
    they are not checked as a user's flags.
    """

    def command(screen: Screen) -> None:
        from inception_v3.train_and_evaluate import Run

        set_up_logging(screen, False)
        Run(Config.from_json(sys.stdin.read()), screen).execute(int(sys.argv[1]))

    return program.run(command)


if __name__ == '__main__':
    sys.exit(main())
