"""The benchmark of the input pipeline: small real measurements, its table, JSON and figures."""

import json
import pathlib
import shutil
from typing import Any, List

import matplotlib.image
import numpy as np
import pytest

from benchmarks import input as input_benchmark
from benchmarks import measurement


def run(capsys: Any, *arguments: str) -> Any:
    code = input_benchmark.main(['input', *arguments])
    return (code, *capsys.readouterr())


@pytest.fixture
def in_process(monkeypatch: Any) -> None:
    """Measures in this process instead of a process per measurement."""
    monkeypatch.setattr(measurement, 'measure', measurement.perform)


def tiny(data_dir: str) -> List[str]:
    return [
        *(f'--data_dir={data_dir}', '--images=8', '--repeats=1', '--use_tpu=False', '--height=75', '--width=75'),
        # A large buffer is filled by reading the few files again and again.
        '--followup_shuffle_buffer_size=8',
    ]


def children() -> List[int]:
    """The processes that this one has started."""
    tasks = pathlib.Path('/proc/self/task').glob('*/children')
    return sorted(int(number) for task in tasks for number in task.read_text().split())


def check_figure(path: pathlib.Path, *colours: str) -> None:
    """Checks that a figure contains these colours, and that most of it is background."""
    pixels = matplotlib.image.imread(str(path))[..., :3]
    height, width, _ = pixels.shape
    assert 150 < height < 800 and 700 < width < 2000
    for colour in colours:
        rgb = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        assert (np.abs(pixels - rgb) < 0.01).all(-1).sum() > 50, colour
    assert 0.4 < (pixels == 1).all(-1).mean() < 0.99


@pytest.mark.program
def test_sweep__prints_and_draws_each_value(capsys: Any, digits_dir: str, tmp_path: pathlib.Path) -> None:
    plot = tmp_path / 'sweep.png'
    # The larger batch has 245 times the pixels.
    given = [*tiny(digits_dir), '--sweep=batch_size', '--values=2,490', f'--plot={plot}']
    code, out, err = run(capsys, *given)
    assert code == 0 and 'failed' not in err
    _, _, head, *rows = out.splitlines()
    assert head.split() == ['--train_batch_size', 'CPU-ms', '/', 'image', 'images/s', 'peak', 'MB']
    assert [row.split()[0] for row in rows] == ['2', '490']
    small, large = (float(row.split()[-1].replace(',', '')) for row in rows)
    assert large > small + 490 * 75 * 75 * 3 * 4 / 1e6
    check_figure(plot, '#0072B2', '#E69F00', '#009E73')


def test_sweep__of_files_reads_that_many_files(capsys: Any, photo_dir: str, in_process: None) -> None:
    code, out, _ = run(capsys, *tiny(photo_dir), '--sweep=files', '--values=9', '--json', '--train_batch_size=4')
    result = json.loads(out)
    assert code == 0 and 'linked as 9 files' in result['where']
    (row,) = result['rows']
    assert row['flags'] == ['--num_files_infeed=9'] and row['measurements'][0]['images'] == 16


def test_busy__other_processes_compute_during_the_measurements_only(
    capsys: Any, photo_dir: str, monkeypatch: Any
) -> None:
    others: List[int] = []

    def measure(run: measurement.Run) -> measurement.Measurement:
        others.extend(children())
        return measurement.Measurement(16, 1.0, 1.0, 1.0)

    monkeypatch.setattr(measurement, 'measure', measure)
    given = [*tiny(photo_dir), '--sweep=files', '--values=2', '--json', '--train_batch_size=4']
    before = children()
    code, out, _ = run(capsys, *given, '--busy=2')
    assert code == 0 and json.loads(out)['where'].endswith(', beside 2 busy processes')
    assert len({*others} - {*before}) == 2 and children() == before
    others.clear()
    code, out, _ = run(capsys, *given)
    assert code == 0 and 'busy' not in json.loads(out)['where'] and others == before


