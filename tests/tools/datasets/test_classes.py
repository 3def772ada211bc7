"""Remarks on classes: names that look alike, classes without images, and unequal sizes."""

from typing import List, Sequence, Tuple

import pytest

from tools.datasets.audit import findings
from tools.datasets.classes import ClassImages, alike, remarks

ONLY_VALIDATED = 'classes with validation images and without training images'
SIZES = (
    'classes of unequal size: {} has {} training images, and {} {}. Top-1 of all images then says little about rare '
    'classes; inception-v3 evaluate reports it for each class, and --class_weights=balanced lets each count the same '
    'in training.'
)


@pytest.mark.parametrize(
    ('counts', 'expected'),
    [
        ([(9, 1), (1, 1)], []),
        ([(10, 1), (1, 1)], [SIZES.format('a', 10, 'b', 1)]),
        ([(20, 1), (3, 1), (5000, 1)], [SIZES.format('c', '5,000', 'b', 3)]),
        ([(5, 0), (5, 1), (5, 0)], ['classes without validation images: 2: a, c']),
        ([(5, 0), (5, 0)], []),
        ([(0, 1), (0, 0), (5, 1)], [f'{ONLY_VALIDATED}: 1: a', 'classes without images: 1: b']),
        ([(0, 3), (0, 0)], []),
    ],
)
def test_remarks__name_unequal_and_unvalidated_classes(counts: Sequence[Tuple[int, int]], expected: List[str]) -> None:
    assert [*remarks([ClassImages(name, *count) for name, count in zip('abc', counts)])] == expected


@pytest.mark.parametrize(
    'group',
    [
        ['Cat', 'cat'],
        ['cat', 'cat '],
        ['golden  retriever', 'golden-retriever', 'golden_retriever'],
        ['cat', '\uff43\uff41\uff54'],
        ['cat', 'ca\u200bt'],
        ['strasse', 'stra\u00dfe'],
    ],
)
def test_alike__finds_names_that_look_alike(group: List[str]) -> None:
    shown = ' and '.join(map(repr, group)).replace('\u200b', r'\u200b')
    expected = f'classes whose names look alike: {shown}. If they are one class, give them one name.'
    assert [*alike([*group, 'dog', 'doge', 'hot dog', 'hotdog', 'doge'])] == [expected]


def test_the_audit_has_the_same_remarks() -> None:
    sizes = {1: ('cat', 30, 1), 2: ('Cat', 3, 1), 3: ('dog', 9, 0)}
    classes = [{'label': label, 'name': name, 'train': t, 'validation': v} for label, (name, t, v) in sizes.items()]
    report = {'name': 'mine', 'num_classes': 4, 'classes': classes, 'splits': {}, 'label_offset': 0}
    assert [*findings._about_classes(report)] == [
        'classes without validation images: 1: 3 (dog)',
        SIZES.format('1 (cat)', 30, '2 (Cat)', 3),
        "classes whose names look alike: 'Cat' and 'cat'. If they are one class, give them one name.",
    ]
