"""`inception-v3 compare`: any runs, grouped into cases."""

import dataclasses
import json
import os
import shutil
from typing import Any, Dict, List

from data.files import append_line
from inception_v3.config import Config
from inception_v3.run.evaluations import append_evaluation
from inception_v3.run.starts import this_start
from tests.support import recorded
from tests.tools.evaluate_report.test_predictions import IMAGES
from tests.tools.evaluate_report.test_predictions import write as write_predictions
from tools.studies import compare
from tools.studies.report import page, runs, tables
from tools.studies.report.runs import Comparison

SMALL = Config(use_tpu=False, train_steps=300)


def write(model_dir: str, seed: int, top_1: float, **changes: Any) -> str:
    config = dataclasses.replace(SMALL, seed=seed, model_dir=model_dir, **changes)
    recorded.write(model_dir, config, [recorded.evaluation(150, top_1 / 2), recorded.evaluation(300, top_1)])
    return model_dir


def test_compare__runs_that_differ_in_their_seeds_form_a_case(tmp_path: Any) -> None:
    folders = [
        write(f'{tmp_path}/{name}', seed, top_1, learning_rate=rate, optimizer=optimizer)
        for name, seed, top_1, rate, optimizer in [
            ('a', 1, 0.5, 0.1, 'sgd'),
            ('b', 1, 0.6, 0.1, 'RMS'),
            ('c', 2, 0.7, 0.1, 'sgd'),
            ('d', 1, 0.8, 0.2, 'RMS'),
        ]
    ]
    # The place of a run does not matter.
    folders.append(write(f'{tmp_path}/e', 3, 0.9, learning_rate=0.1, optimizer='sgd', intra_op_threads=2, tpu='other'))
    os.symlink(f'{tmp_path}/a', f'{tmp_path}/link')
    again = [f'{tmp_path}/a/', f'{tmp_path}/./c', f'{tmp_path}//d', f'{tmp_path}/link', os.path.relpath(folders[1])]
    found = runs.compare([*folders, *again]).cases
    assert [(case.name, [run.name[-1] for run in case.runs]) for case in found] == [
        ('optimizer=sgd,learning_rate=0.1', ['a', 'c', 'e']),
        ('optimizer=RMS,learning_rate=0.1', ['b']),
        ('optimizer=RMS,learning_rate=0.2', ['d']),
    ]
    assert found[2].settings == {'optimizer': 'RMS', 'learning_rate': '0.2'}


def test_cases__with_many_differences_are_named_after_their_first_runs() -> None:
    many: List[Dict[str, Any]] = [
        {},
        {'network': 'resnet50', 'learning_rate': 0.1, 'optimizer': 'momentum', 'weight_decay': 1e-4},
    ]
    of_folders = [
        recorded.run(folder, [0.5], config=dataclasses.replace(SMALL, save_summary_steps=1 + index, **many[index]))
        for folder, index in {'s/a/1': 0, 's/b': 1, 's/a/2': 0}.items()
    ]
    found = runs.cases_of(of_folders)
    assert [case.name for case in found] == ['s/a/1', 's/b'] and len(found[0].runs) == 2
    assert found[0].settings['optimizer'] == 'RMS' and found[1].settings['network'] == 'resnet50'
    assert tables.finals(Comparison('', '', tuple(found))).header[:2] == ('case', 'flags')


def test_command__compares_last_checkpoints_with_reports_image_by_image(tmp_path: Any, capsys: Any) -> None:
    for name, last in (('a', IMAGES), ('b', [IMAGES[0]._replace(predicted=1), *IMAGES[1:]])):
        config = dataclasses.replace(SMALL, seed=1, optimizer={'a': 'sgd', 'b': 'RMS'}[name])
        recorded.write(f'{tmp_path}/{name}', config, [recorded.evaluation(300, 0.5, images=4, digest=name)])
        write_predictions(tmp_path / name, last, digest=name)
    folders = [f'{tmp_path}/a', f'{tmp_path}/b']
    assert compare.main([*folders, f'--out={tmp_path}/out']) == 0
    assert f'optimizer=sgd: {folders[0]}\noptimizer=RMS: {folders[1]}\n' in capsys.readouterr().out
    row = ("optimizer=RMS − optimizer=sgd: McNemar's exact test, p", '1 pairs', '1')
    assert row in [cells[:3] for cells in tables.differences(runs.compare(folders)).rows]
    assert 'exact test, p' in (tmp_path / 'out' / 'report.html').read_text()
    # The report is of an earlier checkpoint.
    append_evaluation(f'{tmp_path}/b', recorded.evaluation(300, 0.5, images=4, digest='later'))
    assert 'exact test, p' not in page.page(runs.compare(folders))


def test_command__names_all_folders_that_are_no_runs(tmp_path: Any, capsys: Any) -> None:
    """One message names all folders; nothing is written."""
    run = write(f'{tmp_path}/trial/model', 1, 0.5)
    (tmp_path / 'damaged').mkdir()
    (tmp_path / 'damaged' / 'config.json').write_text('{"optimizer": "best"}')
    folders = [f'{tmp_path}/trial', f'{tmp_path}/nowhere', f'{tmp_path}/damaged']
    assert compare.main([*folders, f'--out={tmp_path}/out']) == 2
    errors = capsys.readouterr().err
    assert f'{tmp_path}/trial: is not the model_dir of a run: it has no config.json.' in errors
    assert f'{tmp_path}/nowhere: is not the model_dir of a run' in errors
    assert f'{tmp_path}/damaged/config.json: --optimizer=best: must be' in errors
    assert not (tmp_path / 'out').exists()
    for argument, message in (
        ('', 'RUN: must be the model_dir of a run; it is empty.'),
        (f'--out={run}/config.json', f'--out={run}/config.json: cannot be written to'),
    ):
        assert compare.main([run, argument]) == 2
        assert message in capsys.readouterr().err


