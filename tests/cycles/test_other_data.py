"""Tests of data sets and weights that were replaced: names and scores belong to the data that the run has learned."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
from typing import Any

import numpy as np
import pytest

from compat import tf
from data import dataset_info
from data.dataset_info import DatasetInfo
from inception_v3.config import Config, ConfigError
from inception_v3.data_set import samples_of
from inception_v3.model_dir import newest_checkpoint
from inception_v3.run import guard
from inception_v3.run.export import origin
from inception_v3.run.starts import changed_surroundings, read_starts
from inception_v3.run.trained_data import changes_between, check_data_set, trained_data_of
from tests.support.checkpoints import saved_variables
from tests.support.runs import evaluated_steps, evaluations, execute
from tools.predict import classifier
from tools.weights.writing import write_checkpoint

BIRDS = 'class 1: 0 -> bird'
# The same in Markdown.
BIRDS_IN_CARD = 'class 1: 0 -&gt; bird'


@pytest.fixture
def own(copied: Config, tmp_path: Any) -> Config:
    """A finished run with a data set of its own, which the test may replace."""
    shutil.copytree(copied.data_dir, tmp_path / 'data')
    config = dataclasses.replace(copied, data_dir=str(tmp_path / 'data'))
    for name in ('config.json', 'starts.jsonl'):
        path = tmp_path / 'model' / name
        path.write_text(path.read_text().replace(copied.data_dir, config.data_dir))
    return config


def described(config: Config) -> DatasetInfo:
    info = dataset_info.read(config.data_dir)
    assert info is not None
    return info


def rename_classes(config: Config) -> str:
    """Gives the same images other classes: the first class becomes birds. Returns the run's fingerprint."""
    info = described(config)
    names = ['background', 'bird', *info.class_names[2:]]
    dataclasses.replace(info, name='birds', class_names=names, fingerprint='f' * 64).write(config.data_dir)
    return info.fingerprint


def rewrite_starts(config: Config, **changes: Any) -> None:
    """Changes the recorded starts, for example to starts of an earlier version, which had fewer fields."""
    path = pathlib.Path(str(config.model_dir), 'starts.jsonl')
    lines = [{**json.loads(line), **changes} for line in path.read_text().splitlines()]
    path.write_text(''.join(f'{json.dumps(line)}\n' for line in lines))


def replace_weights(config: Config) -> str:
    """Replaces the newest checkpoint by one of the same step, whose weights are all zero. Returns its path."""
    path = os.path.join(str(config.model_dir), 'model.ckpt-5')
    values = saved_variables(path)
    zeros = {name: np.zeros_like(value) for name, value in values.items() if name.startswith('Logits')}
    write_checkpoint(path, {**values, **zeros})
    return path


def test_resumption__is_refused_on_a_data_set_of_other_classes(own: Config) -> None:
    fingerprint, longer = rename_classes(own), dataclasses.replace(own, train_steps=6)
    message = rf'^{own.data_dir} is not the data set that .*5 has learned: data_set: digits -> birds; {BIRDS}; '
    for config in (longer, dataclasses.replace(longer, mode='train'), own):
        with pytest.raises(ConfigError, match=f'{message}fingerprint: {fingerprint[:12]} -> f{{12}}\\. .* --model_dir'):
            execute(config)
    assert evaluated_steps(own) == [2, 4, 5] and len(read_starts(str(own.model_dir))) == 1


@pytest.mark.program
def test_resumption__on_another_data_set_is_recorded_if_allowed(own: Config, caplog: Any) -> None:
    fingerprint, longer = rename_classes(own), dataclasses.replace(own, train_steps=6)
    execute(dataclasses.replace(longer, allow_other_data_set=True))
    assert 'warning: ' in caplog.text
    old, new = read_starts(str(own.model_dir))
    assert (old.fingerprint, new.fingerprint) == (fingerprint, 'f' * 64)
    assert new.config['allow_other_data_set'] is True and new.info and new.info.class_names[1] == 'bird'
    # The checkpoint of step 5 has learned the digits, the checkpoint of step 6 the birds.
    before, now = (trained_data_of(own, f'{own.model_dir}/model.ckpt-{step}') for step in (5, 6))
    assert (before.class_names[1], before.earlier, now.class_names[1], now.note) == ('0', (), 'bird', '')
    assert [each.partition(':')[0] for each in now.earlier] == ['digits'] and fingerprint in now.earlier[0]
    # The run now belongs to the birds.
    execute(dataclasses.replace(longer, train_steps=7))


