"""Flags of commands that apply a run to another data set, or to its own data set in another place."""

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence, Tuple

from data.braces import FILE_FLAGS
from inception_v3.config import Config, ConfigError
from tools.parsers import folder

if TYPE_CHECKING:
    from data.dataset_info import DatasetInfo

_FLAGS = ('data_dir', 'data_format', 'image_key', 'label_key', 'label_offset')


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags; a flag that is not given is None."""
    add = parser.add_argument
    add('--data_dir', type=folder, metavar='DIR', help="folder of the records (default: the run's)")
    for key in ('image_key', 'label_key'):
        add(f'--{key}', metavar='KEY', help=f"{key[:5]}'s key in TFRecords (default: the run's)")
    add('--label_offset', type=int, metavar='N', help="number to add to labels (default: the run's)")
    add('--data_format', choices=('tar', 'tfrecord'), help="format of the records (default: the run's)")


def changes_of(config: Config, arguments: argparse.Namespace, patterns: Sequence[str] = ()) -> Dict[str, Any]:
    """The fields of a run's configuration that the flags change; `patterns` are the command's own flags for files."""
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


def changed(config: Config, changes: Dict[str, Any]) -> Tuple[Config, Optional['DatasetInfo']]:
    """A run's configuration with changes, and the description of its data set, if there is one.

    Changes imply real images, even if the run was trained on generated ones.

    Raises:
      ConfigError: the data set has more classes than the network.
      DataError: the description cannot be read.
    """
    from inception_v3.data_set import description_of

    config = dataclasses.replace(config, use_data='real' if changes else config.use_data, **changes)
    info = description_of(config)
    if info and info.num_classes > config.num_classes:
        raise ConfigError(
            f'--data_dir={config.data_dir}: has {info.num_classes} classes, including the background; the network has '
            f'{config.num_classes}.'
        )
    return config, info


def check_labels(config: Config, class_names: Sequence[str]) -> None:
    """Checks that labels in validation files without a description stand for the run's classes, `class_names` by label.

    Raises:
      DataError: a sample of the labels stands for other classes.
    """
    from data import labels
    from data.records import VALIDATION

    sampled = labels.sample(config.source, config.source.find(VALIDATION))
    labels.check_described(config.source, VALIDATION, sampled, class_names, "the run's classes")


def with_sizes(config: Config, splits: Sequence[str], info: Optional['DatasetInfo']) -> Config:
    """The configuration with the number of images in each split of its data set, as described or counted."""
    from data.records import TRAIN
    from inception_v3.fitting import SIZES, is_counted

    for split in splits:
        name, _ = SIZES[split]
        if is_counted(config, split):
            count = sum(each.records for each in config.source.contents(config.source.find(split)))
            config = dataclasses.replace(config, **{name: count})
        elif info:
            count = info.train_images if split == TRAIN else info.validation_images
            config = dataclasses.replace(config, **{name: count})
    return config
