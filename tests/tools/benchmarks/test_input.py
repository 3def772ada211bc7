"""The benchmark of the input pipeline: its table, JSON, figures and exit codes, and real measurements."""

import json
import os
import pathlib
import shutil
from typing import Any, List, Sequence

import pytest

from inception_v3.config import Config
from tools.benchmarks import input as input_benchmark
from tools.benchmarks import measurement
from tools.benchmarks.measurement import (
    DECODING,
    PARSING,
    PREPROCESSING,
    STORAGE,
    TRANSFER,
    Measurement,
    MeasurementError,
    Run,
)
from tools.benchmarks.tables import Spread

# CPU-ms per image of our pipeline until the end of each phase; the naive one costs three times as much.
COSTS = {STORAGE: 1, PARSING: 2, DECODING: 4, PREPROCESSING: 7, TRANSFER: 10}


def test_rows__agree_with_arithmetic_by_hand() -> None:
    def of(*runs: Sequence[float]) -> List[List[Measurement]]:
        return [[Measurement(100, ms, 1000 / ms, 500 + ms) for ms in of_round] for of_round in zip(*runs)]

    config = Config(use_tpu=False, train_batch_size=16)
    *_, decoded, naive, ours = input_benchmark.variants_of(['train'], config, 100)
    *_, row = input_benchmark.rows_of(
        {
            decoded: of((1, 2, 1)),
            naive: of((1, 1, 1), (3, 3, 3), (6, 8, 7)),
            ours: of((0.5, 0.5, 1), (2, 4, 3.5), (3, 5, 4)),
        }
    )
    assert row.spread('cpu_ms') == Spread(4, 3, 5)
    assert row.spread('images_per_second') == Spread(250, 200, 1000 / 3)
    assert row.spread('peak_mb') == Spread(504, 503, 505)
    assert row.naive_ratio == [2, 1.6, 1.75] and row.decode_ratio == [3, 2.5, 4]
    assert row.phases == {STORAGE: [0.5, 0.5, 1], PREPROCESSING: [1.5, 3.5, 2.5], TRANSFER: [1, 1, 0.5]}
    # Medians of 0.5, 2.5 and 1.
    assert row.share(STORAGE) == 0.125 and row.share(PREPROCESSING) == 0.625 and row.share(TRANSFER) == 0.25
    # An interrupted round keeps the earlier rounds, and without phases there are none.
    plain = ours._replace(runs=ours.runs[-1:])
    *_, row = input_benchmark.rows_of({naive: of((1, 1), (3, 3), (6, 8)), plain: of((3,))})
    assert row.naive_ratio == [2] and not row.decode_ratio and not row.phases


# The command, with invented measurements.


@pytest.fixture
def measured(monkeypatch: Any) -> List[Run]:
    """Replaces the measurements; each takes 10 MB more than the one before. Returns the runs, in order."""
    runs: List[Run] = []

    def measure(asked: Sequence[Run]) -> List[Measurement]:
        found = []
        for run in asked:
            runs.append(run)
            cost = COSTS[run.until] * (3 if run.is_naive else 1)
            found.append(Measurement(run.images, cost, 1000 / cost, 500 + 10 * len(runs)))
        return found

    monkeypatch.setattr(measurement, 'measure', measure)
    return runs


def given(data_dir: str, *others: str) -> List[str]:
    return ['input', f'--data_dir={data_dir}', '--images=10', '--use_tpu=False', '--train_batch_size=16', *others]


