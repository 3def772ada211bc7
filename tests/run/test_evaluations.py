"""Tests of the records of evaluations, `results.jsonl`."""

import dataclasses
import json
from typing import Any, Dict, List

import pytest

from compat import tf
from inception_v3.config import Config
from inception_v3.data_set import description_of
from inception_v3.input.infeed import Infeed
from inception_v3.run import evaluations, starts
from inception_v3.run.evaluations import (
    RESULTS_FILE,
    append_evaluation,
    changed_since_training,
    evaluation_of,
    most_accurate,
    read_evaluations,
    read_unchanged,
    result_of,
    shortfall,
)
from inception_v3.run.export import origin
from preprocessing.steps import Settings
from tests.support.checkpoints import save_step
from tests.support.evaluations import DIGITS, EVALUATION
from tests.support.recorded import write_start


def test_read_evaluations__skips_damaged_lines(tmp_path: Any, caplog: Any) -> None:
    assert read_evaluations(str(tmp_path)) == []
    append_evaluation(str(tmp_path), EVALUATION)
    earlier = {name: value for name, value in EVALUATION._asdict().items() if name not in ('data_set', 'fingerprint')}
    wrong: List[Dict[str, Any]] = [{'step': '5'}, {'top_1': None}, {'changed': [1]}, {'images': True}, {'time': 'now'}]
    lines = [earlier, *({**EVALUATION._asdict(), **each} for each in wrong)]
    with open(str(tmp_path / RESULTS_FILE), 'a') as file:
        file.write('\n'.join([*map(json.dumps, lines), '{"step": 8, "check']))
    append_evaluation(str(tmp_path), EVALUATION._replace(step=9))
    assert read_evaluations(str(tmp_path)) == [EVALUATION, EVALUATION, EVALUATION._replace(step=9)]


