"""The command lines of the benchmarks: a few flags of their own, and all flags of a run."""

import dataclasses
import math
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from benchmarks import comparison, photographs
from console.messages import shown
from data import dataset_info, remote
from data.convert.tar_shards import conversion as tar_shards
from data.sources import source_of
from inception_v3 import flags
from inception_v3.config import TYPE_NAMES, Config, ConfigError
from inception_v3.data_set import fit_to_data_set
from inception_v3.flags import OwnFlag, OwnFlags

# Bounds of the numbers in flags. No benchmark has a use for values outside.
_SMALLEST, _LARGEST = 1e-9, 1e9

# Flags that several benchmarks share.
MEASURING: Dict[str, OwnFlag] = {
    'images': OwnFlag(int, 1000, 'minimum number of images to read per measurement'),
    'repeats': OwnFlag(int, 3, 'number of measurements of each pipeline'),
    'json': OwnFlag(bool, False, 'print the results as a JSON object'),
}


def parse(argv: Sequence[str], own_flags: OwnFlags) -> Tuple[Dict[str, Any], flags.CommandLine]:
    """Parses a command line into the values of the benchmark's own flags, and the command line of a run.

    Raises:
      ConfigError: a flag is unknown, or a value is not allowed. The numbers of own flags must be above 0.
    """
    is_number = {name: flag.type in (int, float) for name, flag in own_flags.items()}
    read_as = {name: flag._replace(type=str) if is_number[name] else flag for name, flag in own_flags.items()}
    command_line = flags.parse(argv, read_as)
    own = dict(command_line.own)
    for name, value in own.items():
        if is_number[name] and isinstance(value, str):
            own[name] = number(name, value, own_flags[name].type)
    return own, command_line


def number(name: str, text: str, number_type: type) -> Any:
    """Parses the value of a flag as a number above 0.

    Args:
      name: name of the flag, for the message.
      text: the value.
      number_type: int or float.

    Raises:
      ConfigError: the value is not a number, or is outside the bounds.
    """
    try:
        value = number_type(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ConfigError(f'--{name}={text}: must be {TYPE_NAMES[number_type]} above 0.')
    if not _SMALLEST <= value <= _LARGEST:
        least = 1 if number_type is int else f'{_SMALLEST:g}'
        raise ConfigError(f'--{name}={shown(text)}: must be {TYPE_NAMES[number_type]}, {least} to {_LARGEST:,.0f}.')
    return value


def input_config(command_line: flags.CommandLine, splits: Sequence[str]) -> Config:
    """Returns the configuration of the input pipeline on this machine, with the batch size of one TPU core.

    Without a `data_dir`, the pipeline reads generated photographs. They are made if they are missing.

    Args:
      command_line: the command line of the run.
      splits: the splits to read; their files must exist.

    Raises:
      ConfigError: --use_data=fake was given, or flags contradict the data set.
      DataError: the data set cannot be used, or the photographs cannot be made.
    """
    config = command_line.config
    if config.use_data == 'fake':
        raise ConfigError('--use_data=fake: this benchmark measures reading records. Omit the flag.')
    if not source_of(config).is_named(splits):
        if config.data_format == 'tar':
            raise ConfigError(
                '--data_format=tar: the generated photographs are TFRecord files. Set --data_dir to tar shards.'
            )
        photographs.make(photographs.DATA_DIR)
        config = dataclasses.replace(config, data_dir=photographs.DATA_DIR)
    config = fit_to_data_set(command_line._replace(config=config))
    for split in splits:
        source_of(config).find(split)
    return dataclasses.replace(
        config,
        train_batch_size=config.train_batch_size // config.replicas,
        eval_batch_size=config.eval_batch_size // config.replicas,
        # With --use_tpu, evaluation appends endless batches of padding, which must not be measured.
        **{'use_tpu': False, 'tpu': None, 'master': '', 'batch_norm_group_size': 0},
    )


def make_tar_shards(config: Config, progress: Callable[[str], None]) -> None:
    """Converts the data set of `input_config` to the tar shards of `comparison.tar_dir`, unless they exist."""
    folder = comparison.tar_dir(config)
    if not remote.exists(os.path.join(folder, dataset_info.FILE_NAME)):
        tar_shards.convert(str(config.data_dir), folder, 0, progress)


def chosen(name: str, text: Optional[str], allowed: Sequence[str]) -> List[str]:
    """Returns the names in a comma-separated list, or all allowed names if there is no list.

    Raises:
      ConfigError: a name in the list is not allowed.
    """
    if text is None:
        return [*allowed]
    names = text.split(',')
    for wrong in sorted({*names} - {*allowed}):
        raise ConfigError(f'--{name}={text}: {wrong or "an empty name"} is not one of {", ".join(allowed)}.')
    return names
