"""Conversions of a small CIFAR-10."""

import pathlib
import sys
from typing import Any, Dict, NamedTuple, Tuple

from data.convert.cifar10 import __main__ as cifar10
from tests.data.convert.cifar10.archives import Originals

# Instead of 10,000. One test uses the real number.
BATCH = 60


COUNTS = ['--train_images=750', '--validation_images=90', '--train_shards=5', '--validation_shards=2']


class Published(NamedTuple):
    """The data set in its four forms: two folders, and their archives."""

    images: Dict[str, Originals]
    paths: Dict[str, pathlib.Path]


def make(monkeypatch: Any, capsys: Any, source: Any, data_dir: Any, *options: str) -> Tuple[int, str]:
    """Runs the command in this process, and returns its exit code and standard error."""
    monkeypatch.setattr(sys, 'argv', ['cifar10', str(source), f'--data_dir={data_dir}', *COUNTS, *options])
    try:
        code = cifar10.main()
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    out, err = capsys.readouterr()
    assert out == '' and 'Traceback' not in err
    return code, err
