"""Tests of class weights: balanced by counts, read from files, and in runs; `test_model_fn` tests the loss."""

import dataclasses
import json
import re
import shutil
from typing import Any, List, Sequence

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from data import dataset_info
from data.records import DataError
from inception_v3 import class_weights, class_weights_file, rules
from inception_v3.config import Config, ConfigError
from inception_v3.fitting import with_class_weights
from inception_v3.flags import parse
from inception_v3.model_dir import differences, read_config
from inception_v3.run.summary import introduction_of
from tests.support.events import read_events
from tests.support.runs import execute
from tests.test_data_set import fitted

NAMES = ['background', 'cat', 'dog', 'cat, tabby']


def test_balanced__is_the_formula_of_scikit_learn() -> None:
    images = [0, 30, 10, 0, 60]
    weights = class_weights.balanced(images)
    # 100 / (3 · 30), 100 / (3 · 10), 100 / (3 · 60); 1 without images.
    np.testing.assert_allclose(weights, [1, 10 / 9, 10 / 3, 1, 5 / 9])
    labels = np.repeat(np.arange(5), images)
    classes = np.array([1, 2, 4])
    theirs = compute_class_weight(class_weight='balanced', classes=classes, y=labels)
    np.testing.assert_allclose(np.array(weights)[classes], theirs)
    assert np.dot(weights, images) / sum(images) == pytest.approx(1)


def parsed(text: str, names: Sequence[str] = NAMES, num_classes: int = 4) -> List[float]:
    return class_weights_file.parsed(text.encode(), '--class_weights=w.csv', names, num_classes)


@pytest.mark.parametrize(
    ('text', 'names', 'weights'),
    [
        ('class,weight\ncat,2\n\n dog , 0.5\n"cat, tabby",1e-3\n', NAMES, [1, 2, 0.5, 1e-3]),
        # A heading, as in a table from pandas.
        ('Name,Weight\ncat,2\ndog,3\n"cat, tabby",4\n', NAMES, [1, 2, 3, 4]),
        ('label,weight\n0,5\n1,2\n2,4\n3,3\n', (), [5, 2, 4, 3]),
        ('\ufeff3,3\n1,2\r\n02,4\n0,5\n', NAMES, [5, 2, 4, 3]),
        ('0,5\n1,2\n2,4\n3,3\n', (), [5, 2, 4, 3]),
        # The names of the digits are numbers, and not their labels.
        ('0,2\n1,3\n2,4', ['background', '0', '1', '2'], [1, 2, 3, 4]),
        ('1,2\n2,3\n3,4', ['background', '0', '1', '2'], [1, 2, 3, 4]),
        # A class without a name has no images.
        ('cat,2\ndog,3', ['background', 'cat', 'dog', ''], [1, 2, 3, 1]),
        ('cat,2\ndog,3', ['background', 'cat', 'dog'], [1, 2, 3, 1]),
        # Label 0 is a class.
        ('bird,7\ncat,2\ndog,3\ncup,4', ['bird', 'cat', 'dog', 'cup'], [7, 2, 3, 4]),
    ],
)
def test_parsed__names_or_labels_with_a_weight_each(text: str, names: List[str], weights: List[float]) -> None:
    assert parsed(text, names) == weights


