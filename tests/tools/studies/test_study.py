"""Studies: their cases, their files, and the errors in them."""

import pathlib
from typing import Any, Dict, List

import pytest

from tools.studies.study import Axis, Small, Study, StudyError, cases, grid, load

PYTHON = '''"""Does warm-up
help?
"""

from tools.studies.study import Small, Study, cases, grid

STUDY = Study(
    flags={'use_learning_rate_warmup': False, 'data_dir': 'images'},
    axes=[
        grid(optimizer=['sgd', 'RMS']),
        cases({'small': {'train_batch_size': 1024}, 'large': {'train_batch_size': 4096, 'train_steps': 53250}}),
        cases({'plain': {}, 'warm-up': {'use_learning_rate_warmup': True}}),
    ],
    seeds=(3, 5),
    report=('top_5',),
    step_ms=815,
    digits=Small(flags={'learning_rate': 1e-3}, axes=[grid(train_batch_size=[16, 32])], seeds=2),
)
'''

ALL = 'from tools.studies.study import *\n'
UNSAFE = {'gs-b-a-b': 'gs://b/a b', '..-c': '../c'}


def written(folder: pathlib.Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ('axes', 'expected'),
    [
        (
            # A flag with a single value is not in the names.
            [grid(optimizer=['sgd', 'RMS'], width=[80], learning_rate=[0.1, 1])],
            {
                f'optimizer={name},learning_rate={rate}': {'optimizer': name, 'width': 80, 'learning_rate': rate}
                for name in ('sgd', 'RMS')
                for rate in (0.1, 1)
            },
        ),
        (
            [cases({'plain': {}, 'warm-up': {'use_learning_rate_warmup': True}}), grid(width=[80, 90])],
            {
                'plain,width=80': {'width': 80},
                'plain,width=90': {'width': 90},
                'warm-up,width=80': {'use_learning_rate_warmup': True, 'width': 80},
                'warm-up,width=90': {'use_learning_rate_warmup': True, 'width': 90},
            },
        ),
        ([], {'default': {}}),
        # Names are valid for folders.
        ([grid(data_dir=['gs://b/a b', '../c'])], {f'data_dir={n}': {'data_dir': d} for n, d in UNSAFE.items()}),
    ],
)
def test_axes__are_multiplied_to_cases(axes: List[Axis], expected: Dict[str, Any]) -> None:
    found = Study(flags={'train_steps': 5, 'width': 75}, axes=axes).cases()
    assert [(case.name, case.settings) for case in found] == [*expected.items()]
    assert [case.flags for case in found] == [{'train_steps': 5, 'width': 75, **flags} for flags in expected.values()]


def test_load__takes_question_and_name_from_the_file(tmp_path: pathlib.Path) -> None:
    study = load(written(tmp_path, 'a.py', PYTHON))
    assert (study.name, study.question, len(study.cases())) == ('a', 'Does warm-up\nhelp?', 8)
    small = study.small('digits')
    assert (small.preset, small.name, small.seeds, small.step_ms, len(small.cases())) == (
        'digits',
        'a_digits',
        2,
        None,
        2,
    )
    assert not list(tmp_path.glob('__pycache__'))


def test_small__inherits_axes_and_seeds() -> None:
    study = Study(flags={'width': 128}, axes=[grid(width=[80])], seeds=(7, 0), digits=Small({'train_steps': 6}))
    assert study.small('digits').cases()[0].flags == {'train_steps': 6, 'width': 80}
    assert study.small('digits').all_seeds == (7, 0) and Study(seeds=3).all_seeds == (1, 2, 3)


@pytest.mark.parametrize(
    ('fields', 'message'),
    [
        ('axis=[]', r"line 2: TypeError: .*'axis'"),
        ('axes=[1]', r'line 2: TypeError: '),
        *((f'axes=[grid(width={value})]', r'grid: must map flags to lists of values') for value in (75, "'75'")),
        ('axes=[cases({})]', r'cases: must map names to flags'),
        ("flags={'flagfile': 'f'}", r'^flagfile: no such flag'),
        ("flags={'width': None}", r'^width: must be a number, a string, True or False; it is None'),
        *((f'name={name}', r'name: .*must be valid as the name of a folder') for name in (5, "'../x'")),
        ('axes=[grid(width=[])]', r'grid: must map flags to lists of values'),
        ("axes=[cases({'a': 1})]", r'line 2: TypeError: '),
        ("axes=[cases({'a/b': {}})]", r'cases: a/b: a name must consist of letters, digits'),
        ("flags={'seed': 1}", r'^seed: is set by the sweep; list the seeds'),
        ("preset='digit'", r'preset: digit: must be one of cifar10_stream, digits, finetune'),
        ("report=['top_1', 'top_1']", r'report: must be a list of top_1, top_5, cross_entropy, each once'),
        ("report=['top_2']", r'report: must be a list of top_1, top_5, cross_entropy'),
        ('seeds=[1, 1]', r'seeds: must be a number of seeds, at least 1, or a list of distinct seeds'),
        ('seeds=True', r'seeds: must be a number of seeds'),
        ('step_ms=-1', r'step_ms: must be milliseconds, above 0'),
        ('axes=[grid(width=[75]), grid(width=[76])]', r'axes: width: varies in two axes'),
        ('axes=[grid(width=[75, 76, 76])]', r'axes: two cases are named width=76'),
        ("axes=[cases({'a' * 200: {}})]", r'longer than 150 bytes'),
        ("digits=Small({'seed': 1})", r'digits: seed: is set by the sweep'),
    ],
)
def test_load__refuses_invalid_studies(tmp_path: pathlib.Path, fields: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        load(written(tmp_path, 'a.py', f'{ALL}STUDY = Study({fields})'))


def test_load__refuses_files_without_a_study(tmp_path: pathlib.Path) -> None:
    for text, message in (
        ('x = 1\nSTUDY = Study(', r'line 2: SyntaxError'),
        ('x = 1\nSTUDY = Study()', r"line 2: NameError: name 'Study' is not defined"),
        ('x = 1', r'must set STUDY = Study'),
    ):
        with pytest.raises(StudyError, match=message):
            load(written(tmp_path, 'a.py', text))
    for path in (str(tmp_path / 'missing.py'), written(tmp_path, 'a.txt', '')):
        with pytest.raises(StudyError, match=r'must be a \.py file, or a shipped study: batch_norm,'):
            load(path)
