"""Fits the configuration of a command line to its data set, its device and its folder.

`main` calls, in this order: `makes_digits`, `fit_to_data_set`, `with_settled_threads`.
"""

import dataclasses
import os
from typing import Dict, List, Mapping, Optional

from compat import tf
from compat.log import logger
from compat.messages import printable
from console.processes import usable_cores
from data import checks, dataset_info, labels, remote
from data.braces import FILE_FLAGS
from data.dataset_info import DatasetInfo
from data.records import TRAIN, VALIDATION, DataError
from inception_v3 import class_weights, class_weights_file, presets, rules
from inception_v3.config import Config, ConfigError
from inception_v3.flags import CommandLine
from inception_v3.model_dir import recorded_config
from inception_v3.tpu import accelerator

# By split: the flag of its size, and the name of its images.
SIZES = {TRAIN: ('num_train_images', 'training'), VALIDATION: ('num_eval_images', 'validation')}


def makes_digits(command_line: CommandLine) -> bool:
    """Whether the digits preset must make its data set first: it does not exist, and `--data_dir` names no other."""
    is_own = command_line.preset == 'digits' and not {'data_dir', *FILE_FLAGS.values()} & command_line.given
    made = os.path.join(command_line.config.data_dir, dataset_info.FILE_NAME)
    return is_own and command_line.config.use_data == 'real' and not os.path.exists(made)


def fit_to_data_set(command_line: CommandLine) -> Config:
    """The configuration of a command line, fitted to its data set and to the GPUs of this machine.

    Raises:
      ConfigError: no data set is named, it lacks the description, flags contradict it, or a file of weights is wrong.
      DataError, RemoteError: the description or the files cannot be read.
    """
    config = accelerator.settled(command_line.config)
    command_line = command_line._replace(config=config)
    if config.use_data == 'fake':
        return with_class_weights(fit(command_line, None, {}), None)
    if not config.source.is_named(config.splits):
        raise ConfigError(
            '--data_dir: name the folder of the record files, or the files with --train_files and --eval_files, or use '
            f'random images with --use_data=fake.{_presets_for_beginners(command_line)}'
        )
    description = dataset_info.read(config.data_dir) if config.data_dir else None
    fitted = fit(command_line, description, counted(command_line, description))
    return with_class_weights(fitted, description)


def fit(command_line: CommandLine, description: Optional[DatasetInfo], counts: Mapping[str, int]) -> Config:
    """The configuration of a command line, with the sizes and the classes of its data set.

    The numbers of steps for `--train_epochs` and `--epochs_per_eval` follow from the sizes, and so do further values of
    the preset own_images. The description is the content of `dataset.json`. `counts` has the numbers of records of
    splits that were counted, or that an evaluated run has recorded.

    Raises:
      ConfigError: flags contradict the description, each other, or the preset.
    """
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
    config = dataclasses.replace(config, **presets.steps_of_epochs(vars(config)))
    rules.check(config, given)
    problems: List[str] = [*rules.problems_with_data_set(config, given)]
    if preset == 'finetune' and not config.init_from and config.mode != 'eval':
        problems.append('--preset=finetune: needs --init_from, the weights to begin from.')
    if problems:
        raise ConfigError('\n'.join(problems))
    return config


def _images(
    command_line: CommandLine, split: str, description: Optional[DatasetInfo], counts: Mapping[str, int]
) -> int:
    """The number of images of a split: as given, else as described, else the number of records."""
    config, (name, kind) = command_line.config, SIZES[split]
    number: int = counts.get(split, getattr(config, name))
    is_of_run = split in counts and split not in config.splits
    if description is None or config.source.patterns(split) or is_of_run:
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


def _presets_for_beginners(command_line: CommandLine) -> str:
    """Suggests presets for a command line without one: few users begin with the default, ImageNet on a TPU."""
    if command_line.preset:
        return ''
    return (
        ' To try the program, begin with --preset=digits, which needs no data; for your own images, with inception-v3 '
        'from-folder and --preset=own_images.'
    )


