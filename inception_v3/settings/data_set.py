"""Checks a run's data set, and copies its sizes and number of classes into the configuration."""

import dataclasses
import os
from typing import Iterator, List, Optional, Sequence

from console.log import logger
from console.messages import shown
from data import dataset_info, digits, records
from data.dataset_info import DatasetInfo
from data.formats import FORMATS
from inception_v3.config import Config, ConfigError
from inception_v3.settings.epochs import steps_of_epochs
from inception_v3.settings.flags import CommandLine
from inception_v3.settings.given import contradictions_of_data_set, without_effect
from inception_v3.settings.own_images import own_images
from inception_v3.tpu import slices

# The largest number of files in one message.
_NAMED_AT_MOST = 10


def makes_digits(command_line: CommandLine) -> bool:
    """Whether the run makes its data set first: the digits preset does, unless `--data_dir` names another."""
    is_own = command_line.preset == 'digits' and 'data_dir' not in command_line.given
    return is_own and command_line.config.use_data == 'real' and not digits.is_built(command_line.config.data_dir)


def splits_of(config: Config) -> List[str]:
    """The splits that a run reads."""
    return {
        'train': [records.TRAIN],
        'eval': [records.VALIDATION],
        'train_and_eval': [records.TRAIN, records.VALIDATION],
    }[config.mode]


def check_data(config: Config) -> None:
    """Finds the record files of a run's splits, checks that each host has some, and logs files that are not read.

    Raises:
      DataError, RemoteError: as `check_files`.
    """
    if config.use_data == 'fake':
        return
    for split in splits_of(config):
        paths = FORMATS[config.data_format].find_shards(config.data_dir, split)
        check_files(config, split, paths)
        for note in notes_on_files(config, split, paths):
            logger.info('%s', note)


def check_files(config: Config, split: str, paths: Sequence[str]) -> None:
    """Checks that each host has usable images of a split: without one, training would wait forever.

    Raises:
      DataError: a host has no image, or only as many as may be skipped; or a file cannot be read.
      RemoteError: access to a file is denied, or the store cannot be reached.
    """
    # In evaluation, the hosts that have images are enough.
    hosts, skipped = (config.hosts, config.max_bad_records) if split == records.TRAIN else (1, 0)
    # The pipeline itself refuses fewer files than hosts.
    for host in range(min(hosts, len(paths))):
        FORMATS[config.data_format].check_not_empty(paths[host::hosts], skipped)


def notes_on_files(config: Config, split: str, paths: Sequence[str]) -> Iterator[str]:
    """Sentences about the files of a split: missing ones, and files that are not read because of their names."""
    missing = FORMATS[config.data_format].missing_shards(str(config.data_dir), split, paths)
    if missing:
        yield (
            f'--data_dir={config.data_dir}: the data set is incomplete: {len(missing)} of {len(missing) + len(paths)} '
            f'{split} files are missing, the first is {missing[0]}. The others are read.'
        )
    others = records.unused_files(str(config.data_dir), split, paths)
    if others:
        more = ', …' if len(others) > _NAMED_AT_MOST else ''
        yield (
            f'--data_dir={config.data_dir}: not read, because not named like {os.path.basename(paths[0])}: '
            f'{", ".join(map(shown, others[:_NAMED_AT_MOST]))}{more}'
        )


def images_of_hosts(config: Config, hosts: int) -> List[int]:
    """The validation images that each host of a TPU evaluates.

    `dataset.json` tells how many records each file has. Without it, or if it does not describe these files, the records
    are counted.

    Raises:
      DataError: the files cannot be found or counted.
      RemoteError: access to a file is denied, or the store cannot be reached.
    """
    if config.use_data == 'fake':
        return slices.images_of_hosts([1] * config.eval_images, hosts)
    files = FORMATS[config.data_format]
    paths = files.find_shards(config.data_dir, records.VALIDATION)
    info = dataset_info.read(config.data_dir)
    counts = info.validation_records_per_file if info else []
    if len(counts) != len(paths):
        logger.info('--data_dir=%s: counting the records of %d validation files', config.data_dir, len(paths))
        counts = files.count_records(paths)
    return slices.images_of_hosts(counts, hosts, config.eval_total_size)


def description_of(config: Config) -> Optional[DatasetInfo]:
    """The description of a run's data set, its `dataset.json`; None if there is none, or the images are fake.

    Raises:
      DataError: it cannot be read.
    """
    return None if config.use_data == 'fake' else dataset_info.read(config.data_dir)


def fit_to_data_set(command_line: CommandLine) -> Config:
    """The configuration of a command line, with the sizes and the classes of its data set's description.

    With `--train_epochs` and `--epochs_per_eval`, the numbers of steps follow from the sizes.

    The digits preset makes its data set first, unless `--data_dir` names another. The own_images preset needs a
    description, from which more of its values follow. Flags that were given and have no effect are logged.

    Raises:
      ConfigError: no data set is named, it lacks the description, or flags contradict the description.
      DataError: the description cannot be read, or the digits cannot be made.
    """
    config, given = _described(command_line), command_line.given
    config = dataclasses.replace(config, **steps_of_epochs(vars(config)))
    problems = [*contradictions_of_data_set(given, config)]
    if command_line.preset == 'finetune' and not config.init_from and config.mode != 'eval':
        problems.append('--preset=finetune: needs --init_from, the weights to begin from.')
    if problems:
        raise ConfigError('\n'.join(problems))
    for note in without_effect(given, config):
        logger.info('warning: %s', note)
    return config


def _described(command_line: CommandLine) -> Config:
    config, given = command_line.config, command_line.given
    if config.use_data == 'fake':
        return config
    if not config.data_dir:
        raise ConfigError('--data_dir: name the folder of the record files, or use random images with --use_data=fake.')
    if makes_digits(command_line):
        built = digits.build(config.data_dir)
        logger.info(
            'wrote %d training and %d validation images to %s',
            built.train_images,
            built.validation_images,
            config.data_dir,
        )
    info = dataset_info.read(config.data_dir)
    if info is None:
        if command_line.preset == 'own_images':
            raise ConfigError(
                f'--preset=own_images: {config.data_dir} has no dataset.json. Make the data set with python -m '
                'data.from_folder, which writes one.'
            )
        return config
    if 'num_classes' in given and config.num_classes < info.num_classes:
        raise ConfigError(
            f'--num_classes={config.num_classes}: the data set in {config.data_dir} has {info.num_classes} '
            'classes, including the background. Give at least that many, or leave the flag out.'
        )
    for name, images, kind, instead in (
        ('num_train_images', info.train_images, 'training', ''),
        ('num_eval_images', info.validation_images, 'validation', '; --eval_total_size evaluates fewer of them'),
    ):
        if name in given and getattr(config, name) != images:
            raise ConfigError(
                f'--{name}={getattr(config, name)}: the data set in {config.data_dir} has {images:,} {kind} images, '
                f'as its dataset.json says. Leave the flag out{instead}.'
            )
    config = dataclasses.replace(
        config,
        num_train_images=info.train_images,
        num_eval_images=info.validation_images,
        num_classes=config.num_classes if 'num_classes' in given else info.num_classes,
    )
    if command_line.preset == 'own_images':
        config = dataclasses.replace(config, **own_images(config, given))
    return config
