"""Remarks on the classes of a data set, their names and numbers of images, for conversions and the audit."""

import collections
import re
import unicodedata
from typing import Dict, Iterator, List, NamedTuple, Sequence

from tools.image_files import listed

# A class with this many times fewer training images than another is rare.
_IMBALANCE = 10
_BLANKS = re.compile(r'[\s_-]+')


class ClassImages(NamedTuple):
    """A class and its numbers of images."""

    name: str
    train: int
    validation: int


def remarks(classes: Sequence[ClassImages]) -> Iterator[str]:
    """Yields sentences on classes without images, and on an imbalance. The background is not among the classes.

    A split without any images causes no remark.
    """
    has_training, has_validation = any(each.train for each in classes), any(each.validation for each in classes)
    for what, trained, validated, is_told in (
        ('classes with validation images and without training images', False, True, has_training),
        ('classes without images', False, False, has_training),
        ('classes without validation images', True, False, has_validation),
    ):
        found = [each.name for each in classes if (each.train > 0, each.validation > 0) == (trained, validated)]
        if found and is_told:
            yield f'{what}: {len(found):,}: {listed(found)}'
    by_size = sorted((each for each in classes if each.train), key=lambda each: each.train)
    if by_size and by_size[-1].train >= _IMBALANCE * by_size[0].train:
        rare, common = by_size[0], by_size[-1]
        yield (
            f'classes of unequal size: {listed([common.name])} has {common.train:,} training images, and '
            f'{listed([rare.name])} {rare.train:,}. Top-1 of all images then says little about rare classes; '
            'inception-v3 evaluate reports it for each class, and --class_weights=balanced lets each count the same in '
            'training.'
        )


def alike(names: Sequence[str]) -> Iterator[str]:
    """Yields a sentence if names differ only in capitalization, blanks (including _ and -) or Unicode form."""
    by_form: Dict[str, List[str]] = collections.defaultdict(list)
    for name in sorted({*names}):
        by_form[_form(name)].append(name)
    groups = [' and '.join(map(repr, group)) for group in by_form.values() if len(group) > 1]
    if groups:
        yield f'classes whose names look alike: {listed(groups)}. If they are one class, give them one name.'


def _form(name: str) -> str:
    seen = ''.join(each for each in unicodedata.normalize('NFKC', name) if unicodedata.category(each) != 'Cf')
    return _BLANKS.sub(' ', seen).strip().casefold()
