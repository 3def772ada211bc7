"""Measures the gain from tar shards that are read in sequence, and the cost of remote storage.

Repeats a published comparison: training images are read from single files in random order (A), from local tar shards
(B), and from tar shards in a remote store (C); also from TFRecord files. The store runs on this machine, and TensorFlow
reads it as s3://. It can delay each request as a network does: the study measures the images per second under this
latency, and how much reading several files at a time helps.

It prints tables, and writes them as Markdown with a figure, and all numbers as JSON. studies/README.md discusses the
results. There is no training step: the study measures what the input pipeline alone can deliver.
"""

import argparse
import os
import sys
import tempfile
from typing import Any, Callable, Dict, Iterator, Optional, Sequence

from benchmarks import photographs, tables
from benchmarks.measurement import MeasurementError
from console import program
from console.command_line import folder, new_parser, number_of, numbers_of
from console.errors import DONE, RETRY
from console.paths import expanded
from console.screen import Screen
from data.files import write_whole
from inception_v3.run import source
from inception_v3.run.files import check_writable
from studies import extras
from studies.files import write_json
from studies.report import sections
from studies.streaming import measurement, report
from studies.streaming.measurement import BATCH_SIZE, DataSet, measure
from studies.streaming.report import Results

OUT = os.path.join('runs', 'studies', 'streaming')
JSON_FILE = 'streaming.json'
MARKDOWN_FILE = 'streaming.md'
FIGURE_FILE = 'streaming.png'

# The longest delay of a request, in ms, and the most files at a time.
_LONGEST_LATENCY = 10000
_MOST_READ_AHEAD = 256


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the study that a command line asks for, and returns its exit code."""
    arguments = _parser().parse_args(expanded(argv))
    return program.run(
        lambda screen: _perform(arguments, screen), 'interrupted; the measurements made so far were written'
    )


def _parser() -> argparse.ArgumentParser:
    parser = new_parser('streaming', __doc__)
    add = parser.add_argument
    files = f'{JSON_FILE}, {MARKDOWN_FILE} and {FIGURE_FILE}'
    out_help = f'folder for {files}, created if missing (default {OUT})'
    add('--out', type=folder, default=OUT, help=out_help)
    add('--data_dir', help='folder of TFRecord files to take images from (default: generated photographs)')
    add('--images', type=number_of(int, 1), default=1024, help='number of images to store (default 1024)')
    shard_help = 'images in each tar or TFRecord file (default 32)'
    add('--images_per_shard', type=number_of(int, 1), default=32, help=shard_help)
    add('--repeats', type=number_of(int, 1), default=3, help='rounds of measurements (default 3)')
    seconds_help = 'minimum duration of each measurement, in seconds (default 1.5)'
    add('--seconds', type=number_of(float, 0.01), default=1.5, help=seconds_help)
    add(
        '--latencies',
        type=numbers_of(float, 0, _LONGEST_LATENCY),
        default=[0.0, 10.0, 50.0, 100.0],
        metavar='MS,…',
        help='delays of each request, in ms (default 0,10,50,100)',
    )
    add(
        '--read_ahead',
        type=numbers_of(int, 1, _MOST_READ_AHEAD),
        default=[1, 8, 32],
        metavar='FILES,…',
        help='numbers of files to read at a time, as --num_files_infeed of a run (default 1,8,32)',
    )
    return parser


def _perform(arguments: argparse.Namespace, screen: Screen) -> int:
    extras.require('studies')
    check_writable('out', arguments.out)
    if not arguments.data_dir:
        screen.update('looking for the photographs, or generating them')
        photographs.make(photographs.DATA_DIR)
    with tempfile.TemporaryDirectory(prefix='streaming-') as folder:
        screen.update(f'storing {arguments.images:,} images in three layouts')
        photos = arguments.data_dir or photographs.DATA_DIR
        data = measurement.write(photos, folder, arguments.images, arguments.images_per_shard)
        found = Results(arguments.latencies, arguments.read_ahead, {}, {})
        context = {
            'made': _conditions(data, arguments),
            'settings': vars(arguments),
            'content_bytes': data.content_bytes,
            'versions': source.versions(),
        }
        try:
            for _ in _measure(found, data, arguments, screen.update):
                _write_numbers(arguments.out, found, context)
        finally:
            # Also after an interruption.
            screen.clear()
            if found.measured or found.failed:
                _show(arguments.out, found, context)
    return RETRY if found.failed else DONE


def _conditions(data: DataSet, arguments: argparse.Namespace) -> str:
    """The conditions of the measurements, in a sentence."""
    size = data.content_bytes[measurement.FILES] / len(data.files) / 1000
    return (
        f'{len(data.files):,} images of {size:.0f} kB on average, in {data.shards:,} shards; for ResNet-50, 224 x 224, '
        f'in batches of {BATCH_SIZE}; {arguments.seconds:g} s a measurement, {arguments.repeats} rounds; on '
        f'{tables.machine()}.'
    )


def _measure(
    found: Results, data: DataSet, arguments: argparse.Namespace, say: Callable[[str], None]
) -> Iterator[None]:
    """Makes all measurements in rounds, so that other load on the machine affects all alike; yields after each."""
    readings = found.readings()
    for number in range(arguments.repeats):
        for index, reading in enumerate(readings):
            if reading in found.failed:
                continue
            say(f'round {number + 1} of {arguments.repeats}, {index + 1} of {len(readings)}: {report.name(reading)}')
            try:
                measured = measure(reading, data, arguments.seconds)
            except MeasurementError as error:
                found.failed[reading] = str(error)
            else:
                found.measured.setdefault(reading, []).append(measured)
            yield


def _write_numbers(out: str, found: Results, context: Dict[str, Any]) -> None:
    content: Dict[str, Any] = {
        'published': report.PUBLISHED,
        'measured': {
            pair: {f'images per {per}': found.gain(pair, per) for per in (report.SECOND, report.CPU_SECOND)}
            for pair in report.PAIRS
        },
        **context,
        'readings': [
            {
                'name': report.name(reading),
                **reading._asdict(),
                'measurements': [each._asdict() for each in found.measured.get(reading, [])],
                'failure': found.failed.get(reading),
            }
            for reading in found.readings()
        ],
    }
    write_json(os.path.join(out, JSON_FILE), content)


def _show(out: str, found: Results, context: Dict[str, Any]) -> None:
    """Prints the tables and writes all files."""
    print(context['made'])
    sections.show(report.tables(found))
    _write_numbers(out, found, context)
    write_whole(os.path.join(out, MARKDOWN_FILE), report.markdown(found, context['made'], FIGURE_FILE))
    write_whole(os.path.join(out, FIGURE_FILE), report.figure(found))
    print(f'\nwritten: {JSON_FILE}, {MARKDOWN_FILE} and {FIGURE_FILE} in {out}')


if __name__ == '__main__':
    # So that child processes end with this one, and measurements are reported.
    program.raise_on_sigterm()
    sys.exit(main())
