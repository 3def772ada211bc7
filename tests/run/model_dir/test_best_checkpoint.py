"""Tests of the best checkpoint: its selection, interrupted replacements, and its use as a model_dir."""

import dataclasses
import glob
import os
import shutil
from typing import Any, Dict

import pytest

from compat import tf
from compat.errors import CheckpointError
from inception_v3.run import best_checkpoint
from tests.support.best_checkpoints import OPERATIONS, FileOperations, check_killed, evaluated, kept, names, offer
from tests.support.checkpoints import save_step
from tests.support.runs import evaluations, execute, make_small_config


def test_keep__replaces_only_by_higher_accuracy(tmp_path: Any) -> None:
    model_dir = str(tmp_path)
    assert best_checkpoint.read(model_dir) is None
    expected = [(1, 0.5, 1), (2, 0.25, 1), (3, 0.5, 1), (4, 0.75, 4), (5, 0.7, 4)]
    for step, top_1, best in expected:
        offer(model_dir, evaluated(step, top_1))
        assert kept(model_dir).step == best
        assert names(model_dir) == ['checkpoint', f'step-{best}']
    # Other checkpoints of step 4, as after a restart of the run.
    # The old version stays until the new one is complete, so the new one needs another name.
    for top_1, version in ((0.8, 'step-4-again'), (0.9, 'step-4')):
        offer(model_dir, evaluated(4, top_1))
        assert kept(model_dir).top_1 == top_1
        assert names(model_dir) == ['checkpoint', version]


@pytest.mark.parametrize(
    'change',
    [
        {'weights': 'raw'},
        {'images': 9},
        {'data_set': 'd'},
        {'fingerprint': 'f'},
        {'changed': ('preprocessing: inception -> vgg',)},
    ],
)
def test_keep__ignores_evaluations_that_cannot_be_compared(tmp_path: Any, caplog: Any, change: Dict[str, Any]) -> None:
    model_dir = str(tmp_path)
    offer(model_dir, evaluated(1, 0.5))
    offer(model_dir, evaluated(2, 0.9, **change))
    assert kept(model_dir).step == 1
    assert 'step 2 cannot be compared with the best checkpoint, step 1' in caplog.text
    assert f'{next(iter(change))}: ' in caplog.text


def test_keep__survives_a_kill_in_any_file_operation(tmp_path: Any) -> None:
    offer(str(tmp_path), evaluated(1, 0.25))
    save_step(str(tmp_path), 2)
    with pytest.MonkeyPatch.context() as patch:
        operations = FileOperations(patch, None)
        best_checkpoint.keep(str(tmp_path), str(tmp_path / 'model.ckpt-2'), evaluated(2, 0.5))
    assert operations.count == OPERATIONS
    (tmp_path / 'killed').mkdir()
    check_killed(str(tmp_path / 'killed'), range(OPERATIONS))


def test_keep__copies_the_configuration_and_leaves_other_files_in_the_folder(tmp_path: Any) -> None:
    model_dir = str(tmp_path)
    (tmp_path / 'config.json').write_text('{}')
    offer(model_dir, evaluated(1, 0.5))
    assert (tmp_path / 'best' / 'step-1' / 'config.json').read_text() == '{}'
    (tmp_path / 'best' / 'results.jsonl').write_text('')
    (tmp_path / 'best' / 'step-1-of-mine').mkdir()
    offer(model_dir, evaluated(2, 0.6))
    assert names(model_dir) == ['checkpoint', 'results.jsonl', 'step-1-of-mine', 'step-2']


