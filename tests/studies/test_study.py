"""Studies: their cases, the files that they are read from, and what is refused."""

import pathlib
from typing import Any, Dict, List, Tuple

import pytest

from studies.study import Axis, Small, Study, StudyError, cases, grid, load, zipped

PYTHON = '''"""Does warm-up
help?
"""

from studies.study import Small, Study, cases, grid, zipped

STUDY = Study(
    flags={'use_learning_rate_warmup': False, 'data_dir': 'images'},
    axes=[
        grid(optimizer=['sgd', 'RMS']),
        zipped(train_batch_size=[1024, 4096], train_steps=[213000, 53250]),
        cases({'plain': {}, 'warm-up': {'use_learning_rate_warmup': True}}),
    ],
    seeds=(3, 5),
    report=('top_5',),
    step_ms=815,
    digits=Small(flags={'learning_rate': 1e-3}, axes=[grid(train_batch_size=[16, 32])], seeds=2),
)
'''

YAML = """
question: |-
  Does warm-up
  help?
flags: {use_learning_rate_warmup: no, data_dir: images}
axes:
  - grid: {optimizer: [sgd, RMS]}
  - zip: {train_batch_size: [1024, 4096], train_steps: [213000, 53250]}
  - cases: {plain: , warm-up: {use_learning_rate_warmup: yes}}
seeds: [3, 5]
report: [top_5]
step_ms: 815
digits:
  flags: {learning_rate: 0.001}
  axes: [{grid: {train_batch_size: [16, 32]}}]
  seeds: 2
"""


