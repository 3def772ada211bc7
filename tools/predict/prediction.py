"""Classifies image files, and prints the results."""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import shutil
import sys
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, TextIO, Tuple

import numpy as np

from compat.errors import DONE, FIX
from compat.messages import full, shown
from console import html, outputs, processes
from console.screen import EIGHTHS, Screen, bar
from inception_v3.config import ConfigError
from tools import drawing, image_batches
from tools.datasets.intake import Intake
from tools.image_batches import check_batch, report
from tools.image_files import ImageFiles, UnreadableError
from tools.predict import classifier
from tools.predict.classifier import Classifier
from tools.progress import Progress

_PAGE: Any = html.template(pathlib.Path(__file__).with_name('contact_sheet.html').read_text()).module

# Columns of text if the output is not a terminal.
_PLAIN_WIDTH = 100
_LONGEST_BAR = 40
# The first bytes of JPEG and PNG files. Models turn these as viewers do, and receive the original file: an image that
# the intake turns is encoded again, and differs slightly.
_AS_VIEWED = (b'\xff\xd8', b'\x89PNG')


class ScoredClass(NamedTuple):
    """A class with its name, which may be empty, and its probability."""

    label: int
    name: str
    probability: float

    @property
    def shown(self) -> str:
        """The name in printable characters, or `class LABEL` if there is none."""
        return shown(self.name) if self.name else f'class {self.label}'


class Prediction(NamedTuple):
    """The result for one image file: its most probable classes in order and a JPEG thumbnail, or else the problem."""

    path: str
    likeliest: Tuple[ScoredClass, ...] = ()
    thumbnail: bytes = b''
    problem: str = ''

    def json(self) -> str:
        """The object that `--json` prints on a line."""
        if self.problem:
            return json.dumps({'image': self.path, 'error': self.problem})
        classes = [{'class': c.label, 'name': c.name or None, 'probability': c.probability} for c in self.likeliest]
        return json.dumps({'image': self.path, 'predictions': classes})


def predict(
    model: Classifier,
    found: ImageFiles,
    top: int,
    batch_size: int,
    thumbnail: Callable[[np.ndarray], bytes] = lambda pixels: b'',
) -> Iterator[Prediction]:
    """Classifies image files, in their order. Files are read and prepared while the network runs."""

    def prepare(intake: Intake, encoded: bytes) -> Tuple[Any, bytes]:
        """An image for the classifier, and its thumbnail."""
        # Decoding takes most of the time, so each image is decoded only once.
        accepted, pixels = intake.accept_and_decode(encoded)
        if accepted.encoded is not encoded and model.has_images_as_viewed and encoded.startswith(_AS_VIEWED):
            image = model.prepare(encoded, None)
        else:
            image = model.prepare(accepted.encoded, pixels)
        return image, thumbnail(pixels)

    for batch in image_batches.batches(found, batch_size, prepare):
        usable = [prepared[0] for _, prepared in batch if not isinstance(prepared, UnreadableError)]
        outcomes = iter(model.classify(usable) if usable else [])
        for path, prepared in batch:
            if isinstance(prepared, UnreadableError):
                yield Prediction(path, problem=str(prepared))
                continue
            probabilities = next(outcomes)
            if not np.isfinite(probabilities).all():
                yield Prediction(path, problem='the network returns NaN as probabilities: its training has diverged')
                continue
            likeliest = [c for c in np.argsort(-probabilities, kind='stable') if c or model.has_class_0][:top]
            classes = [ScoredClass(int(c), model.class_names[c], float(probabilities[c])) for c in likeliest]
            yield Prediction(path, tuple(classes), prepared[1])


