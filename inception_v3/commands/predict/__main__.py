"""Classifies image files with the newest checkpoint of a run, or with a SavedModel.

Images are prepared and classified as in the run's evaluation, with the averaged weights if the run keeps them. An image
that cannot be read is reported with the reason, and the others are classified.
"""

import argparse
import contextlib
import itertools
import json
import shutil
import sys
import types
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from console import native_messages, program
from console.command_line import new_parser
from console.errors import DONE, FIX
from console.messages import shown
from console.outputs import replaceable
from console.paths import expanded
from console.progress import EIGHTHS, Progress, bar
from console.screen import Screen
from data import image_files
from data.convert.intake import Intake
from data.image_files import Found, UnreadableError, listed, show
from data.read_ahead import in_order
from inception_v3.commands.predict import classifier
from inception_v3.commands.predict.classifier import Classifier
from inception_v3.run.memory.estimate import check_batch

_HELP = f'{__doc__}\nIf an image cannot be read, the exit code is {FIX}.'
# Columns of text if the output is not a terminal.
_PLAIN_WIDTH = 100
_LONGEST_BAR = 40
# The first bytes of JPEG and PNG files. Models show these as viewers do; an image that the intake has turned has been
# encoded again, and differs a little.
_AS_VIEWED = (b'\xff\xd8', b'\x89PNG')
_NO_PROBLEMS: Mapping[str, str] = types.MappingProxyType({})


class ScoredClass(NamedTuple):
    """A class with its name, which may be empty, and its probability."""

    label: int
    name: str
    probability: float

    @property
    def words(self) -> str:
        """The name in printable characters, or `class LABEL` if there is none."""
        return shown(self.name) if self.name else f'class {self.label}'


class Prediction(NamedTuple):
    """The result for one image file.

    Attributes:
      path: path of the file.
      likeliest: the most probable classes, most probable first; empty if the image could not be classified.
      thumbnail: a JPEG file; empty if none was requested.
      problem: the reason why the image could not be classified; empty if it was.
    """

    path: str
    likeliest: Tuple[ScoredClass, ...] = ()
    thumbnail: bytes = b''
    problem: str = ''

    def json(self) -> str:
        """Returns the object that `--json` prints on a line."""
        if self.problem:
            return json.dumps({'image': self.path, 'error': self.problem})
        classes = [{'class': c.label, 'name': c.name or None, 'probability': c.probability} for c in self.likeliest]
        return json.dumps({'image': self.path, 'predictions': classes})


class _Prepared(NamedTuple):
    """An image prepared for the classifier, or the error that prevented this; and its thumbnail."""

    image: Any
    thumbnail: bytes


def predict(
    model: Classifier,
    paths: Sequence[str],
    top: int,
    batch_size: int,
    problems: Mapping[str, str] = _NO_PROBLEMS,
    make_thumbnail: Optional[Callable[[np.ndarray], bytes]] = None,
) -> Iterator[Prediction]:
    """Classifies image files, in their order.

    Threads, one per core, read and prepare files while the network runs. At most three batches are in memory.

    Args:
      model: the classifier.
      paths: paths of the files.
      top: number of most probable classes to return.
      batch_size: images per batch.
      problems: the reasons why some of the paths are no image files.
      make_thumbnail: makes a thumbnail of an image's pixels; None for no thumbnails.
    """
    intake = Intake()

    def prepare(path: str) -> _Prepared:
        try:
            if path in problems:
                raise UnreadableError(problems[path])
            # Decoding takes most of the time, so that each image is decoded once, for all purposes.
            encoded = image_files.read(path)
            accepted, pixels = intake.accept_and_decode(encoded)
            if accepted.encoded is not encoded and model.has_images_as_viewed and encoded.startswith(_AS_VIEWED):
                image = model.prepare(encoded)
            else:
                image = model.prepare(accepted.encoded, pixels)
        except UnreadableError as error:
            return _Prepared(error, b'')
        return _Prepared(image, make_thumbnail(pixels) if make_thumbnail else b'')

    with contextlib.closing(intake):
        prepared = in_order(prepare, paths, ahead=2 * batch_size)
        for begin in range(0, len(paths), batch_size):
            batch = paths[begin : begin + batch_size]
            yield from _classify(model, batch, [*itertools.islice(prepared, len(batch))], top)


def _classify(model: Classifier, paths: Sequence[str], batch: Sequence[_Prepared], top: int) -> Iterator[Prediction]:
    usable = [prepared.image for prepared in batch if not isinstance(prepared.image, UnreadableError)]
    outcomes = iter(model.classify(usable) if usable else [])
    for path, prepared in zip(paths, batch):
        outcome = prepared.image if isinstance(prepared.image, UnreadableError) else next(outcomes)
        if isinstance(outcome, UnreadableError):
            yield Prediction(path, problem=str(outcome))
        elif not np.isfinite(outcome).all():
            yield Prediction(path, problem='the network returns NaN as probabilities: its training has diverged')
        else:
            likeliest = [c for c in np.argsort(-outcome, kind='stable') if c or model.has_class_0][:top]
            classes = [ScoredClass(int(c), model.class_names[c], float(outcome[c])) for c in likeliest]
            yield Prediction(path, tuple(classes), prepared.thumbnail)


