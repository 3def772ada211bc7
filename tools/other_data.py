"""Flags of a command that uses a run on another data set than its own, or on its own in another place."""

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any, Dict, Sequence

from console.command_line import folder
from data.braces import FILE_FLAGS

if TYPE_CHECKING:
    from inception_v3.config import Config

_FLAGS = ('data_dir', 'data_format', 'image_key', 'label_key', 'label_offset')


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags; those that are not given are None."""
    add = parser.add_argument
    add('--data_dir', type=folder, metavar='DIR', help="folder of the records (default: the run's)")
    for key in ('image_key', 'label_key'):
        add(f'--{key}', metavar='KEY', help=f"{key[:5]}'s key in TFRecords (default: the run's)")
    add('--label_offset', type=int, metavar='N', help="number to add to labels (default: the run's)")
    add('--data_format', choices=('tar', 'tfrecord'), help="format of the records (default: the run's)")


def changes_of(config: 'Config', arguments: argparse.Namespace, patterns: Sequence[str] = ()) -> Dict[str, Any]:
    """The fields of a run's configuration that the flags change; `patterns` are flags of files that a command adds."""
    from inception_v3.config import Config

    given = {name: getattr(arguments, name) for name in (*_FLAGS, *patterns)}
    changes = {name: value for name, value in given.items() if value is not None}
    if 'data_dir' in changes:
        # The run's patterns belong to its own folder.
        changes = {**changes, **{name: changes.get(name, '') for name in FILE_FLAGS.values()}}
    elif {*patterns} & {*changes}:
        changes['data_dir'] = ''
    if changes.get('data_format') == 'tar' != config.data_format:
        # The keys of the run's records are not those of tar shards.
        changes = {'image_key': Config.image_key, 'label_key': Config.label_key, **changes}
    return changes


def checked(config: 'Config', changes: Dict[str, Any]) -> 'Config':
    """The configuration of a run with changes, on real images if there are any, even if it was trained on made-up ones.

    Raises:
      ConfigError: the data set has more classes than the network.
      DataError: its description cannot be read.
    """
    from inception_v3.config import ConfigError
    from inception_v3.data_set import description_of

    config = dataclasses.replace(config, use_data='real' if changes else config.use_data, **changes)
    info = description_of(config)
    if info and info.num_classes > config.num_classes:
        raise ConfigError(
            f'--data_dir={config.data_dir}: has {info.num_classes} classes, including the background; the network has '
            f'{config.num_classes}.'
        )
    return config


def with_sizes(config: 'Config', splits: Sequence[str]) -> 'Config':
    """The configuration with the numbers of images of splits of its data set, as described or as counted."""
    from inception_v3.data_set import description_of
    from inception_v3.fitting import SIZES, is_counted

    info = description_of(config)
    for split in splits:
        name, kind = SIZES[split]
        if is_counted(config, split):
            count = sum(each.records for each in config.source.contents(config.source.find(split)))
            config = dataclasses.replace(config, **{name: count})
        elif info:
            described = {'training': info.train_images, 'validation': info.validation_images}
            config = dataclasses.replace(config, **{name: described[kind]})
    return config