def rewritten(folder: str, **changes: Any) -> str:
    """Changes values of the starts of a run."""
    path = os.path.join(folder, 'starts.jsonl')
    with open(path) as file:
        lines = [{**json.loads(line), **changes} for line in file]
    with open(path, 'w') as file:
        file.writelines(f'{json.dumps(line)}\n' for line in lines)
    return folder


def test_compare__counts_a_copied_run_once(tmp_path: Any, capsys: Any) -> None:
    first = write(f'{tmp_path}/a', 1, 0.5)
    copy = shutil.copytree(first, f'{tmp_path}/b')
    # Two runs with the same weights, as if they had the same seed.
    for name, seed in (('c', 2), ('d', 3)):
        write(f'{tmp_path}/{name}', seed, 0.75)
        append_evaluation(f'{tmp_path}/{name}', recorded.evaluation(300, 0.75, digest='same'))
    folders = [first, copy, f'{tmp_path}/c', f'{tmp_path}/d']
    assert compare.main([*folders, f'--out={tmp_path}/out']) == 0
    out = capsys.readouterr().out
    assert f'note: {copy} is not counted: it is a copy of {first}.' in out
    assert f'note: {folders[3]} is not counted: it is a copy of {folders[2]}.' in out
    (case,) = runs.compare(folders).cases
    assert case.finals('top_1') == {1: 50, 2: 75} and [run.name for run in case.counted] == [first, folders[2]]
    assert case.runs[1].state == f'not counted: a copy of {first}' and not case.runs[1].is_finished
    assert tables.finals(runs.compare(folders)).rows[0][1] == '2 of 4'
    assert 'is not counted' in (tmp_path / 'out' / 'report.html').read_text()
    # A copy that trained on with other settings is another case, but not an independent run.
    config = dataclasses.replace(SMALL, seed=1, learning_rate=0.9)
    (tmp_path / 'b' / 'config.json').write_text(config.to_json())
    with open(tmp_path / 'b' / 'starts.jsonl', 'r+') as starts:
        later = {**json.loads(starts.readline()), 'step': 300, 'checkpoint': 'model.ckpt-300', 'time': 'later'}
        starts.seek(0, os.SEEK_END)
        starts.write(json.dumps(later) + '\n')
    assert f'{copy} began as {first}: they are copies, and not independent runs.' in runs.compare(folders).notes


def test_compare__parts_versions_and_data_and_says_what_differs(tmp_path: Any) -> None:
    (version,) = {start.versions['tensorflow'] for start in runs.read_run(write(f'{tmp_path}/a', 1, 0.5), 'a').starts}
    other = rewritten(write(f'{tmp_path}/b', 1, 0.75), versions={'tensorflow': '9.0'})
    data = rewritten(write(f'{tmp_path}/c', 1, 0.75), samples={'validation': [1, 'a' * 64, 'b' * 64, 0]})
    moved = rewritten(write(f'{tmp_path}/d', 2, 0.75), samples={'validation': [1, 'c' * 64, 'b' * 64, 0]})
    found = runs.compare([f'{tmp_path}/a', other])
    assert [case.name for case in found.cases] == [f'tensorflow={version}', 'tensorflow=9.0']
    assert [case.settings for case in found.cases] == [{}, {}] and found.notes == ()
    found = runs.compare([data, moved])
    assert len(found.cases) == 2 and found.notes == (
        f'{moved} has other data than {data}, and its accuracy is of other images: '
        f'validation files: {"a" * 12} -> {"c" * 12}.',
    )
    # Runs on as many machines, at other addresses, with the same images elsewhere.
    same = {'data_set': 'photos', 'fingerprint': 'f' * 64}
    of_hosts = [
        rewritten(write(f'{tmp_path}/{seed}', seed, 0.5, worker_hosts=hosts, task_index=0, data_dir=f'/{seed}'), **same)
        for seed, hosts in enumerate(('a:1,b:1', 'c:1,d:1', 'c:1,d:1,e:1'))
    ]
    found = runs.compare(of_hosts)
    assert [(case.name, len(case.runs)) for case in found.cases] == [('machines=2', 2), ('machines=3', 1)]
    # Nothing but the folder of these data sets is known.
    unknown = [write(f'{tmp_path}/at-{place}', 1, 0.5, data_dir=place) for place in 'xy']
    assert [case.name for case in runs.compare(unknown).cases] == ['data_dir=x', 'data_dir=y']
    few = write(f'{tmp_path}/few', 3, 0.5)
    append_evaluation(few, recorded.evaluation(300, 0.5, images=10))
    append_line(os.path.join(few, 'starts.jsonl'), this_start(SMALL, None)._asdict())
    assert runs.compare([f'{tmp_path}/a', few]).notes == (
        f'The last evaluations are of different numbers of images: 359 images in {tmp_path}/a; 10 images in {few}.',
        f'{few} was trained with several seeds: 3, None.',
    )
    # The cases of a sweep are fixed.
    mixed = runs.case_of('case', {}, [runs.read_run(f'{tmp_path}/a', 'a'), runs.read_run(other, 'b')])
    assert f'case: its runs are of different versions of TensorFlow: {version} in a; 9.0 in b.' in runs.cautions(
        [mixed]
    )
