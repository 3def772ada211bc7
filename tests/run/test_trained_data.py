"""Tests of differences between the data sets of two starts; `tests/cycles/test_other_data.py` has whole runs."""

import dataclasses
import json
from typing import Any, Dict, List, Sequence

import pytest

from inception_v3.config import Config, ConfigError
from inception_v3.run.starts import Start
from inception_v3.run.trained_data import (
    changed_classes,
    changes_of_start,
    check_data_set,
    misplaced_class,
    trained_data_of,
)
from tests.support.checkpoints import save_step
from tests.support.records import write_records

ONE, OTHER = 'a' * 64, 'b' * 64
SAMPLES: Dict[str, List[Any]] = {'train': [2, 'c' * 64, 'd' * 64], 'validation': [1, 'e' * 64, 'f' * 64]}


def start(
    names: Sequence[str] = ('background', 'cat', 'dog'),
    data_set: str = 'pets',
    fingerprint: str = ONE,
    samples: Any = None,
    **config: Any,
) -> Start:
    description: Any = {'name': data_set, 'source': 'here', 'train_images': 6, 'validation_images': 3}
    description.update(num_classes=len(names), class_names=[*names], fingerprint=fingerprint)
    own = SAMPLES if samples is None else samples
    return Start(3, '', 'now', [], '/', config, data_set, fingerprint, {}, {}, None, description, own)


def with_samples(**changed: List[Any]) -> Dict[str, List[Any]]:
    return {split: changed.get(split, values) for split, values in SAMPLES.items()}


@pytest.mark.parametrize(
    ('new', 'changes'),
    [
        (start(), ()),
        # Fields that are not recorded have the documented values.
        (start(use_data='real', data_format='tfrecord'), ()),
        (start(use_data='fake', names=['x']), ('use_data: real -> fake',)),
        # Another name alone does not make another data set.
        (start(data_set='animals'), ()),
        (start(fingerprint=''), ()),
        (start(fingerprint=OTHER), (f'fingerprint: {"a" * 12} -> {"b" * 12}',)),
        (
            start(data_set='animals', fingerprint=OTHER),
            ('data_set: pets -> animals', f'fingerprint: {"a" * 12} -> {"b" * 12}'),
        ),
        (start(['background', 'dog', 'cat']), ('class 1: cat -> dog and 1 more',)),
        (start(['background', 'cat', 'fox']), ('class 2: dog -> fox',)),
        (start(['background', 'cat', 'dog', 'fox']), ('classes: 3 -> 4',)),
        # Both splits, each by the first value that differs: files, then digests.
        (
            start(
                samples=with_samples(train=[3, 'x' * 64, 'd' * 64], validation=[1, 'e' * 64, 'y' * 64]), fingerprint=''
            ),
            ('train files: 2 -> 3', f'validation files: {"f" * 12} -> {"y" * 12}'),
        ),
        (start(samples=with_samples(train=[2, 'x' * 64, 'd' * 64])), (f'train files: {"c" * 12} -> {"x" * 12}',)),
        # A value that only one version records is not compared.
        (start(samples=with_samples(train=[2, 'c' * 64, 'd' * 64, 'g' * 64])), ()),
        # The same images in other files, or in another format.
        (start(samples=with_samples(train=[3, 'x' * 64, 'y' * 64])), ()),
        (start(samples=with_samples(train=[2, 'x' * 64, 'y' * 64]), data_format='tar'), ()),
        (
            start(samples=with_samples(train=[2, 'x' * 64, 'y' * 64]), data_format='tar', fingerprint=OTHER),
            (f'fingerprint: {"a" * 12} -> {"b" * 12}', f'train files: {"c" * 12} -> {"x" * 12}'),
        ),
        # A part of the files does not have all images.
        (start(samples=with_samples(train=[3, 'x' * 64, 'y' * 64, 9])), ('train files: 2 -> 3',)),
        # Splits that were not recorded do not differ.
        (start(samples={'test': [9, 'x', 'y']}), ()),
    ],
)
def test_changes__are_those_of_images_classes_and_files(new: Start, changes: Any) -> None:
    assert changes_of_start(start(), new) == changes


def test_changes__leave_out_what_a_start_did_not_record() -> None:
    unnamed = start()._replace(data_set='', fingerprint='', samples=None)
    assert changes_of_start(unnamed, start()) == ()
    assert changes_of_start(unnamed, start(['background', 'fox'])) == (
        'data_set: unnamed -> pets',
        'class 1: cat -> fox',
    )
    assert changes_of_start(start()._replace(description=None), start(['x'])) == ()
    # The number of missing files is not a difference either: it follows from the names.
    one, other = (start(samples=with_samples(train=[*SAMPLES['train'], missing])) for missing in (0, 1))
    assert changes_of_start(one, other) == ()


@pytest.mark.parametrize(
    ('old', 'new', 'changes'),
    [
        (['a', 'b'], ['a', 'b'], ()),
        (['a', ''], ['a', 'b'], ()),
        (['', 'a'], ['x', 'b'], ('class 1: a -> b',)),
        (['a', 'b', 'c'], ['x', 'y', 'z'], ('class 0: a -> x and 2 more',)),
        (['a', 'b'], ['a'], ('classes: 2 -> 1',)),
        (['a', 'b'], ['x'], ('class 0: a -> x',)),
    ],
)
def test_changed_classes__have_the_first_name_and_the_number(old: List[str], new: List[str], changes: Any) -> None:
    assert changed_classes(start(old), start(new).info) == changes
    assert changed_classes(start(old), None) == ()


