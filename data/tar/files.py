"""Finds the tar shards of a data set: `train-00000.tar …` and `validation-00000.tar …`."""

import os
from typing import List

from data import records


def shard_path(data_dir: str, split: str, shard: int, shards: int) -> str:
    """The path of a shard, such as `DIR/train-00000-of-00016.tar`."""
    return f'{records.shard_path(data_dir, split, shard, shards)}.tar'


def find_shards(data_dir: str, split: str) -> List[str]:
    """The paths of the shards of a split, in order; raises errors as `data.records.find_shards`."""
    paths = records.list_shards(data_dir, split, f'{records.TAR_NAMES}$', f'{split}-00000.tar')
    if len({len(path) for path in paths}) > 1:
        kinds = ' and '.join(os.path.basename(path) for path in (min(paths, key=len), max(paths, key=len)))
        raise records.DataError(
            f'--data_dir={data_dir}: the {split} files belong to several data sets, as {kinds} do. Keep one.'
        )
    return paths
