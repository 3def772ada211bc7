"""Tests of the patterns that select variables by their scopes."""

import pytest

from inception_v3.weights.selection import HEAD, NOTHING, Patterns, scopes_of

STEM = 'InceptionV3/Conv2d_1a_3x3/weights'
INNER = 'InceptionV3/Mixed_5b/Branch_0/Conv2d_0a_1x1/BatchNorm/moving_mean'
LOGITS = 'InceptionV3/Logits/Conv2d_1c_1x1/biases'
AUXILIARY = 'InceptionV3/AuxLogits/Conv2d_2b_1x1/biases'
# Of networks without a scope of their own, and of other names for the classifier.
OTHERS = {'Logits/weights', 'ResNet50/logits/weights'}
ALL = {STEM, INNER, LOGITS, AUXILIARY, *OTHERS}


@pytest.mark.parametrize(
    ('text', 'matched'),
    [
        ('', set()),
        (HEAD, {LOGITS, AUXILIARY, *OTHERS}),
        ('logits, AUXLOGITS', {LOGITS, AUXILIARY, *OTHERS}),
        # Not the convolutions of these names inside of other scopes.
        ('Conv2d_*', {STEM}),
        ('Mixed_[567]*/Branch_0', {INNER}),
        ('Mixed_5b/Branch_1', set()),
        ('InceptionV3/Mixed_5b/', {INNER}),
        ('*', ALL),
        ('*/*/*/*/*/*/*', set()),
        ('Mixed', set()),
    ],
)
def test_match__goes_by_the_outer_scopes(text: str, matched: set) -> None:
    assert {name for name in ALL if Patterns(text).match(name)} == matched
    assert not NOTHING.match(STEM)
    assert Patterns('Logits,Mixed_9*, Conv2d_1a_3x3').unmatched(ALL) == ['Mixed_9*']


def test_scopes_of__are_the_outer_two_without_repetition() -> None:
    names = [STEM, INNER, 'InceptionV3/Mixed_5b/Branch_1/weights', 'Logits/weights', 'global_step']
    assert scopes_of(names) == ['InceptionV3/Conv2d_1a_3x3', 'InceptionV3/Mixed_5b', 'Logits', 'global_step']
