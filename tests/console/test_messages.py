"""Tests of values in messages."""

from typing import Any

import pytest

from console.messages import shown


@pytest.mark.parametrize(
    ('value', 'text'),
    [
        ('Käse', 'Käse'),
        ('a\nb\x1b[K', r'a\nb\x1b[K'),
        (b'a\xff', r'a\udcff'),
        (None, 'None'),
        ('a' * 80, 'a' * 80),
        ('a' * 40 + 'b' * 41, 'a' * 40 + '...' + 'b' * 40),
    ],
)
def test_shown__is_printable_and_at_most_80_characters_of_the_value(value: Any, text: str) -> None:
    assert shown(value) == text


def test_shown__shortens_in_the_middle() -> None:
    assert shown('0123456789', 6) == '012...789'
    assert shown('0123456789', 10) == '0123456789'
