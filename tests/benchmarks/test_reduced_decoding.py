"""The benchmark of decoding at a part of the size."""

import json
from typing import Any

import pytest

from benchmarks import reduced_decoding
from tests.support.runs import FinishedRun


def test_command__prints_ratios_and_differences(monkeypatch: Any, capsys: Any) -> None:
    for name, value in {'HEIGHT': 400, 'WIDTH': 600, '_IMAGES': 1}.items():
        monkeypatch.setattr(reduced_decoding, name, value)
    monkeypatch.setattr(reduced_decoding, 'KINDS', reduced_decoding.KINDS[1:2])
    arguments = ['reduced', '--height=75', '--width=75', '--repeats=2']
    assert reduced_decoding.main(arguments) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert 'largest difference' in head and [line.split()[3] for line in lines] == ['1/2', '1/4']
    assert reduced_decoding.main([*arguments, '--json']) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row['reduction'] for row in rows] == [2, 4]
    for row in rows:
        assert len(row['cpu_ms']) == len(row['reduced_cpu_ms']) == 2
        assert 0 < row['mean_difference'] < row['largest_difference']


@pytest.mark.program
@pytest.mark.both
def test_command__compares_the_outputs_of_a_network(
    finished_run: FinishedRun, one_layer: None, monkeypatch: Any, capsys: Any
) -> None:
    for name, value in {'HEIGHT': 400, 'WIDTH': 600, '_IMAGES': 2, 'KINDS': reduced_decoding.KINDS[:1]}.items():
        monkeypatch.setattr(reduced_decoding, name, value)
    arguments = ['reduced', f'--model={finished_run.config.model_dir}', '--repeats=1']
    assert reduced_decoding.main([*arguments, '--json']) == 0
    for row in json.loads(capsys.readouterr().out):
        assert 0 < row['log_probability_difference'] < 10 and row['same_top_1'] in (0, 0.5, 1)
    assert reduced_decoding.main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith('log-probability  same top-1')


@pytest.mark.parametrize('flag', ['--height=438', '--width=438'])
def test_command__refuses_what_it_does_not_measure(flag: str, capsys: Any) -> None:
    assert reduced_decoding.main(['reduced', flag]) == 2
    assert flag in capsys.readouterr().err
