"""Measures how fast tar shards are read from the store, by images in a shard, number of shards, and workers.

A worker reads a shard at a time, as one of `--num_files_infeed` of a run. All combinations are measured in rounds.
"""

import argparse
import itertools
import os
import tempfile
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from benchmarks import tables
from benchmarks.comparison import spread
from benchmarks.drawing import Panel, chart
from benchmarks.measurement import interleave
from console.errors import CommandError
from console.messages import counted
from console.screen import Screen
from inception_v3.run import source
from studies.files import Table, publish, write_json
from studies.streaming import pipelines
from studies.streaming.measurement import BATCH_SIZE, TAR, DataSet, Measurement, Reading, measure

_TITLE = 'Tar shards by images, number and workers'


class Shards(NamedTuple):
    """A number of tar shards with as many images each, and a way to read them."""

    images: int
    number: int
    reading: Reading

    def __str__(self) -> str:
        return f'{counted(self.number, "shard")} of {counted(self.images, "image")}, {self.reading}'


Measured = Dict[Shards, List[Measurement]]
Stored = Mapping[Tuple[int, int], DataSet]


def perform(arguments: argparse.Namespace, screen: Screen, photos: str) -> int:
    """Measures all combinations of a command line with images of TFRecord files in a folder; returns its exit code.

    Raises:
      CommandError: the folder has too few images.
    """
    sizes = [*itertools.product(arguments.images_per_shard, arguments.shards)]
    readings = [Reading(TAR, *each) for each in itertools.product(arguments.latencies, arguments.read_ahead)]
    with tempfile.TemporaryDirectory(prefix='streaming-') as parent:
        stored: Dict[Tuple[int, int], DataSet] = {}
        for images, number in sorted(sizes, key=lambda size: -size[0] * size[1]):
            screen.update(f'storing {number} shards of {images} images')
            data = pipelines.write(photos, tempfile.mkdtemp(dir=parent), images * number, images)
            if len(data.files) < images * number:
                sizes_given = f'--shards={number} of --images_per_shard={images}'
                has = f'{photos} has {len(data.files):,}'
                raise CommandError(f'{sizes_given}: need {images * number:,} images; {has}. Give smaller numbers.')
            stored[images, number] = data
        made = (
            f'For ResNet-50, 224 x 224, in batches of {BATCH_SIZE}; {arguments.seconds:g} s a measurement, '
            f'{arguments.repeats} rounds; on {tables.machine()}. Medians (minimum–maximum).'
        )

        subjects = [Shards(images, number, reading) for images, number in sizes for reading in readings]

        def save(measured: Measured, failed: Dict[Shards, str]) -> None:
            rows = [
                {
                    'images': each.images,
                    'number': each.number,
                    **each.reading._asdict(),
                    'measurements': measured.get(each, []),
                    'failure': failed.get(each),
                }
                for each in subjects
            ]
            content = {'made': made, 'settings': vars(arguments), 'versions': source.versions(), 'shards': rows}
            write_json(os.path.join(arguments.out, 'shards.json'), content)

        def show(measured: Measured, failed: Dict[Shards, str]) -> None:
            if not measured and not failed:
                return
            print(made)
            failures = Table('Failed', ('shards', 'reason'), [[str(each), why] for each, why in failed.items()], 2)
            every = [*tables_of(measured, stored, sizes, readings), failures]
            publish(arguments.out, 'shards', _TITLE, [made], every, figure(measured, sizes, readings))

        def measure_one(each: Shards) -> Measurement:
            return measure(each.reading, stored[each[:2]], arguments.seconds)

        return interleave(subjects, arguments.repeats, measure_one, screen, show, save)


def tables_of(
    measured: Measured, stored: Stored, sizes: Sequence[Tuple[int, int]], readings: Sequence[Reading]
) -> List[Table]:
    """A table for each latency: a row for each size and number of shards, a column for each number of workers."""

    def text(size: Tuple[int, int], reading: Reading, field: str) -> str:
        values = [each[field] for each in measured.get(Shards(*size, reading), [])]
        return spread(values).text(0) if values else '–'

    found = []
    for latency, of_latency in itertools.groupby(readings, lambda reading: reading.latency_ms):
        every = [*of_latency]
        workers = (counted(reading.read_ahead, 'worker') for reading in every)
        rows = [
            [
                str(images),
                f'{stored[images, number].content_bytes[TAR] / number / 1e6:.1f}',
                str(number),
                *(text((images, number), reading, 'images_per_second') for reading in every),
                text((images, number), every[0], 'requests'),
            ]
            for images, number in sizes
        ]
        header = ('images in a shard', 'MB', 'shards', *workers, 'requests / 1,000 images')
        found.append(Table(f'Images/s at {latency:g} ms a request', header, rows, words=0))
    return found


def figure(measured: Measured, sizes: Sequence[Tuple[int, int]], readings: Sequence[Reading]) -> bytes:
    """Images/s by images in a shard, a panel for each way of reading, a line for each number of shards."""
    panels = []
    for reading in readings:
        series: Dict[str, Dict[Any, Any]] = {}
        for images, number in sizes:
            values = [each['images_per_second'] for each in measured.get(Shards(images, number, reading), [])]
            series.setdefault(counted(number, 'shard'), {})[images] = spread(values) if values else None
        title = f'{reading.latency_ms:g} ms a request, workers: {reading.read_ahead}'
        panels.append(Panel(title, 'images in a shard', 'images/s', series))
    return chart(_TITLE, panels, columns=3)
