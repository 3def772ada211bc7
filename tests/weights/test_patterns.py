"""Tests of the patterns that select variables by their scopes."""

import pytest

from inception_v3.weights.patterns import HEAD, NOTHING, Patterns, scopes_of

STEM = 'InceptionV3/Conv2d_1a_3x3/weights'
INNER = 'InceptionV3/Mixed_5b/Branch_0/Conv2d_0a_1x1/BatchNorm/moving_mean'
LOGITS = 'InceptionV3/Logits/Conv2d_1c_1x1/biases'
AUXILIARY = 'InceptionV3/AuxLogits/Conv2d_2b_1x1/biases'
ALL = {STEM, INNER, LOGITS, AUXILIARY}


@pytest.mark.parametrize(
    ('text', 'matched'),
    [
        ('', set()),
        ('Logits', {LOGITS}),
        (HEAD, {LOGITS, AUXILIARY}),
        ('logits, AUXLOGITS', {LOGITS, AUXILIARY}),
        # Not the convolutions of these names inside of other scopes.
        ('Conv2d_*', {STEM}),
        ('Mixed_5*', {INNER}),
        ('Mixed_[567]*/Branch_0', {INNER}),
        ('Mixed_5b/Branch_1', set()),
        ('InceptionV3/Mixed_5b/', {INNER}),
        ('InceptionV3', ALL),
        ('*', ALL),
        ('*/*/*/*/*/*/*', set()),
        ('Mixed', set()),
    ],
)
def test_match__goes_by_the_outer_scopes(text: str, matched: set) -> None:
    assert {name for name in ALL if Patterns(text).match(name)} == matched


def test_match__knows_networks_without_a_scope_of_their_own() -> None:
    assert Patterns('Logits').match('Logits/weights')
    assert Patterns('logits').match('ResNet50/logits/weights')
    assert not NOTHING.match('Logits/weights')


def test_unmatched__names_the_patterns_that_match_nothing() -> None:
    assert Patterns('Logits,Mixed_9*, Conv2d_1a_3x3').unmatched(ALL) == ['Mixed_9*']
    assert Patterns('Logits').unmatched([]) == ['Logits']


def test_scopes_of__are_the_outer_two_without_repetition() -> None:
    names = [STEM, INNER, 'InceptionV3/Mixed_5b/Branch_1/weights', 'Logits/weights', 'global_step']
    assert scopes_of(names) == ['InceptionV3/Conv2d_1a_3x3', 'InceptionV3/Mixed_5b', 'Logits', 'global_step']
