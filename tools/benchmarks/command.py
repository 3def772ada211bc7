"""The command of a benchmark: a few flags of its own, and all flags of a run."""

import dataclasses
import os
import pathlib
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from compat.errors import EXIT_CODES
from console import program
from console.screen import Screen, set_up_logging
from inception_v3 import flags
from inception_v3.config import Config, ConfigError
from inception_v3.flags import CommandLine, OwnFlag

# A benchmark takes its own flags, the command line of a run and the screen. It returns an exit code; None means 0.
Perform = Callable[[Dict[str, Any], CommandLine, Screen], Optional[int]]

# Flags that several benchmarks share.
MEASURING: Dict[str, OwnFlag] = {
    'images': OwnFlag(int, 1000, 'minimum number of images to read per measurement'),
    'repeats': OwnFlag(int, 3, 'number of measurements of each pipeline'),
    'json': OwnFlag(bool, False, 'print the results as a JSON object'),
}


def run(
    argv: Sequence[str],
    name: str,
    purpose: str,
    own_flags: flags.OwnFlags,
    perform: Perform,
    of_machines: bool = False,
) -> int:
    """Runs a benchmark's command line and returns its exit code. Numbers in its own flags must be above 0.

    Flags of several machines are refused, unless the benchmark handles them itself (`of_machines`).
    """

    def command(screen: Screen) -> Optional[int]:
        command_line = flags.parse(argv, own_flags, tf_config='' if of_machines else None)
        if command_line.help:
            print(f'{flags.help_text(name, purpose, command_line, own_flags)}\n\n{EXIT_CODES}')
            return None
        own = {**command_line.own}
        for flag, value in own.items():
            is_number = own_flags[flag].type in (int, float) and value is not None
            # No benchmark needs larger or smaller numbers.
            if is_number and not 1e-9 <= value <= 1e9:
                raise ConfigError(f'--{flag}={value}: must be above 0, and at most 1,000,000,000.')
        set_up_logging(screen, command_line.verbose)
        return perform(own, command_line, screen)

    return program.run(command)


def chosen(name: str, text: Optional[str], allowed: Sequence[str]) -> List[str]:
    """The names in a comma-separated list, by default all; raises ConfigError for a name that is not allowed."""
    names = [*allowed] if text is None else text.split(',')
    for wrong in sorted({*names} - {*allowed}):
        raise ConfigError(f'--{name}={text}: {wrong or "an empty name"} is not one of {", ".join(allowed)}.')
    return names


def input_config(command_line: CommandLine, splits: Sequence[str]) -> Config:
    """The configuration of the input pipeline on this machine, with the batch size of one TPU core.

    Without a `data_dir`, the pipeline reads generated photographs. They are made if they are missing.

    Raises:
      ConfigError: --use_data=fake was given, or flags contradict the data set.
      DataError: the data set cannot be used, or the photographs cannot be made.
    """
    from inception_v3.data_set import check_data
    from inception_v3.fitting import fit_to_data_set, makes_digits
    from tools.benchmarks import photographs
    from tools.datasets import digits

    config = command_line.config
    if config.use_data == 'fake':
        raise ConfigError('--use_data=fake: this benchmark measures reading records. Omit the flag.')
    if not config.source.is_named(splits):
        if config.data_format == 'tar':
            raise ConfigError(
                '--data_format=tar: the generated photographs are TFRecord files. Set --data_dir to tar shards.'
            )
        config = photographs.made(config)
    if makes_digits(command_line):
        digits.make(config.data_dir)
    config = fit_to_data_set(command_line._replace(config=config))
    check_data(config, splits)
    return dataclasses.replace(
        config,
        train_batch_size=config.train_batch_size // config.replicas,
        eval_batch_size=config.eval_batch_size // config.replicas,
        # For several replicas, evaluation appends batches of padding, which must not be measured.
        **{'use_tpu': False, 'tpu': None, 'master': '', 'num_gpus': 1, 'batch_norm_group_size': 0},
        **{'worker_hosts': '', 'task_index': None},
    )


def tar_dir(config: Config) -> str:
    """The folder for the data set as tar shards, beside the folder of the data set."""
    return f'{str(config.data_dir).rstrip("/")}-tar'


def make_tar_shards(config: Config, folder: str, progress: Callable[[str], None] = lambda line: None) -> None:
    """Converts the data set of `input_config` to tar shards in a folder, unless they exist."""
    from data import remote
    from tools.datasets.tar_shards import conversion as tar_shards

    # A conversion appears whole or not at all, so a single file shows that it is complete.
    if not remote.names_in(folder):
        tar_shards.convert(str(config.data_dir), folder, 0, progress)


def write_files(data_dir: str, folder: str) -> List[Tuple[str, int]]:
    """Writes the training images of records as FOLDER/LABEL/NAME.jpg; returns LABEL/NAME.jpg and label of each."""
    from compat import tf
    from data import records, tfrecord_files

    unfinished = pathlib.Path(f'{folder}.unfinished')
    files: List[Tuple[str, int]] = []
    for shard, path in enumerate(records.find_shards(data_dir, records.TRAIN)):
        for number, serialized in enumerate(tfrecord_files.serialized_in(path)):
            features = tf.train.Example.FromString(serialized).features.feature
            label = features['image/class/label'].int64_list.value[0]
            files.append((f'{label:04d}/{shard:05d}-{number:05d}.jpg', label))
            file = unfinished / files[-1][0]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(features['image/encoded'].bytes_list.value[0])
    os.replace(unfinished, folder)
    return files
