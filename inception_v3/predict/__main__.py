"""Classifies image files, by a run's newest checkpoint or by a SavedModel, as the run's evaluation does.

Images are prepared and classified as in an evaluation, with the averages of the weights if the run keeps them. What
cannot be read is named, with its reason, and the rest is done.

exit codes:
  0    all were classified
  1    some could not be read
  2    there is something to change first
  130  interrupted by Ctrl-C; what was printed, and the page, are of what was done
"""

import argparse
import collections
import concurrent.futures
import contextlib
import itertools
import json
import os
import shutil
import sys
import time
from typing import Any, Callable, Deque, Iterator, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf
from absl import app

from console.messages import shown
from console.screen import Screen, duration, set_up_logging
from inception_v3.config import ConfigError
from inception_v3.predict import classifier, image_files
from inception_v3.predict.classifier import Classifier
from inception_v3.predict.image_files import UnreadableError, show

_SOME_UNREADABLE, _MISTAKE, _INTERRUPTED = 1, 2, 130
# Where the output is no terminal.
_PLAIN_WIDTH = 100
_LONGEST_BAR = 40
_PROGRESS_BAR = 16
_EIGHTHS = '▏▎▍▌▋▊▉█'
# Of the files that are no images, as many are named.
_NAMED_AT_MOST = 5


class Likely(NamedTuple):
    """A class, its name, which may be empty, and its probability."""

    label: int
    name: str
    probability: float

    @property
    def words(self) -> str:
        """Its name, or its number if it has none."""
        return shown(self.name) if self.name else f'class {self.label}'


class Prediction(NamedTuple):
    """What is said of an image file.

    Attributes:
      path: of the file.
      likeliest: the likeliest classes, the first one first; none if it could not be classified.
      thumbnail: a JPEG file, if it was asked for.
      problem: why it could not be classified.
    """

    path: str
    likeliest: Tuple[Likely, ...] = ()
    thumbnail: bytes = b''
    problem: str = ''

    def json(self) -> str:
        """The object of a line of `--json`."""
        if self.problem:
            return json.dumps({'image': self.path, 'error': self.problem})
        classes = [{'class': c.label, 'name': c.name or None, 'probability': c.probability} for c in self.likeliest]
        return json.dumps({'image': self.path, 'predictions': classes})


class _Prepared(NamedTuple):
    """An image on its way: what the classifier wants of it, or why there is no such thing; and its thumbnail."""

    image: Any
    thumbnail: bytes


def predict(
    model: Classifier,
    paths: Sequence[str],
    top: int,
    batch_size: int,
    make_thumbnail: Optional[Callable[[bytes], bytes]] = None,
) -> Iterator[Prediction]:
    """Classifies image files, in their order.

    Files are read and prepared by as many threads as there are cores, while the network runs. Three batches of them
    are in memory at most.

    Args:
      model: what classifies.
      paths: of the files.
      top: how many of the likeliest classes are wanted.
      batch_size: images that are classified at a time.
      make_thumbnail: makes a thumbnail of an image file that can be decoded; None: there are none.
    """

    def prepare(path: str) -> _Prepared:
        try:
            encoded = image_files.read(path)
            image = model.prepare(encoded)
        except UnreadableError as error:
            return _Prepared(error, b'')
        thumbnail = b''
        if make_thumbnail:
            # What only a SavedModel decodes is told by it.
            with contextlib.suppress(tf.errors.InvalidArgumentError):
                thumbnail = make_thumbnail(encoded)
        return _Prepared(image, thumbnail)

    prepared = _in_order(prepare, paths, ahead=2 * batch_size)
    for begin in range(0, len(paths), batch_size):
        batch = paths[begin : begin + batch_size]
        yield from _classify(model, batch, [*itertools.islice(prepared, len(batch))], top)


def _in_order(prepare: Callable[[str], _Prepared], paths: Sequence[str], ahead: int) -> Iterator[_Prepared]:
    """What is made of each path, in their order; threads make as many ahead."""
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        waiting: Deque[concurrent.futures.Future] = collections.deque()
        try:
            for path in paths:
                waiting.append(threads.submit(prepare, path))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _classify(model: Classifier, paths: Sequence[str], batch: Sequence[_Prepared], top: int) -> Iterator[Prediction]:
    usable = [prepared.image for prepared in batch if not isinstance(prepared.image, UnreadableError)]
    outcomes = iter(model.classify(usable) if usable else [])
    for path, prepared in zip(paths, batch):
        outcome = prepared.image if isinstance(prepared.image, UnreadableError) else next(outcomes)
        if isinstance(outcome, UnreadableError):
            yield Prediction(path, problem=str(outcome))
        elif not np.isfinite(outcome).all():
            yield Prediction(path, problem='the network finds no probabilities, but NaN: its training has diverged')
        else:
            likeliest = np.argsort(-outcome, kind='stable')[:top]
            classes = [Likely(int(label), model.class_names[label], float(outcome[label])) for label in likeliest]
            yield Prediction(path, tuple(classes), prepared.thumbnail)


