"""Tests of the records of a run and of its folder: `starts.jsonl`, `results.jsonl`, `config.json`, the source code."""

import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
from typing import Any, Dict, List

import pytest

from compat import tf
from compat.errors import CommandError
from inception_v3.config import Config
from inception_v3.input.infeed import Infeed
from inception_v3.run import history, source
from inception_v3.run.export import origin
from inception_v3.run.files import check_writable
from inception_v3.run.history import RESULTS_FILE, append_evaluation, changed_since_training, read_evaluations
from inception_v3.run.hooks.watchers import StartRecorder
from preprocessing.steps import Settings
from tests.support.checkpoints import save_step
from tests.support.evaluations import DIGITS, EVALUATION
from tests.support.runs import execute


@pytest.mark.parametrize('name', [RESULTS_FILE, history.STARTS_FILE])
def test_run_that_cannot_write_its_records__ends_before_training(
    name: str, one_layer: None, small_config: Config, tmp_path: Any
) -> None:
    (tmp_path / name).mkdir()
    message = f'{name}: cannot be written: it is a folder; only files are replaced. Move it away'
    with pytest.raises(CommandError, match=message):
        execute(dataclasses.replace(small_config, model_dir=str(tmp_path), train_steps=1))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_record__adds_one_line_per_command_and_logs_a_changed_configuration(tmp_path: Any, caplog: Any) -> None:
    config = Config(model_dir=str(tmp_path), train_steps=7)
    first = StartRecorder(config, DIGITS)
    first.graph_built()
    save_step(str(tmp_path), 3)
    first.graph_built()
    (start,) = history.read_starts(str(tmp_path))
    assert (start.step, start.checkpoint) == (0, '')
    assert start.config == {'model_dir': str(tmp_path), 'train_steps': 7}
    assert (start.data_set, start.fingerprint) == ('digits', '0123456789abcdef')
    assert (start.command, start.directory) == (sys.argv, os.getcwd())
    assert start.versions['python'] == platform.python_version()
    assert start.host['cores'] == len(os.sched_getaffinity(0))
    assert 'train_steps: ' not in caplog.text
    # As after a kill during a write.
    with open(str(tmp_path / 'starts.jsonl'), 'a') as file:
        file.write('{"step": 3, "check')
    changed = dataclasses.replace(config, train_steps=9)
    StartRecorder(changed, None).graph_built()
    again, second = history.read_starts(str(tmp_path))
    assert again == start
    assert (second.step, second.checkpoint) == (3, 'model.ckpt-3')
    assert (second.config['train_steps'], second.data_set, second.fingerprint) == (9, '', '')
    assert 'train_steps: 7 -> 9' in caplog.text
    # The second start has not led to the checkpoint that it resumed.
    assert history.starts_before(str(tmp_path / 'model.ckpt-3')) == [start]
    path = tmp_path / 'config.json'
    assert Config.from_json(path.read_text()) == changed
    path.write_text('{broken')
    StartRecorder(changed, None).graph_built()
    assert f'replacing a damaged file: {path}: ' in caplog.text and Config.from_json(path.read_text()) == changed


