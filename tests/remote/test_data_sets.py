"""Tests of runs from tar shards, and from data sets of other names and keys, in a remote store."""

import json
import pathlib
from typing import Any, List

import pytest

from tests.remote.faults import READ
from tests.remote.store import SMALL, Store, complaint
from tests.support.foreign_records import FOREIGN, write_foreign
from tests.support.photos import Photo
from tools.datasets.tar_shards import conversion as tar_shards


@pytest.fixture(scope='module')
def tar_dir(photo_dir: str, tmp_path_factory: Any) -> str:
    """The photographs as tar shards."""
    target = str(tmp_path_factory.mktemp('photos') / 'tar')
    tar_shards.convert(photo_dir, target, 0, lambda line: None)
    return target


# At the default rate, a few steps lead to probabilities of 0 in float32 and an infinite cross-entropy.
OF_TAR = ['--data_format=tar', '--num_classes=6', '--learning_rate=0.0001', '--batch_norm_decay=0.1']


@pytest.mark.program
def test_denied_first_shard__is_named(store: Store, tar_dir: str) -> None:
    arguments = store.flags(tar_dir, *OF_TAR)
    store.faults.add(403, '/data/train-00000', [READ])
    message = complaint(store.quick_main(*arguments))
    assert f'{store.url}/data/train-00000-of-00002.tar' in message and store.who in message


@pytest.mark.slow
def test_shard_denied_during_a_run__is_not_treated_as_a_shorter_shard(s3: Store, tar_dir: str) -> None:
    # --max_bad_records must not hide the error.
    store, arguments = s3, s3.flags(tar_dir, *OF_TAR, '--max_bad_records=4')
    store.faults.add(403, '/data/validation-00001', [READ])
    message = complaint(store.quick_main(*arguments))
    assert f'{store.url}/data/validation-00001-of-00002.tar' in message and store.who in message
    store.faults.clear()
    assert 'images' not in store.objects().get('model/results.jsonl', b'').decode()


@pytest.mark.program
def test_foreign_data_set__is_found_in_a_store_by_folder_and_pattern(
    store: Store, photos: List[Photo], tmp_path: pathlib.Path
) -> None:
    write_foreign(tmp_path / 'train' / 'some', photos[:3])
    (tmp_path / 'train' / 'README').write_text('no records')
    for number in range(2):
        write_foreign(tmp_path / 'tests' / f'part-{number}', photos[2 * number : 2 * number + 2])
    for folder in ('train', 'tests'):
        store.upload(str(tmp_path / folder), f'data/{folder}')
    data_dir = f'{store.url}/data'
    keys = [f'--{name}={value}' for name, value in FOREIGN.items()]
    arguments = [*SMALL, *keys, '--num_classes=6', f'--data_dir={data_dir}', f'--model_dir={store.url}/model']
    done = store.quick_main(*arguments, '--train_steps=1', '--eval_files=*s/part-{0..1}')
    assert done.returncode == 0, done.stderr
    assert '--eval_files=*s/part-{0..1}: 4 records' in done.stderr
    (recorded,) = store.objects()['model/results.jsonl'].decode().splitlines()
    assert json.loads(recorded)['images'] == 4
    message = complaint(store.quick_main(*arguments, '--eval_files=tests/part-{0..3}'))
    assert f'2 of 4 files are missing: {data_dir}/tests/part-2, {data_dir}/tests/part-3.' in message