def counted(command_line: CommandLine, description: Optional[DatasetInfo]) -> Dict[str, int]:
    """Counts the records of each split whose size neither a flag nor the description gives.

    Only files that patterns or a folder name are counted; other files without a description are taken for ImageNet. An
    evaluation may need the number of training images for its steps and its network. It is the number that the evaluated
    run has recorded; until then, that of the evaluation's own data set.

    Raises:
      ConfigError: the number of training images is needed, and unknown.
      DataError, RemoteError: the files cannot be found, or their records cannot be counted.
    """
    config, counts, splits = command_line.config, {}, [*command_line.config.splits]
    is_own = command_line.preset == 'own_images'
    if config.mode == 'eval' and (is_own or config.train_epochs) and 'num_train_images' not in command_line.given:
        run = recorded_config(str(config.model_dir))
        if run:
            counts[TRAIN] = run.num_train_images
        elif config.source.is_named([TRAIN]):
            splits.append(TRAIN)
        elif config.num_train_images == Config.num_train_images:
            raise ConfigError(
                f'--mode=eval: {"--preset=own_images" if is_own else f"--train_epochs={config.train_epochs:g}"} needs '
                f'the number of training images, which {config.model_dir} has not recorded yet. Give '
                '--num_train_images, or begin when the training has begun.'
            )
    for split in splits:
        name, kind = SIZES[split]
        is_described = description is not None and not config.source.patterns(split)
        if is_described or name in command_line.given or not is_counted(config, split):
            continue
        paths, flag = config.source.find(split), config.source.flag(split)
        logger.info('%s: counting the records of %s %s files, which --%s=N avoids', flag, f'{len(paths):,}', kind, name)
        # Reading a named pipe would block.
        checks.check_are_files(paths)
        counts[split] = sum(each.records for each in config.source.contents(paths))
        logger.info('%s: %s records', flag, f'{counts[split]:,}')
        if not counts[split]:
            raise DataError(f'{flag}: no records.')
    return counts


def with_class_weights(config: Config, description: Optional[DatasetInfo]) -> Config:
    """Computes or reads the numbers of `--class_weights`; a configuration that has them keeps them.

    Evaluation has no training loss and needs none. If the description has no numbers of images per class, or the run
    reads other training files, the labels of the training files are counted.

    Raises:
      ConfigError: the file is missing or wrong, or the weights are for another number of classes.
      DataError, RemoteError: the labels cannot be counted.
    """
    given = config.class_weights
    if not given or config.mode == 'eval':
        return config
    if given == class_weights.given(config):
        names = description.class_names if description else []
        flag = f'--class_weights={printable(given)}'
        if given == class_weights.BALANCED:
            weights = class_weights.balanced(_images_per_class(config, description))
        else:
            try:
                content = remote.read(given)
            except tf.errors.OpError as error:
                raise ConfigError(f'{flag}: cannot be read: {error.message}')
            if content is None:
                raise ConfigError(f'{flag}: no such file. Give balanced, or a CSV file of classes and weights.')
            weights = class_weights_file.parsed(content, flag, names, config.num_classes)
        config = dataclasses.replace(config, class_weights=class_weights.with_numbers(given, weights))
    numbers = len(class_weights.by_label(config))
    if numbers != config.num_classes:
        raise ConfigError(
            f'--class_weights={printable(class_weights.given(config))}: has {numbers:,} numbers; there are '
            f'{config.num_classes:,} classes, including the background.'
        )
    return config


def _images_per_class(config: Config, description: Optional[DatasetInfo]) -> List[int]:
    """The number of training images of each class, by label."""
    if description and description.train_images_per_class and not config.source.patterns(TRAIN):
        counts = description.train_images_per_class
        return [*counts, *[0] * (config.num_classes - len(counts))]
    paths, flag = config.source.find(TRAIN), config.source.flag(TRAIN)
    logger.info(
        '%s: counting the labels of %d training files, because %s has no train_images_per_class for them; a file of '
        'weights avoids that',
        *(flag, len(paths), dataset_info.FILE_NAME),
    )
    checks.check_are_files(paths)
    counts = labels.count(config.source, paths, config.num_classes)
    if not sum(counts):
        raise DataError(f'{flag}: no label is from 0 to {config.num_classes - 1:,}, as --class_weights needs.')
    return counts


def is_counted(config: Config, split: str) -> bool:
    """Whether the files of a split are given by patterns or by a folder of their own."""
    return bool(config.source.patterns(split) or config.source.folder(split))


def with_settled_threads(config: Config) -> Config:
    """Sets the number of CPU threads of a run with a seed: the number of its first start, or one per core.

    Operations divide sums among threads, so a different number of threads changes the last bits of results.
    """
    if config.seed is None or config.intra_op_threads:
        return config
    first = recorded_config(str(config.model_dir)) if config.model_dir else None
    threads = first.intra_op_threads if first and first.seed is not None else 0
    return dataclasses.replace(config, intra_op_threads=threads or usable_cores())