def test_keep__skips_removed_checkpoints_and_refuses_half_a_copy(tmp_path: Any, monkeypatch: Any, caplog: Any) -> None:
    model_dir, copy = str(tmp_path), tf.io.gfile.copy
    offer(model_dir, evaluated(1, 0.5))

    def copy_and_remove_source(*arguments: Any, **options: Any) -> None:
        copy(*arguments, **options)
        for path in glob.glob(str(tmp_path / 'model.ckpt-2.*')):
            os.remove(path)

    def copy_half(source: str, target: str, overwrite: bool) -> None:
        shutil.copy(source, target)
        os.truncate(target, os.path.getsize(source) // 2)

    monkeypatch.setattr(tf.io.gfile, 'copy', copy_and_remove_source)
    offer(model_dir, evaluated(2, 0.6))
    assert kept(model_dir).step == 1
    assert 'model.ckpt-2 was removed before it could be kept' in caplog.text
    monkeypatch.setattr(tf.io.gfile, 'copy', copy_half)
    with pytest.raises(Exception, match=r'model\.ckpt-2.*: the copy .* is incomplete'):
        offer(model_dir, evaluated(2, 0.6))
    assert kept(model_dir).step == 1


def test_read__reports_a_damaged_evaluation_before_training(digits_dir: str, tmp_path: Any, one_layer: None) -> None:
    offer(str(tmp_path), evaluated(1, 0.5))
    path = tmp_path / 'best' / 'step-1' / 'evaluation.json'
    path.write_text('{"step": 1')
    config = make_small_config(digits_dir, model_dir=str(tmp_path), train_steps=2, keep_best=True)
    with pytest.raises(CheckpointError, match=rf'{path}: the evaluation .* move {tmp_path}/best away'):
        execute(config)
    assert not glob.glob(str(tmp_path / 'model.ckpt-0*'))


def content(checkpoint: str) -> Dict[str, bytes]:
    """The contents of a checkpoint's files by name, without its graph: Estimator rewrites the graph when it resumes."""
    found = {}
    for path in [*glob.glob(f'{checkpoint}.index'), *glob.glob(f'{checkpoint}.data-*')]:
        with open(path, 'rb') as file:
            found[os.path.basename(path)] = file.read()
    return found


@pytest.mark.program
def test_run__keeps_its_best_checkpoint_as_a_model_dir(digits_dir: str, tmp_path: Any, one_layer: None) -> None:
    model_dir = str(tmp_path / 'run')
    config = make_small_config(
        digits_dir,
        model_dir=model_dir,
        train_steps=6,
        train_steps_per_eval=3,
        batch_norm_decay=0.5,
        moving_average_decay=0.5,
        keep_best=True,
    )
    summary = execute(config)
    recorded = evaluations(config)
    # The first of equal accuracies counts, as `max` returns it.
    best = max(recorded, key=lambda evaluation: evaluation.top_1)
    assert kept(model_dir) == best
    kept_files = content(f'{model_dir}/best/step-{best.step}/model.ckpt-{best.step}')
    assert len(kept_files) == 2 and kept_files == content(f'{model_dir}/model.ckpt-{best.step}')
    assert f'{best.top_1:.2%} top-1 at step {best.step}, in {model_dir}/best' in summary

    # After a kill between the evaluation and the copy, the next command copies the checkpoint.
    shutil.rmtree(f'{model_dir}/best')
    execute(config)
    assert evaluations(config) == recorded
    assert kept(model_dir) == recorded[-1]

    # --mode=eval keeps the best checkpoint, too, and does not replace one that cannot be compared.
    follower = dataclasses.replace(config, mode='eval', moving_average=False)
    execute(follower)
    assert kept(model_dir) == recorded[-1]
    shutil.rmtree(f'{model_dir}/best')
    execute(follower)
    assert (kept(model_dir).step, kept(model_dir).weights) == (6, 'raw')

    # The folder can be evaluated in place.
    in_place = dataclasses.replace(follower, model_dir=f'{model_dir}/best', keep_best=False, train_steps=1)
    execute(in_place)
    (repeated,) = evaluations(in_place)
    assert (repeated.step, repeated.top_1) == (6, kept(model_dir).top_1)
    # The folder's config.json is the configuration of the training.
    assert repeated.changed == ('moving_average: True -> False',)

    # Training resumes in a copy of the folder, and does not remove the best checkpoint from it.
    copied = dataclasses.replace(config, model_dir=str(tmp_path / 'copy'), train_steps=7)
    shutil.copytree(f'{model_dir}/best', str(copied.model_dir))
    execute(copied)
    assert [evaluation.step for evaluation in evaluations(copied)[1:]] == [6, 7]
    assert content(f'{copied.model_dir}/step-6/model.ckpt-6') == content(f'{model_dir}/model.ckpt-6')