@pytest.mark.parametrize(
    ('text', 'problem'),
    [
        ('cat,2\ndgo,1', 'line 2: dgo is not a class of the data set'),
        ('cat,2\n2,1', 'line 2: 2 is not a class of the data set'),
        ('1,2\n4,1', 'line 2: 4 is not a label from 0 to 3'),
        ('cat,2\n\ncat,2', 'line 3: cat was given in line 1 already'),
        *((f'cat,{weight}', f'line 1: the weight of cat is {weight}; it must be a') for weight in ('-1', '0', '1_0')),
        *((f'cat,{weight}', f'line 1: the weight of cat is {weight}; it must be a') for weight in ('inf', 'x', '1e99')),
        ('cat,', 'line 1: the weight of cat is empty; it must be a number from 1.2e-38 to 1.7e.38'),
        ('cat, tabby,2', 'line 1: 3 values; it must have two: .*a name with a comma is quoted'),
        ('cat', 'line 1: 1 value; it must have two'),
        ('cat;2', 'line 1: 1 value; it must have two: .* with a comma between them'),
        # No heading.
        ('name,mass\ncat,2', 'line 1: name is not a class'),
        (',2', 'line 1: an empty name is not a class'),
        ('cat,2', 'has no weight for 2 of 3 classes: dog, cat, tabby'),
        ('1,2', 'has no weight for 2 of 3 labels: 2, 3'),
        ('', 'has no weight for 3 of 3 classes'),
        ('"cat', 'line 1: not CSV'),
        ('crane,1', 'line 1: crane is the name of 2 classes; give labels in every line'),
        ('cat,2', 'has no weight for 1 of 2 classes: bird'),
    ],
)
def test_parsed__refuses_by_line(text: str, problem: str) -> None:
    names = ['background', 'crane', 'crane', 'cup'] if 'crane' in text else NAMES
    if 'bird' in problem:
        names = ['bird', 'cat']
    with pytest.raises(ConfigError, match=f'^--class_weights=w.csv: {problem}'):
        parsed(text, names)


def test_parsed__refuses_what_is_no_text() -> None:
    with pytest.raises(ConfigError, match=r'w\.csv: not a text file in UTF-8'):
        class_weights_file.parsed(b'\xff\x00', '--class_weights=w.csv', NAMES, 4)


def test_fitting__balances_by_the_description_or_by_the_labels(few_digits_dir: str, tmp_path: Any) -> None:
    described = fitted(f'--data_dir={few_digits_dir}', '--class_weights=balanced')
    assert described.class_weights == 'balanced=1,1,1'
    copy = shutil.copytree(few_digits_dir, tmp_path / 'copy')
    content = json.loads((copy / 'dataset.json').read_text())
    assert content['train_images_per_class'] == [0, 20, 20]
    content['train_images_per_class'] = [0, 30, 10]
    (copy / 'dataset.json').write_text(json.dumps(content))
    weights = class_weights.by_label(fitted(f'--data_dir={copy}', '--class_weights=balanced', '--num_classes=4'))
    np.testing.assert_allclose(weights, [1, 40 / 60, 40 / 20, 1])
    # Labels are counted in files that are not described, and in a data set of an earlier version.
    part = f'--train_files={few_digits_dir}/train-0000[0-2]*'
    files = fitted(part, f'--data_dir={copy}', '--class_weights=balanced')
    counted = [0, *np.bincount([*_labels(few_digits_dir, 3)], minlength=3)[1:]]
    assert sum(counted) == 15 and counted[1] != counted[2]
    np.testing.assert_allclose(class_weights.by_label(files), class_weights.balanced(counted))
    del content['train_images_per_class']
    (copy / 'dataset.json').write_text(json.dumps(content))
    assert fitted(f'--data_dir={copy}', '--class_weights=balanced').class_weights == 'balanced=1,1,1'
    # The labels 1 and 2 become 3 and 4, and 4 is not a class.
    shifted = [part, '--eval_files=x', '--label_offset=2', '--num_classes=4', '--mode=train']
    assert fitted(*shifted, '--class_weights=balanced').class_weights == 'balanced=1,1,1,1'
    with pytest.raises(DataError, match='no label is from 0 to 3, as --class_weights needs'):
        fitted(*shifted, '--label_offset=9', '--class_weights=balanced')


def _labels(folder: str, files: int) -> List[int]:
    from data.labels import labelled_in
    from data.sources import Source

    source = Source(folder)
    return [each.label for path in source.find('train')[:files] for each in labelled_in(source, path)]


