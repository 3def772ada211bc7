"""The page of predict in a real browser: order, filters, keyboard and a telephone's width."""

import io
import pathlib
import re
import sys
from typing import Any, Iterator, List

import pytest
from PIL import Image

from tests.support.browser import Browser, browser
from tools.predict.prediction import ContactSheet, Prediction, ScoredClass

pytestmark = pytest.mark.program

# Path, predicted class and confidence.
IMAGES = [
    ('photos/cat/1.jpg', 'cat', 0.9),
    ('photos/dog/2.jpg', 'cat', 0.6),
    ('photos/dog/3.jpg', 'dog', 0.55),
    ('photos/cat/4.jpg', 'dog', 0.8),
    ('elsewhere/' + 'a-very-long-name' * 8 + '/5.jpg', 'dog', 0.7),
]


@pytest.fixture(scope='module')
def chromium() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def write(path: pathlib.Path, images: Any) -> str:
    encoded = io.BytesIO()
    Image.new('RGB', (320, 200), 'teal').save(encoded, 'JPEG')
    with ContactSheet(str(path), 'model.ckpt-5: run /runs/a, top-1 98.61 %', ['cat', 'dog']) as sheet:
        for name, predicted, confidence in images:
            other = 'dog' if predicted == 'cat' else 'cat'
            likeliest = ScoredClass(1, predicted, confidence), ScoredClass(2, other, 1 - confidence)
            sheet.add(Prediction(name, likeliest, encoded.getvalue()))
        sheet.add(Prediction('missing.jpg', problem='no such file or folder'))
    return str(path)


@pytest.fixture
def page(tmp_path: pathlib.Path, monkeypatch: Any, chromium: Browser) -> str:
    monkeypatch.setattr(sys, 'argv', ['inception-v3 predict', 'my photos', '--model=runs/a'])
    path = write(tmp_path / 'page.html', IMAGES)
    chromium.open(path)
    return path


def shown(chromium: Browser) -> List[str]:
    """The numbers of the visible images, in their order."""
    names = chromium.run(
        "return [...document.querySelectorAll('.card:not([hidden]) .path')].map(name => name.textContent)"
    )
    return [name[-5] for name in names]


def choose(chromium: Browser, control: str, value: str) -> List[str]:
    chromium.run(
        'const c = document.getElementById(arguments[0]); c.value = arguments[1];'
        "c.dispatchEvent(new Event('input', {bubbles: true}))",
        *(control, value),
    )
    return shown(chromium)


def test_page__orders_and_filters_the_images(chromium: Browser, page: str) -> None:
    assert shown(chromium) == [*'12345']
    assert choose(chromium, 'order', 'wrong') == [*'42135']
    assert choose(chromium, 'order', 'least') == [*'32541']
    assert choose(chromium, 'order', 'most') == [*'14523']
    assert choose(chromium, 'order', 'class') == [*'12453']
    assert choose(chromium, 'order', 'given') == [*'12345']
    assert choose(chromium, 'class', 'dog') == [*'345']
    assert choose(chromium, 'outcome', 'wrong') == ['4']
    assert chromium.run("return document.getElementById('shown').textContent") == '1 of 5 images'
    assert choose(chromium, 'outcome', 'right') == ['3']
    assert choose(chromium, 'class', '') == [*'13']
    assert choose(chromium, 'outcome', '') == [*'12345']
    assert choose(chromium, 'name', 'DOG/') == [*'23']
    for width in (360, 1900):
        chromium.open(page, width=width)
        assert chromium.run('return document.documentElement.scrollWidth') <= width
        right = chromium.run("return document.getElementById('cards').getBoundingClientRect().right")
        assert right > width - 60
    assert not chromium.complaints()
    assert not [url for url in chromium.requests() if not url.startswith(('file:', 'data:'))]


def test_page__names_model_command_and_date_describes_pictures_and_follows_the_keyboard(
    chromium: Browser, page: str
) -> None:
    about = chromium.run("return document.querySelector('.about').innerText")
    assert 'run /runs/a, top-1 98.61 %' in about
    assert "inception-v3 predict 'my photos' --model=runs/a" in about
    assert re.search(r'\d{4}-\d\d-\d\d \d\d:\d\d UTC', about)
    alts = chromium.run('return [...document.images].map(image => image.alt)')
    assert alts[0] == 'photos/cat/1.jpg: cat, 90.0 %' and len({*alts}) == 5
    labels = chromium.run("return [...document.querySelectorAll('.label')].map(label => label.textContent)")
    assert labels == ['wrong: its folder is dog', 'wrong: its folder is cat']
    assert 'background' not in chromium.run('return document.body.textContent')
    focused = []
    for _ in range(4):
        chromium.press_tab()
        focused.append(chromium.run('return document.activeElement.id'))
    assert focused == ['order', 'class', 'outcome', 'name']
    chromium.type('cat/')
    assert shown(chromium) == [*'14']


def test_page__without_labels_has_no_choice_of_wrong_images(chromium: Browser, tmp_path: pathlib.Path) -> None:
    chromium.open(write(tmp_path / 'page.html', [('x/1.jpg', 'cat', 0.9)]))
    options = chromium.run("return [...document.getElementById('order').options].map(option => option.value)")
    assert options == ['given', 'least', 'most', 'class']
    assert chromium.run("return document.getElementById('outcome')") is None
