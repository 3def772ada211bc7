"""The benchmarks' tables, JSON, figures and exit codes, from invented measurements."""

import json
import pathlib
import shutil
from typing import Any, List

import pytest

from benchmarks import input as input_benchmark
from benchmarks import measurement
from benchmarks.measurement import DECODING, PARSING, PREPROCESSING, STORAGE, TRANSFER, Measurement, MeasurementError
from benchmarks.measurement import Run as MeasuredRun
from tests.benchmarks.test_input import check_figure

# CPU-ms per image of our pipeline until the end of each phase; the naive one costs three times as much.
COSTS = {STORAGE: 1, PARSING: 2, DECODING: 4, PREPROCESSING: 7, TRANSFER: 10}


@pytest.fixture
def measured(monkeypatch: Any) -> List[MeasuredRun]:
    """Replaces the measurements; each takes 10 MB more than the one before. Returns the runs, in order."""
    runs: List[MeasuredRun] = []

    def measure(run: MeasuredRun) -> Measurement:
        runs.append(run)
        cost = COSTS[run.until] * (3 if run.is_naive else 1)
        return Measurement(run.images, cost, 1000 / cost, 500 + 10 * len(runs))

    monkeypatch.setattr(measurement, 'measure', measure)
    return runs


def given(data_dir: str, *others: str) -> List[str]:
    return ['input', f'--data_dir={data_dir}', '--images=10', '--use_tpu=False', '--train_batch_size=16', *others]


def test_input__compares_variants(photo_dir: str, measured: List[MeasuredRun], capsys: Any) -> None:
    assert input_benchmark.main(given(photo_dir, '--variants=train,eval_uint8', '--repeats=2')) == 0
    out, err = capsys.readouterr()
    assert 'failed' not in err
    where, _, phases, _, _, *rows = out.splitlines()
    assert where.startswith(f'{photo_dir}, 299 x 299 pixels, at least 10 images, repeats: 2; on ')
    assert where.endswith('; batches of 16, 1,024') and 'storage + preprocessing + transfer' in phases
    cells = [[cell.strip() for cell in row.split('  ') if cell] for row in rows]
    assert [row[:3] for row in cells[:5]] == [
        ['train', 'records read', '3.00 (3.00–3.00)'],
        ['train', 'and parsed', '6.00 (6.00–6.00)'],
        ['train', 'and decoded', '12.00 (12.00–12.00)'],
        ['train', 'naive', '30.00 (30.00–30.00)'],
        ['train', 'ours', '10.00 (10.00–10.00)'],
    ]
    # 30 / 10 of the naive pipeline, and 10 / 12 of decoding. Of 10 ms, storage has 1, preprocessing 6 and transfer 3.
    assert cells[4][3] == '100' and cells[4][5:] == ['3.00 (3.00–3.00)', '0.83', '10+60+30']
    # The later of two measurements takes more memory: the largest peak is shown.
    each = len(measured) // 2
    assert cells[0][4] == f'{500 + 10 * (each + 1)}'
    assert [row[:2] for row in cells[5:7]] == [['eval_uint8', 'naive'], ['eval_uint8', 'ours']]
    assert cells[7] == ['eval_uint8: --transfer=uint8']
    assert {run.config.transfer for run in measured if run.is_naive} == {'float'}
    # Names are left, numbers right.
    assert rows[0].startswith('train ') and len({row.index(')') for row in rows[:3]}) == 1
    # Reading alone is measured with eight times the images; both pipelines read both splits.
    assert {run.images for run in measured if run.until in (STORAGE, PARSING)} == {80}
    assert {run.images for run in measured if run.until not in (STORAGE, PARSING)} == {10}
    assert {run.is_training for run in measured} == {True, False}


def test_input__prints_json(photo_dir: str, measured: List[MeasuredRun], capsys: Any) -> None:
    assert input_benchmark.main(given(photo_dir, '--variants=eval', '--repeats=2', '--json')) == 0
    result = json.loads(capsys.readouterr().out)
    assert result['failed'] == [] and result['config']['data_dir'] == photo_dir
    *_, naive, ours = result['rows']
    assert (naive['pipeline'], ours['pipeline'], ours['batch_size']) == ('naive', 'ours', 1024)
    assert ours['naive_cpu_over_this'] == [3, 3] and naive['naive_cpu_over_this'] == []
    assert naive['this_cpu_over_decoding'] == [2.5, 2.5]
    assert ours['phases_cpu_ms'] == {'storage': [1, 1], 'preprocessing': [6, 6], 'transfer': [3, 3]}
    assert ours['cpu_ms'] == {'median': 10, 'least': 10, 'greatest': 10}
    assert ours['images_per_second'] == {'median': 100, 'least': 100, 'greatest': 100}
    assert ours['peak_mb']['least'] < ours['peak_mb']['median'] < ours['peak_mb']['greatest']
    assert not any(run.is_training for run in measured)