@pytest.mark.program
def test_tar__is_a_variant_and_can_be_swept(
    capsys: Any, photo_dir: str, tmp_path: pathlib.Path, in_process: None
) -> None:
    data_dir = str(tmp_path / 'photos')
    shutil.copytree(photo_dir, data_dir)
    code, out, err = run(capsys, *tiny(data_dir), '--train_batch_size=4', '--variants=train_tar', '--json')
    assert code == 0, err
    ours = json.loads(out)['rows'][-1]
    assert ours['flags'] == ['--data_format=tar', f'--data_dir={data_dir}-tar']
    assert ours['measurements'][0]['images'] == 16 and [*ours['phases_cpu_ms']] == [
        'storage',
        'preprocessing',
        'transfer',
    ]
    given = [*tiny(f'{data_dir}-tar'), '--data_format=tar', '--train_batch_size=4']
    code, out, err = run(capsys, *given, '--sweep=files', '--values=3', '--json')
    assert code == 0, err
    (row,) = json.loads(out)['rows']
    assert row['measurements'][0]['images'] == 16 and row['flags'] == ['--num_files_infeed=3']
    code, out, err = run(capsys, *given, '--variants=train')
    assert (code, out) == (2, '')
    assert 'error: --data_format=tar: the plain decoder and the naive pipeline,' in err
    assert 'add --variants=train,train_tar.' in err
    code, out, err = run(capsys, '--data_format=tar', '--sweep=files')
    assert (code, out) == (2, '')
    assert 'error: --data_format=tar: the generated photographs are TFRecord files.' in err


@pytest.mark.slow
def test_variants__are_compared(capsys: Any, digits_dir: str) -> None:
    code, out, _ = run(capsys, *tiny(digits_dir), '--variants=eval', '--eval_batch_size=4', '--repeats=2', '--json')
    assert code == 0
    result = json.loads(out)
    *_, naive, ours = result['rows']
    assert (naive['pipeline'], ours['pipeline']) == ('naive', 'ours')
    for repeat, ratio in enumerate(ours['naive_cpu_over_this']):
        measured = [row['measurements'][repeat]['cpu_ms'] for row in (naive, ours)]
        assert ratio == pytest.approx(measured[0] / measured[1])
    for row in (naive, ours):
        assert len(row['measurements']) == 2 and row['cpu_ms']['least'] <= row['cpu_ms']['median']
        for repeat, each in enumerate(row['measurements']):
            parts = [row['phases_cpu_ms'][phase][repeat] for phase in ('storage', 'preprocessing', 'transfer')]
            assert sum(parts) == pytest.approx(each['cpu_ms'])


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--variants=train,test'], '--variants=train,test: test is not one of train,'),
        (['--sweep=speed'], '--sweep=speed: must be one of batch_size, files, parallelism.'),
        (['--sweep=files', '--variants=train'], '--variants=train: a sweep measures training only'),
        (['--values=1'], '--values=1: only a sweep has values'),
        (['--sweep=files', '--values=1,0'], '--values=0: must be a whole number above 0.'),
        (['--images=many'], '--images=many: must be a whole number above 0.'),
        (['--busy=-1'], '--busy=-1: must be a whole number above 0.'),
        (['--repeats=0'], '--repeats=0: must be a whole number above 0.'),
        (['--plot=/no/such/folder/a.png'], '--plot=/no/such/folder/a.png: cannot be written to'),
        (['--variants='], '--variants=: an empty name is not one of train,'),
        (['--variants=train_tar', '--train_files=a*'], '--variants=train_tar: train_tar converts a folder.'),
        (['--plot=figure'], '--plot=figure: must be the path of a .png file.'),
        (['--json=perhaps'], 'flag --json=perhaps: must be True or False'),
        (['--use_data=fake'], '--use_data=fake: this benchmark measures reading records'),
        (['--data_dir=/no/such'], '--data_dir=/no/such: no such folder'),
        (['--height=10'], '--height=10: must be at least 75'),
    ],
)
def test_command__refuses_wrong_arguments(capsys: Any, arguments: List[str], message: str) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2 and not out
    assert f'error: {message}' in err and 'Traceback' not in err


def test_help__lists_own_flags_and_those_of_a_run(capsys: Any) -> None:
    code, out, _ = run(capsys, '--help')
    assert code == 0
    assert '--variants=' in out and '--sweep=' in out and '--num_parallel_calls=64' in out
