"""The benchmark of the cost of a seed."""

import json
from typing import Any

import pytest

from benchmarks import repeatability


@pytest.mark.slow
def test_command__measures_with_and_without_a_seed(digits_dir: str, capsys: Any) -> None:
    flags = f'--data_dir={digits_dir} --use_tpu=False --depth_multiplier=0.01 --height=75 --width=75'
    arguments = ['', *flags.split(), '--train_batch_size=2', '--steps=1', '--repeats=1', '--json']
    assert repeatability.main(arguments) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured['steps'] == 1
    for name in ('without', 'with'):
        (each,) = measured[name]
        assert each['cpu_ms'] > 0
        assert each['images_per_second'] > 0


@pytest.mark.parametrize(
    ('argument', 'message'),
    [
        ('--steps=0', '--steps=0: must be a whole number above 0.'),
        ('--use_tpu', 'this benchmark measures'),
    ],
)
def test_command__refuses_wrong_flags(argument: str, message: str, digits_dir: str, capsys: Any) -> None:
    assert repeatability.main(['', f'--data_dir={digits_dir}', argument]) == 2
    assert message in capsys.readouterr().err
