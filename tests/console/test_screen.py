"""Tests of the screen: a live line on a terminal, plain lines elsewhere, bars, and values in messages."""

import io
import logging
import warnings
from typing import Any, List

import pytest

from compat.log import logger
from compat.messages import shown
from console import screen as screens
from console.screen import Screen, bar, duration, set_up_logging

ERASE = '\r\x1b[K'


class Terminal(io.StringIO):
    """A terminal of unknown width."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: Any) -> List[float]:
    """The time that the screen reads; a test changes it."""
    now = [100.0]
    monkeypatch.setattr(screens.time, 'monotonic', lambda: now[0])
    return now


def written(stream: io.StringIO) -> str:
    """The text written since the last call."""
    text = stream.getvalue()
    stream.seek(0)
    stream.truncate()
    return text


def test_screen__updates_a_live_line_five_times_a_second(clock: List[float]) -> None:
    terminal = Terminal()
    screen = Screen(terminal)
    screen.update('one')
    assert written(terminal) == f'{ERASE}one'
    clock[0] += 0.19
    screen.update('two')
    assert written(terminal) == ''
    clock[0] += 0.02
    screen.update('three')
    assert written(terminal) == f'{ERASE}three'
    screen.update('four', at_once=True)
    assert written(terminal) == f'{ERASE}four'
    screen.update('x' * 100, at_once=True)
    # One column stays free, so that the terminal does not begin a new line.
    assert written(terminal) == ERASE + 'x' * 79


def test_log_lines__end_between_words_on_a_terminal() -> None:
    terminal = Terminal()
    screen = Screen(terminal)
    path = '/runs/' + 'x' * 90
    screen.emit(logging.makeLogRecord({'msg': '12:00:00 ' + 'a word ' * 12 + path}))
    first, second, third = written(terminal).rstrip('\n')[len(ERASE) :].split('\n')
    assert len(first) <= 80 and first.endswith(' a') and first.startswith('12:00:00 a word')
    assert second.startswith(' ' * 9 + 'word')
    # A path stays whole, to be copied.
    assert third == ' ' * 9 + path


def test_screen__writes_log_lines_above_the_live_line(clock: List[float]) -> None:
    terminal = Terminal()
    screen = Screen(terminal)
    set_up_logging(screen, verbose=False)
    screen.update('live')
    written(terminal)
    logger.info('logged %d', 7)
    text = written(terminal)
    assert text.startswith(ERASE) and text.endswith(' logged 7\nlive')
    screen.clear()
    assert written(terminal) == ERASE
    screen.clear()
    assert written(terminal) == ''
    logger.info('last')
    assert written(terminal).endswith(' last\n')


def test_screen__writes_a_plain_line_every_15_seconds(clock: List[float]) -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    set_up_logging(screen, verbose=False)
    screen.update('one')
    clock[0] += 14.9
    screen.update('two')
    clock[0] += 0.2
    screen.update('three')
    lines = written(stream).splitlines()
    assert [line.split()[1] for line in lines] == ['one', 'three']


def test_screen__catches_up_with_the_last_text(clock: List[float]) -> None:
    terminal = Terminal()
    screen = Screen(terminal)
    for text in ('one', 'two', 'three'):
        screen.update(text)
    assert written(terminal) == f'{ERASE}one'
    screen.catch_up()
    assert written(terminal) == f'{ERASE}three'
    screen.catch_up()
    assert written(terminal) == ''
    screen.update('four')
    screen.clear()
    written(terminal)
    # After `clear`, the next update is shown at once.
    screen.catch_up()
    screen.update('five')
    assert written(terminal) == f'{ERASE}five'


@pytest.mark.parametrize('verbose', [False, True])
def test_set_up_logging__shows_tensorflows_log_and_warnings_only_if_verbose(verbose: bool) -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    tensorflow = logging.getLogger('tensorflow')
    # The level of a new process, not the tests' level.
    logger.setLevel(logging.NOTSET)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter('always')
            set_up_logging(screen, verbose)
            warnings.warn('of a library', DeprecationWarning, stacklevel=1)
        assert [str(each.message) for each in warned] == ['of a library'] * verbose
        assert screen.verbose is verbose
        # pytest's handlers are at the root, like those of libraries.
        assert not logger.propagate and not tensorflow.propagate
        logger.info('ours')
        logger.debug('too much')
        tensorflow.error('theirs')
    finally:
        set_up_logging(Screen(io.StringIO()), verbose=False)
        tensorflow.handlers = []
    assert [line.split()[1] for line in written(stream).splitlines()] == ['ours', *(['theirs'] if verbose else [])]


@pytest.mark.parametrize(
    ('seconds', 'text'),
    [(0, '0:00'), (59.4, '0:59'), (59.6, '1:00'), (3599.4, '59:59'), (3600, '1:00:00'), (36610, '10:10:10')],
)
def test_duration__has_hours_only_if_needed(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_bar__length_is_proportional() -> None:
    assert bar(1, 10) == '█' * 10
    assert bar(0.5, 10) == '█' * 5
    assert bar(0.54, 10) == '█' * 5 + '▍'
    assert bar(0, 10) == ''
    assert bar(0.54, 10, '#') == '#####'


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
