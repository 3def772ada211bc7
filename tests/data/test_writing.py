"""Writing record files."""

import os
import pathlib
import re
from typing import Callable

import pytest
import tensorflow as tf

from data import records, tf_example, writing
from tests.data.written_records import read


@pytest.mark.parametrize(('count', 'shards'), [(10, 3), (7, 7), (12, 4), (3, 5), (1, 1), (100, 16)])
def test_shards_share_the_examples_evenly_and_in_order(tmp_path: pathlib.Path, count: int, shards: int) -> None:
    def numbered(number: int) -> Callable[[], tf.train.Example]:
        return lambda: tf_example.make_example(b'', 'JPEG', number, '', 1, 1, '')

    writing.write_shards(str(tmp_path), records.TRAIN, [numbered(number) for number in range(count)], shards)
    names = [f'train-{shard:05d}-of-{shards:05d}' for shard in range(shards)]
    assert sorted(os.listdir(tmp_path)) == names
    labels = [
        [tf.train.Example.FromString(r).features.feature['image/class/label'].int64_list.value[0] for r in read(path)]
        for path in (str(tmp_path / name) for name in names)
    ]
    assert [label for share in labels for label in share] == list(range(count))
    sizes = [len(share) for share in labels]
    assert max(sizes) - min(sizes) <= 1


def test_a_full_disk_is_a_data_error_that_names_the_file(tmp_path: pathlib.Path) -> None:
    path = records.shard_path(str(tmp_path), records.TRAIN, 0, 1)
    os.symlink('/dev/full', path)
    with pytest.raises(records.DataError, match=f'{re.escape(path)}.*No space left'):
        writing.write_shards(str(tmp_path), records.TRAIN, [tf.train.Example], 1)
