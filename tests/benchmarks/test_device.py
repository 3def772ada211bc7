"""The benchmark of the work that is left to the device."""

import json
from typing import Any

from benchmarks import device

SMALL = ('--height=75', '--width=75', '--train_batch_size=64', '--repeats=2')


def test_device__bytes_cost_more_than_finished_images(capsys: Any) -> None:
    assert device.main(['device', *SMALL, '--json']) == 0
    measured = json.loads(capsys.readouterr().out)['cpu_ms_per_image']
    assert [*measured] == ['floats', 'bytes', 'words, to a TPU']
    assert all(len(times) == 2 for times in measured.values())
    assert min(measured['bytes']) > 2 * min(measured['floats'])


def test_device__prints_a_table(capsys: Any) -> None:
    assert device.main(['device', *SMALL]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split('  ')[0] == 'sent' and len(rows) == 3


def test_device__refuses_wrong_arguments(capsys: Any) -> None:
    assert device.main(['device', '--repeats=none']) == 2
    assert '--repeats=none: must be' in capsys.readouterr().err
