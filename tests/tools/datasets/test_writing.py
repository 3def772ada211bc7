"""Making data sets: record files, the division into splits, and resumable conversions."""

import collections
import json
import os
import pathlib
import random
import re
import types
from typing import Any, Callable, List, Set, Tuple

import pytest

from compat import tf
from data import records
from data.dataset_info import DatasetInfo
from tests.data.written_records import examples, read
from tools.datasets import conversion, image_example, writing
from tools.datasets.writing import digest, split_by_content


@pytest.mark.parametrize(('count', 'shards'), [(10, 3), (3, 5), (100, 16)])
def test_shards_share_the_examples_evenly_and_in_order(tmp_path: pathlib.Path, count: int, shards: int) -> None:
    def numbered(number: int) -> Callable[[], tf.train.Example]:
        return lambda: image_example.make_example(b'', 'JPEG', number, '', 1, 1, '')

    moved: List[int] = []
    writing.write_shards(str(tmp_path), records.TRAIN, [*map(numbered, range(count))], shards, moved.append)
    assert moved == [*range(1, count + 1)]
    names = [f'train-{shard:05d}-of-{shards:05d}' for shard in range(shards)]
    assert sorted(os.listdir(tmp_path)) == names
    labels = [
        [each.features.feature['image/class/label'].int64_list.value[0] for each in examples(f'{tmp_path}/{name}')]
        for name in names
    ]
    assert [label for share in labels for label in share] == list(range(count))
    sizes = [len(share) for share in labels]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize('name', ['train-00000-of-00001', 'train-00000-of-00001.tar'])
def test_a_full_disk_is_a_data_error_that_names_the_file(name: str, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / name)
    os.symlink('/dev/full', path)
    with pytest.raises(records.DataError, match=f'{re.escape(path)}.*No space left'):
        writing.write_file(path, [tf.train.Example()])


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
    # A link to an empty folder stays a link.
    (tmp_path / 'link').symlink_to('empty')
    with writing.new_data_dir(str(tmp_path / 'link')) as unfinished:
        (pathlib.Path(unfinished) / 'a').touch()
    assert (tmp_path / 'link').is_symlink() and os.listdir(tmp_path / 'empty') == ['a']
    for name in ('file', 'full'):
        with pytest.raises(records.DataError, match=f'{name}: exists already. Name a new folder'):
            writing.check_can_be_made(str(tmp_path / name))
    with pytest.raises(KeyboardInterrupt), writing.new_data_dir(str(tmp_path / 'new' / 'data')) as unfinished:
        (pathlib.Path(unfinished) / 'half').touch()
        raise KeyboardInterrupt
    assert os.listdir(tmp_path / 'new') == []
    for remote in ('gs://bucket/data', 's3://bucket/data'):
        with pytest.raises(records.DataError, match=f'^{remote}: must be a local folder. .*gsutil -m cp'):
            writing.check_can_be_made(remote)
    with pytest.raises(records.DataError, match='file/data: cannot be made: File exists'), writing.new_data_dir(
        str(tmp_path / 'file' / 'data')
    ):
        pass


