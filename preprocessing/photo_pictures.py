"""Preprocesses photographs in every way, and draws the results: the work of `inception-v3 show`."""

import os
from typing import Any, Callable, Iterator, List, NamedTuple, Sequence, Set, Tuple

import numpy as np

from console import outputs
from console.errors import CommandError
from console.messages import printable, shown
from console.screen import Screen, failure
from console.tensorflow_versions import tf
from preprocessing.color import FULL_ORDERINGS, FastColor
from preprocessing.decoding import decode_crop, decode_image, image_shape
from preprocessing.inception_preprocessing import Distortion, whole_image_box
from preprocessing.preprocessings import PREPROCESSINGS, InceptionPreprocessing, Preprocessing
from preprocessing.stateless import StatelessUniform

DRAWS = 25
_COLUMNS = 4
_DPI = 100
_OPERATIONS = {'b': 'brightness', 's': 'saturation', 'h': 'hue', 'c': 'contrast'}
# Orientation in EXIF 2.3, table 4.
_ORIENTATION, _UPRIGHT = 0x0112, 1
# Colours of the crops' outlines: blue and vermilion of Okabe and Ito, and their reddish purple and bluish green.
_OUTLINES = ('#0072b2', '#d55e00', '#cc79a7', '#009e73', '#e69f00', '#56b4e9')


class Panel(NamedTuple):
    """An image as the network receives it.

    Attributes:
      title: the preprocessing.
      pixels: uint8 [height, width, 3].
      crop: top, left, height and width of the part of the photograph that it shows.
    """

    title: str
    pixels: np.ndarray
    crop: Tuple[Any, ...]


class Shown(NamedTuple):
    """A photograph under every preprocessing.

    Attributes:
      photo: uint8 [height, width, 3].
      kinds: an image per preprocessing, in evaluation and in training.
      colors: the training image of `inception` under each other colour distortion, for the same crop.
      draws: `DRAWS` training images of `inception` with the default settings.
    """

    photo: np.ndarray
    kinds: List[Panel]
    colors: List[Panel]
    draws: List[Panel]


class PhotoError(CommandError):
    """A photograph cannot be shown."""


class Preprocessor:
    """Preprocesses photographs in every way. The same seed gives the same images.

    Args:
      size: height and width of the network's images, in pixels.
      seed: of the draws.
    """

    def __init__(self, size: int, seed: int):
        with tf.Graph().as_default() as graph:
            self._file = tf.placeholder(tf.string, [])
            self._number = tf.placeholder(tf.int64, [])
            self._photo = decode_image(self._file)
            self._shape = image_shape(self._file)
            self._kinds = []
            for name, each in PREPROCESSINGS.items():
                kind = each(each.Settings(height=size, width=size))
                drawn = kind.draw(self._shape, whole_image_box(), self._uniform(seed))
                self._kinds += [
                    self._panel(f'{name}, evaluation', kind),
                    self._panel(f'{name}, training', kind, drawn),
                ]
            self._colors = [self._panel(*each) for each in _color_distortions(self._shape, self._uniform, size, seed)]
            fast = _inception(size)
            drawn = fast.draw(self._shape, whole_image_box(), self._uniform(seed))
            self._draw = self._panel('draw', fast, drawn)
        self._session = tf.Session(graph=graph)

    def _uniform(self, seed: int) -> StatelessUniform:
        return StatelessUniform(tf.stack([tf.constant(seed, tf.int64), self._number]))

    def _panel(self, title: str, kind: Preprocessing, distortion: Any = None) -> Panel:
        window = kind.crop(self._shape, distortion)
        image = kind.resize(decode_crop(self._file, self._shape, window.crop), window)
        return Panel(title, kind.visible(kind.finish(image, distortion)), tuple(window.crop))

    def show(self, encoded: bytes) -> Shown:
        """Preprocesses a file, as records hold it.

        Raises:
          tf.errors.InvalidArgumentError: the file cannot be decoded.
        """
        run = self._session.run
        panels = [*self._kinds, *self._colors]
        photo, values = run((self._photo, [panel[1:] for panel in panels]), {self._file: encoded, self._number: 0})
        filled = [Panel(panel.title, *value) for panel, value in zip(panels, values)]
        draws = [
            Panel(f'draw {number}', *run(self._draw[1:], {self._file: encoded, self._number: number}))
            for number in range(1, DRAWS + 1)
        ]
        return Shown(photo, filled[: len(self._kinds)], filled[len(self._kinds) :], draws)

    def close(self) -> None:
        """Closes the TensorFlow session."""
        self._session.close()


def _inception(size: int, **settings: Any) -> InceptionPreprocessing:
    return InceptionPreprocessing(InceptionPreprocessing.Settings(size, size, **settings))


def _color_distortions(
    shape: tf.Tensor, uniform: Callable[[int], StatelessUniform], size: int, seed: int
) -> Iterator[Tuple[str, InceptionPreprocessing, Distortion]]:
    """The colour distortions of one drawn crop, flip and full colour: title, preprocessing, distortion."""
    fast = _inception(size)
    quick = _inception(size, use_fast_color_distort=False)
    full = _inception(size, use_fast_color_distort=False, fast_mode=False)
    base = fast.draw(shape, whole_image_box(), uniform(seed))
    color = full.draw(shape, whole_image_box(), uniform(seed)).color
    unchanged = FastColor(*[tf.constant(0.0)] * 3)
    yield 'the same crop, colours unchanged', fast, base._replace(color=unchanged)
    yield 'fast mode: brightness, saturation', quick, base._replace(color=color)
    for number, operations in enumerate(FULL_ORDERINGS):
        title = ', '.join(_OPERATIONS[letter] for letter in operations)
        yield title, full, base._replace(color=color, color_ordering=tf.constant(number))


