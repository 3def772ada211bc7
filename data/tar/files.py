"""Finds the tar shards of a data set: `train-00000.tar …` and `validation-00000.tar …`."""

import itertools
import os
import re
from typing import Iterator, List, Optional, Sequence

from console.log import logger
from console.messages import counted, shown
from data import compression, records
from data.tar.layout import Problem, Sample, label_of
from data.tar.reader import is_read_whole
from data.tar.shard import Shard
from data.tf_example import Fields

# The largest file that TensorFlow can read as a whole, in bytes.
_LARGEST_SHARD = (1 << 31) - 1
# Files that one line of the log names.
_NAMED_AT_MOST = 3


def shard_path(data_dir: str, split: str, shard: int, shards: int) -> str:
    """The path of a shard, such as `DIR/train-00000-of-00016.tar`."""
    return f'{records.shard_path(data_dir, split, shard, shards)}.tar'


def find_shards(data_dir: str, split: str) -> List[str]:
    """The paths of the shards of a split, in order.

    Raises:
      DataError, RemoteError: as `data.records.find_shards`.
    """
    paths = records.list_shards(data_dir, split, f'{records.TAR_NAMES}$', f'{split}-00000.tar')
    if len({len(path) for path in paths}) > 1:
        kinds = ' and '.join(os.path.basename(path) for path in (min(paths, key=len), max(paths, key=len)))
        raise records.DataError(
            f'--data_dir={data_dir}: the {split} files belong to several data sets: their numbers differ in length, as '
            f'in {kinds}. Keep one.'
        )
    return paths


def missing_shards(data_dir: str, split: str, paths: Sequence[str]) -> List[str]:
    """The names of the shards that are missing, according to the names of the present ones."""
    names = {os.path.basename(path) for path in paths}
    first = os.path.basename(paths[0])
    _, number, *count = re.findall(r'\d+', f'0{first[len(split) :]}')
    shards = int(count[0]) if count else max(int(name[len(split) + 1 : -len('.tar')]) for name in names) + 1
    of = f'-of-{count[0]}' if count else ''
    return sorted({f'{split}-{shard:0{len(number)}d}{of}.tar' for shard in range(shards)} - names)


def size_problem(path: str, size: int) -> Optional[str]:
    """The reason why the input pipeline cannot read a shard of a size in bytes; None if it can."""
    if size <= _LARGEST_SHARD or not is_read_whole(path):
        return None
    return (
        f'{size:,} bytes; from s3:// the input pipeline reads shards of up to {_LARGEST_SHARD:,}. Divide it into '
        'several shards, or convert it to a TFRecord file with inception-v3 tar-shards write.'
    )


def check_not_empty(paths: Sequence[str], skipped: int = 0) -> None:
    """Checks that shards have more samples than may be skipped, and that the input pipeline can read them.

    Raises:
      DataError, RemoteError: as `data.records.check_more_than`; or a shard is too large.
    """

    def count_first(path: str, at_most: int) -> int:
        with Shard(path) as shard:
            first = [*itertools.islice(_with_note(path, shard.everything()), at_most)]
        if first and first[0].problem is Problem.DAMAGED:
            advice = compression.advice_on(compression.head_of(path))
            raise records.DataError(f'{path}: not a tar file, or damaged at its beginning. {advice}'.rstrip())
        return sum(not sample.problem.is_last for sample in first)

    records.check_more_than(skipped, paths, count_first)
    for path, size in zip(paths, records.sizes_of(paths)):
        problem = size_problem(path, size)
        if problem:
            raise records.DataError(f'{path}: {problem}')


def _with_note(path: str, everything: Iterator[Sample]) -> Iterator[Sample]:
    """Yields the samples among everything in a shard; finally, logs what was left out."""
    names: List[str] = []
    try:
        for sample in everything:
            if sample.problem is Problem.LEFT_OUT:
                names += [shown(member.name) for member in sample.members]
            else:
                yield sample
    finally:
        if names:
            what = counted(len(names), 'file')
            logger.info('%s: left out %s of no sample, such as %s', path, what, ', '.join(names[:_NAMED_AT_MOST]))


def check_keys(path: str, fields: Fields) -> None:
    """Checks that the first sample of a shard has one image and one label.

    Raises:
      DataError: it has not.
      RemoteError: access to the shard is denied, or the store cannot be reached.
    """
    with Shard(path) as shard:
        first = next(shard.samples(label_of(fields.label)), None)
    if first and first.reason:
        raise records.DataError(f'{path}, record 0: {first.reason}')


def count_samples(paths: Sequence[str]) -> List[int]:
    """The number of samples in each shard, including unusable ones; raises errors as `data.records.count_each`."""
    return records.count_each(paths, _count)


def _count(path: str) -> int:
    with Shard(path) as shard:
        return sum(1 for _ in _with_note(path, shard.everything()))
