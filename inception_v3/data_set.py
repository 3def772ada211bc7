"""A run's data set: its description, the checks of its files, and samples of them."""

import contextlib
import dataclasses
import hashlib
import os
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from compat import tf
from compat.log import logger
from compat.messages import listed
from data import checks, dataset_info, labels, order, records, remote
from data.dataset_info import DatasetInfo
from data.records import DataError
from data.sources import Source
from inception_v3.config import Config
from inception_v3.tpu import topology

# Enough to notice that a split's images have changed, at the cost of a few requests.
_SAMPLED_FILES, _SAMPLED_BYTES = 8, 1 << 16


def check_data(config: Config, splits: Optional[Sequence[str]] = None) -> List[str]:
    """Compares the record files of splits, by default those of the run, with their description.

    Every reader of a data set calls this function: it finds the files, and checks that each host has some. It logs
    warnings about missing and unread files, and returns them.

    Raises:
      DataError, RemoteError: as `check_files`.
    """
    notes: List[str] = []
    for split in (config.splits if splits is None else splits) if config.use_data == 'real' else ():
        paths = config.source.find(split)
        notes += [*check_files(config, split, paths), *notes_on_files(config, split, paths)]
    for note in notes:
        logger.info('warning: %s', note)
    return notes


def check_files(config: Config, split: str, paths: Sequence[str]) -> List[str]:
    """Checks the labels of a split, and that each host has usable images, without which training would wait forever.

    Returns a sentence if the numbers of records differ from `dataset.json`, as far as they are known without reading
    the files.

    Raises:
      DataError: a host has no image, or only as many as may be skipped; its first record has no image or label; labels
        contradict `dataset.json`; or a file cannot be read.
      RemoteError: access to a file is denied, or the store cannot be reached.
    """
    source, counts = config.source, []
    is_training = split == records.TRAIN
    # In evaluation, some hosts may have no images; with a seed, the hosts divide the records, not the files.
    hosts = topology.hosts_of(config) if is_training and config.seed is None else 1
    skipped = config.max_bad_records if is_training else 0
    # The pipeline itself refuses fewer files than hosts.
    for host in range(min(hosts, len(paths))):
        counts.append(checks.check(source, paths[host::hosts], skipped))
    info: Optional[DatasetInfo] = None
    # A damaged description is refused by `fit_to_data_set` and `description_of`.
    with contextlib.suppress(DataError):
        info = dataset_info.read(config.data_dir) if config.data_dir else None
    if not info:
        return []
    labels.check_described(source, split, labels.sample(source, paths), info.class_names)
    return [] if source.patterns(split) else [*_shortfalls(source, split, paths, counts, info)]


def _shortfalls(
    source: Source, split: str, paths: Sequence[str], counts: Sequence[Optional[int]], info: DatasetInfo
) -> Iterator[str]:
    described = info.train_images if split == records.TRAIN else info.validation_images
    known = [count for count in counts if count is not None]
    if len(known) == len(counts) and sum(known) != described:
        yield f'{source.flag(split)}: {checks.other_count(split, sum(known), described)}'
    files = info.validation_records_per_file if split == records.VALIDATION else []
    if len(files) > len(paths) and not checks.missing(source, split, paths):
        count = f'{len(paths):,} {split} files, and {dataset_info.FILE_NAME} describes {len(files):,}'
        yield f'{source.flag(split)}: the data set is incomplete: {count}. The others are read.'


def notes_on_files(config: Config, split: str, paths: Sequence[str]) -> Iterator[str]:
    """Sentences about the files of a split: missing ones, and files that are not read because of their names."""
    source = config.source
    missing = checks.missing(source, split, paths)
    if missing:
        yield f'{source.flag(split)}: {checks.incomplete(split, missing, len(paths))}'
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
    if split == records.VALIDATION:
        yield from _notes_on_validation(source, paths)


def _notes_on_validation(source: Source, paths: Sequence[str]) -> Iterator[str]:
    """Sentences about validation files that are training files, too, or whose labels start at another number."""
    # Without training files, there is nothing to compare.
    with contextlib.suppress(DataError, remote.RemoteError, tf.errors.OpError):
        training = source.find(records.TRAIN) if source.is_named([records.TRAIN]) else []
        both = copies_among(paths, training)
        if both:
            yield f'{source.flag(records.VALIDATION)}: {overlap(both, paths)}'
        elif training and not (source.data_dir and dataset_info.read(source.data_dir)):
            shift = labels.shift_between(labels.sample(source, training), labels.sample(source, paths))
            if shift:
                yield f'{source.flag(records.VALIDATION)}: {shift}'


def overlap(both: Sequence[str], paths: Sequence[str]) -> str:
    """Describes validation files that are training files, too."""
    names = listed([os.path.basename(path) for path in both], 3, ', ')
    some = f'{len(both):,} of these {len(paths):,} files'
    return f'{some} are also training files, which overstates the accuracy: {names}'


def copies_among(paths: Sequence[str], others: Sequence[str]) -> List[str]:
    """The paths that are also among the others: the same files, or local files of the same size and beginning."""

    def is_local(path: str) -> bool:
        return not remote.is_remote(path)

    real = {os.path.realpath(path) if is_local(path) else path for path in others}
    of_size: Dict[int, List[str]] = {}
    for path in filter(is_local, others):
        of_size.setdefault(remote.size(path), []).append(path)

    def is_among(path: str) -> bool:
        if (os.path.realpath(path) if is_local(path) else path) in real:
            return True
        alike = of_size.get(remote.size(path), []) if is_local(path) else []
        return bool(alike) and _sampled(path) in map(_sampled, alike)

    return [path for path in paths if is_among(path)]


def samples_of(config: Config) -> Dict[str, List[Any]]:
    """Samples of the splits that a run reads, by split.

    A sample consists of the number of files; a SHA-256 of the sizes and beginnings of some files; a SHA-256 of their
    ends, where a checksum covers the label of the last record, however large its image is; and the number of files that
    are missing according to the files' names. Samples of earlier versions have only the first two. A copy of the files
    has the same sample, wherever it is. A split without readable files has no sample.
    """
    found: Dict[str, List[Any]] = {}
    source = config.source
    for split in config.splits if config.use_data == 'real' else ():
        with contextlib.suppress(DataError, remote.RemoteError, tf.errors.OpError):
            paths = sorted(source.find(split))
            digest, ends = hashlib.sha256(), hashlib.sha256()
            for size, beginning, end in map(_sampled, paths[:: -(-len(paths) // _SAMPLED_FILES)]):
                digest.update(b'%d ' % size + beginning)
                ends.update(end)
            missing = len(checks.missing(source, split, paths))
            found[split] = [len(paths), digest.hexdigest(), ends.hexdigest(), missing]
    return found


def _sampled(path: str) -> Tuple[int, bytes, bytes]:
    """The size of a file, its beginning, and its end, which is empty if the beginning is the whole file."""
    size = remote.size(path)
    with remote.opened(path) as file:
        beginning, end = file.read(_SAMPLED_BYTES), b''
        if size > _SAMPLED_BYTES:
            file.seek(max(_SAMPLED_BYTES, size - _SAMPLED_BYTES))
            end = file.read(_SAMPLED_BYTES)
        return size, beginning, end


def description_of(config: Config) -> Optional[DatasetInfo]:
    """The description of a run's data set, its `dataset.json`; None if there is none, or the images are fake.

    If the run reads files that it does not describe, its classes are kept, and its sizes are replaced by the run's.

    Raises:
      DataError: `dataset.json` cannot be read.
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
