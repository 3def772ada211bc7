"""Finds the files of a data set: `train-00000-of-01024 …` and `validation-00000-of-00128 …`, as in ImageNet's layout.

`data.tfrecord` reads them as TFRecord files, and `data.tar` reads `train-00000.tar …` as tar shards.
"""

import concurrent.futures
import os
import re
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

from compat import tf
from compat.errors import CommandError
from console import inputs
from console.paths import meant_path
from data import remote

TRAIN = 'train'
VALIDATION = 'validation'
# ImageNet's layout: the number of record files of each split.
DOCUMENTED_SHARDS = {TRAIN: 1024, VALIDATION: 128}
# The names of tar shards, after their split.
TAR_NAMES = r'-\d+(-of-\d+)?\.tar'
# Simultaneous requests to a remote file system.
_PARALLEL_REQUESTS = 32


class DataError(CommandError, ValueError):
    """A data set that a command cannot use."""


class Record(NamedTuple):
    """A record on its way through the input pipeline; in a group of records, each field begins with its dimensions.

    Fields that a run does not need are (), which pass through a data set and its functions unchanged.
    """

    serialized: tf.Tensor  # Its content, a string scalar.
    path: Any = ()  # Its file, a string scalar, if bad records are skipped or located.
    position: Any = ()  # Its place in the file, an int64 scalar, if there is a path.
    key: Any = ()  # The seed of its distortion, int64 [2], in training with a seed.

    @property
    def seed(self) -> Optional[tf.Tensor]:
        """The key, or None for a record without one."""
        return None if isinstance(self.key, tuple) else self.key


def as_records(serialized: tf.data.Dataset, path: Optional[tf.Tensor] = None) -> tf.data.Dataset:
    """Returns a data set of the records of a file, with their places if its path is given.

    Zipping costs less per record than mapping a function.
    """
    if path is None:
        return tf.data.Dataset.zip(Record(serialized))
    places = tf.data.Dataset.from_tensors(path).repeat(), tf.data.Dataset.range(tf.int64.max)
    return tf.data.Dataset.zip(Record(serialized, *places))


def shard_path(data_dir: str, split: str, shard: int, shards: int) -> str:
    """The path of a record file, such as `DIR/train-00000-of-01024`."""
    return os.path.join(data_dir, f'{split}-{shard:05d}-of-{shards:05d}')


def shares(count: int, files: int) -> List[range]:
    """The positions of the records of each file, in order; their numbers differ by at most one."""
    return [range(count * file // files, count * (file + 1) // files) for file in range(files)]


def find_shards(data_dir: str, split: str, is_tar: bool = False) -> List[str]:
    """The paths of the record files or tar shards of a split, in order.

    Raises DataError if there are none, or if they belong to several data sets.
    """
    pattern, example = r'-\d+(-of-\d+)$', shard_path('', split, 0, DOCUMENTED_SHARDS[split])
    if is_tar:
        pattern, example = f'{TAR_NAMES}$', f'{split}-00000.tar'
    try:
        # The default, '', is the working folder, in which relative paths begin.
        names = remote.names_in(data_dir or '.')
    except tf.errors.OpError as error:
        raise DataError(f'--data_dir={data_dir}: cannot be listed: {error.message}')
    if names is None:
        raise DataError(
            f'--data_dir={data_dir}: no such folder.{meant_path(data_dir)} It must hold the files of a data set.'
        )
    # The pattern excludes backups and incomplete copies, which would duplicate images.
    found = {name: match.group(1) for name in names for match in [re.match(split + pattern, name)] if match}
    if not found:
        present = sorted({re.sub(r'-\d{5,}(-of-\d{5,})?', '-*', name) for name in names})
        raise DataError(
            f'--data_dir={data_dir}: no {split} files, which are named like {example}; '
            + (f'it holds {", ".join(present[:5])}.' if present else 'it is empty.')
            + (' --data_format=tar reads tar files.' if any(is_tar_shard(name, split) for name in names) else '')
        )
    sets = sorted({each or 'unnumbered' for each in found.values()})
    if is_tar and len({*map(len, found)}) > 1:
        sets = [min(found, key=len), max(found, key=len)]
    if len(sets) > 1:
        kinds = ' and '.join(sets)
        raise DataError(f'--data_dir={data_dir}: the {split} files belong to several data sets, {kinds}. Keep one.')
    return [os.path.join(data_dir, name) for name in sorted(found)]


def is_tar_shard(name: str, split: str) -> bool:
    """Whether a file is named like a tar shard of a split."""
    return bool(re.fullmatch(split + TAR_NAMES, name))


def check_enough_for(hosts: int, flag: str, split: str, files: int) -> None:
    """Raises DataError if a split has fewer files than hosts; `flag`, with its value, names the files."""
    if files < hosts:
        raise DataError(
            f'{flag}: {files} {split} files for {hosts} TPU hosts. Each host reads its own files: '
            f'write the data set to at least {hosts} {split} files.'
        )


def irregular_kind(path: str) -> Optional[str]:
    """The kind of a local path that is not a regular file, for messages; None for a regular, remote or missing file."""
    if remote.is_remote(path) or os.path.isfile(path) or not os.path.lexists(path):
        return None
    return inputs.kind_of(os.stat(path).st_mode) if os.path.exists(path) else 'a broken link'


def expected_sizes(paths: Sequence[str]) -> List[int]:
    """The sizes of files for `tfrecord.read_to_the_end`, in bytes; zeros if the store reports every denied access."""
    return sizes_of(paths) if remote.hides_refusals(paths[0]) else [0] * len(paths)


def sizes_of(paths: Sequence[str]) -> List[int]:
    """The sizes of files, in bytes; raises RemoteError if one cannot be read."""
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        return [*pool.map(remote.size, paths)]


def count_each(paths: Sequence[str], count: Callable[[str], int]) -> List[int]:
    """Counts the records of several files in parallel, each with `count`; raises DataError or RemoteError."""

    def count_one(path: str) -> int:
        try:
            return count(path)
        except (OSError, tf.errors.OpError) as error:
            raise DataError(f'{path}: cannot be read: {error}')

    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        return [*pool.map(count_one, paths)]