def test_input__compares_variants(photo_dir: str, measured: List[Run], capsys: Any) -> None:
    assert input_benchmark.main(given(photo_dir, '--variants=train,eval_uint8', '--repeats=2')) == 0
    where, _, phases, _, _, *rows = capsys.readouterr().out.splitlines()
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
    assert cells[0][4] == f'{500 + 10 * (len(measured) // 2 + 1)}'
    assert [row[:2] for row in cells[5:7]] == [['eval_uint8', 'naive'], ['eval_uint8', 'ours']]
    assert cells[7] == ['eval_uint8: --transfer=uint8']
    assert {run.config.transfer for run in measured if run.is_naive} == {'float'}
    # Reading alone is measured with eight times the images; both pipelines read both splits.
    assert {(run.images, run.until in (STORAGE, PARSING)) for run in measured} == {(80, True), (10, False)}
    assert {run.is_training for run in measured} == {True, False}
    measured.clear()
    assert input_benchmark.main(given(photo_dir, '--variants=eval', '--repeats=1', '--nophases', '--json')) == 0
    result = json.loads(capsys.readouterr().out)
    assert result['failed'] == [] and result['config']['data_dir'] == photo_dir
    assert [run.until for run in measured] == [STORAGE, PARSING, DECODING, TRANSFER, TRANSFER]
    assert not any(run.is_training for run in measured)
    *_, naive, ours = result['rows']
    assert (naive['pipeline'], ours['pipeline'], ours['batch_size']) == ('naive', 'ours', 1024)
    assert ours['naive_cpu_over_this'] == [3] and naive['this_cpu_over_decoding'] == [2.5]
    assert ours['cpu_ms'] == {'median': 10, 'least': 10, 'greatest': 10} and not ours['phases_cpu_ms']


def test_input__shows_what_is_measured_if_one_fails(photo_dir: str, monkeypatch: Any, capsys: Any) -> None:
    def measure(runs: Sequence[Run]) -> List[Measurement]:
        if runs[-1].is_naive and runs[-1].until == TRANSFER:
            raise MeasurementError('the reason')
        return [Measurement(run.images, COSTS[run.until], 100, 500) for run in runs]

    monkeypatch.setattr(measurement, 'measure', measure)
    assert input_benchmark.main(given(photo_dir, '--variants=train', '--repeats=1')) == 1
    out, err = capsys.readouterr()
    assert 'records read' in out and 'and decoded' in out
    assert err.splitlines()[-1] == 'failed: train, naive, batches of 16: the reason'
    # Without the naive pipeline, there is nothing to divide by.
    (ours,) = [row.split() for row in out.splitlines() if ' ours ' in row]
    assert ours[-3:] == ['-', '2.50', '10+60+30']


def test_input__converts_to_tar_shards_once(photo_dir: str, tmp_path: Any, measured: List[Run], capsys: Any) -> None:
    data_dir = str(tmp_path / 'photos')
    shutil.copytree(photo_dir, data_dir)
    shard = pathlib.Path(f'{data_dir}-tar', 'train-00000-of-00002.tar')
    # A conversion does not need a description.
    os.remove(os.path.join(data_dir, 'dataset.json'))
    written = []
    for _ in range(2):
        capsys.readouterr()
        assert input_benchmark.main(given(data_dir, '--variants=train,train_tar', '--repeats=1', '--json')) == 0
        written.append(shard.stat().st_mtime_ns)
    assert written[0] == written[1]
    ours = json.loads(capsys.readouterr().out)['rows'][-1]
    assert ours['flags'] == ['--data_format=tar', f'--data_dir={data_dir}-tar']
    assert ours['phases_cpu_ms'] == {'storage': [1], 'preprocessing': [6], 'transfer': [3]}
    read = {(run.config.data_format, run.config.data_dir) for run in measured if not run.is_naive}
    assert read == {('tfrecord', data_dir), ('tar', f'{data_dir}-tar')}
    # The naive pipeline reads only TFRecord files.
    assert {run.config.data_format for run in measured if run.is_naive} == {'tfrecord'}
    measured.clear()
    assert input_benchmark.main(given(data_dir, '--repeats=1')) == 0
    assert {run.config.data_format for run in measured} == {'tfrecord'}


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--variants=train,test'], '--variants=train,test: test is not one of train,'),
        (['--preprocessing=cifar'], '--preprocessing=cifar: the naive pipeline'),
        (['--variants='], '--variants=: an empty name is not one of train,'),
        (['--variants=train_tar', '--train_files=a*'], '--variants=train_tar: train_tar converts a folder.'),
        (['--images=0'], '--images=0: must be above 0'),
        (['--use_data=fake'], '--use_data=fake: this benchmark measures reading records'),
        (['--data_dir=/no/such'], '--data_dir=/no/such: no such folder'),
        (['--height=10'], '--height=10: must be at least 75'),
        (['--data_format=tar', '--data_dir=a'], '--data_format=tar: the naive pipeline,'),
    ],
)
def test_command__refuses_wrong_arguments(capsys: Any, arguments: List[str], message: str) -> None:
    assert input_benchmark.main(['input', *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out and f'error: {message}' in err and 'Traceback' not in err
