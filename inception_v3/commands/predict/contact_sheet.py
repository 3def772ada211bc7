"""The page of `predict --html`: a thumbnail of each image, and its most probable classes."""

import contextlib
import datetime
import os
import pathlib
from typing import Any, List, Sequence, TextIO, Tuple

from console import html, outputs, processes
from console.messages import shown
from data.image_files import show
from inception_v3.config import ConfigError

_PAGE: Any = html.template(pathlib.Path(__file__).with_name('contact_sheet.html').read_text()).module


class ContactSheet:
    """Context manager that writes the page while images are classified, then completes it and moves it to its path.

    Args:
      path: path of the page.
      classifier: name of the classifier.
      class_names: the names of its classes; an image in a folder of such a name is marked if it is
        classified otherwise.

    Raises:
      ConfigError: the page cannot be written.
    """

    def __init__(self, path: str, classifier: str, class_names: Sequence[str]):
        if path.endswith('/'):
            raise ConfigError(f'--html={path}: is a folder; name a file for the page.')
        self._stack = contextlib.ExitStack()
        try:
            unfinished = self._stack.enter_context(outputs.unfinished_file(path))
            self._file: TextIO = open(unfinished, 'w', encoding='utf-8')  # noqa: SIM115
            self._stack.enter_context(self._file)
        except OSError as error:
            raise ConfigError(f'--html={path}: cannot be written: {error.strerror}.')
        self._class_names = {shown(name) for name in class_names[1:] if name}
        self._images = 0
        self._problems: List[str] = []
        self._ending = ', then interrupted'
        self._file.write(_PAGE.begin(classifier, processes.command_line('predict'), datetime.datetime.utcnow()))

    def add(self, path: str, thumbnail: bytes, likeliest: Sequence[Tuple[str, float]], problem: str = '') -> None:
        """Adds an image.

        Args:
          path: path of the image.
          thumbnail: a JPEG file.
          likeliest: classes and their probabilities, most probable first.
          problem: the reason why the image could not be classified; empty if it was.
        """
        if problem:
            self._problems.append(f'{show(path)}: {problem}')
            return
        self._images += 1
        source = html.data_uri(thumbnail, 'image/jpeg') if thumbnail else ''
        folder = shown(os.path.basename(os.path.dirname(os.path.abspath(path))))
        self._file.write(_PAGE.card(show(path), source, likeliest, folder if folder in self._class_names else ''))

    def finish(self) -> None:
        """Marks the page as complete: all images were classified."""
        self._ending = ''

    def __enter__(self) -> 'ContactSheet':
        return self

    def __exit__(self, *unused: Any) -> None:
        """Completes the page, also after an error or Ctrl-C: it shows the images that were done."""
        with self._stack:
            self._file.write(_PAGE.end(self._problems, self._images, self._ending))
