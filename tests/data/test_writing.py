"""Writing record files."""

import os
import pathlib
import re
from typing import Callable, List

import pytest

from console.tensorflow_versions import tf
from data import encoding, records
from data.convert import writing
from tests.data.written_records import read


@pytest.mark.parametrize(('count', 'shards'), [(10, 3), (3, 5), (100, 16)])
def test_shards_share_the_examples_evenly_and_in_order(tmp_path: pathlib.Path, count: int, shards: int) -> None:
    def numbered(number: int) -> Callable[[], tf.train.Example]:
        return lambda: encoding.make_example(b'', 'JPEG', number, '', 1, 1, '')

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


def test_write_shards__writes_equal_files_for_equal_fields(tmp_path: pathlib.Path) -> None:
    def with_fields(numbers: List[int]) -> tf.train.Example:
        example = tf.train.Example()
        for number in numbers:
            example.features.feature[f'field {number}'].int64_list.value[:] = [number]
        return example

    numbers = [*range(50)]
    writing.write_shards(
        str(tmp_path), records.TRAIN, [lambda: with_fields(numbers), lambda: with_fields(numbers[::-1])], 1
    )
    one, other = read(records.shard_path(str(tmp_path), records.TRAIN, 0, 1))
    assert one == other


def test_new_data_dir__is_local_and_missing_or_empty(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'file').touch()
    (tmp_path / 'full').mkdir()
    (tmp_path / 'full' / 'file').touch()
    (tmp_path / 'empty').mkdir()
    with writing.new_data_dir(str(tmp_path / 'empty')):
        pass
    assert (tmp_path / 'empty').stat().st_mode & 0o777 == 0o755
    for name in ('file', 'full'):
        with pytest.raises(records.DataError, match=f'{name}: exists already. Name a new folder'):
            writing.check_can_be_made(str(tmp_path / name))
    with pytest.raises(KeyboardInterrupt), writing.new_data_dir(str(tmp_path / 'new' / 'data')):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path / 'new') == []
    with pytest.raises(records.DataError, match=r'^s3://bucket/data: must be a local folder'):
        writing.check_can_be_made('s3://bucket/data')
    with pytest.raises(records.DataError, match='file/data: cannot be made: File exists'), writing.new_data_dir(
        str(tmp_path / 'file' / 'data')
    ):
        pass
