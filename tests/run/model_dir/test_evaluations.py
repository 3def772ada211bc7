"""Tests of `results.jsonl`, and of the summary of a run."""

import dataclasses
import json
import os
from typing import Any, Dict, List

import pytest

from inception_v3.config import Config, ConfigError
from inception_v3.run import files
from inception_v3.run.files import check_writable
from inception_v3.run.history import (
    RESULTS_FILE,
    append_evaluation,
    changed_since_training,
    read_evaluations,
    read_unchanged,
)
from inception_v3.run.summary import summary_of
from tests.support.evaluations import DIGITS, EVALUATION


def test_read_evaluations__skips_damaged_lines(tmp_path: Any, caplog: Any) -> None:
    caplog.set_level('INFO')
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
    assert [(each.step, each.top_1) for each in read_unchanged(str(tmp_path))] == [(3, 0.3), (5, 0.5), (9, 0.2)]


def test_check_writable__reads_back_leaves_no_file_and_names_the_folder(tmp_path: Any, monkeypatch: Any) -> None:
    check_writable('model_dir', str(tmp_path))
    assert os.listdir(str(tmp_path)) == []
    (tmp_path / 'file').write_text('')
    with pytest.raises(ConfigError, match=f'--model_dir={tmp_path}/file/model: cannot be written to'):
        check_writable('model_dir', os.path.join(str(tmp_path), 'file', 'model'))
    monkeypatch.setattr(files.remote, 'read', lambda path: b'other')
    with pytest.raises(ConfigError, match=r'--model_dir=\S+: a test file was read back with different content'):
        check_writable('model_dir', str(tmp_path))


def test_summary__has_a_line_for_each_known_value() -> None:
    config = Config(model_dir='runs/m', data_dir='my/data')
    assert summary_of(config, DIGITS, EVALUATION, 123.456, 'runs/e/1', EVALUATION).splitlines() == [
        'top-1       75.00%',
        'top-5       100.00%',
        'evaluated   8 images, average weights of step 7',
        'best        75.00% top-1 at step 7, in runs/m/best',
        'training    123.5 images/s',
        'data set    digits, 0123456789ab',
        'results     runs/m',
        'SavedModel  runs/e/1',
    ]
    assert summary_of(config, None, None, None, None, None).splitlines() == ['data set  my/data', 'results   runs/m']


def test_summary__shows_top_5_max_accuracy_total_time_and_the_data_set_if_known() -> None:
    config = Config(model_dir='m', data_dir='d')
    for num_classes, is_shown in ((6, False), (7, True)):
        few = dataclasses.replace(config, num_classes=num_classes)
        assert ('top-5' in summary_of(few, DIGITS, EVALUATION, None, None, None)) == is_shown
    summary = summary_of(config, DIGITS, None, None, None, None, 3725.4, EVALUATION)
    assert summary.splitlines()[:2] == ['Max Accuracy  75.00% at step 7', 'total time    1:02:05']
    for changed, data_set, name in (
        (config, dataclasses.replace(DIGITS, fingerprint=''), 'digits'),
        (dataclasses.replace(config, use_data='fake'), None, 'random images'),
    ):
        assert summary_of(changed, data_set, None, None, None, None).startswith(f'data set  {name}\n')
