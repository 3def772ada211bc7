"""`python -m studies.compare`: any runs, sorted into cases."""

import dataclasses
import os
from typing import Any

import pytest

from inception_v3.config import Config
from studies import compare
from studies.runs import Case
from tests.studies import recorded

SMALL = Config(use_tpu=False, train_steps=300)


def write(model_dir: str, seed: int, top_1: float, **changes: Any) -> str:
    config = dataclasses.replace(SMALL, seed=seed, model_dir=model_dir, **changes)
    recorded.write(model_dir, config, [recorded.evaluation(150, top_1 / 2), recorded.evaluation(300, top_1)])
    return model_dir


def test_runs_that_differ_by_their_seeds_are_a_case(tmp_path: Any) -> None:
    folders = [
        write(f'{tmp_path}/{name}', seed, top_1, learning_rate=rate, optimizer=optimizer)
        for name, seed, top_1, rate, optimizer in [
            ('a', 1, 0.5, 0.1, 'sgd'),
            ('b', 1, 0.6, 0.1, 'RMS'),
            ('c', 2, 0.7, 0.1, 'sgd'),
            ('d', 1, 0.8, 0.2, 'RMS'),
        ]
    ]
    os.symlink(f'{tmp_path}/a', f'{tmp_path}/link')
    again = [f'{tmp_path}/a/', f'{tmp_path}/./c', f'{tmp_path}//d', f'{tmp_path}/link', os.path.relpath(folders[1])]
    cases = compare.compare([*folders, *again]).cases
    assert [(case.name, [run.name[-1] for run in case.runs]) for case in cases] == [
        ('optimizer=sgd,learning_rate=0.1', ['a', 'c']),
        ('optimizer=RMS,learning_rate=0.1', ['b']),
        ('optimizer=RMS,learning_rate=0.2', ['d']),
    ]
    assert cases[2].settings == {'optimizer': 'RMS', 'learning_rate': '0.2'}


def test_where_a_run_is_made_makes_no_case() -> None:
    runs = [
        recorded.run('a', [0.5], 1, config=dataclasses.replace(SMALL, seed=1, model_dir='/a', intra_op_threads=2)),
        recorded.run('b', [0.6], 2, config=dataclasses.replace(SMALL, seed=2, model_dir='/b', tpu='other')),
    ]
    assert compare.cases_of(runs) == [Case('all runs', {}, tuple(runs))]


def test_command(tmp_path: Any, capsys: Any) -> None:
    folders = [write(f'{tmp_path}/{seed}', seed, 0.5 + 0.01 * seed) for seed in (1, 2, 3)]
    assert compare.main([*folders, f'--out={tmp_path}/out']) == 0
    assert '52.00 ± 1.00' in (tmp_path / 'out' / 'report.md').read_text()
    assert '52.00 ± 1.00' in (tmp_path / 'out' / 'report.html').read_text()
    assert f'all runs: {", ".join(folders)}' in capsys.readouterr().out


def test_folders_that_are_no_runs(tmp_path: Any, capsys: Any) -> None:
    """One message names all of them, and the run inside of one; nothing is written."""
    write(f'{tmp_path}/trial/model', 1, 0.5)
    (tmp_path / 'spoilt').mkdir()
    (tmp_path / 'spoilt' / 'config.json').write_text('{"optimizer": "best"}')
    folders = [f'{tmp_path}/trial', f'{tmp_path}/nowhere', f'{tmp_path}/spoilt']
    with pytest.raises(SystemExit) as ended:
        compare.main([*folders, f'--out={tmp_path}/out'])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert (
        f'{tmp_path}/trial: is not the model_dir of a run: it has no config.json; {tmp_path}/trial/model is one.'
        in told
    )
    assert f'{tmp_path}/nowhere: is not the model_dir of a run' in told
    assert f'{tmp_path}/spoilt/config.json: --optimizer=best: must be' in told
    assert not (tmp_path / 'out').exists()


def test_an_empty_text_is_no_run(tmp_path: Any, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        compare.main([write(f'{tmp_path}/run', 1, 0.5), ''])
    assert ended.value.code == 2
    assert 'RUN: must be the model_dir of a run; here is an empty text.' in capsys.readouterr().err


def test_out_that_cannot_be_written_to(tmp_path: Any, capsys: Any) -> None:
    (tmp_path / 'file').write_text('')
    with pytest.raises(SystemExit) as ended:
        compare.main([write(f'{tmp_path}/run', 1, 0.5), f'--out={tmp_path}/file'])
    assert ended.value.code == 2
    assert f'--out={tmp_path}/file: cannot be written to' in capsys.readouterr().err
