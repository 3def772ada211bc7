"""Runs many cases in a child process, so that a crash, a hang or a memory leak is reported with the case's number."""

import faulthandler
import os
import pathlib
import subprocess
import sys
from typing import Any, Iterator

import PIL.Image

from compat import tf
from data.records import Record
from inception_v3.input.record_preprocessing import RecordPreprocessing
from tests.support.images import CAT
from tools.benchmarks.measurement import peak_bytes


def many(cases: int) -> int:
    """The number of cases of a slow test: all of them with FUZZ=all in the environment, else a thirtieth."""
    return cases if os.environ.get('FUZZ') == 'all' else cases // 30


def run(module: str, cases: int, folder: pathlib.Path) -> None:
    """Runs `python -m module CASES FOLDER`, which iterates over `cases_in` and fails at the first wrong case."""
    done = subprocess.run(
        [sys.executable, '-m', module, str(cases), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    reached = _place(folder).read_text() if _place(folder).exists() else 'none'
    output = done.stdout.decode(errors='replace')
    assert done.returncode == 0, f'case {reached}: exit code {done.returncode}\n{output[-5000:]}'


def cases_in(folder: pathlib.Path, cases: int, seconds: float, mebibytes: int) -> Iterator[int]:
    """The numbers of the cases; limits the seconds of each, and the growth of the peak memory since the first case."""
    faulthandler.enable()
    before = 0
    with open(_place(folder), 'w') as place:
        for case in range(cases):
            os.pwrite(place.fileno(), b'%d' % case, 0)
            faulthandler.dump_traceback_later(seconds, exit=True)
            yield case
            peak = peak_bytes() >> 20
            before = before or peak
            assert peak - before <= mebibytes, f'case {case}: the peak of the memory grew by {peak - before} MiB'
    faulthandler.cancel_dump_traceback_later()


def preprocess_in_group(preprocessing: RecordPreprocessing, good: bytes, serialized: tf.Tensor) -> Any:
    """Preprocesses a record that is parsed and drawn together with a good one, which precedes it."""
    drawn = preprocessing.draw(Record(tf.stack([good, serialized])))
    return preprocessing.finish(tf.nest.map_structure(lambda of_group: of_group[1], drawn))


def photograph() -> PIL.Image.Image:
    """A real photograph of 80 x 60 pixels."""
    return PIL.Image.fromarray(CAT).crop((0, 0, 400, 300)).resize((80, 60))


def _place(folder: pathlib.Path) -> pathlib.Path:
    return folder / 'case'
