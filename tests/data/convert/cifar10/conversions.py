"""Conversions of a small CIFAR-10."""

import pathlib
from typing import Any, Dict, NamedTuple, Tuple

from data.convert.cifar10 import __main__ as cifar10
from tests.data.convert.cifar10.archives import Originals
from tests.support.commands import run

# Instead of 10,000. One test uses the real number.
BATCH = 60


COUNTS = ['--train_images=750', '--validation_images=90', '--train_shards=5', '--validation_shards=2']


class Published(NamedTuple):
    """The data set in its four forms: two folders, and their archives."""

    images: Dict[str, Originals]
    paths: Dict[str, pathlib.Path]


def make(source: Any, data_dir: Any, *options: str) -> Tuple[int, str]:
    """Runs the command in this process, and returns its exit code and standard error."""
    done = run(cifar10.main, source, f'--data_dir={data_dir}', *COUNTS, *options)
    assert done.stdout == '' and 'Traceback' not in done.stderr
    return done.returncode, done.stderr
