"""Measures the gain from tar shards that are read in sequence, and the cost of remote storage.

Repeats a published comparison: training images are read from single files in random order (A), from local tar shards
(B), and from tar shards in a remote store (C); also from TFRecord files. The store runs on this machine, and TensorFlow
reads it as s3://. It can delay each request as a network does: the study measures the images per second under this
latency, and how much reading several files at a time helps. With --shards, it measures instead every combination of the
size of tar shards, their number, and the number of workers that read them.

It prints tables, and writes them as Markdown, and all numbers as JSON. There is no training step: the study
measures what the input pipeline alone can deliver.
"""

import argparse
import itertools
import os
import sys
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from compat.errors import CommandError
from compat.messages import counted
from console import program
from console.paths import check_stores
from console.screen import Screen
from inception_v3.config import Config
from tools.benchmarks import tables
from tools.benchmarks.measurement import interleave
from tools.benchmarks.tables import Spread, spread
from tools.parsers import folder, new_parser, number_of, numbers_of
from tools.studies.files import Table, prepare, publish, write_json
from tools.studies.streaming.measurement import (
    BATCH_SIZE,
    FILES,
    LAYOUTS,
    TAR,
    TFRECORD,
    DataSet,
    Measurement,
    Reading,
    measure,
)

OUT = os.path.join('runs', 'studies', 'streaming')
# The longest delay of a request, in ms, and the most files at a time.
_LONGEST_LATENCY, _MOST_READ_AHEAD = 10000, 256

_READ_AHEAD = Config().num_files_infeed
# The readings compared without latency. A, B and C are those of the published comparison.
COMPARED: Dict[str, Reading] = {
    'A: single files, local': Reading(FILES, None, _READ_AHEAD),
    'B: tar shards, local': Reading(TAR, None, _READ_AHEAD),
    'C: tar shards, remote': Reading(TAR, 0, _READ_AHEAD),
    'TFRecord, local': Reading(TFRECORD, None, _READ_AHEAD),
    'TFRecord, remote': Reading(TFRECORD, 0, _READ_AHEAD),
    'single files, remote': Reading(FILES, 0, _READ_AHEAD),
}
# For ResNet-50 on ImageNet. No figure is published for C over B.
PUBLISHED = {'B over A': '+11.2 %', 'C over A': 'throughput maintained', 'C over B': 'no figure'}
_TITLE = 'Streaming: single files, tar shards and TFRecord files, local and remote'
_METHOD = (
    'Medians (minimum–maximum); gains compare two measurements in the same round. CPU time and disk reads are those of '
    'the reading process alone. The object store runs on the same cores and has a column of its own; a remote store '
    'would take no CPU time of this machine. Before each measurement the files are dropped from the page cache.'
)
# Images per second, and per second of CPU time, which other load on the machine affects less.
SECOND, CPU_SECOND = 'second', 'CPU-second'