@pytest.mark.parametrize('listing', [None, ['conversion'], ['conversion/']])
def test_conversion__may_begin_again_after_an_end_before_its_settings(
    listing: Any, tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    info = DatasetInfo('mine', 'here', 6, 2, 3, ['a', 'b', 'c'])
    said: List[str] = []

    def work(folder: str, start: Any) -> Any:
        assert folder == str(tmp_path / 'data' / 'conversion')
        return info, {'images': 8}

    # A store's listing ends the names of folders with a slash.
    monkeypatch.setattr(conversion.remote, 'names_in', lambda folder: listing)
    for _ in range(2):
        conversion.run(str(tmp_path / 'data'), 'plan.json', {'--seed': '1'}, work, said.append)
    assert json.loads((tmp_path / 'data' / 'conversion.json').read_text()) == {'settings': {'--seed': '1'}, 'images': 8}
    assert said[1] == f'{tmp_path}/data: already finished'
    others = (
        r'data: was started with other settings: --seed was 1, and is 2; --new was not given, and is x\. Keep these'
    )
    with pytest.raises(records.DataError, match=others):
        conversion.run(str(tmp_path / 'data'), 'plan.json', {'--seed': '2', '--new': 'x'}, work, said.append)
    monkeypatch.setattr(conversion.remote, 'names_in', lambda folder: ['mine.txt'])
    with pytest.raises(records.DataError, match='exists already'):
        conversion.run(str(tmp_path / 'other'), 'plan.json', {}, work, said.append)


Image = Tuple[bytes, int]


def images(*class_sizes: int) -> List[Image]:
    """Different contents, a given number per class."""
    return [
        (b'%d of class %d' % (index, label), label) for label, size in enumerate(class_sizes) for index in range(size)
    ]


def split(given_images: List[Image], fraction: float) -> Tuple[List[Image], List[Image]]:
    digests = [digest(content) for content, _ in given_images]
    indices = split_by_content(digests, [label for _, label in given_images], fraction)
    assert sorted(indices[0] + indices[1]) == list(range(len(given_images)))
    train, validation = ([given_images[index] for index in share] for share in indices)
    return train, validation


def contents(share: List[Image]) -> Set[bytes]:
    return {content for content, _ in share}


@pytest.mark.parametrize('fraction', [0.0, 0.1, 0.5])
def test_split__takes_the_same_share_of_every_class(fraction: float) -> None:
    sizes = [100, 40, 7, 1, 60]
    # Copies count once, and stay together.
    train, validation = split(images(*sizes) * 3 + images(*sizes)[:9], fraction)
    assert not contents(train) & contents(validation) and len(train) + len(validation) == 633
    counts = collections.Counter(label for _, label in {*validation})
    assert [counts[label] for label in range(len(sizes))] == [round(size * fraction) for size in sizes]


def test_the_division_does_not_depend_on_the_order() -> None:
    generator = random.Random(0)
    for _ in range(200):
        # Few different contents, so that many images are equal, and some of these have several classes.
        several = [(bytes([generator.randrange(8)]), generator.randrange(3)) for _ in range(15)]
        fraction = generator.random()
        one, other = split(several, fraction), split(generator.sample(several, len(several)), fraction)
        assert [contents(share) for share in one] == [contents(share) for share in other]
        assert not contents(one[0]) & contents(one[1])


def test_split__orders_the_images_by_their_digests() -> None:
    digests = [digest(b'%d' % number) for number in range(60)]
    for share in split_by_content(digests, [1] * 60, 0.5):
        assert len(share) == 30
        assert [digests[index] for index in share] == sorted(digests[index] for index in share)


def test_alone_in__refuses_a_second_conversion_until_the_first_ends(tmp_path: pathlib.Path) -> None:
    work_dir = tmp_path / 'data' / 'conversion'
    work_dir.mkdir(parents=True)
    for _ in range(2):
        with conversion._alone_in(str(work_dir)):
            message = f'{tmp_path}/data: in use by another conversion. Wait for it, or stop it.'
            with pytest.raises(records.DataError, match=message), conversion._alone_in(str(work_dir)):
                raise AssertionError('two conversions run')


@pytest.mark.parametrize(('is_terminal', 'quiet'), [(True, 0.5), (False, 9.5)])
def test_progress__shows_rate_and_remaining_time(is_terminal: bool, quiet: float, monkeypatch: Any) -> None:
    clock = [100.0]
    lines: List[str] = []
    cleared: List[bool] = []
    screen = types.SimpleNamespace(update=lines.append, clear=lambda: cleared.append(True))
    monkeypatch.setattr(conversion, 'Screen', lambda stream: screen)
    monkeypatch.setattr(conversion.time, 'monotonic', lambda: clock[0])
    monkeypatch.setattr(conversion.sys, 'stderr', types.SimpleNamespace(isatty=lambda: is_terminal))
    with pytest.raises(KeyboardInterrupt), conversion.progress() as start:
        move = start('converting', 4000)
        clock[0] += quiet
        move(10)
        assert lines == []
        clock[0] += 20 - quiet
        move(0)
        move(1000)
        # 1,000 in twenty seconds: the other 3,000 take 60.
        assert lines == ['converting: 1,000 of 4,000, 50/s, 1:00 left']
        move(4000)
        assert cleared == [True]
        # More than a description says.
        move(8000)
        assert lines[1:] == ['converting: 8,000 of 4,000, 400/s, 0:00 left']
        move = start('finding', None)
        clock[0] += 20
        move(5000)
        assert lines[2:] == ['finding: 5,000, 250/s']
        raise KeyboardInterrupt
    assert len(cleared) == 2


def test_say_notes__counts_images_and_names_the_first() -> None:
    said: List[str] = []
    conversion.say_notes({'with x': ['a'], 'in y': ['b', 'c', 'd', 'e']}, said.append, 'all.json')
    assert said == ['4 images in y: b, c, d and 1 more (all in all.json)', '1 image with x: a']


def test_watched__counts_the_items_after_others() -> None:
    moved: List[int] = []
    assert [*conversion.watched('ab', moved.append, 5)] == ['a', 'b'] and moved == [6, 7]
