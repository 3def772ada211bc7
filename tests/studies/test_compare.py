"""`python -m studies.compare`: any runs, sorted into cases."""

import dataclasses
import os
from typing import Any, Dict, List

import pytest

from inception_v3.config import Config
from studies import compare
from studies.report import findings, tables
from studies.report.runs import Case, Comparison
from tests.support import recorded

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


@pytest.mark.parametrize(
    ('folders', 'names'),
    [
        # One run a case. What all begin and end with tells nothing.
        ({'/runs/inception/model': 0, '/runs/resnet/model': 1}, ['inception', 'resnet']),
        ({'gs://bucket/a': 0, 'runs/b': 1, '/runs/b': 2}, ['gs://bucket/a', 'runs/b', '/runs/b']),
        ({'/model': 0, '/model/model': 1, '/': 2}, ['model', 'model/model', '/']),
        # Several: the folder that has them, unless it has those of others, too.
        (
            {'/s/a,b=1/seed-1/model': 0, '/s/a,b=2/seed-1/model': 1, '/s/a,b=1/seed-2/model': 0},
            ['a,b=1', 'a,b=2/seed-1'],
        ),
        ({'s/one': 0, 's/two': 1, 's/three': 0, 's/four': 1}, ['one and 1 more', 'two and 1 more']),
        ({'s/a/1': 0, 's/a/2': 0, 's/a/3': 1, 's/b/1': 2}, ['a/1 and 1 more', 'a/3', 'b/1']),
        ({'s/a': 0, 's/a/1': 0, 's/b': 1}, ['a', 'b']),
    ],
)
def test_cases_that_differ_in_much_are_named_after_their_folders(folders: Dict[str, int], names: List[str]) -> None:
    much: List[Dict[str, Any]] = [
        {},
        {'network': 'resnet50', 'learning_rate': 0.1, 'optimizer': 'momentum', 'weight_decay': 1e-4},
        {'network': 'resnet50', 'learning_rate': 0.2, 'optimizer': 'sgd', 'preprocessing': 'vgg'},
    ]
    runs = [
        recorded.run(folder, [0.5], config=dataclasses.replace(SMALL, save_summary_steps=1 + index, **much[index]))
        for folder, index in folders.items()
    ]
    cases = compare.cases_of(runs)
    assert [case.name for case in cases] == names
    assert cases[0].settings['optimizer'] == 'RMS' and cases[1].settings['network'] == 'resnet50'
    found = findings.find(Comparison('', '', tuple(cases)))
    assert tables.finals(found).header[:2] == ('case', 'flags')


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
