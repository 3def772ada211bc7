"""Fits a configuration to its data set: a pure function of a command line and of the data set's description."""

import dataclasses
from typing import TYPE_CHECKING, List, Mapping, Optional

from data.braces import FILE_FLAGS
from data.dataset_info import DatasetInfo
from data.records import TRAIN, VALIDATION
from inception_v3.config import Config, ConfigError
from inception_v3.epochs import steps_of_epochs

if TYPE_CHECKING:
    from inception_v3.flags import CommandLine

# The flag of the size of each split, and the name of its images.
SIZES = {TRAIN: ('num_train_images', 'training'), VALIDATION: ('num_eval_images', 'validation')}


def fit(command_line: 'CommandLine', description: Optional[DatasetInfo], counts: Mapping[str, int]) -> Config:
    """The configuration of a command line, with the sizes and the classes of its data set.

    With `--train_epochs` and `--epochs_per_eval`, the numbers of steps follow from the sizes. More values of the preset
    own_images follow from them. The description is the content of `dataset.json`, and `counts` are the numbers of
    records of splits that were counted.

    Raises:
      ConfigError: flags contradict the description, each other, or the preset.
    """
    # A run takes its configuration as it is, and needs neither.
    from inception_v3 import presets, rules

    config, given, preset = command_line.config, command_line.given, command_line.preset
    if config.use_data == 'real':
        is_foreign = 'num_classes' in given and all(
            split in counts or SIZES[split][0] in given for split in config.splits
        )
        if description is None and preset == 'own_images' and not is_foreign:
            raise ConfigError(
                f'--preset=own_images: {config.data_dir or "the data set"} has no dataset.json. Make the data set with '
                'inception-v3 from-folder, which writes one; or give --train_files, --eval_files and --num_classes.'
            )
        if description and 'num_classes' in given and config.num_classes < description.num_classes:
            raise ConfigError(
                f'--num_classes={config.num_classes}: the data set in {config.data_dir} has {description.num_classes} '
                'classes, including the background. Give at least that many, or leave the flag out.'
            )
        sizes = {name: _images(command_line, split, description, counts) for split, (name, _) in SIZES.items()}
        classes = config.num_classes if 'num_classes' in given or not description else description.num_classes
        config = dataclasses.replace(config, num_classes=classes, **sizes)
        if preset == 'own_images':
            config = dataclasses.replace(config, **presets.own_images(config, given))
    config = dataclasses.replace(config, **steps_of_epochs(vars(config)))
    rules.check(config, given)
    problems: List[str] = [*rules.problems_with_data_set(config, given)]
    if preset == 'finetune' and not config.init_from and config.mode != 'eval':
        problems.append('--preset=finetune: needs --init_from, the weights to begin from.')
    if problems:
        raise ConfigError('\n'.join(problems))
    return config


def _images(
    command_line: 'CommandLine', split: str, description: Optional[DatasetInfo], counts: Mapping[str, int]
) -> int:
    """The number of images of a split: the given one, or that of the description, or the number of records."""
    config, (name, kind) = command_line.config, SIZES[split]
    number: int = counts.get(split, getattr(config, name))
    if description is None or config.source.patterns(split):
        return number
    described = description.train_images if split == TRAIN else description.validation_images
    if not described:
        if split in config.splits:
            raise ConfigError(
                f'--mode={config.mode}: the data set in {config.data_dir} has no {kind} images, as its dataset.json '
                f'says. Name others with --{FILE_FLAGS[split]}, or only train, with --mode=train.'
            )
        return number
    if name in command_line.given and number != described:
        instead = '' if split == TRAIN else '; --eval_total_size evaluates fewer of them'
        raise ConfigError(
            f'--{name}={number}: the data set in {config.data_dir} has {described:,} {kind} images, '
            f'as its dataset.json says. Leave the flag out{instead}.'
        )
    return described