# Another value for each setting that changes the result of an evaluation, and for some that do not.
DECIDING: Dict[str, Any] = {
    **{'use_data': 'fake', 'data_dir': 'd', 'data_format': 'tar', 'num_classes': 9, 'num_eval_images': 9},
    **{'eval_total_size': 9, 'max_bad_records': 9, 'preprocessing': 'vgg', 'height': 200, 'width': 200},
    **{'network': 'resnet50', 'depth_multiplier': 0.5, 'precision': 'bfloat16', 'transfer': 'uint8'},
    **{'moving_average': False, 'eval_files': 'v*', 'image_key': 'i', 'label_key': 'l', 'label_offset': 2},
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
    # The starts below are at step 0.
    (tmp_path / 'checkpoint').unlink()

    def changed(config: Config, **changes: Any) -> Any:
        other = dataclasses.replace(config, **changes)
        return changed_since_training(other, description_of(other), str(tmp_path / 'model.ckpt-7'))

    copy = str(tmp_path / 'copy')
    # The run has no record of the content yet.
    assert changed(trained, data_dir=f'{digits_dir}/') == ()
    assert changed(trained, data_dir=copy) == (f'data_dir: {digits_dir} -> {copy}',)
    # The fingerprint is known even for a run that only trained.
    for mode, names in (('train', ['eval_files']), ('train_and_eval', [])):
        (tmp_path / 'starts.jsonl').write_text('')
        write_start(dataclasses.replace(trained, mode=mode), description_of(trained))
        assert changed(trained, data_dir=copy, mode='eval') == ()
        files = {'data_dir': copy, 'eval_files': f'{copy}/validation-*'}
        assert [each.split(':')[0] for each in changed(trained, **files)] == names
        # If the number of images differs, the fingerprint is unknown.
        other = changed(trained, **files, num_eval_images=300)
        assert ('data_dir' in [each.split(':')[0] for each in other]) == (mode == 'train')
    other = changed(trained, data_dir=copy, eval_files=f'{copy}/validation-00000*')
    assert [each.split(':')[0] for each in other] == ['validation files']
    # The last start counts.
    (tmp_path / 'starts.jsonl').write_text('')
    write_start(dataclasses.replace(trained, mode='train'), description_of(trained))
    save_step(str(tmp_path), 5)
    write_start(trained, description_of(trained))
    assert changed(trained, data_dir=copy, eval_files=f'{copy}/validation-*') == ()


# Another value for each setting that changes the network's input, and for those that distort training images.
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
            # A given shape, which no setting changes, saves most of the operations.
            infeed.for_evaluation(infeed.preprocessing.resize_encoded(tf.constant(b''), tf.constant([90, 100, 3])))
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
    # Evaluations of an earlier run in the folder, at the same and at later steps, do not count for this one.
    for step, top_1, images in ((1, 1.0, 8), (9, 1.0, 8), (1, 0.5, 8), (2, 0.75, 8), (3, 0.75, 8), (4, 1.0, 5)):
        append_evaluation(str(tmp_path), last._replace(step=step, top_1=top_1, images=images))
    append_evaluation(str(tmp_path), last)
    assert most_accurate(str(tmp_path), last).step == 2
    best = last._replace(top_1=0.875)
    append_evaluation(str(tmp_path), best)
    assert most_accurate(str(tmp_path), best) == best


@pytest.mark.parametrize(
    ('scores', 'problem'),
    [
        ((0.5, 0.75), None),
        ((0.0, 1.0), None),
        ((0.75, 0.75), None),
        # Within the error of float32, which is 8e-6 of 8 images, and beyond it.
        ((0.5 + 0.9e-6, 0.75), None),
        ((0.5 + 1.1e-6, 0.75), 'top_1 is 0.5000011, which is not a number of 8 images'),
        ((0.5, 0.76), 'top_5 is 0.76, which is not a number of 8 images'),
        ((0.5, 1.125), 'top_5 is 1.125, which is not a number of 8 images'),
        ((-0.125, 0.5), 'top_1 is -0.125, which is not a number of 8 images'),
        ((0.75, 0.625), 'top_1 is above top_5'),
    ],
)
def test_contradiction__is_of_scores_that_no_number_of_images_has(scores: Any, problem: Any) -> None:
    assert EVALUATION._replace(top_1=scores[0], top_5=scores[1]).contradiction() == problem


def test_differences_of_kind__are_those_of_weights_images_and_data_alone() -> None:
    same = EVALUATION._replace(step=9, checkpoint='c', top_1=0.5, cross_entropy=1.0, seconds=2.0, time='t', digest='d')
    assert EVALUATION.differences_of_kind(same) == []
    other = EVALUATION._replace(weights='raw', images=9, data_set='x', fingerprint='y', changed=('z',))
    assert EVALUATION.differences_of_kind(other) == [
        *('weights: average -> raw', 'images: 8 -> 9', 'data_set: none -> x', 'fingerprint: none -> y'),
        "changed: none -> ('z',)",
    ]
    changed = [name for name in EVALUATION._fields if getattr(EVALUATION, name) != getattr(same, name)]
    # Of these fields, only the digest of the weights belongs to the identity: equal identities must have equal scores.
    assert [n for n in changed if EVALUATION._replace(**{n: getattr(same, n)}).identity != EVALUATION.identity] == [
        'digest'
    ]
    assert all(
        EVALUATION._replace(**{n: getattr(other, n)}).identity != EVALUATION.identity
        for n in ('weights', 'images', 'fingerprint', 'changed')
    )


def test_evaluation_of__has_the_scores_and_the_data_set(tmp_path: Any) -> None:
    save_step(str(tmp_path), 7)
    metrics = {'top_1': 0.25, 'top_5': 0.5, 'cross_entropy': 1.5, 'images': 8}
    made = evaluation_of(Config(moving_average=False), DIGITS, f'{tmp_path}/model.ckpt-7', 'abc', metrics, 1.23456)
    assert made._replace(time='') == evaluations.Evaluation(
        *(7, 'model.ckpt-7', 'raw', 0.25, 0.5, 1.5, 8, 1.235, '', (), 'digits', '0123456789abcdef', 'abc')
    )
    alone = evaluation_of(Config(), None, f'{tmp_path}/model.ckpt-7', 'abc', metrics, 1.0)
    assert (alone.weights, alone.data_set, alone.fingerprint) == ('average', '', '')


def test_result_of__warns_of_images_that_are_missing_besides_skipped_ones() -> None:
    config = Config(num_eval_images=2000)
    own = EVALUATION._replace(images=1998, top_1=0.12345, top_5=0.6789, cross_entropy=1.23456, step=1234)
    line = 'step 1,234: top-1 12.35%, top-5 67.89%, cross-entropy 1.2346, 1,998 images, average weights'
    assert [*result_of(config, own, 2)] == [line]
    missing = '1,998 images were evaluated, and 2,000 were expected (--num_eval_images)'
    assert [*result_of(config, own, 1)] == [line, f'warning: {missing}']
    total = dataclasses.replace(config, eval_total_size=1999)
    assert shortfall(total, own, 0) == '1,998 images were evaluated, and 1,999 were expected (--eval_total_size)'
    few, changed = dataclasses.replace(config, num_classes=6), own._replace(changed=('width: 1 -> 2', 'height: 1 -> 2'))
    assert [*result_of(few, changed, 2)] == [
        line.replace(' top-5 67.89%,', ''),
        'settings that differ from those of the training: width: 1 -> 2; height: 1 -> 2',
    ]


def test_changed_since_training__compares_the_data_of_the_last_start(tmp_path: Any) -> None:
    save_step(str(tmp_path), 7)
    fake = Config(use_data='fake', model_dir=str(tmp_path / 'new'))
    lines = [
        json.dumps({**starts.this_start(dataclasses.replace(fake, use_data=kind), None)._asdict(), 'step': step})
        for step, kind in enumerate(('fake', 'real'))
    ]
    for order, changed in ((lines, ('use_data: real -> fake',)), (lines[:1], ())):
        (tmp_path / 'starts.jsonl').write_text('\n'.join(order) + '\n')
        assert changed_since_training(fake, None, str(tmp_path / 'model.ckpt-7')) == changed
