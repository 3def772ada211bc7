"""The flags of a command that uses a run on another data set."""

import argparse
from typing import Any, Dict, List

import pytest

from inception_v3.config import Config
from tools import other_data

CONFIG = Config(
    data_dir='run', data_format='tfrecord', image_key='jpg', label_key='n', train_files='t-*', eval_files='e-*'
)


@pytest.mark.parametrize(
    ('words', 'changes'),
    [
        ([], {}),
        (['--data_dir=x'], {'data_dir': 'x', 'train_files': '', 'eval_files': ''}),
        (['--data_dir=x', '--eval_files=y'], {'data_dir': 'x', 'train_files': '', 'eval_files': 'y'}),
        (['--eval_files=y'], {'data_dir': '', 'eval_files': 'y'}),
        (['--label_offset=0'], {'label_offset': 0}),
        # The run's keys are of its records.
        (
            ['--data_format=tar'],
            {'data_format': 'tar', 'image_key': 'image/encoded', 'label_key': 'image/class/label'},
        ),
        (
            ['--data_format=tar', '--label_key=txt'],
            {'data_format': 'tar', 'image_key': 'image/encoded', 'label_key': 'txt'},
        ),
        (['--data_format=tfrecord'], {'data_format': 'tfrecord'}),
    ],
)
def test_changes_of__are_those_of_the_given_flags(words: List[str], changes: Dict[str, Any]) -> None:
    parser = argparse.ArgumentParser()
    other_data.add_flags(parser)
    parser.add_argument('--eval_files')
    assert other_data.changes_of(CONFIG, parser.parse_args(words), ['eval_files']) == changes
    with pytest.raises(SystemExit):
        parser.parse_args(['--data_dir='])