@pytest.mark.parametrize(
    ('names', 'others', 'expected'),
    [
        (['a', 'b'], ['a', 'b'], ''),
        (['a', 'b'], ['x', 'a'], 'a is class 0 of the weights and class 1 of the data set'),
        (['x', 'b', 'a'], ['x', 'a', 'c'], 'a is class 2 of the weights and class 1 of the data set'),
        # Two classes of the same name, in either list.
        (['crane', 'crane'], ['x', 'y', 'crane'], ''),
        (['x', 'crane'], ['crane', 'crane'], ''),
        (['crane'], ['x', 'crane', 'crane'], 'crane is class 0 of the weights and class 1 of the data set'),
        ([], ['a'], ''),
    ],
)
def test_misplaced_class__is_a_name_at_other_labels_alone(names: List[str], others: List[str], expected: str) -> None:
    assert misplaced_class(names, others) == expected


FAKE = Config(use_data='fake', data_dir='/gone')


def recorded(folder: Any, *starts: Start) -> str:
    """The checkpoint of step 9 after these starts."""
    if not (folder / 'model.ckpt-9.index').exists():
        save_step(str(folder), 9)
    lines = [json.dumps(each._replace(step=number)._asdict()) for number, each in enumerate(starts)]
    (folder / 'starts.jsonl').write_text(''.join(f'{line}\n' for line in lines))
    return f'{folder}/model.ckpt-9'


def test_trained_data_of__names_the_data_sets_that_a_run_has_left(tmp_path: Any) -> None:
    birds, cats, dogs = (start(data_set=name, fingerprint=name * 2) for name in ('birds', 'cats', 'dogs'))
    found = trained_data_of(FAKE, recorded(tmp_path, birds, cats, birds, dogs, cats))
    assert found.info == cats.info and found.note == ''
    assert [each.partition(':')[0] for each in found.earlier] == ['birds', 'dogs']
    imported = dogs._replace(class_names=['x', 'y'])
    named = trained_data_of(FAKE, recorded(tmp_path, birds, imported))
    assert (named.class_names, named.imported_names, named.info) == (['x', 'y'], ('x', 'y'), imported.info)
    nothing = trained_data_of(FAKE, recorded(tmp_path))
    assert (nothing.info, nothing.class_names, nothing.note) == (None, [], '')


def test_trained_data_of__says_that_another_data_set_is_in_its_place(tmp_path: Any) -> None:
    present, config = start(['background', 'fox', 'dog']).info, Config(data_dir=str(tmp_path))
    assert present
    present.write(str(tmp_path))
    write_records(tmp_path, 'train', [b'x'])
    # The last start decides; files are not compared.
    checkpoint = recorded(tmp_path, start(['background', 'fox', 'dog']), start(samples={'train': [9, 'x', 'y']}))
    assert trained_data_of(config, checkpoint).note == (
        f'{config.source} is not the data set that {checkpoint} has learned: class 1: cat -> fox'
    )
    assert trained_data_of(config, recorded(tmp_path, start(), start(['background', 'fox', 'dog']))).note == ''
    unknown = trained_data_of(config, recorded(tmp_path))
    assert unknown.info == present
    assert unknown.note == f'{checkpoint} has no record of its classes: names are from {config.source}'


def test_check_data_set__compares_training_by_images_and_evaluation_by_classes(tmp_path: Any, caplog: Any) -> None:
    real: Dict[str, Any] = {'samples': {}, 'use_data': 'real'}
    own, others = start(**real).info, start(fingerprint=OTHER, **real).info
    config = Config(data_dir=str(tmp_path), use_data='real', mode='train')
    checkpoint = recorded(tmp_path, start(['background', 'x'], samples={}), start(samples={}))
    fake = dataclasses.replace(config, use_data='fake', mode='train_and_eval')
    for mode in ('train', 'train_and_eval'):
        with pytest.raises(ConfigError, match='has learned: use_data: real -> fake') as error:
            check_data_set(dataclasses.replace(fake, mode=mode), others, checkpoint)
    assert str(error.value).endswith('or add --allow_other_data_set.')
    evaluation = dataclasses.replace(fake, mode='eval')
    check_data_set(evaluation, others, checkpoint)
    check_data_set(evaluation, own, checkpoint)
    assert not caplog.text
    with pytest.raises(ConfigError, match='has learned: class 2: dog -> fox'):
        check_data_set(evaluation, start(['background', 'cat', 'fox']).info, checkpoint)
    check_data_set(dataclasses.replace(fake, allow_other_data_set=True), others, checkpoint)
    assert caplog.text.count('(--allow_other_data_set)') == 1 and 'use_data: real -> fake' in caplog.text
    # Each of these records the data set: a fingerprint, samples, or the use of fake data.
    for known in (
        start(samples={}),
        start(fingerprint='', samples={'train': [1, 'x', 'y']}),
        start(fingerprint='', samples={}, use_data='fake'),
    ):
        caplog.clear()
        check_data_set(dataclasses.replace(evaluation), own, recorded(tmp_path, known))
        assert 'has no record of its data set' not in caplog.text


def test_check_data_set__without_a_record_compares_the_order_of_names(tmp_path: Any, caplog: Any) -> None:
    present = start(['background', 'dog', 'cat']).info
    nothing = start(fingerprint='', samples={})._replace(description=None)
    check_data_set(FAKE, present, recorded(tmp_path, nothing))
    check_data_set(FAKE, None, recorded(tmp_path))
    assert caplog.text.count('has no record of its data set, which cannot be compared with') == 2
    named = recorded(tmp_path, nothing._replace(class_names=['background', 'cat', 'dog']))
    check_data_set(FAKE, None, named)
    with pytest.raises(ConfigError, match='in another order: cat is class 1 of the weights and class 2 of the data'):
        check_data_set(FAKE, present, named)
    check_data_set(dataclasses.replace(FAKE, allow_other_data_set=True), present, named)
