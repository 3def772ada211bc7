"""Extracts features of image files, at the speed at which `inception-v3 predict` classifies them."""

import contextlib
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np

from console.errors import CommandError
from console.progress import Progress
from console.screen import Screen
from data import image_files
from data.convert.intake import Intake
from data.image_files import Found, UnreadableError, listed, show
from data.read_ahead import in_order
from inception_v3.commands.features.extractors import Extractor
from inception_v3.run.memory.estimate import bytes_per_image, check_batch


class Extracted(NamedTuple):
    """The features of image files.

    Attributes:
      paths: of the images that could be read, in the order of the rows.
      values: the extractor's outputs, float32 [images, values].
      unreadable: number of the images that could not be read.
    """

    paths: List[str]
    values: Dict[str, np.ndarray]
    unreadable: int


def find(names: Sequence[str]) -> Found:
    """Finds the image files that arguments name, and reports files that are no images.

    Raises:
      CommandError: there are none.
    """
    found = image_files.find(names)
    if found.skipped:
        _report(f'skipped {len(found.skipped):,} files that are no images: {listed(found.skipped)}')
    if len(found.problems) == len(found.paths):
        raise CommandError('\n'.join(f'{show(path)}: {reason}' for path, reason in found.problems.items()))
    return found


def extract(extractor: Extractor, found: Found, batch_size: int, screen: Screen) -> Extracted:
    """Extracts the features of image files, and reports those that cannot be read.

    Threads, one per core, read and prepare files while the network runs.

    Args:
      extractor: the network.
      found: the files.
      batch_size: images per batch.
      screen: shows the progress.

    Raises:
      ConfigError: a batch does not fit into the memory.
      CommandError: no image can be read, or features are not finite.
    """
    check_batch('batch_size', min(batch_size, len(found.paths)), bytes_per_image(extractor.session.graph))
    paths: List[str] = []
    batches: List[Dict[str, np.ndarray]] = []
    for used, outputs in _batches(extractor, found, batch_size, screen):
        paths += used
        batches.append(outputs)
    screen.clear()
    unreadable = len(found.paths) - len(paths)
    if not paths:
        raise CommandError(f'{listed(found.paths)}: no image can be read; the lines above have the reasons.')
    if unreadable:
        _report(f'{unreadable:,} of {len(found.paths):,} images could not be read')
    values = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    for name, value in values.items():
        damaged = [path for path, row in zip(paths, value) if not np.isfinite(row).all()]
        if damaged:
            raise CommandError(
                f'{extractor.name}: the {name} of {len(damaged):,} images are not finite: the training of the '
                f'network has diverged. {listed(damaged)}'
            )
    return Extracted(paths, values, unreadable)


def _batches(
    extractor: Extractor, found: Found, batch_size: int, screen: Screen
) -> Iterator[Tuple[List[str], Dict[str, np.ndarray]]]:
    """The paths and the outputs of each batch with images that can be read."""
    progress = Progress(screen, len(found.paths), batch_size)
    intake = Intake()

    def prepare(path: str) -> Any:
        try:
            if path in found.problems:
                raise UnreadableError(found.problems[path])
            return extractor.prepare(intake.accept(image_files.read(path)).encoded)
        except UnreadableError as error:
            return error

    with contextlib.closing(intake):
        prepared = in_order(prepare, found.paths, ahead=2 * batch_size)
        for begin in range(0, len(found.paths), batch_size):
            images = {}
            paths = found.paths[begin : begin + batch_size]
            for path, image in zip(paths, prepared):
                if isinstance(image, UnreadableError):
                    screen.clear()
                    _report(f'{show(path)}: {image}')
                else:
                    images[path] = image
            if images:
                yield [*images], extractor.extract([*images.values()])
            for _ in paths:
                progress.add()


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
