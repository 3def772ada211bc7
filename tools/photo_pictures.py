"""Draws photographs under every preprocessing, for `inception-v3 show`."""

import os
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from compat import tf
from compat.errors import CommandError
from compat.messages import full, printable, shown
from console import inputs, outputs
from console.screen import Screen, failure
from preprocessing.color import FULL_ORDERINGS
from preprocessing.decoding import decode_crop, decode_image, image_shape
from preprocessing.inception_preprocessing import InceptionPreprocessing
from preprocessing.preprocessings import PREPROCESSINGS
from preprocessing.stateless import StatelessUniform
from preprocessing.steps import Preprocessing, Settings, whole_image_box

DRAWS = 25
_DPI = 100
_OPERATIONS = {'b': 'brightness', 's': 'saturation', 'h': 'hue', 'c': 'contrast'}
# Colours of the crops' outlines: blue and vermilion of Okabe and Ito, and their reddish purple and bluish green.
_OUTLINES = ('#0072b2', '#d55e00', '#cc79a7', '#009e73', '#e69f00', '#56b4e9')


class Panel(NamedTuple):
    """An image as the network receives it."""

    title: str  # The preprocessing.
    pixels: np.ndarray  # uint8 [height, width, 3].
    crop: Tuple[Any, ...]  # Top, left, height and width of the part of the photograph that it shows.


class Shown(NamedTuple):
    """A photograph under every preprocessing."""

    photo: np.ndarray  # uint8 [height, width, 3].
    kinds: List[Panel]  # An image per preprocessing, in evaluation and in training.
    colors: List[Panel]  # The training image of `inception` under each other colour distortion, for the same crop.
    draws: List[Panel]  # `DRAWS` training images of `inception` with the default settings.


class Preprocessor:
    """Applies every preprocessing to photographs, at `size` × `size` pixels. The same seed gives the same images."""

    def __init__(self, size: int, seed: int):
        with tf.Graph().as_default() as graph:
            self._file, self._number = tf.placeholder(tf.string, []), tf.placeholder(tf.int64, [])
            self._shape = image_shape(self._file)
            self._photo = decode_image(self._file, self._shape)

            def draw(kind: Preprocessing) -> Any:
                uniform = StatelessUniform(tf.stack([tf.constant(seed, tf.int64), self._number]))
                return kind.draw(self._shape, whole_image_box(), uniform)

            def inception(**settings: bool) -> Preprocessing:
                return InceptionPreprocessing(Settings(size, size)._replace(**settings))

            self._kinds = []
            for name, each in PREPROCESSINGS.items():
                kind = each.make(Settings(size, size))
                self._kinds += [
                    self._panel(f'{name}, evaluation', kind),
                    self._panel(f'{name}, training', kind, draw(kind)),
                ]
            quick = inception(use_fast_color_distort=False)
            slow = inception(use_fast_color_distort=False, fast_mode=False)
            drawn, color = draw(inception()), draw(slow).color
            unchanged = drawn._replace(color=tf.zeros([3]))
            self._draw = self._panel('draw', inception(), drawn)
            self._colors = [
                self._panel('the same crop, colours unchanged', inception(), unchanged),
                self._panel('fast mode: brightness, saturation', quick, drawn._replace(color=color)),
            ]
            for number, operations in enumerate(FULL_ORDERINGS):
                title = ', '.join(_OPERATIONS[letter] for letter in operations)
                ordered = drawn._replace(color=color, color_ordering=tf.constant(number))
                self._colors.append(self._panel(title, slow, ordered))
        self._session = tf.Session(graph=graph)

    def _panel(self, title: str, kind: Preprocessing, distortion: Any = None) -> Panel:
        window = kind.crop(self._shape, distortion)
        image = kind.resize(decode_crop(self._file, self._shape, window.crop), window)
        return Panel(title, kind.visible(kind.finish(image, distortion)), tuple(window.crop))

    def show(self, encoded: bytes) -> Shown:
        """Preprocesses an encoded image; raises InvalidArgumentError if it cannot be decoded."""

        def run(tensors: Any, number: int) -> Any:
            return self._session.run(tensors, {self._file: encoded, self._number: number})

        panels = [*self._kinds, *self._colors]
        photo, values = run((self._photo, [panel[1:] for panel in panels]), 0)
        filled = [Panel(panel.title, *value) for panel, value in zip(panels, values)]
        draws = [Panel(f'draw {number}', *run(self._draw[1:], number)) for number in range(1, DRAWS + 1)]
        return Shown(photo, filled[: len(self._kinds)], filled[len(self._kinds) :], draws)


