"""What is left to the device is measured, and is something only where something is left."""

import json
from typing import Any

from benchmarks import device

SMALL = ('--height=75', '--width=75', '--train_batch_size=64', '--repeats=2')


def test_what_bytes_cost_the_device_is_more_than_what_finished_images_do(capsys: Any) -> None:
    assert device.main(['device', *SMALL, '--json']) == 0
    measured = json.loads(capsys.readouterr().out)['cpu_ms_per_image']
    assert [*measured] == ['floats', 'bytes', 'words, to a TPU']
    assert all(len(times) == 2 for times in measured.values())
    assert min(measured['bytes']) > 2 * min(measured['floats'])


def test_a_table_is_printed(capsys: Any) -> None:
    assert device.main(['device', *SMALL]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split('  ')[0] == 'sent' and len(rows) == 3


def test_a_mistake_is_told(capsys: Any) -> None:
    assert device.main(['device', '--repeats=none']) == 2
    assert '--repeats=none: must be' in capsys.readouterr().err
