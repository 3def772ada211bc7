"""The division into training and validation images: by content and class, independent of the order."""

import collections
import random
from typing import List, Set, Tuple

import pytest

from data.convert.split import digest, split_by_content

Image = Tuple[bytes, int]


def images(*class_sizes: int) -> List[Image]:
    """Different contents, a given number per class."""
    return [
        (b'%d of class %d' % (index, label), label) for label, size in enumerate(class_sizes) for index in range(size)
    ]


def split(given_images: List[Image], fraction: float) -> Tuple[List[Image], List[Image]]:
    digests = [digest(content) for content, _ in given_images]
    indices = split_by_content(digests, [label for _, label in given_images], fraction)
    assert sorted(indices[0] + indices[1]) == list(range(len(given_images)))
    train, validation = ([given_images[index] for index in share] for share in indices)
    return train, validation


def contents(share: List[Image]) -> Set[bytes]:
    return {content for content, _ in share}


@pytest.mark.parametrize('fraction', [0.0, 0.1, 0.5])
def test_split__same_share_of_every_class(fraction: float) -> None:
    sizes = [100, 40, 7, 1, 60]
    # Copies count once, and stay together.
    train, validation = split(images(*sizes) * 3 + images(*sizes)[:9], fraction)
    assert not contents(train) & contents(validation) and len(train) + len(validation) == 633
    counts = collections.Counter(label for _, label in {*validation})
    assert [counts[label] for label in range(len(sizes))] == [round(size * fraction) for size in sizes]


def test_the_division_does_not_depend_on_the_order() -> None:
    generator = random.Random(0)
    for _ in range(200):
        # Few different contents, so that many images are equal, and some of these have several classes.
        several = [(bytes([generator.randrange(8)]), generator.randrange(3)) for _ in range(15)]
        fraction = generator.random()
        one, other = split(several, fraction), split(generator.sample(several, len(several)), fraction)
        assert [contents(share) for share in one] == [contents(share) for share in other]
        assert not contents(one[0]) & contents(one[1])


def test_split__orders_the_images_by_their_digests() -> None:
    digests = [digest(b'%d' % number) for number in range(60)]
    for share in split_by_content(digests, [1] * 60, 0.5):
        assert len(share) == 30
        assert [digests[index] for index in share] == sorted(digests[index] for index in share)