def lines_of(prediction: Prediction) -> List[str]:
    """The lines of a prediction for standard output, with bars, cut to the terminal's width."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    bar_width = min(_LONGEST_BAR, (width or _PLAIN_WIDTH) // 3)
    steps = EIGHTHS
    try:
        EIGHTHS.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        steps = '#'
    lines = [
        f'  {c.probability:7.2%}  {bar(c.probability, bar_width, steps):<{bar_width}}  {c.shown}'
        for c in prediction.likeliest
    ]
    return [full(prediction.path), *(line[:width] for line in lines)]


class ContactSheet:
    """Context manager that writes a page while images are classified, then completes it and moves it to its path.

    An image whose folder has the name of a class, one of `class_names`, is marked if it is classified as another.
    Raises ConfigError if the page cannot be written.
    """

    def __init__(self, path: str, classifier: str, class_names: Sequence[str]):
        self._stack = contextlib.ExitStack()
        try:
            unfinished = self._stack.enter_context(outputs.unfinished_file(path))
            self._file: TextIO = open(unfinished, 'w', encoding='utf-8')  # noqa: SIM115
            self._stack.enter_context(self._file)
        except OSError as error:
            raise ConfigError(f'--html={path}: cannot be written: {error.strerror}.')
        self._class_names = {shown(name) for name in class_names if name}
        self._images = 0
        self._problems: List[str] = []
        self._file.write(_PAGE.begin(classifier, processes.command_line('predict'), datetime.datetime.utcnow()))

    def add(self, prediction: Prediction) -> None:
        """Adds an image."""
        if prediction.problem:
            self._problems.append(f'{full(prediction.path)}: {prediction.problem}')
            return
        self._images += 1
        thumbnail = prediction.thumbnail and html.data_uri(prediction.thumbnail, 'image/jpeg')
        folder = shown(os.path.basename(os.path.dirname(os.path.abspath(prediction.path))))
        likeliest = [(each.shown, each.probability) for each in prediction.likeliest]
        label = folder if folder in self._class_names else ''
        self._file.write(_PAGE.card(full(prediction.path), thumbnail, likeliest, label))

    def __enter__(self) -> 'ContactSheet':
        return self

    def __exit__(self, kind: Any, *unused: Any) -> None:
        """Completes the page, also after an error or Ctrl-C; it then shows the images done so far."""
        with self._stack:
            self._file.write(_PAGE.end(self._problems, self._images, ', then interrupted' if kind else ''))


def perform(arguments: argparse.Namespace, screen: Screen) -> int:
    """Classifies the images that a command line names, and returns the exit code."""
    found = image_batches.find(arguments.images)
    if arguments.html:
        outputs.replaceable(arguments.html)
        outputs.check_is_no_input(arguments.html, found.paths)
    with contextlib.ExitStack() as stack:
        sheet: Optional[ContactSheet] = None
        if len(found.problems) == len(found.paths):
            # There is nothing to classify.
            predictions: Iterator[Prediction] = (Prediction(p, problem=found.problems[p]) for p in found.paths)
        else:
            screen.update(f'loading {arguments.model}')
            model = stack.enter_context(contextlib.closing(classifier.load(arguments.model)))
            check_batch('batch_size', min(arguments.batch_size, len(found.paths)), model.bytes_per_image)
            options: Any = {}
            if arguments.html:
                options['thumbnail'] = stack.enter_context(drawing.thumbnails())
                class_names = model.class_names[0 if model.has_class_0 else 1 :]
                sheet = stack.enter_context(ContactSheet(arguments.html, str(model), class_names))
            screen.clear()
            report(str(model))
            predictions = predict(model, found, arguments.top, arguments.batch_size, **options)
        progress, problems = Progress(screen, len(found.paths), arguments.batch_size), 0
        for prediction in predictions:
            if sys.stderr.isatty():
                screen.clear()
            if arguments.json:
                print(prediction.json())
            elif not prediction.problem:
                print(*lines_of(prediction), sep='\n')
            if prediction.problem:
                problems += 1
                report(f'{full(prediction.path)}: {prediction.problem}')
            if sheet:
                sheet.add(prediction)
            progress.add()
        screen.clear()
        if 0 < problems < len(found.paths):
            report(f'{problems:,} of {len(found.paths):,} images could not be classified')
    return FIX if problems else DONE