def replace_file(config: Config, split: str) -> None:
    one, other = sorted(pathlib.Path(config.data_dir).glob(f'{split}-*'))[:2]
    one.write_bytes(other.read_bytes())


@pytest.mark.parametrize('split', ['train', 'validation'])
def test_resumption__is_refused_on_other_images_under_an_old_description(own: Config, split: str) -> None:
    replace_file(own, split)
    with pytest.raises(ConfigError, match=rf' has learned: {split} files: \w{{12}} -> \w{{12}}\. '):
        execute(dataclasses.replace(own, train_steps=6))


def test_resumption__without_a_description_compares_the_files(own: Config, caplog: Any) -> None:
    os.remove(f'{own.data_dir}/dataset.json')
    rewrite_starts(own, description=None, data_set='', fingerprint='')
    checkpoint = f'{own.model_dir}/model.ckpt-5'
    check_data_set(own, None, checkpoint)
    with pytest.raises(ConfigError, match=' has learned: use_data: real -> fake'):
        check_data_set(dataclasses.replace(own, use_data='fake'), None, checkpoint)
    replace_file(own, 'train')
    with pytest.raises(ConfigError, match=' has learned: train files: '):
        check_data_set(own, None, checkpoint)
    # A start without samples cannot be compared either.
    rewrite_starts(own, description=None, data_set='', fingerprint='', samples=None)
    check_data_set(own, None, checkpoint)
    assert 'has no record of its data set, which cannot be compared' in caplog.text


def test_resumption__from_a_copy_of_the_best_checkpoint_knows_its_data(own: Config, tmp_path: Any) -> None:
    execute(dataclasses.replace(own, keep_best=True))
    shutil.copytree(f'{own.model_dir}/best', tmp_path / 'copy')
    rename_classes(own)
    with pytest.raises(ConfigError, match=BIRDS):
        execute(dataclasses.replace(own, model_dir=str(tmp_path / 'copy'), train_steps=6))


def test_samples__are_those_of_the_content(own: Config, tmp_path: Any) -> None:
    samples = samples_of(own)
    assert {*samples} == {'train', 'validation'}
    shutil.copytree(own.data_dir, tmp_path / 'copy')
    copied = dataclasses.replace(own, data_dir=str(tmp_path / 'copy'))
    for path in (tmp_path / 'copy').iterdir():
        os.utime(str(path), (1, 1))
    assert samples_of(copied) == samples
    # Patterns name the same files.
    assert samples_of(dataclasses.replace(copied, train_files='train-*', mode='train')) == {'train': samples['train']}
    with open(sorted((tmp_path / 'copy').glob('train-*'))[-1], 'r+b') as file:
        file.seek(100)
        file.write(b'other')
    assert samples_of(copied)['train'] != samples['train']


