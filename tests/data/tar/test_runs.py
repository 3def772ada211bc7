"""Runs and preflight on damaged tar shards."""

import json
import os
import pathlib
import re
import shutil
from typing import Any

import pytest

from data import records
from data.formats import FORMATS
from data.tar.shard import Shard
from inception_v3 import main
from tools.preflight import __main__ as preflight

SMALL = [
    *('--use_tpu=False', '--data_format=tar', '--height=75', '--width=75', '--depth_multiplier=0.01'),
    *('--num_parallel_calls=2', '--train_batch_size=8', '--eval_batch_size=64', '--learning_rate=0.0001'),
]


def spoil(tar_dir: str, folder: pathlib.Path) -> str:
    """Copies the shards, truncates one validation shard within its last sample, and damages two labels in another."""
    shutil.copytree(tar_dir, str(folder))
    shards = FORMATS['tar'].find_shards(str(folder), records.VALIDATION)
    with Shard(shards[0]) as shard:
        *_, last = shard.samples()
    assert last.image
    os.truncate(shards[0], last.image.start + 100)
    content = bytearray(pathlib.Path(shards[1]).read_bytes())
    with Shard(shards[1]) as shard:
        for sample in [*shard.samples()][3:5]:
            label = next(member for member in sample.members if member.extension == 'cls')
            content[label.start : label.start + 1] = b'x'
    pathlib.Path(shards[1]).write_bytes(content)
    return str(folder)


@pytest.mark.program
def test_run__counts_and_names_skipped_samples_or_stops(
    tar_dir: str, one_layer: None, tmp_path: pathlib.Path, capsys: Any
) -> None:
    data_dir = spoil(tar_dir, tmp_path / 'data')
    flags = [*SMALL, f'--data_dir={data_dir}', f'--model_dir={tmp_path / "model"}', '--train_steps=1']
    assert main.main(['main', *flags, '--max_bad_records=3']) == 0
    out, said = capsys.readouterr()
    assert '70 of 73 images' in out and '3 records could not be used' in said
    assert len(re.findall(r'skipped .*validation-0000[01]-of-00004.tar, record \d+: \d{8}: ', said)) == 3
    assert main.main(['main', *flags, '--mode=eval']) == 2
    said = capsys.readouterr().err
    assert '--max_bad_records=0: more bad records than allowed:' in said
    assert re.search(r'validation-00000-of-00004.tar, record \d+: \d{8}: the shard is truncated', said)
    no_label = 'no label: the file cls, or --label_key, must hold'
    assert re.search(rf'validation-00001-of-00004.tar, record 3: \d{{8}}: {no_label}', said)


@pytest.mark.program
def test_preflight_reads_the_first_shards_and_finds_no_python_in_the_input(
    tar_dir: str, one_layer: None, tmp_path: pathlib.Path, capsys: Any
) -> None:
    flags = ['--topology=v2-8', '--master=grpc://127.0.0.1:8470', '--height=75', '--width=75', '--data_format=tar']
    flags += ['--json', f'--model_dir={tmp_path / "model"}']
    assert preflight.main(['preflight', *flags, f'--data_dir={tar_dir}']) == 0
    report = json.loads(capsys.readouterr().out)
    assert report['may_start'] and report['errors'] == []
    assert report['training']['files_per_host'] == [8, 8] and report['evaluation']['files_per_host'] == [4, 4]

    data_dir = spoil(tar_dir, tmp_path / 'data')
    assert preflight.main(['preflight', *flags, f'--data_dir={data_dir}']) == 2
    (error,) = json.loads(capsys.readouterr().out)['errors']
    assert re.search(r'validation-00000-of-00004.tar, record \d+: \d{8}: the shard is truncated', error)