Measured = Dict[Reading, List[Measurement]]
# Data sets by images in a shard and number of shards.
Stored = Mapping[Tuple[int, int], DataSet]


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the study that a command line asks for, and returns its exit code."""
    parser = new_parser('streaming', __doc__)
    number, numbers = number_of(int, 1), numbers_of(int, 1)
    latencies, files = numbers_of(float, 0, _LONGEST_LATENCY), numbers_of(int, 1, _MOST_READ_AHEAD)
    flags: Sequence[Tuple[str, Any, Any, str]] = (
        ('out', folder, OUT, f'folder for JSON and Markdown, created if missing (default {OUT})'),
        ('data_dir', str, None, 'folder of TFRecord files to take images from (default: generated photographs)'),
        ('images', number, 1024, 'number of images to store (default 1024)'),
        ('images_per_shard', numbers, '32', 'images in each tar or TFRecord file (default 32); several with --shards'),
        ('shards', numbers, None, 'numbers of tar shards, with each of --images_per_shard, --latencies, --read_ahead'),
        ('repeats', number, 3, 'rounds of measurements (default 3)'),
        ('seconds', number_of(float, 0.01), 1.5, 'minimum duration of each measurement, in seconds (default 1.5)'),
        ('latencies', latencies, '0,10,50,100', 'delays of each request, in ms (default 0,10,50,100)'),
        ('read_ahead', files, '1,8,32', 'numbers of files to read at a time: --num_files_infeed (default 1,8,32)'),
    )
    for name, kind, default, text in flags:
        parser.add_argument(f'--{name}', type=kind, default=default, help=text)
    arguments = parser.parse_args(argv)
    if len(arguments.images_per_shard) > 1 and not arguments.shards:
        parser.error('argument --images_per_shard: several numbers need --shards')
    return program.run(
        lambda screen: _perform(arguments, screen), 'interrupted; the measurements made so far were written'
    )


def _perform(arguments: argparse.Namespace, screen: Screen) -> int:
    from compat import tf
    from inception_v3.run import versions
    from tools.benchmarks import photographs
    from tools.studies.streaming import object_store, pipelines

    try:
        check_stores([f's3://{object_store.BUCKET}'])
    except CommandError:
        raise CommandError(
            f'This study reads from a store at s3:// on this machine. TensorFlow {tf.__version__} has no s3://; run '
            'it on Python 3.7, with TensorFlow 1.15 (in a checkout, ./run inception-v3 streaming).'
        )
    prepare(arguments.out)

    if not arguments.data_dir:
        screen.update('looking for the photographs, or generating them')
        photographs.make(photographs.DATA_DIR)
    photos = arguments.data_dir or photographs.DATA_DIR
    latencies, ahead = arguments.latencies, arguments.read_ahead
    made = (
        f'For ResNet-50, 224 x 224, in batches of {BATCH_SIZE}; {arguments.seconds:g} s a measurement, '
        f'{arguments.repeats} rounds; on {tables.machine()}.'
    )
    with tempfile.TemporaryDirectory(prefix='streaming-') as parent:
        if arguments.shards:
            name, title = 'shards', 'Tar shards by images, number and workers'
            stored = _stored(arguments, screen, photos, parent)
            grid = itertools.product(stored, latencies, ahead)
            readings = [Reading(TAR, latency, files, *size) for size, latency, files in grid]
        else:
            name, title = 'streaming', _TITLE
            screen.update(f'storing {arguments.images:,} images in three layouts')
            data = pipelines.write(photos, parent, arguments.images, arguments.images_per_shard[0])
            size = data.content_bytes[FILES] / len(data.files) / 1000
            made = f'{len(data.files):,} images of {size:.0f} kB on average, in {data.shards:,} shards. {made}'
            stored = {(0, 0): data}
            readings = readings_of(latencies, ahead)

        def show(measured: Measured, failed: Dict[Reading, str]) -> None:
            if not measured and not failed:
                return
            rows = [
                {
                    'name': str(each),
                    **each._asdict(),
                    'measurements': measured.get(each, []),
                    'failure': failed.get(each),
                }
                for each in readings
            ]
            content = {'made': made, 'settings': vars(arguments), 'versions': versions.current(), 'readings': rows}
            write_json(os.path.join(arguments.out, f'{name}.json'), content)
            print(made)
            if arguments.shards:
                found = tables_of_shards(measured, stored, latencies, ahead)
            else:
                found = tables_of(measured, latencies, ahead)
            failures = Table('Failed', ('reading', 'reason'), [[str(each), why] for each, why in failed.items()], 2)
            publish(arguments.out, name, title, [made, _METHOD], [*found, failures])

        return interleave(
            readings,
            arguments.repeats,
            lambda reading: measure(reading, stored[reading[3:]], arguments.seconds),
            screen,
            show,
        )


def _stored(arguments: argparse.Namespace, screen: Screen, photos: str, parent: str) -> Stored:
    """Stores a data set for each size and number of shards; raises CommandError if there are too few images."""
    from tools.studies.streaming import pipelines

    stored: Dict[Tuple[int, int], DataSet] = {}
    for images, number in itertools.product(arguments.images_per_shard, arguments.shards):
        screen.update(f'storing {number} shards of {images} images')
        data = pipelines.write(photos, tempfile.mkdtemp(dir=parent), images * number, images)
        if len(data.files) < images * number:
            sizes_given = f'--shards={number} of --images_per_shard={images}'
            has = f'{photos} has {len(data.files):,}'
            raise CommandError(f'{sizes_given}: need {images * number:,} images; {has}. Give smaller numbers.')
        stored[images, number] = data
    return stored


def readings_of(latencies: Sequence[float], read_ahead: Sequence[int]) -> List[Reading]:
    """All readings to measure, without duplicates."""
    grid = [Reading(layout, each, ahead) for layout in (FILES, TAR) for ahead in read_ahead for each in latencies]
    return [*dict.fromkeys([*COMPARED.values(), *grid])]


def gain(measured: Measured, pair: str, per: str) -> Optional[Spread]:
    """The relative gain in throughput of the first reading of a pair, such as `B over A`, within each round."""
    named = {label[0]: reading for label, reading in COMPARED.items()}
    both = zip(*(measured.get(named[letter], []) for letter in pair.split(' over ')))
    if per == SECOND:
        gains = [one['images_per_second'] / other['images_per_second'] - 1 for one, other in both]
    else:
        gains = [other['cpu_ms'] / one['cpu_ms'] - 1 for one, other in both]
    return spread(gains) if gains else None


def _text(measured: Measured, reading: Reading, field: str, digits: int = 0) -> str:
    """The spread of a field over the measurements of a reading; a dash without a value."""
    values = [each[field] for each in measured.get(reading, [])]
    return spread(values).text(digits) if values and values[0] is not None else '–'


def tables_of(measured: Measured, latencies: Sequence[float], read_ahead: Sequence[int]) -> List[Table]:
    """The tables of the published comparison, and of the latency."""
    gains = []
    for pair, published in PUBLISHED.items():
        found = {per: gain(measured, pair, per) for per in (SECOND, CPU_SECOND)}
        percents = [
            f'per {per} ' + ('{:+.1f} % ({:+.1f} … {:+.1f})'.format(*(100 * part for part in each)) if each else '–')
            for per, each in found.items()
        ]
        gains.append(f'{pair}: images {", ".join(percents)}; published: {published}')
    fields = {'images_per_second': 0, 'cpu_ms': 2, 'disk_kb': 0, 'store_cpu_ms': 2, 'requests': 0}
    header = ('stored as', 'images/s', 'CPU-ms / image', 'disk kB / image', "store's CPU-ms", 'requests / 1,000 images')
    compared = [
        [label, *(_text(measured, reading, field, digits) for field, digits in fields.items())]
        for label, reading in COMPARED.items()
    ]
    rows = []
    for layout in (FILES, TAR):
        for ahead in read_ahead:
            readings = [Reading(layout, latency, ahead) for latency in latencies]
            at_once = [each['most_at_once'] or 0 for reading in readings for each in measured.get(reading, [])]
            cells = [_text(measured, reading, 'images_per_second') for reading in readings]
            rows.append([LAYOUTS[layout], str(ahead), *cells, str(max(at_once, default='–'))])
    delays = (f'{latency:g} ms' for latency in latencies)
    return [
        Table(f'Without latency, {_READ_AHEAD} files at a time', header, compared, notes=gains),
        Table(
            'Remote, images/s by the latency of each request',
            ('stored as', 'files at a time', *delays, 'requests at once'),
            rows,
        ),
    ]


def tables_of_shards(
    measured: Measured, stored: Stored, latencies: Sequence[float], read_ahead: Sequence[int]
) -> List[Table]:
    """A table for each latency: a row for each size and number of shards, a column for each number of workers."""
    header = ('images in a shard', 'MB', 'shards', *(counted(ahead, 'worker') for ahead in read_ahead))
    found = []
    for latency in latencies:
        rows = []
        for size, data in stored.items():
            readings = [Reading(TAR, latency, ahead, *size) for ahead in read_ahead]
            cells = [_text(measured, reading, 'images_per_second') for reading in readings]
            megabytes = f'{data.content_bytes[TAR] / size[1] / 1e6:.1f}'
            rows.append([str(size[0]), megabytes, str(size[1]), *cells, _text(measured, readings[0], 'requests')])
        title = f'Images/s at {latency:g} ms a request'
        found.append(Table(title, (*header, 'requests / 1,000 images'), rows, words=0))
    return found


if __name__ == '__main__':
    sys.exit(main())