def git(folder: Any, *arguments: str) -> str:
    names = ['-c', 'user.name=n', '-c', 'user.email=e']
    return subprocess.run(
        ['git', *names, '-C', str(folder), *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def test_source_version__has_the_git_revision_and_a_digest_of_the_files(tmp_path: Any, monkeypatch: Any) -> None:
    outer, project = tmp_path / 'outer', tmp_path / 'outer' / 'project'
    (project / 'inception_v3').mkdir(parents=True)
    module = project / 'inception_v3' / 'module.py'
    module.write_text('first')
    git(outer, 'init', '-q')
    monkeypatch.setattr(source, '_ROOT', project)
    version = source.version.__wrapped__
    # The repository in the outer folder does not count: it belongs to another project.
    installed = version()
    assert (installed['revision'], installed['modified']) == (None, None)
    shutil.move(str(outer / '.git'), str(project / '.git'))
    git(project, 'add', '.')
    git(project, 'commit', '-q', '-m', 'first')
    revision = git(project, 'rev-parse', 'HEAD')
    assert version() == {'revision': revision, 'modified': False, 'source': installed['source']}
    (project / 'notes.txt').write_text('no part of the program')
    assert not version()['modified']
    module.write_text('second')
    changed = version()
    assert changed['revision'] == revision and changed['modified'] and changed['source'] != installed['source']
    module.write_text('first')
    (project / 'requirements.lock').write_text('')
    assert version()['modified'] and version()['source'] == installed['source']
    (project / 'requirements.lock').unlink()
    (project / 'data').mkdir()
    (project / 'data' / 'new.py').write_text('')
    added = version()
    assert added['modified'] and added['source'] not in (installed['source'], changed['source'])


def test_read_evaluations__skips_damaged_lines(tmp_path: Any, caplog: Any) -> None:
    assert read_evaluations(str(tmp_path)) == []
    append_evaluation(str(tmp_path), EVALUATION)
    earlier = {name: value for name, value in EVALUATION._asdict().items() if name not in ('data_set', 'fingerprint')}
    wrong: List[Dict[str, Any]] = [{'step': '5'}, {'top_1': None}, {'changed': [1]}, {'images': True}]
    lines = [earlier, *({**EVALUATION._asdict(), **each} for each in wrong)]
    with open(str(tmp_path / RESULTS_FILE), 'a') as file:
        file.write('\n'.join([*map(json.dumps, lines), '{"step": 8, "check']))
    append_evaluation(str(tmp_path), EVALUATION._replace(step=9))
    assert read_evaluations(str(tmp_path)) == [EVALUATION, EVALUATION, EVALUATION._replace(step=9)]


# Another value of each setting that changes the result of an evaluation, and of some that do not.
DECIDING: Dict[str, Any] = {
    **{'use_data': 'fake', 'data_dir': 'd', 'data_format': 'tar', 'num_classes': 9, 'num_eval_images': 9},
    **{'eval_total_size': 9, 'max_bad_records': 9, 'preprocessing': 'vgg', 'height': 200, 'width': 200},
    **{'network': 'resnet50', 'depth_multiplier': 0.5, 'precision': 'bfloat16', 'transfer': 'uint8'},
    **{'moving_average': False},
}
OTHERS = {'train_steps': 9, 'optimizer': 'sgd', 'eval_batch_size': 64, 'model_dir': 'm', 'learning_rate': 9.0}


@pytest.mark.parametrize('name', [*DECIDING, *OTHERS])
def test_changed_since_training__has_every_setting_that_decides(tmp_path: Any, name: str) -> None:
    trained = Config(auxiliary_head=False, model_dir='runs/m')
    assert changed_since_training(trained, None, str(tmp_path / 'model.ckpt-7')) == ()
    (tmp_path / 'config.json').write_text(trained.to_json())
    other = dataclasses.replace(trained, **{name: {**DECIDING, **OTHERS}[name]})
    changed = changed_since_training(other, None, str(tmp_path / 'model.ckpt-7'))
    assert [change.split(':')[0] for change in changed] == [name] * (name in DECIDING)


# Another value of each setting that changes the input of the network, and of those that distort training images.
OF_INPUT = {'preprocessing': 'vgg', 'height': 80, 'width': 80, 'precision': 'bfloat16', 'transfer': 'uint8'}
OF_TRAINING: Dict[str, Any] = {
    **{'fast_mode': False, 'use_fast_color_distort': False, 'random_flip': False, 'cb_distortion_range': 0.3},
    **{'cr_distortion_range': 0.3, 'brightness_distortion_range': 0.3, 'crop_area_min': 0.5},
    **{'crop_aspect_ratio_max': 2.0, 'use_annotated_bbox': True, 'crop_padding': 7},
}


def test_settings_that_change_evaluated_pixels__distinguish_evaluations_and_exports() -> None:
    def graph(**changes: Any) -> bytes:
        config = Config(**{'use_tpu': False, 'height': 75, 'width': 75, **changes})
        with tf.Graph().as_default() as graph:
            infeed = Infeed(config)
            infeed.for_evaluation(infeed.preprocessing.resize_encoded(tf.constant(b'')))
        return graph.as_graph_def().SerializeToString(deterministic=True)

    assert {*Settings._fields} == {*OF_TRAINING, 'height', 'width'}
    before = graph()
    assert graph(**OF_TRAINING) == before
    assert all(graph(**{name: value}) != before for name, value in OF_INPUT.items())
    assert {*OF_INPUT} <= {*history.DECIDING} and {*OF_INPUT} <= {*origin.SETTINGS}


def test_read_unchanged__has_the_last_evaluation_of_each_step_in_order(tmp_path: Any) -> None:
    first = EVALUATION._replace(changed=())
    for step, top_1, changed in (
        (3, 0.1, ()),
        (9, 0.2, ()),
        (3, 0.3, ()),
        (9, 0.4, ('width: 299 -> 75',)),
        (5, 0.5, ()),
    ):
        append_evaluation(str(tmp_path), first._replace(step=step, top_1=top_1, changed=changed))
    assert [(each.step, each.top_1) for each in history.read_unchanged(str(tmp_path))] == [(3, 0.3), (5, 0.5), (9, 0.2)]


def test_check_writable__leaves_no_file(tmp_path: Any) -> None:
    check_writable('model_dir', str(tmp_path))
    assert os.listdir(str(tmp_path)) == []