def test_fitting__reads_a_file_and_keeps_numbers(few_digits_dir: str, tmp_path: Any) -> None:
    data, path = f'--data_dir={few_digits_dir}', tmp_path / 'w=1,2.csv'
    path.write_text('3,0.5\n7,2\n')
    config = fitted(data, f'--class_weights={path}')
    assert config.class_weights == f'{path}=1,0.5,2' and class_weights.given(config) == str(path)
    path.unlink()
    # The form in `config.json`.
    assert fitted(data, f'--class_weights={config.class_weights}') == config
    assert introduction_of(config, dataset_info.read(few_digits_dir)).splitlines()[4] == (
        f'class weights  {path}, 0.5 (3) to 2 (7)'
    )
    for given, problem in (
        (str(path), 'no such file. Give balanced, or a CSV file'),
        ('mine=1,2', 'has 2 numbers; there are 3 classes, including the background'),
        ('mine=1,2,3,4', 'has 4 numbers; there are 3 classes'),
        ('mine=1,0,2', r'each weight must be a number from 1\.2e-38 to 1\.7e\+38'),
    ):
        with pytest.raises(ConfigError, match=f'class_weights=.*: {problem}'):
            fitted(data, f'--class_weights={given}')
    # Evaluation has no training loss, and needs no file.
    assert with_class_weights(Config(mode='eval', class_weights='gone.csv'), None).class_weights == 'gone.csv'


def test_rules__refuse_balanced_weights_of_fake_data_and_numbers() -> None:
    for config, problem in (
        (Config(use_data='fake', class_weights='balanced'), 'balanced: needs the numbers of images'),
        (Config(class_weights='2.5'), '2.5: must be balanced, or a CSV file'),
    ):
        with pytest.raises(ConfigError, match=problem):
            rules.check(config)
    rules.check(Config(use_data='fake', class_weights='weights.csv'))
    with pytest.raises(ConfigError, match='class_weights=balanced: has no effect with --mode=eval'):
        parse(['program', '--mode=eval', '--class_weights=balanced'])


def test_numbers__of_many_classes_are_kept_and_shown_shortened() -> None:
    weights = np.random.RandomState(0).uniform(0.01, 9, 21842)
    config = Config(class_weights=class_weights.with_numbers('balanced', [*weights]))
    np.testing.assert_allclose(class_weights.by_label(Config.from_json(config.to_json())), weights, rtol=1e-8)
    (change,) = differences(Config(), config)
    assert change.startswith('class_weights:  -> balanced=4.9') and len(change) < 300
    weights[9000] += 1
    other = Config(class_weights=class_weights.with_numbers('balanced', [*weights]))
    before, after = differences(config, other)[0].split(' -> ')
    assert before.partition(' ')[2] != after
    assert re.search(r' \(SHA-256 [0-9a-f]{12}\)$', after)
    # A value of up to 4,096 characters is shown whole.
    assert differences(Config(), Config(freeze='a' * 4096))[0].endswith(f' -> {"a" * 4096}')
    with pytest.raises(ConfigError, match='has no numbers yet'):
        class_weights.by_label(Config(class_weights='balanced'))


def test_run__trains_with_the_weights_and_records_them(small_config: Config, tmp_path: Any, one_layer: None) -> None:
    def first_loss(name: str, weights: str) -> float:
        config = dataclasses.replace(
            small_config,
            mode='train',
            use_data='fake',
            seed=1,
            train_steps=1,
            class_weights=weights,
            skip_host_call=False,
            model_dir=str(tmp_path / name),
            save_summary_steps=1,
            weight_decay=0.0,
        )
        summary = execute(config)
        assert ('class weights' in summary) == bool(weights)
        recorded = read_config(str(tmp_path / name))
        assert recorded and recorded.class_weights == weights
        return read_events(str(tmp_path / name))['loss'][0]

    plain, tripled = first_loss('plain', ''), first_loss('tripled', f'mine={",".join(["3"] * 11)}')
    assert tripled == pytest.approx(3 * plain, rel=1e-6)
