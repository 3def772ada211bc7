"""The benchmark of tar shards."""

import json
from typing import Any

import pytest

from benchmarks import tar_reading


@pytest.mark.program
def test_command__measures_both_formats(photo_dir: str, tmp_path: Any, capsys: Any) -> None:
    tar_dir = tmp_path / 'tar'
    tar_reading.tar_shards.convert(photo_dir, str(tar_dir), 0, lambda text: None)
    flags = ['--height=75', '--width=75', '--train_batch_size=4', '--num_shards=1', '--images=8', '--repeats=1']
    flags += ['--followup_shuffle_buffer_size=8']
    assert tar_reading.main(['', f'--data_dir={photo_dir}', f'--tar_dir={tar_dir}', *flags, '--json']) == 0
    measured = json.loads(capsys.readouterr().out)
    for quantity in ('images_per_second', 'cpu_ms', 'peak_mb'):
        ratio = measured['tar'][quantity]['median'] / measured['tfrecord'][quantity]['median']
        assert measured['tar / tfrecord'][quantity]['median'] == ratio > 0


def test_command__refuses_tar_as_data_format(photo_dir: str, capsys: Any) -> None:
    assert tar_reading.main(['', f'--data_dir={photo_dir}', '--data_format=tar']) == 2
    assert '--data_format=tar: name the TFRecord files' in capsys.readouterr().err


def test_help__lists_own_flags(capsys: Any) -> None:
    assert tar_reading.main(['', '--help']) == 0
    assert '--tar_dir' in capsys.readouterr().out