def draw(shown_photo: Shown, name: str, path: str) -> None:
    """Draws the photograph with its crops, and every panel, as a PNG file."""
    from matplotlib.patches import Rectangle

    height, width, _ = shown_photo.photo.shape
    photo = Panel('the photograph, and the crops of it', shown_photo.photo, ())
    figure = _figure([photo, *shown_photo.kinds, *shown_photo.colors], f'{name}, {width} x {height} pixels')
    for kind, colour in zip(shown_photo.kinds, _OUTLINES):
        top, left, height, width = kind.crop
        dashed = '--' if 'evaluation' in kind.title else '-'
        outline = {'fill': False, 'edgecolor': colour, 'linewidth': 2, 'linestyle': dashed, 'label': kind.title}
        figure.axes[0].add_patch(Rectangle((left - 0.5, top - 0.5), width, height, **outline))
    figure.legend(fontsize=8, loc='lower right', frameon=False)
    _save(figure, path)


def _figure(panels: Sequence[Panel], title: str) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = 5
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(2.6 * columns, 2.75 * rows + 0.4))
    FigureCanvasAgg(figure)
    figure.subplots_adjust(0.01, 0.01, 0.99, 1 - 0.55 / (2.75 * rows + 0.4), wspace=0.04, hspace=0.14)
    for place, panel in enumerate(panels, 1):
        axes = figure.add_subplot(rows, columns, place)
        axes.imshow(panel.pixels)
        axes.set_title(panel.title, fontsize=7.5, pad=3)
        axes.set_xticks([])
        axes.set_yticks([])
    # matplotlib interprets a dollar sign as the start of a formula.
    figure.suptitle(title.replace('$', r'\$'), fontsize=10, y=0.995)
    return figure


def _save(figure: Any, path: str) -> None:
    with outputs.unfinished_file(path) as unfinished:
        figure.savefig(unfinished, format='png', dpi=_DPI)


def show(paths: Sequence[str], out: str, size: int, seed: int, screen: Screen) -> List[str]:
    """Writes the pictures of photographs, and returns their paths.

    Raises:
      CommandError: some photographs cannot be shown; the message has a line for each. The others are written.
    """
    written: List[str] = []
    problems: List[str] = []
    names: Dict[str, str] = {}
    try:
        os.makedirs(out, exist_ok=True)
        preprocessor = Preprocessor(size, seed)
        for path in dict.fromkeys(paths):
            screen.update(f'drawing {full(path)}')
            name = printable(os.path.splitext(os.path.basename(path))[0])
            if names.setdefault(name, path) != path:
                problems.append(f'{full(path)}: has the name of {shown(names[name])}. Draw it into another folder.')
                continue
            try:
                found = preprocessor.show(inputs.read(path))
            except OSError as error:
                problems.append(f'{full(path)}: cannot be read: {error.strerror}.')
                continue
            except tf.errors.InvalidArgumentError as error:
                reason = shown(failure(error))
                problems.append(f'{full(path)}: is not a JPEG, PNG or GIF image, or is damaged ({reason}).')
                continue
            picture, sheet = (os.path.join(out, f'{name}_{part}.png') for part in ('preprocessed', 'draws'))
            if {os.path.realpath(each) for each in paths} & {os.path.realpath(picture), os.path.realpath(sheet)}:
                problems.append(f'{full(path)}: its pictures would replace a given photograph. Name another --out.')
                continue
            title = shown(os.path.basename(path))
            draw(found, title, picture)
            _save(_figure(found.draws, f'{title}: {DRAWS} training images, drawn at random'), sheet)
            written += [picture, sheet]
    except OSError as error:
        raise CommandError(f'--out={full(out)}: cannot be written: {error.strerror}.')
    if problems:
        raise CommandError('\n'.join([*problems, *(f'written: {path}' for path in written)]))
    return written