class _Output:
    """Shows predictions on standard output: text with bars, as wide as a terminal, or JSON."""

    def __init__(self, as_json: bool):
        self._as_json = as_json
        # Names that the output's encoding lacks are shown all the same.
        sys.stdout.reconfigure(errors='backslashreplace')  # type: ignore[attr-defined]
        self._width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        self._bar_width = min(_LONGEST_BAR, (self._width or _PLAIN_WIDTH) // 3)
        self._eighths = _EIGHTHS
        try:
            _EIGHTHS.encode(sys.stdout.encoding)
        except UnicodeEncodeError:
            self._eighths = '#'

    def show(self, prediction: Prediction) -> None:
        """Shows one; what could not be classified is not shown, but in JSON."""
        if self._as_json:
            print(prediction.json())
        elif not prediction.problem:
            print(show(prediction.path))
            for likely in prediction.likeliest:
                line = (
                    f'  {likely.probability:7.2%}  {self._bar(likely.probability):<{self._bar_width}}  {likely.words}'
                )
                print(line[: self._width])

    def _bar(self, share: float) -> str:
        return bar(share, self._bar_width, self._eighths)


def bar(share: float, width: int, steps: str = _EIGHTHS) -> str:
    """A bar for a share of 1, `width` characters long for all; the last of `steps` is a whole character of it."""
    whole, rest = divmod(round(share * width * len(steps)), len(steps))
    return steps[-1] * whole + (steps[rest - 1] if rest else '')


class _Progress:
    """Says on standard error how many images are done, after each batch."""

    def __init__(self, screen: Screen, images: int, batch_size: int):
        self._screen = screen
        self._images = images
        self._batch_size = batch_size
        self._done = 0
        self._start = time.monotonic()

    def add(self) -> None:
        """Counts an image."""
        self._done += 1
        if self._done % self._batch_size:
            return
        rate = self._done / (time.monotonic() - self._start)
        left = duration((self._images - self._done) / rate)
        done = bar(self._done / self._images, _PROGRESS_BAR, '#').ljust(_PROGRESS_BAR, '.')
        self._screen.update(f'{done} {self._done:,} of {self._images:,}, {rate:,.1f} images/s, {left} left')


def _parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='python -m inception_v3.predict',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('images', nargs='+', metavar='IMAGE', help='an image file, a folder, or a pattern in quotes')
    parser.add_argument(
        '--model',
        required=True,
        metavar='DIR',
        help='the model_dir of a run, a SavedModel, or an export_dir, whose newest SavedModel is taken; may be remote',
    )
    parser.add_argument('--top', type=int, default=5, metavar='N', help='classes to show of an image (default 5)')
    parser.add_argument('--json', action='store_true', help='print an object per image, each in a line')
    parser.add_argument('--html', metavar='FILE', help='write a page with thumbnails, too, which needs no other file')
    parser.add_argument(
        '--batch_size', type=int, default=32, metavar='N', help='images that are classified at a time (default 32)'
    )
    arguments = parser.parse_args(argv)
    if arguments.html == '':
        parser.error('--html=: must be the path of a file.')
    for name in ('top', 'batch_size'):
        if getattr(arguments, name) < 1:
            parser.error(f'--{name}={getattr(arguments, name)}: must be at least 1.')
    return arguments


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Classifies what the command line names, and returns the exit code."""
    arguments = _parse(argv)
    screen = Screen(sys.stderr)
    set_up_logging(screen, verbose=False)
    try:
        found = image_files.find(arguments.images)
        for problem in found.problems:
            _say(problem)
        if found.others:
            _say(f'left out: {len(found.others):,} that are no images by their names: {_listed(found.others)}')
        if not found.paths:
            return _MISTAKE
        unreadable = _run(arguments, found.paths, screen)
        return _SOME_UNREADABLE if unreadable or found.problems else 0
    except KeyboardInterrupt:
        screen.clear()
        _say('interrupted')
        return _INTERRUPTED
    except BrokenPipeError:
        # Who reads the output has seen enough; what is left of it is not to fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _SOME_UNREADABLE
    except (app.UsageError, OSError, tf.errors.OpError) as error:
        screen.clear()
        _say(f'error: {error.message if isinstance(error, tf.errors.OpError) else error}')
        return _MISTAKE


def _run(arguments: argparse.Namespace, paths: Sequence[str], screen: Screen) -> int:
    """Classifies some files, and returns how many could not be classified."""
    with contextlib.ExitStack() as stack:
        if arguments.html:
            try:
                from inception_v3.predict import contact_sheet
            except ImportError:
                raise ConfigError("--html: the page needs jinja2, which is not installed: pip install '.[studies]'.")
        screen.update(f'loading {arguments.model}')
        model = stack.enter_context(contextlib.closing(classifier.load(arguments.model)))
        make_thumbnail = sheet = None
        if arguments.html:
            make_thumbnail = stack.enter_context(contextlib.closing(contact_sheet.Thumbnails())).make
            sheet = stack.enter_context(contact_sheet.ContactSheet(arguments.html, model.name))
        output, done = _Output(arguments.json), _Progress(screen, len(paths), arguments.batch_size)
        problems = 0
        for prediction in predict(model, paths, arguments.top, arguments.batch_size, make_thumbnail):
            if sys.stderr.isatty():
                screen.clear()
            output.show(prediction)
            if prediction.problem:
                problem = f'{show(prediction.path)}: {prediction.problem}'
                problems += 1
                _say(problem)
                if sheet:
                    sheet.add_problem(problem)
            elif sheet:
                classes = [(likely.words, likely.probability) for likely in prediction.likeliest]
                sheet.add(show(prediction.path), prediction.thumbnail, classes)
            done.add()
        screen.clear()
        if sheet:
            sheet.finish()
        if problems:
            _say(f'{problems:,} of {len(paths):,} images could not be classified')
    return problems


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _listed(paths: Sequence[str]) -> str:
    more = len(paths) - _NAMED_AT_MOST
    return ', '.join(map(show, paths[:_NAMED_AT_MOST])) + (f' and {more:,} more' if more > 0 else '')


if __name__ == '__main__':
    sys.exit(main())
