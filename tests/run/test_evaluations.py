"""Tests of the records of evaluations, `results.jsonl`."""

import dataclasses
import json
from typing import Any, Dict, List

import pytest

from compat import tf
from inception_v3.config import Config
from inception_v3.data_set import description_of
from inception_v3.input.infeed import Infeed
from inception_v3.run import evaluations
from inception_v3.run.evaluations import (
    RESULTS_FILE,
    append_evaluation,
    changed_since_training,
    most_accurate,
    read_evaluations,
    read_unchanged,
)
from inception_v3.run.export import origin
from inception_v3.run.starts import write_start
from preprocessing.steps import Settings
from tests.support.checkpoints import save_step
from tests.support.evaluations import EVALUATION


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


def test_changed_since_training__compares_data_by_content_before_paths(digits_dir: str, tmp_path: Any) -> None:
    (tmp_path / 'copy').symlink_to(digits_dir)
    sizes: Any = {'num_train_images': 1438, 'num_eval_images': 359, 'num_classes': 11}
    trained = Config(auxiliary_head=False, model_dir=str(tmp_path), data_dir=digits_dir, **sizes)
    (tmp_path / 'config.json').write_text(trained.to_json())
    save_step(str(tmp_path), 7)
    # The starts below are of step 0.
    (tmp_path / 'checkpoint').unlink()

    def changed(config: Config, **changes: Any) -> Any:
        other = dataclasses.replace(config, **changes)
        return changed_since_training(other, description_of(other), str(tmp_path / 'model.ckpt-7'))

    copy = str(tmp_path / 'copy')
    # Without a record of the content.
    assert changed(trained, data_dir=f'{digits_dir}/') == ()
    assert changed(trained, data_dir=copy) == (f'data_dir: {digits_dir} -> {copy}',)
    # Of a run that only trained, the fingerprint is known.
    for mode, names in (('train', ['eval_files']), ('train_and_eval', [])):
        (tmp_path / 'starts.jsonl').write_text('')
        write_start(dataclasses.replace(trained, mode=mode), description_of(trained))
        assert changed(trained, data_dir=copy, mode='eval') == ()
        files = {'data_dir': copy, 'eval_files': f'{copy}/validation-*'}
        assert [each.split(':')[0] for each in changed(trained, **files)] == names
        # Of files of other numbers, the fingerprint is unknown.
        other = changed(trained, **files, num_eval_images=300)
        assert ('data_dir' in [each.split(':')[0] for each in other]) == (mode == 'train')
    other = changed(trained, data_dir=copy, eval_files=f'{copy}/validation-00000*')
    assert [each.split(':')[0] for each in other] == ['validation files']


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
    assert {*OF_INPUT} <= {*evaluations.DECIDING} and {*OF_INPUT} <= {*origin.SETTINGS}


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


def test_most_accurate__considers_comparable_evaluations_of_earlier_commands(tmp_path: Any) -> None:
    last = EVALUATION._replace(step=7, top_1=0.25)
    # Evaluations of an earlier run in the folder, at the same and at later steps, are none of this one.
    for step, top_1, images in ((1, 1.0, 8), (9, 1.0, 8), (1, 0.5, 8), (2, 0.75, 8), (3, 0.75, 8), (4, 1.0, 5)):
        append_evaluation(str(tmp_path), last._replace(step=step, top_1=top_1, images=images))
    append_evaluation(str(tmp_path), last)
    assert most_accurate(str(tmp_path), last).step == 2
