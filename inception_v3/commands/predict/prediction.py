"""Classifies image files, and prints the results."""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import shutil
import sys
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from console import html, outputs, processes
from console.errors import DONE, FIX
from console.messages import shown
from console.progress import EIGHTHS, Progress, bar
from console.screen import Screen
from data.convert.intake import Intake
from data.files import write_whole
from data.image_files import ImageFiles, UnreadableError, show
from inception_v3.commands import image_batches
from inception_v3.commands.image_batches import report
from inception_v3.commands.predict import classifier
from inception_v3.commands.predict.classifier import Classifier
from inception_v3.commands.thumbnails import Thumbnails
from inception_v3.run.files import check_writable
from inception_v3.run.memory import check_batch

_PAGE: Any = html.template(pathlib.Path(__file__).with_name('contact_sheet.html').read_text()).module

# Columns of text if the output is not a terminal.
_PLAIN_WIDTH = 100
_LONGEST_BAR = 40
# The first bytes of JPEG and PNG files. Models show these as viewers do; an image that the intake has turned has been
# encoded again, and differs a little.
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
    """The result for one image file: its most probable classes in order and a JPEG file, or else the problem."""

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
    model: Classifier, found: ImageFiles, top: int, batch_size: int, thumbnails: Optional[Thumbnails] = None
) -> Iterator[Prediction]:
    """Classifies image files, in their order. Files are read and prepared while the network runs."""

    def prepare(intake: Intake, encoded: bytes) -> Tuple[Any, bytes]:
        """An image for the classifier, and its thumbnail."""
        # Decoding takes most of the time, so that each image is decoded once, for all purposes.
        accepted, pixels = intake.accept_and_decode(encoded)
        if accepted.encoded is not encoded and model.has_images_as_viewed and encoded.startswith(_AS_VIEWED):
            image = model.prepare(encoded, None)
        else:
            image = model.prepare(accepted.encoded, pixels)
        return image, thumbnails.make(pixels) if thumbnails else b''

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
    """The text of a prediction for standard output: with bars, and fitted to the terminal's width."""
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
    return [show(prediction.path), *(line[:width] for line in lines)]


def page_of(predictions: Sequence[Prediction], model: str, class_names: Sequence[str]) -> str:
    """A self-contained page of predictions, with the name of the model.

    An image in a folder named like a class is marked if it is classified otherwise.
    """
    known = {shown(name) for name in class_names[1:] if name}
    done = [each for each in predictions if not each.problem]
    problems = [f'{show(each.path)}: {each.problem}' for each in predictions if each.problem]
    parts = [_PAGE.begin(model, processes.command_line('predict'), datetime.datetime.utcnow())]
    for each in done:
        folder = shown(os.path.basename(os.path.dirname(os.path.abspath(each.path))))
        thumbnail = each.thumbnail and html.data_uri(each.thumbnail, 'image/jpeg')
        likeliest = [(likely.shown, likely.probability) for likely in each.likeliest]
        parts.append(_PAGE.card(show(each.path), thumbnail, likeliest, folder if folder in known else ''))
    return ''.join([*map(str, parts), str(_PAGE.end(problems, len(done)))])


def perform(arguments: argparse.Namespace, screen: Screen) -> int:
    """Classifies the images that a command line names, and returns the exit code."""
    found = image_batches.find(arguments.images)
    if arguments.html:
        # Before the images are read, which takes long.
        outputs.replaceable(arguments.html)
        outputs.check_is_no_input(arguments.html, found.paths)
        check_writable('html', os.path.dirname(arguments.html) or '.')
    with contextlib.ExitStack() as stack:
        model = None
        if len(found.problems) == len(found.paths):
            # There is nothing to classify.
            predictions: Iterator[Prediction] = (Prediction(p, problem=found.problems[p]) for p in found.paths)
        else:
            screen.update(f'loading {arguments.model}')
            model = stack.enter_context(contextlib.closing(classifier.load(arguments.model)))
            check_batch('batch_size', min(arguments.batch_size, len(found.paths)), model.bytes_per_image)
            thumbnails = stack.enter_context(contextlib.closing(Thumbnails())) if arguments.html else None
            screen.clear()
            report(str(model))
            predictions = predict(model, found, arguments.top, arguments.batch_size, thumbnails)
        progress, problems = Progress(screen, len(found.paths), arguments.batch_size), 0
        on_page: List[Prediction] = []
        for prediction in predictions:
            if sys.stderr.isatty():
                screen.clear()
            if arguments.json:
                print(prediction.json())
            elif not prediction.problem:
                print(*lines_of(prediction), sep='\n')
            if prediction.problem:
                problems += 1
                report(f'{show(prediction.path)}: {prediction.problem}')
            on_page += [prediction] if arguments.html else []
            progress.add()
        screen.clear()
        if arguments.html and model:
            write_whole(arguments.html, page_of(on_page, str(model), model.class_names))
        if 0 < problems < len(found.paths):
            report(f'{problems:,} of {len(found.paths):,} images could not be classified')
    return FIX if problems else DONE
