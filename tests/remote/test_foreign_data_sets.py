"""Data sets of other names and keys in a remote store."""

import json
import pathlib
from typing import List

import pytest

from tests.remote.store import SMALL, Store, complaint
from tests.support.foreign_records import FOREIGN, write_foreign
from tests.support.photos import Photo


@pytest.mark.program
def test_run__by_folder_and_pattern(store: Store, photos: List[Photo], tmp_path: pathlib.Path) -> None:
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
