"""Lists the files that a conversion leaves out or refuses."""

import contextlib
import os
from typing import Iterable, List, Sequence, Tuple

from console import outputs
from console.screen import failure
from console.tensorflow_versions import tf
from data.files import write_whole
from data.image_files import show
from data.records import DataError

# The list is beside the folder of the data set, so that it stays if no data set is made.
ENDING = '.refused.tsv'
_NAMED_AT_MOST = 3


class RefusedFiles:
    """Lists the files that are not in the data set, with the reasons, in a file beside it.

    The list of an earlier conversion to the same folder, which left no data set there, is removed.

    Args:
      data_dir: the folder of the data set, which does not exist yet or is empty.
    """

    def __init__(self, data_dir: str):
        self._path = outputs.replaceable(os.path.abspath(data_dir) + ENDING)
        self._lines: List[str] = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.remove(self._path)

    def add(self, refused: Iterable[Tuple[str, str]]) -> None:
        """Adds paths and reasons, and writes the file.

        Raises:
          DataError: it cannot be written.
        """
        self._lines += [f'{show(path)}\t{reason}\n' for path, reason in refused]
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            write_whole(self._path, 'path\treason\n' + ''.join(self._lines))
        except (OSError, tf.errors.OpError) as error:
            raise DataError(f'{self._path}: cannot be written: {failure(error)}.')

    def where(self, names: Sequence[str]) -> str:
        """The end of a message that lists only the first of `names`."""
        return f' (all in {show(self._path)})' if len(names) > _NAMED_AT_MOST else ''


def listed(names: Sequence[str]) -> str:
    """The first few of some names, and the number of the others."""
    more = len(names) - _NAMED_AT_MOST
    return ', '.join(map(show, names[:_NAMED_AT_MOST])) + (f' and {more:,} more' if more > 0 else '')