@pytest.mark.program
def test_evaluation__names_another_validation_set_and_refuses_other_classes(own: Config) -> None:
    following = dataclasses.replace(own, mode='eval')
    info = described(own)
    dataclasses.replace(info, name='more digits', fingerprint='e' * 64).write(own.data_dir)
    execute(following)
    assert evaluations(own)[-1].changed == (
        'data_set: digits -> more digits',
        f'fingerprint: {info.fingerprint[:12]} -> {"e" * 12}',
    )
    # This evaluation is not a score of the checkpoint on its own data.
    assert origin.origin_of(own, f'{own.model_dir}/model.ckpt-5').top_1 == evaluations(own)[-2].top_1
    rename_classes(own)
    with pytest.raises(ConfigError, match=BIRDS):
        execute(following)
    execute(dataclasses.replace(following, allow_other_data_set=True, export_dir=f'{own.model_dir}/export'))
    assert BIRDS in evaluations(own)[-1].changed
    (card,) = pathlib.Path(f'{own.model_dir}/export').glob('*/assets.extra/README.md')
    assert card.with_name('labels.txt').read_text().splitlines() == info.class_names
    assert info.fingerprint in card.read_text() and BIRDS_IN_CARD in card.read_text()
    with contextlib.closing(classifier.load(f'{own.model_dir}/export')) as exported:
        assert exported.class_names == info.class_names


def test_names__are_those_of_the_run(own: Config) -> None:
    info = described(own)
    rename_classes(own)
    with contextlib.closing(classifier.load(str(own.model_dir))) as model:
        assert model.class_names == info.class_names
        assert 'data_set: digits -> birds' in str(model) and f'{info.fingerprint[:12]} -> ffffffffffff' in str(model)
    with pytest.raises(ConfigError, match=f' has learned: {BIRDS}'):
        check_data_set(
            dataclasses.replace(own, mode='eval'), dataset_info.read(own.data_dir), f'{own.model_dir}/model.ckpt-5'
        )
    # The data set may be gone.
    shutil.rmtree(own.data_dir)
    with contextlib.closing(classifier.load(str(own.model_dir))) as model:
        assert (model.class_names, model.note) == (info.class_names, '')


def test_names__without_a_record_are_those_of_the_present_data_set(own: Config, caplog: Any) -> None:
    rename_classes(own)
    os.remove(f'{own.model_dir}/starts.jsonl')
    unknown = trained_data_of(own, f'{own.model_dir}/model.ckpt-5')
    assert unknown.class_names[1] == 'bird' and 'has no record of its classes' in unknown.note
    os.remove(f'{own.data_dir}/dataset.json')
    with contextlib.closing(classifier.load(str(own.model_dir))) as model:
        assert [*model.class_names] == [''] * 11
    assert f'classes are shown by number: no dataset.json in {own.data_dir}' in caplog.messages


def test_evaluation__belongs_to_the_weights(own: Config) -> None:
    assert origin.origin_of(own, f'{own.model_dir}/model.ckpt-5').top_1 == evaluations(own)[-1].top_1
    execute(own)
    assert evaluated_steps(own) == [2, 4, 5]
    checkpoint = replace_weights(own)
    assert origin.origin_of(own, checkpoint).top_1 is None
    summary = execute(own)
    old, new = evaluations(own)[-2:]
    assert (old.step, new.step) == (5, 5) and old.digest != new.digest != ''
    # With equal logits every label is among the likeliest.
    assert old.top_1 != new.top_1 == 1.0 and '100.00%' in summary
    assert origin.origin_of(own, checkpoint).top_1 == 1.0


def edit(path: pathlib.Path, **changes: Any) -> None:
    """Changes values of the last line of a file, like an edit by hand."""
    *lines, last = path.read_text().splitlines()
    path.write_text(''.join(f'{line}\n' for line in [*lines, json.dumps({**json.loads(last), **changes})]))


def test_evaluation__that_was_edited_is_not_repeated(own: Config, caplog: Any) -> None:
    results, checkpoint = pathlib.Path(str(own.model_dir), 'results.jsonl'), f'{own.model_dir}/model.ckpt-5'
    true = evaluations(own)[-1]
    # A possible number of images; and, in an evaluation of an earlier version, without a digest, an impossible one.
    for changes, reason in (
        ({'top_1': 1.0, 'top_5': 1.0}, 'it was changed'),
        ({'top_1': 0.5}, 'is not a number of 359'),
    ):
        edit(results, **changes)
        assert origin.origin_of(own, checkpoint).top_1 is None
        assert 'results.jsonl: skipped 1 of 3 lines' in caplog.text and 'line 3: ' in caplog.text
        assert reason in caplog.text
        line = json.loads(results.read_text().splitlines()[-1])
        line.pop('check', None)
        results.write_text('\n'.join([*results.read_text().splitlines()[:2], json.dumps({**line, 'top_1': 0.5})]))
    # Training evaluates the checkpoint again.
    summary = execute(own)
    assert evaluations(own)[-1].top_1 == true.top_1 and f'{true.top_1:.2%}' in summary