class _Output:
    """Writes predictions to standard output: as text with bars, fitted to the terminal's width, or as JSON."""

    def __init__(self, as_json: bool):
        self._as_json = as_json
        self._width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        self._bar_width = min(_LONGEST_BAR, (self._width or _PLAIN_WIDTH) // 3)
        self._steps = EIGHTHS
        try:
            EIGHTHS.encode(sys.stdout.encoding)
        except UnicodeEncodeError:
            self._steps = '#'

    def show(self, prediction: Prediction) -> None:
        """Prints a prediction. JSON output includes images that could not be classified; text output omits them."""
        if self._as_json:
            print(prediction.json())
        elif not prediction.problem:
            print(show(prediction.path))
            for c in prediction.likeliest:
                filled = bar(c.probability, self._bar_width, self._steps)
                line = f'  {c.probability:7.2%}  {filled:<{self._bar_width}}  {c.words}'
                print(line[: self._width])


def _parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = new_parser('predict', _HELP)
    parser.add_argument('images', nargs='+', metavar='IMAGE', help='an image file, a folder, or a pattern in quotes')
    parser.add_argument(
        '--model',
        required=True,
        metavar='DIR',
        help='the model_dir of a run, a SavedModel, or an export_dir (its newest SavedModel is used, if '
        'all are of one run); may be remote',
    )
    parser.add_argument(
        '--top', type=int, default=5, metavar='N', help='classes to show per image, at most all (default: 5)'
    )
    parser.add_argument('--json', action='store_true', help='print a JSON object per image, one per line')
    parser.add_argument('--html', metavar='FILE', help='also write a self-contained page with thumbnails')
    parser.add_argument('--batch_size', type=int, default=32, metavar='N', help='images per batch (default: 32)')
    arguments = parser.parse_args(expanded(argv))
    if arguments.html == '':
        parser.error('--html=: must be the path of a file.')
    for name in ('top', 'batch_size'):
        if getattr(arguments, name) < 1:
            parser.error(f'--{name}={getattr(arguments, name)}: must be at least 1.')
    return arguments


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Classifies the images that a command line names, and returns the exit code."""
    arguments = _parse(argv)

    def command(screen: Screen) -> int:
        if arguments.html:
            replaceable(arguments.html)
        found = image_files.find(arguments.images)
        if found.skipped:
            _report(f'skipped {len(found.skipped):,} files that are no images: {listed(found.skipped)}')
        if len(found.problems) == len(found.paths):
            # There is nothing to classify.
            for path in found.paths:
                _Output(arguments.json).show(Prediction(path, problem=found.problems[path]))
                _report(f'{show(path)}: {found.problems[path]}')
            return FIX
        return FIX if _run(arguments, found, screen) else DONE

    with native_messages.captured():
        return program.run(command, on_interrupt='interrupted; the output holds the images that were done')


def _run(arguments: argparse.Namespace, found: Found, screen: Screen) -> int:
    """Classifies image files, and returns the number that could not be classified."""
    with contextlib.ExitStack() as stack:
        if arguments.html:
            from inception_v3.commands.predict import contact_sheet
        screen.update(f'loading {arguments.model}')
        model = stack.enter_context(contextlib.closing(classifier.load(arguments.model)))
        check_batch('batch_size', min(arguments.batch_size, len(found.paths)), model.bytes_per_image)
        make_thumbnail = sheet = None
        if arguments.html:
            make_thumbnail = stack.enter_context(contextlib.closing(contact_sheet.Thumbnails())).make
            sheet = stack.enter_context(contact_sheet.ContactSheet(arguments.html, str(model), model.class_names))
        screen.clear()
        _report(str(model))
        output, progress = _Output(arguments.json), Progress(screen, len(found.paths), arguments.batch_size)
        problems = 0
        for prediction in predict(
            model, found.paths, arguments.top, arguments.batch_size, found.problems, make_thumbnail
        ):
            if sys.stderr.isatty():
                screen.clear()
            output.show(prediction)
            if prediction.problem:
                problem = f'{show(prediction.path)}: {prediction.problem}'
                problems += 1
                _report(problem)
                if sheet:
                    sheet.add_problem(problem)
            elif sheet:
                classes = [(c.words, c.probability) for c in prediction.likeliest]
                sheet.add(prediction.path, prediction.thumbnail, classes)
            progress.add()
        screen.clear()
        if sheet:
            sheet.finish()
        if problems:
            _report(f'{problems:,} of {len(found.paths):,} images could not be classified')
    return problems


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == '__main__':
    sys.exit(main())
