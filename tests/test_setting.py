"""Tests of the limits of single values."""

from typing import Any, Optional

import pytest

from inception_v3.config import Config, ConfigError, Setting, plain_type


@pytest.mark.parametrize(
    ('limits', 'allowed', 'refused', 'text'),
    [
        ({'lower': 1}, (1, 2), (0,), 'at least 1'),
        ({'above': 0}, (0.001, 1e9), (0, -1), 'above 0'),
        ({'above': 0, 'upper': 1}, (1, 0.5), (0, 1.001), 'above 0 and at most 1'),
        ({'lower': 0.5, 'upper': 1.0}, (0.5, 1.0), (0.499, 1.001), 'at least 0.5 and at most 1'),
        ({'choices': ('a', 'b', 'c')}, ('a', 'c'), ('d', '', 'A'), 'a, b or c'),
        ({}, (-1, 'x', 1e30), (), ''),
    ],
)
def test_setting__allows_values_within_its_limits(limits: Any, allowed: Any, refused: Any, text: str) -> None:
    setting = Setting('group', 'help', **limits)
    assert all(setting.allows(value) for value in allowed)
    assert not any(setting.allows(value) for value in refused)
    assert setting.allowed == text


@pytest.mark.parametrize(
    ('field', 'largest', 'beyond'),
    [
        ('train_steps', 2**31 - 1, 2**31),
        ('learning_rate', 2.0**127, 2.0**127 * 1.001),
        ('data_dir', 'a' * 4096, 'a' * 4097),
        ('train_steps', 1, 0),
        ('learning_rate', 2.0**-126, 2.0**-127),
        ('weight_decay', 1.0, 1.001),
        ('weight_decay', 0.0, -0.001),
        ('image_summaries', 99, 100),
        ('num_classes', 2, 1),
        ('eval_timeout', None, -1),
        ('moving_average_decay', 1, 2),
        ('seed', 0, -1),
        ('data_dir', '\N{ZERO WIDTH JOINER}', '\x7f'),
        ('data_dir', 'é 日本', '\ud800'),
        ('train_steps', 5, None),
    ],
)
def test_config__accepts_the_last_allowed_value_and_refuses_the_next(field: str, largest: Any, beyond: Any) -> None:
    assert getattr(Config(**{field: largest}), field) == largest
    with pytest.raises(ConfigError, match=f'^--{field}='):
        Config(**{field: beyond})


def test_config__converts_whole_numbers_of_number_fields() -> None:
    assert type(Config(learning_rate=1).learning_rate) is float


def test_plain_type__is_the_content_of_an_optional() -> None:
    assert [plain_type(each) for each in (int, Optional[int], Optional[str], bool)] == [int, int, str, bool]
