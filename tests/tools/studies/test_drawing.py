"""The figures of studies."""

from typing import Any

import pytest

from tools.benchmarks.tables import Spread
from tools.studies.drawing import Panel, draw, sign_of


def test_draw__has_medians_intervals_and_a_legend() -> None:
    words: Any = {'a': {'few': Spread(4, 3, 6), 'many': None}, 'b': {'few': Spread(5, 5, 5), 'many': Spread(-2, -3, 1)}}
    numbers: Any = {'b': {1: Spread(10, 9, 11), 100: Spread(20, 20, 30)}}
    panels = [Panel('', 'images', 'error', words), Panel('', 'images', 'error', numbers, is_logarithmic=True)]
    figure = draw('', [*panels, panels[1]._replace(is_logarithmic=False)])
    by_words, by_numbers, linear = figure.axes[:3]
    assert [[*container[0].get_ydata()] for container in by_words.containers] == [[4], [5, -2]]
    assert by_words.collections[0].get_segments()[0][:, 1] == pytest.approx([3, 6])
    assert [text.get_text() for text in by_words.get_xticklabels()] == ['few', 'many']
    assert by_words.get_ylim()[0] < -3 and by_numbers.get_xscale() == by_numbers.get_yscale() == 'log'
    assert linear.get_ylim()[0] == 0
    assert [*by_numbers.containers[0][0].get_xdata()] == [1, 100]
    # A series has one sign in all panels.
    assert by_numbers.containers[0][0].get_color() == by_words.containers[1][0].get_color() == sign_of(1).light
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ['a', 'b']


def test_signs__differ() -> None:
    assert len({sign_of(index) for index in range(168)}) == 168
    first = [sign_of(index) for index in range(6)]
    assert len({sign.dash for sign in first}) == len({sign.mark for sign in first}) == 6
