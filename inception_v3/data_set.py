"""A run's data set: its description, its files, and what must be counted or made before a run."""

import contextlib
import dataclasses
import hashlib
import os
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence

from console.log import logger
from console.messages import listed
from console.tensorflow_versions import tf
from data import checks, dataset_info, order, records, remote
from data.dataset_info import DatasetInfo
from data.records import DataError
from data.sources import FILE_FLAGS, source_of
from inception_v3.config import Config, ConfigError
from inception_v3.fitting import SIZES, fit
from inception_v3.tpu import accelerator, topology

if TYPE_CHECKING:
    from inception_v3.flags import CommandLine

# Enough of a split to notice other images at the cost of a few requests.
_SAMPLED_FILES, _SAMPLED_BYTES = 8, 1 << 16


def makes_digits(command_line: 'CommandLine') -> bool:
    """Whether the run makes its data set first: the digits preset does, unless `--data_dir` names another."""
    from data.convert import digits

    is_own = command_line.preset == 'digits' and not {'data_dir', *FILE_FLAGS.values()} & command_line.given
    return is_own and command_line.config.use_data == 'real' and not digits.is_built(command_line.config.data_dir)


def check_data(config: Config) -> None:
    """Finds the record files of a run's splits, checks that each host has some, and logs files that are not read.

    Raises:
      DataError, RemoteError: as `check_files`.
    """
    if config.use_data == 'fake':
        return
    for split in config.splits:
        paths = source_of(config).find(split)
        check_files(config, split, paths)
        for note in notes_on_files(config, split, paths):
            logger.info('%s', note)


def check_files(config: Config, split: str, paths: Sequence[str]) -> None:
    """Checks that each host has usable images of a split: without one, training would wait forever.

    Raises:
      DataError: a host has no image, or only as many as may be skipped; its first record has no image or label; or a
        file cannot be read.
      RemoteError: access to a file is denied, or the store cannot be reached.
    """
    is_training = split == records.TRAIN
    # In evaluation, the hosts that have images are enough; with a seed, the hosts divide the records, not the files.
    hosts = topology.hosts_of(config) if is_training and config.seed is None else 1
    skipped = config.max_bad_records if is_training else 0
    # The pipeline itself refuses fewer files than hosts.
    for host in range(min(hosts, len(paths))):
        checks.check(source_of(config), paths[host::hosts], skipped)


def notes_on_files(config: Config, split: str, paths: Sequence[str]) -> Iterator[str]:
    """Sentences about the files of a split: missing ones, and files that are not read because of their names."""
    source = source_of(config)
    missing = checks.missing(source, split, paths)
    if missing:
        yield (
            f'{source.flag(split)}: the data set is incomplete: {len(missing)} of {len(missing) + len(paths)} '
            f'{split} files are missing, the first is {missing[0]}. The others are read.'
        )
    others = checks.unused(source, split, paths)
    if others:
        names = listed(others, 10, ', ')
        yield f'{source.flag(split)}: not read, because not named like {os.path.basename(paths[0])}: {names}'
    if split == records.TRAIN and config.seed is not None:
        hosts = topology.hosts_of(config)
        alone, lanes = (order.lanes_for(config.train_batch_size, n, config.num_train_images) for n in (1, hosts))
        if lanes != alone:
            yield (
                f'--seed={config.seed}: with {hosts} hosts, batches have other images than with any number of hosts '
                f'that divides {alone}.'
            )
    if split == records.TRAIN and config.mode == 'train_and_eval' and config.eval_files:
        both = {*paths} & {*source.find(records.VALIDATION)}
        if both:
            yield f'{source.flag(records.VALIDATION)}: {len(both)} of these files are also training files'


def samples_of(config: Config) -> Dict[str, List[Any]]:
    """Samples of the splits that a run reads: the number of files, and a SHA-256 of some files' sizes and beginnings.

    A copy of the files has the same sample, wherever it is. A split without readable files has none.
    """
    found: Dict[str, List[Any]] = {}
    for split in config.splits if config.use_data == 'real' else ():
        with contextlib.suppress(DataError, remote.RemoteError, tf.errors.OpError):
            paths, digest = sorted(source_of(config).find(split)), hashlib.sha256()
            for path in paths[:: -(-len(paths) // _SAMPLED_FILES)]:
                with tf.io.gfile.GFile(path, 'rb') as file:
                    digest.update(b'%d ' % remote.size(path) + file.read(_SAMPLED_BYTES))
            found[split] = [len(paths), digest.hexdigest()]
    return found


def description_of(config: Config) -> Optional[DatasetInfo]:
    """The description of a run's data set, its `dataset.json`; None if there is none, or the images are fake.

    If the run reads other files than it describes, its classes are kept, and its sizes are the run's.

    Raises:
      DataError: it cannot be read.
    """
    if config.use_data == 'fake' or not config.data_dir:
        return None
    info = dataset_info.read(config.data_dir)
    sizes = config.num_train_images, config.num_eval_images
    has_patterns = config.train_files or config.eval_files
    if not info or not has_patterns or sizes == (info.train_images, info.validation_images):
        return info
    return dataclasses.replace(
        info, train_images=sizes[0], validation_images=sizes[1], fingerprint='', validation_records_per_file=[]
    )


def fit_to_data_set(command_line: 'CommandLine') -> Config:
    """The configuration of a command line, with the sizes and classes of its data set, and the number of GPUs.

    The digits preset makes its data set first, unless `--data_dir` names another.

    Raises:
      ConfigError: no data set is named, it lacks the description, or flags contradict the description.
      DataError: the description or the files cannot be read, or the digits cannot be made.
    """
    config = accelerator.settled(command_line.config)
    command_line = command_line._replace(config=config)
    if config.use_data == 'fake':
        return fit(command_line, None, {})
    if not source_of(config).is_named(config.splits):
        raise ConfigError(
            '--data_dir: name the folder of the record files, or the files with --train_files and --eval_files, or use '
            'random images with --use_data=fake.'
        )
    if makes_digits(command_line):
        from data.convert import digits

        made = digits.build_if_missing(config.data_dir)
        if made:
            images = made.train_images, made.validation_images
            logger.info('wrote %d training and %d validation images to %s', *images, config.data_dir)
    description = dataset_info.read(config.data_dir) if config.data_dir else None
    return fit(command_line, description, counted(command_line, description))


def counted(command_line: 'CommandLine', description: Optional[DatasetInfo]) -> Dict[str, int]:
    """The numbers of records of the splits whose size neither a flag nor the description gives, by split.

    Only files that patterns name, or a folder, are counted; named files without a description are ImageNet's.

    Raises:
      DataError, RemoteError: the files cannot be found, or their records not counted.
    """
    config, counts = command_line.config, {}
    for split in config.splits:
        name, kind = SIZES[split]
        is_described = description is not None and not source_of(config).patterns(split)
        if is_described or name in command_line.given or not is_counted(config, split):
            continue
        paths, flag = source_of(config).find(split), source_of(config).flag(split)
        logger.info('%s: counting the records of %d %s files, which --%s=N avoids', flag, len(paths), kind, name)
        # Reading a named pipe would block.
        checks.check_are_files(paths)
        counts[split] = sum(each.records for each in source_of(config).contents(paths))
        logger.info('%s: %s records', flag, f'{counts[split]:,}')
        if not counts[split]:
            raise DataError(f'{flag}: no records.')
    return counts


def is_counted(config: Config, split: str) -> bool:
    """Whether the files of a split are named by patterns, or by the folder that they are in."""
    return bool(source_of(config).patterns(split) or source_of(config).folder(split))