def written(folder: pathlib.Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def named(axes: List[Axis]) -> Dict[str, Any]:
    return {case.name: dict(case.settings) for case in Study(axes=axes).cases()}


def test_a_grid_is_every_combination() -> None:
    assert named([grid(optimizer=['sgd', 'RMS'], learning_rate=[0.1, 1])]) == {
        'optimizer=sgd,learning_rate=0.1': {'optimizer': 'sgd', 'learning_rate': 0.1},
        'optimizer=sgd,learning_rate=1': {'optimizer': 'sgd', 'learning_rate': 1},
        'optimizer=RMS,learning_rate=0.1': {'optimizer': 'RMS', 'learning_rate': 0.1},
        'optimizer=RMS,learning_rate=1': {'optimizer': 'RMS', 'learning_rate': 1},
    }


def test_what_is_zipped_varies_together_and_names_tell_what_differs() -> None:
    assert named([zipped(train_batch_size=[8, 16], train_steps=[20, 10], optimizer=['sgd', 'sgd'])]) == {
        'train_batch_size=8,train_steps=20': {'train_batch_size': 8, 'train_steps': 20, 'optimizer': 'sgd'},
        'train_batch_size=16,train_steps=10': {'train_batch_size': 16, 'train_steps': 10, 'optimizer': 'sgd'},
    }


def test_axes_are_multiplied_and_named_cases_keep_their_names() -> None:
    axes = [cases({'plain': {}, 'warm-up': {'use_learning_rate_warmup': True}}), grid(optimizer=['sgd', 'RMS'])]
    names = ['plain,optimizer=sgd', 'plain,optimizer=RMS', 'warm-up,optimizer=sgd', 'warm-up,optimizer=RMS']
    assert list(named(axes)) == names


def test_without_axes_there_is_one_case_with_the_flags_of_the_study() -> None:
    (case,) = Study(flags={'train_steps': 5}).cases()
    assert (case.name, case.settings, case.flags) == ('default', {}, {'train_steps': 5})


def test_a_case_wins_over_the_flags_of_the_study() -> None:
    study = Study(flags={'train_steps': 5, 'optimizer': 'RMS'}, axes=[cases({'short': {'train_steps': 2}})])
    assert [case.flags for case in study.cases()] == [{'train_steps': 2, 'optimizer': 'RMS'}]


def test_names_are_fit_for_folders() -> None:
    (name, _) = named([grid(data_dir=['gs://bucket/a b', '../c'])])
    assert name == 'data_dir=gs-bucket-a-b'
    assert not set(name) & set('/ *?[')


@pytest.mark.parametrize(('seeds', 'all_seeds'), [(1, (1,)), (3, (1, 2, 3)), ((7, 0), (7, 0)), ([2], (2,))])
def test_seeds(seeds: Any, all_seeds: Tuple[int, ...]) -> None:
    assert Study(seeds=seeds).all_seeds == all_seeds


def test_the_same_study_in_python_and_in_yaml(tmp_path: pathlib.Path) -> None:
    in_python, in_yaml = load(written(tmp_path, 'a.py', PYTHON)), load(written(tmp_path, 'a.yaml', YAML))
    assert in_python.name == in_yaml.name == 'a'
    assert in_python.question == in_yaml.question == 'Does warm-up\nhelp?'
    assert len(in_python.cases()) == 8
    assert in_python.cases() == in_yaml.cases()
    small, in_yaml = in_python.small(), in_yaml.small()
    assert (small.preset, small.name, small.seeds, small.step_ms) == ('digits', 'a_digits', 2, None)
    assert (in_yaml.preset, in_yaml.name, in_yaml.seeds, in_yaml.step_ms) == ('digits', 'a_digits', 2, None)
    assert small.cases() == in_yaml.cases() and len(small.cases()) == 2
    assert not list(tmp_path.glob('__pycache__'))


def test_a_small_version_has_the_axes_and_seeds_of_the_study_unless_it_names_its_own() -> None:
    study = Study(
        flags={'width': 128}, axes=[grid(optimizer=['sgd', 'RMS'])], seeds=2, digits=Small({'train_steps': 6})
    )
    small = study.small()
    assert [case.flags for case in small.cases()] == [
        {'train_steps': 6, 'optimizer': 'sgd'},
        {'train_steps': 6, 'optimizer': 'RMS'},
    ]
    assert small.all_seeds == (1, 2)


@pytest.mark.parametrize(
    ('name', 'text', 'message'),
    [
        ('a.txt', '', r'must be a \.py or a \.yaml file'),
        ('a.py', 'STUDY = 1', r'must set STUDY = Study\(…\)'),
        ('a.py', 'x = 1\nSTUDY = Study(', r'line 2: SyntaxError'),
        ('a.py', 'x = 1\nSTUDY = Study()', r"line 2: NameError: name 'Study' is not defined"),
        ('a.py', 'import sys\nsys.exit(3)', r'line 2: SystemExit: 3'),
        ('a.py', 'from studies.study import *\nSTUDY = Study(axis=[])', r"line 2: TypeError: .*'axis'"),
        ('a.yaml', 'axes: [', r'not YAML: .*line 1'),
        ('a.yaml', '- 1', r'a study: must have names and values: preset, flags, axes'),
        ('a.yaml', 'axis: []', r'a study: axis: is no part of it. Its parts are preset,'),
        ('a.yaml', 'digits: {flag: {}}', r'digits: flag: is no part of it. Its parts are flags, axes, seeds'),
        ('a.yaml', 'flags: {width: 75, width: 76}', r'line 1: width: is given twice'),
        ('a.yaml', 'axes: {grid: {}}', r'axes: must be a list of grid, zip, cases'),
        ('a.yaml', 'axes: [{product: {}}]', r'axes: each must be one of grid, zip, cases'),
        ('a.yaml', 'axes: [{together: {width: [75]}}]', r'axes: each must be one of grid, zip, cases'),
        (
            'a.py',
            'from studies.study import *\nSTUDY = Study(axes=[1])',
            r'must be a list of grid\(…\), zipped\(…\) and cases',
        ),
        ('a.yaml', 'axes: [{grid: [1]}]', r'grid: must be flags, with a list of values each'),
        ('a.yaml', 'axes: [{grid: {}}]', r'grid: must name flags'),
        ('a.yaml', 'axes: [{grid: {width: 75}}]', r'grid: width: must be a list of values; here it is 75'),
        ('a.yaml', 'axes: [{cases: [a]}]', r'cases: must be names, and the flags of each'),
        ('a.yaml', 'axes: [{cases: {a: 1}}]', r'cases: a: must be flags and their values'),
        ('a.yaml', 'axes: [{cases: {a/b: {}}}]', r'cases: a/b: a name must be letters, digits'),
        ('a.yaml', 'flags: {optimiser: sgd}', r'flags: optimiser: no such flag\. Is optimizer meant\?'),
        ('a.yaml', 'flags: {seed: 1}', r"flags: seed: is the sweep's to give; name the seeds"),
        ('a.yaml', 'flags: {width: }', r'flags: width: must be a number, a text, True or False; here it is None'),
        ('a.yaml', 'axes: [{grid: {mode: [eval]}}]', r'grid: mode: is train_and_eval in a sweep'),
        ('a.yaml', 'flags: {tpu: no}', r'flags: tpu: must be a text; here it is False\. In YAML, put quotes around it'),
        ('a.yaml', 'preset: [digits]', r"preset: \['digits'\]: must be one of cifar10_stream, digits, imagenet"),
        ('a.yaml', 'name: ../x', r'name: \.\./x: must be fit for the name of a folder'),
        ('a.yaml', 'report: [top_1, top_1]', r'report: .*: names one twice'),
        ('a.yaml', 'preset: digit', r'preset: digit: must be one of cifar10_stream, digits, imagenet'),
        ('a.yaml', 'seeds: 0', r'seeds: must be how many, from 1 on'),
        ('a.yaml', 'seeds: [1, 1]', r'seeds: must be how many, from 1 on, or a list of different ones'),
        ('a.yaml', 'seeds: yes', r'seeds: must be how many'),
        ('a.yaml', 'report: [top_2]', r'report: must be a list of top_1, top_5, cross_entropy'),
        ('a.yaml', 'step_ms: -1', r'step_ms: must be milliseconds, above 0'),
        ('a.yaml', 'digits: {flags: {wodth: 1}}', r'digits: flags: wodth: no such flag\. Is width meant\?'),
        ('a.yaml', 'axes: [{grid: {width: [75]}}, {grid: {width: [76]}}]', r'axes: width: varies in two axes'),
        ('a.yaml', 'axes: [{grid: {width: [75, 76, 76]}}]', r'axes: two cases are width=76'),
        (
            'a.yaml',
            'axes: [{zip: {width: [75, 76], height: [75]}}]',
            r'zip: all flags must have as many values; width has 2, height has 1',
        ),
        ('a.yaml', f'axes: [{{cases: {{{"a" * 200}: {{}}}}}}]', r'more than 150 letters for the name of a folder'),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: pathlib.Path, name: str, text: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        load(written(tmp_path, name, text))


def test_a_file_that_is_not_there_is_told(tmp_path: pathlib.Path) -> None:
    with pytest.raises(StudyError, match='there is no such file'):
        load(str(tmp_path / 'a.yaml'))
