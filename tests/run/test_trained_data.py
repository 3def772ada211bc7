"""Tests of the differences between data sets of two starts; `tests/cycles/test_other_data.py` has those of runs."""

from typing import Any, Dict, List, Sequence

import pytest

from inception_v3.run.starts import Start
from inception_v3.run.trained_data import changed_classes, changes_of_start, misplaced_class

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
        # The documented values are those of fields that are not recorded.
        (start(use_data='real', data_format='tfrecord'), ()),
        (start(use_data='fake', names=['x']), ('use_data: real -> fake',)),
        # Another name alone is no other data set.
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
        # A part of the files is not all images.
        (start(samples=with_samples(train=[3, 'x' * 64, 'y' * 64, 9])), ('train files: 2 -> 3',)),
        # What was not recorded does not differ.
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