def test_input__failures_do_not_affect_others(
    photo_dir: str, tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
) -> None:
    def measure(run: MeasuredRun) -> Measurement:
        if run.is_naive and run.until == TRANSFER:
            raise MeasurementError('the reason')
        return Measurement(run.images, COSTS[run.until], 100, 500)

    monkeypatch.setattr(measurement, 'measure', measure)
    figure = tmp_path / 'phases.png'
    assert input_benchmark.main(given(photo_dir, '--variants=train', '--repeats=1', f'--plot={figure}')) == 1
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == 'failed: naive, train, until transfer, batches of 16: the reason'
    assert err.count('failed') == 1
    # Without the naive pipeline, there is nothing to divide by.
    (ours,) = [row.split() for row in out.splitlines() if ' ours ' in row]
    assert ours[-3:] == ['-', '2.50', '10+60+30']
    check_figure(figure, '#E69F00')


def test_input__interruption_shows_what_is_measured(photo_dir: str, monkeypatch: Any, capsys: Any) -> None:
    def measure(run: MeasuredRun) -> Measurement:
        if run.until == DECODING:
            raise KeyboardInterrupt
        return Measurement(run.images, COSTS[run.until], 100, 500)

    monkeypatch.setattr(measurement, 'measure', measure)
    assert input_benchmark.main(given(photo_dir, '--variants=train', '--repeats=1')) == 130
    out, err = capsys.readouterr()
    assert 'records read' in out and 'and parsed' in out and 'and decoded' not in out
    assert 'error: interrupted' in err


@pytest.mark.parametrize(
    ('sweep', 'flag', 'values'),
    [
        ('batch_size', 'train_batch_size', (32, 64, 128, 256, 512, 1024)),
        ('parallelism', 'num_parallel_calls', (1, 4, 16, 64, 256)),
    ],
)
def test_input__sweeps_typical_values(
    sweep: str, flag: str, values: Any, photo_dir: str, measured: List[MeasuredRun], tmp_path: Any, capsys: Any
) -> None:
    figure = tmp_path / 'sweep.png'
    assert input_benchmark.main(given(photo_dir, f'--sweep={sweep}', '--repeats=1', f'--plot={figure}')) == 0
    assert [getattr(run.config, flag) for run in measured] == [*values]
    _, _, head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[0] == f'--{flag}' and [row.split()[0] for row in rows] == [str(value) for value in values]
    assert all(row.split()[1:] == ['10.00', '(10.00–10.00)', '100', str(510 + 10 * n)] for n, row in enumerate(rows))
    check_figure(figure, '#0072B2', '#E69F00', '#009E73')


def test_input__converts_to_tar_shards_once(
    photo_dir: str, tmp_path: pathlib.Path, measured: List[MeasuredRun], capsys: Any
) -> None:
    data_dir = str(tmp_path / 'photos')
    shutil.copytree(photo_dir, data_dir)
    shards = [pathlib.Path(f'{data_dir}-tar', name) for name in ('dataset.json', 'train-00000-of-00002.tar')]
    written = []
    for _ in range(2):
        assert input_benchmark.main(given(data_dir, '--variants=train,train_tar', '--repeats=1')) == 0
        written.append([path.stat().st_mtime_ns for path in shards])
        ours = [row.split()[:2] for row in capsys.readouterr().out.splitlines() if ' ours ' in row]
        assert ours == [['train', 'ours'], ['train_tar', 'ours']]
    assert written[0] == written[1]
    read = {(run.config.data_format, run.config.data_dir, run.until) for run in measured if not run.is_naive}
    phases = (STORAGE, PREPROCESSING, TRANSFER)
    assert read == {
        (kind, path, until) for kind, path in (('tfrecord', data_dir), ('tar', f'{data_dir}-tar')) for until in phases
    }
    # The naive pipeline has no other records to read.
    assert {run.config.data_format for run in measured if run.is_naive} == {'tfrecord'}
    measured.clear()
    assert input_benchmark.main(given(data_dir, '--repeats=1')) == 0
    assert {run.config.data_format for run in measured} == {'tfrecord'}
