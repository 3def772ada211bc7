"""The command lines of the benchmarks: a few flags of their own, and all those of a run."""

import dataclasses
import math
from typing import Any, Dict, List, Optional, Sequence, Tuple

from benchmarks import photographs
from console.messages import shown
from data.formats import FORMATS
from inception_v3 import flags
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import fit_to_data_set
from inception_v3.flags import OwnFlag, OwnFlags
from inception_v3.setting import TYPE_NAMES

# Far beyond what can be measured, and what can be computed with.
_SMALLEST, _LARGEST = 1e-9, 1e9


# What both programs have.
MEASURING: Dict[str, OwnFlag] = {
    'images': OwnFlag(int, 1000, 'images to read per measurement, at least'),
    'repeats': OwnFlag(int, 3, 'measurements of each pipeline'),
    'json': OwnFlag(bool, False, 'print the results as a JSON object'),
}


def parse(argv: Sequence[str], own_flags: OwnFlags) -> Tuple[Dict[str, Any], flags.CommandLine]:
    """Parses a command line into the values of the program's own flags, and the command line of a run.

    Raises:
      ConfigError: an unknown flag, or a value that is not allowed. Own numbers must be above 0.
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
    """The number above 0 that a flag's text says.

    Raises:
      ConfigError: it says none, or one that nothing here can be of.
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
    """The configuration of the input pipeline alone, on this machine, as one TPU core's batches come out of it.

    Without a `data_dir` it reads generated photographs, which are made when they are missing.

    Args:
      command_line: what it was made of.
      splits: those that are to be read, of which there must be files.

    Raises:
      ConfigError: images are to be made up, or values do not fit the data set, or the photographs.
      DataError: the data set cannot be used, or the photographs cannot be made.
    """
    config = command_line.config
    if config.use_data == 'fake':
        raise ConfigError('--use_data=fake: what is measured is the reading of records. Leave it out.')
    if not config.data_dir:
        if config.data_format == 'tar':
            raise ConfigError(
                '--data_format=tar: the generated photographs are TFRecord files. Name tar shards with --data_dir.'
            )
        photographs.make(photographs.DATA_DIR)
        config = dataclasses.replace(config, data_dir=photographs.DATA_DIR)
    config = fit_to_data_set(command_line._replace(config=config))
    for split in splits:
        FORMATS[config.data_format].find_shards(config.data_dir, split)
    return dataclasses.replace(
        config,
        train_batch_size=config.train_batch_size // config.replicas,
        eval_batch_size=config.eval_batch_size // config.replicas,
        # What a TPU is given after the last validation image, for ever, is not to be measured.
        **{'use_tpu': False, 'tpu': None, 'master': '', 'batch_norm_group_size': 0},
    )


def chosen(name: str, text: Optional[str], allowed: Sequence[str]) -> List[str]:
    """The names in a comma-separated list; all if there is none.

    Raises:
      ConfigError: one that is not allowed.
    """
    if text is None:
        return [*allowed]
    names = text.split(',')
    for wrong in sorted({*names} - {*allowed}):
        raise ConfigError(f'--{name}={text}: {wrong or "an empty name"} is none of {", ".join(allowed)}.')
    return names
