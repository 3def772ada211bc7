"""Measures training's input pipeline on the same images in three layouts, each reading in a new process.

The layouts are single files in class folders, tar shards, and TFRecord files, on the local file system or in an object
store on this machine. `tools.studies.streaming.pipelines` writes them, and is the process.
"""

import contextlib
import json
import os
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple

from compat.messages import counted
from console import processes
from tools.benchmarks.measurement import answer_of
from tools.studies.streaming import object_store

# The layouts, which are also the names of their folders.
FILES, TAR, TFRECORD = 'files', 'tar', 'tfrecord'
LAYOUTS = {FILES: 'single files', TAR: 'tar shards', TFRECORD: 'TFRecord'}

BATCH_SIZE = 8
Measurement = Dict[str, Any]
# Seconds beyond its planned duration after which a measurement counts as hung.
_TIMEOUT = 300


class DataSet(NamedTuple):
    """Images stored in each of the layouts, in the folders of these names in `folder`.

    `files` has the path in its layout's folder and the label of each single file; labels are below `num_classes`. There
    are `shards` tar shards, and as many TFRecord files. `content_bytes` is the total size of each layout's files.
    """

    folder: str
    files: Tuple[Tuple[str, int], ...]
    num_classes: int
    shards: int
    content_bytes: Dict[str, int]


class Reading(NamedTuple):
    """A way to read images: `read_ahead` files of a layout at a time (`--num_files_infeed`), from the disk or a store.

    `latency_ms` is the delay of each request to the object store; None: local files. `images_per_shard` and `shards`
    distinguish data sets of several sizes.
    """

    layout: str
    latency_ms: Optional[float]
    read_ahead: int
    images_per_shard: int = 0
    shards: int = 0

    def __str__(self) -> str:
        size = f'{counted(self.shards, "shard")} of {counted(self.images_per_shard, "image")}, ' if self.shards else ''
        storage = 'local' if self.latency_ms is None else f'remote, {self.latency_ms:g} ms a request'
        return f'{size}{LAYOUTS[self.layout]}, {storage}, {self.read_ahead} at a time'


def files_below(folder: str) -> Iterator[str]:
    """The paths of all files in a folder and its folders."""
    return (os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)


def measure(reading: Reading, data: DataSet, seconds: float) -> Measurement:
    """Runs `pipelines.perform` in a new process, with an object store of its own for remote readings.

    First drops the files from the page cache, where a data set as large as ImageNet would not fit.

    Raises:
      MeasurementError: the measurement failed; the message gives the reason.
    """
    for path in files_below(os.path.join(data.folder, reading.layout)):
        with open(path, 'rb') as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with contextlib.ExitStack() as stack:
        store, environment = None, {**os.environ}
        if reading.latency_ms is not None:
            store = stack.enter_context(object_store.serving(data.folder, reading.latency_ms))
            environment.update(object_store.environment_of(store))
        command = processes.module('tools.studies.streaming.pipelines')
        asked = json.dumps([reading, data, seconds, store])
        answer: Measurement = answer_of(command, asked, environment, seconds + _TIMEOUT)
    return answer