def draw(shown_photo: Shown, name: str, notes: Sequence[str], path: str) -> None:
    """Draws the photograph with its crops, and every panel, as a PNG file."""
    from matplotlib.patches import Rectangle

    panels = [*shown_photo.kinds, *shown_photo.colors]
    figure, places = _grid(2 + len(panels))
    photo = figure.add_subplot(places[:2])
    photo.imshow(shown_photo.photo, interpolation='nearest' if min(shown_photo.photo.shape[:2]) < 64 else 'antialiased')
    for kind, colour in zip(shown_photo.kinds, _OUTLINES):
        top, left, height, width = kind.crop
        dashed = '--' if 'evaluation' in kind.title else '-'
        outline = {'fill': False, 'edgecolor': colour, 'linewidth': 2, 'linestyle': dashed, 'label': kind.title}
        photo.add_patch(Rectangle((left - 0.5, top - 0.5), width, height, **outline))
    figure.legend(fontsize=8, loc='upper left', ncol=len(shown_photo.kinds), frameon=False)
    height, width, _ = shown_photo.photo.shape
    _dress(photo, _text(f'{name}, {width} x {height} pixels{"".join(f", {note}" for note in notes)}'))
    for place, panel in enumerate(panels, 2):
        _show(figure.add_subplot(places[place]), panel)
    _save(figure, path)


def draw_contact_sheet(draws: Sequence[Panel], name: str, path: str) -> None:
    """Draws the contact sheet of the training images, as a PNG file."""
    figure, places = _grid(len(draws), columns=5)
    for place, panel in enumerate(draws):
        _show(figure.add_subplot(places[place]), panel)
    figure.suptitle(_text(f'{name}: {len(draws)} training images, drawn at random'), fontsize=10, y=0.995)
    _save(figure, path)


def _save(figure: Any, path: str) -> None:
    with outputs.unfinished_file(path) as unfinished:
        figure.savefig(unfinished, format='png', dpi=_DPI)


def _grid(count: int, columns: int = _COLUMNS) -> Tuple[Any, Any]:
    """A figure, and the places of a grid: from the left, row by row. The first two places can be joined."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-count // columns)
    figure = Figure(figsize=(2.6 * columns, 2.75 * rows + 0.4))
    FigureCanvasAgg(figure)
    edges = {'left': 0.01, 'right': 0.99, 'bottom': 0.01, 'top': 1 - 0.55 / (2.75 * rows + 0.4)}
    return figure, figure.add_gridspec(rows, columns, wspace=0.04, hspace=0.14, **edges)


def _show(axes: Any, panel: Panel) -> None:
    axes.imshow(panel.pixels)
    _dress(axes, panel.title)


def _dress(axes: Any, title: str) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, fontsize=7.5, pad=3)


def _text(text: str) -> str:
    # matplotlib interprets a dollar sign as the start of a formula.
    return text.replace('$', r'\$')


def notes_on(path: str) -> List[str]:
    """Names what the preprocessing ignores in a file: its EXIF orientation, transparency and CMYK."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            turned = image.getexif().get(_ORIENTATION, _UPRIGHT)
            transparent = image.mode in ('LA', 'PA', 'RGBA') or 'transparency' in image.info
            cmyk = image.mode == 'CMYK'
    except (OSError, SyntaxError, ValueError):
        return []
    notes = {
        f'EXIF orientation {turned} ignored': turned != _UPRIGHT,
        'transparency ignored': transparent,
        'converted from CMYK': cmyk,
    }
    return [note for note, applies in notes.items() if applies]


def show(paths: Sequence[str], out: str, size: int, seed: int, screen: Screen) -> List[str]:
    """Writes the pictures of photographs, and returns their paths.

    Raises:
      PhotoError: photographs cannot be shown; the message has a line for each. The others are written.
    """
    written: List[str] = []
    problems: List[str] = []
    taken = {os.path.realpath(path) for path in paths}
    try:
        os.makedirs(out, exist_ok=True)
    except OSError as error:
        raise PhotoError(f'--out={shown(out)}: cannot be made: {error.strerror}.')
    preprocessor = Preprocessor(size, seed)
    for path in dict.fromkeys(paths):
        screen.update(f'drawing {shown(path)}')
        try:
            with open(path, 'rb') as file:
                found = preprocessor.show(file.read())
        except OSError as error:
            problems.append(f'{shown(path)}: cannot be read: {error.strerror}.')
            continue
        except tf.errors.InvalidArgumentError as error:
            problems.append(
                f'{shown(path)}: is not a JPEG, PNG or GIF image, or is truncated or damaged ({shown(failure(error))}).'
            )
            continue
        picture, sheet = _names(out, path, taken)
        name = shown(os.path.basename(path))
        try:
            draw(found, name, notes_on(path), picture)
            draw_contact_sheet(found.draws, name, sheet)
        except OSError as error:
            raise PhotoError(f'--out={shown(out)}: cannot be written: {error.strerror}.')
        written += [picture, sheet]
    preprocessor.close()
    if problems:
        raise PhotoError('\n'.join([*problems, *(f'written: {path}' for path in written)]))
    return written


def _names(out: str, path: str, taken: Set[str]) -> Tuple[str, str]:
    """The files of a photograph: neither those of another with the same name, nor a photograph itself."""
    stem = printable(os.path.splitext(os.path.basename(path))[0])
    number = 1
    while True:
        unique = stem if number == 1 else f'{stem}-{number}'
        names = [os.path.join(out, f'{unique}_{part}.png') for part in ('preprocessed', 'draws')]
        real = {os.path.realpath(name) for name in names}
        if not real & taken:
            taken.update(real)
            return names[0], names[1]
        number += 1