def test_origin__that_was_edited_is_unknown(own: Config, caplog: Any) -> None:
    execute(dataclasses.replace(own, export_dir=f'{own.model_dir}/export'))
    (saved_model,) = origin.saved_models(f'{own.model_dir}/export')
    known = origin.read(saved_model)
    assert known is not None and known.top_1 == evaluations(own)[-1].top_1
    path = pathlib.Path(saved_model, 'assets.extra', 'origin.json')
    path.write_text(json.dumps({**json.loads(path.read_text()), 'top_1': 0.99}))
    assert origin.read(saved_model) is None and 'origin.json: is damaged, and is not used: it was cha' in caplog.text


def test_evaluation__of_an_incomplete_data_set_is_said_and_not_the_runs(own: Config, caplog: Any) -> None:
    os.remove(sorted(pathlib.Path(own.data_dir).glob('validation-*'))[-1])
    summary = execute(dataclasses.replace(own, mode='eval', num_eval_images=359))
    evaluation = evaluations(own)[-1]
    assert evaluation.images == 269 and evaluation.changed == ('validation files: 4 -> 3',)
    assert 'evaluated 269 of 359 images' in ' '.join(summary.split())
    assert 'warning: 269 images were evaluated, and 359 were expected (--num_eval_images)' in caplog.messages
    for words in ('1 of 4 validation files are missing', 'validation records: 269; dataset.json says 359.'):
        assert any(message.startswith('warning: ') and words in message for message in caplog.messages)
    assert origin.origin_of(own, f'{own.model_dir}/model.ckpt-5').images == 359


def test_samples__notice_changes_at_the_ends_of_files(own: Config, tmp_path: Any) -> None:
    path = sorted(pathlib.Path(own.data_dir).glob('train-*'))[0]
    content = b'a' * 70_000 + b'b' * 70_000
    path.write_bytes(content)
    before = samples_of(own)['train']
    path.write_bytes(content[:-1] + b'c')
    after = samples_of(own)['train']
    assert before[:2] == after[:2] and before[2] != after[2]
    # Files that begin and end alike differ in their sizes.
    alike = []
    for size in (200_000, 200_001, 199_999, 65_537, 65_536):
        path.write_bytes(b'a' * size)
        alike.append(tuple(samples_of(own)['train']))
    assert len({digest for _, digest, _, _ in alike}) == len(alike)
    path.write_bytes(content[:-1] + b'c')
    # Earlier versions recorded the beginnings alone.
    (start,) = read_starts(str(own.model_dir))
    for sample, expected in ((before, True), (before[:2], False)):
        other = start._replace(samples={'train': sample})
        changes = changes_between(other, own, described(own))
        assert any(change.startswith('train files: ') for change in changes) is expected


def test_resumption__with_a_seed_on_another_tensorflow_is_said(own: Config, caplog: Any) -> None:
    seeded = dataclasses.replace(own, seed=1)
    checkpoint = newest_checkpoint(str(own.model_dir))
    assert changed_surroundings(seeded, checkpoint) is None
    (start,) = read_starts(str(own.model_dir))
    rewrite_starts(own, versions={**start.versions, 'tensorflow': '1.14.0'})
    warning = changed_surroundings(seeded, checkpoint)
    assert warning is not None and f'up to step 5: tensorflow: 1.14.0 -> {tf.__version__}.' in warning
    assert changed_surroundings(own, checkpoint) is None
    guard._prepare_to_train(seeded, described(own))
    assert f'warning: {warning}' in caplog.messages
