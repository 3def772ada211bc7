"""Tests of the pictures of photographs under every preprocessing."""

import pathlib
from typing import Any, List

import numpy as np
import pytest

from tests.support.commands import run
from tests.support.images import CAT, saved
from tools import photo_pictures
from tools.photo_pictures import DRAWS, Preprocessor
from tools.show import main

PHOTO = np.ascontiguousarray(CAT[:64, :96])


@pytest.fixture(scope='module')
def preprocessor() -> Preprocessor:
    return Preprocessor(56, seed=3)


def test_preprocessor__shows_crops_and_colours_of_the_photograph(preprocessor: Preprocessor) -> None:
    shown = preprocessor.show(saved(PHOTO[:, :64], 'PNG'))
    np.testing.assert_array_equal(shown.photo, PHOTO[:, :64])
    panels = {panel.title: panel for panel in [*shown.kinds, *shown.colors]}
    evaluated = panels['inception, evaluation']
    # 64 pixels less a sixteenth on each side are 56, so that nothing is resized.
    assert tuple(evaluated.crop) == (4, 4, 56, 56)
    np.testing.assert_array_equal(evaluated.pixels, PHOTO[4:60, 4:60])
    orders = ['brightness, saturation, hue, contrast', 'saturation, brightness, contrast, hue']
    orders += ['contrast, hue, brightness, saturation', 'hue, saturation, contrast, brightness']
    assert [*panels][-4:] == orders
    crops = {tuple(panel.crop) for panel in [panels['inception, training'], *shown.colors]}
    assert len(crops) == 1, 'one crop for all colours'
    # Hue and contrast commute, except for rounding; and at this size, vgg's and cifar's evaluations resize alike.
    assert len({panel.pixels.tobytes() for panel in panels.values()}) >= len(panels) - 3
    shift = panels['inception, training'].pixels.astype(int) - panels['the same crop, colours unchanged'].pixels
    inside = (panels['inception, training'].pixels > 0) & (panels['inception, training'].pixels < 255)
    assert all(np.ptp(shift[..., c][inside[..., c]]) <= 1 for c in range(3)), 'fast colour is a shift'


def test_preprocessor__draws_differ_and_repeat(preprocessor: Preprocessor) -> None:
    photo = saved(PHOTO, 'PNG')
    shown = preprocessor.show(photo)
    draws = shown.draws
    assert len({panel.pixels.tobytes() for panel in draws}) == DRAWS == 25
    # None of the draws has the crop of the panels of the preprocessings.
    assert len({panel.crop for panel in [shown.kinds[1], *draws]}) == DRAWS + 1
    again = preprocessor.show(photo).draws
    assert [panel.pixels.tobytes() for panel in draws] == [panel.pixels.tobytes() for panel in again]


def test_draw__shows_every_panel_and_outlines_the_crops(preprocessor: Preprocessor, monkeypatch: Any) -> None:
    shown = preprocessor.show(saved(PHOTO, 'PNG'))
    figures: List[Any] = []
    monkeypatch.setattr(photo_pictures, '_save', lambda figure, path: figures.append(figure))
    photo_pictures.draw(shown, 'a $cat$', 'unused.png')
    (figure,) = figures
    # A dollar sign begins a formula of matplotlib.
    assert figure._suptitle.get_text() == r'a \$cat\$, 96 x 64 pixels'
    panels = [*shown.kinds, *shown.colors]
    assert [axes.get_title() for axes in figure.axes] == [
        'the photograph, and the crops of it',
        *(panel.title for panel in panels),
    ]
    for axes, pixels in zip(figure.axes, [shown.photo, *(panel.pixels for panel in panels)]):
        np.testing.assert_array_equal(axes.images[0].get_array(), pixels)
    # The edges of the first pixel are at -0.5 and 0.5.
    assert [
        (
            each.get_label(),
            each.get_linestyle(),
            each.get_y() + 0.5,
            each.get_x() + 0.5,
            each.get_height(),
            each.get_width(),
        )
        for each in figure.axes[0].patches
    ] == [(kind.title, '--' if 'evaluation' in kind.title else '-', *kind.crop) for kind in shown.kinds]
    # Five in a row, and no empty row.
    for count, rows in ((len(panels) + 1, 3), (25, 5)):
        drawn = photo_pictures._figure(panels[:1] * count, '')
        assert drawn.axes[-1].get_subplotspec().get_gridspec().get_geometry() == (rows, 5)


def test_show__names_files_and_refuses_bad_ones(
    preprocessor: Preprocessor, tmp_path: pathlib.Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr('tools.photo_pictures.DRAWS', 2)
    monkeypatch.setattr('tools.photo_pictures._DPI', 20)
    monkeypatch.setattr('tools.photo_pictures.Preprocessor', lambda size, seed: preprocessor)
    figure, titles = photo_pictures._figure, []

    def figure_of(panels: Any, title: str) -> Any:
        titles.append(title)
        return figure(panels, title)

    monkeypatch.setattr(photo_pictures, '_figure', figure_of)
    jpeg = saved(PHOTO, 'JPEG')
    for name, content in (
        ('a/my.cat.jpg', jpeg),
        ('b/my.cat.jpg', jpeg),
        ('cut.jpg', jpeg[:-400]),
        ('no.jpg', b'text'),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    names = [
        tmp_path / name for name in ('a/my.cat.jpg', 'cut.jpg', 'b/my.cat.jpg', 'no.jpg', 'none.jpg', 'a', 'cut.jpg')
    ]
    done = run(main, *names, '--size=32', f'--out={tmp_path / "out"}')
    written = [path.name for path in (tmp_path / 'out').iterdir()]
    assert done.returncode == 2 and sorted(written) == ['my.cat_draws.png', 'my.cat_preprocessed.png']
    assert titles == ['my.cat.jpg, 96 x 64 pixels', 'my.cat.jpg: 2 training images, drawn at random']
    lines = done.stderr[done.stderr.index('error: ') :].splitlines()
    expected = [('cut', 'is damaged'), ('b/my.cat', 'has the name of'), ('no', 'is not a'), ('none', 'No such')]
    for line, (name, words) in zip(lines, [*expected, ('a', 'is a folder')]):
        assert f'{name}' in line and words in line
    assert len(lines) == 7 and 'Traceback' not in done.stderr
    # A picture would replace a given photograph.
    given = [tmp_path / 'a' / 'my.cat.jpg', tmp_path / 'a' / 'my.cat_draws.png']
    given[1].write_bytes(jpeg)
    done = run(main, *given, '--size=32', f'--out={tmp_path / "a"}')
    assert done.returncode == 2 and 'its pictures would replace a given photograph' in done.stderr
    assert given[1].read_bytes() == jpeg
    done = run(main, given[0], '--size=32', f'--out={given[0]}')
    assert done.returncode == 2 and f'--out={given[0]}: cannot be written: ' in done.stderr
