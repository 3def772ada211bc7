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
from typing import Any, Dict, Optional, Sequence

from benchmarks import tables
from benchmarks.measurement import interleave
from console import program
from console.command_line import folder, new_parser, number_of, numbers_of
from console.errors import DONE, RETRY
from console.paths import expanded
from console.screen import Screen
from studies import extras
from studies.report import sections
from studies.streaming import report
from studies.streaming.measurement import BATCH_SIZE, FILES, measure
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
    parser = new_parser('streaming', __doc__)
    number, latencies, files = (
        number_of(int, 1),
        numbers_of(float, 0, _LONGEST_LATENCY),
        numbers_of(int, 1, _MOST_READ_AHEAD),
    )
    names = f'{JSON_FILE}, {MARKDOWN_FILE} and {FIGURE_FILE}'
    photographs = 'folder of TFRecord files to take images from (default: generated photographs)'
    flags: Dict[str, Any] = {
        'out': (folder, OUT, f'folder for {names}, created if missing (default {OUT})'),
        'data_dir': (str, None, photographs),
        'images': (number, 1024, 'number of images to store (default 1024)'),
        'images_per_shard': (number, 32, 'images in each tar or TFRecord file (default 32)'),
        'repeats': (number, 3, 'rounds of measurements (default 3)'),
        'seconds': (number_of(float, 0.01), 1.5, 'minimum duration of each measurement, in seconds (default 1.5)'),
        'latencies': (latencies, '0,10,50,100', 'delays of each request, in ms (default 0,10,50,100)'),
        'read_ahead': (
            files,
            '1,8,32',
            'numbers of files to read at a time, as --num_files_infeed of a run (default 1,8,32)',
        ),
    }
    for name, (kind, default, text) in flags.items():
        parser.add_argument(f'--{name}', type=kind, default=default, help=text)
    arguments = parser.parse_args(expanded(argv))
    return program.run(
        lambda screen: _perform(arguments, screen), 'interrupted; the measurements made so far were written'
    )


def _perform(arguments: argparse.Namespace, screen: Screen) -> int:
    extras.require('studies')

    from benchmarks import photographs
    from inception_v3.run import source
    from inception_v3.run.files import check_writable
    from studies.streaming import pipelines

    check_writable('out', arguments.out)
    if not arguments.data_dir:
        screen.update('looking for the photographs, or generating them')
        photographs.make(photographs.DATA_DIR)
    with tempfile.TemporaryDirectory(prefix='streaming-') as parent:
        screen.update(f'storing {arguments.images:,} images in three layouts')
        photos = arguments.data_dir or photographs.DATA_DIR
        data = pipelines.write(photos, parent, arguments.images, arguments.images_per_shard)
        found = Results(arguments.latencies, arguments.read_ahead, {}, {})
        size = data.content_bytes[FILES] / len(data.files) / 1000
        context = {
            'made': f'{len(data.files):,} images of {size:.0f} kB on average, in {data.shards:,} shards; for '
            f'ResNet-50, 224 x 224, in batches of {BATCH_SIZE}; {arguments.seconds:g} s a measurement, '
            f'{arguments.repeats} rounds; on {tables.machine()}.',
            'settings': vars(arguments),
            'content_bytes': data.content_bytes,
            'versions': source.versions(),
        }
        try:
            interleave(
                found.readings(),
                arguments.repeats,
                lambda reading: measure(reading, data, arguments.seconds),
                screen.update,
                found.measured,
                found.failed,
                lambda: _write_numbers(arguments.out, found, context),
            )
        finally:
            # Also after an interruption.
            screen.clear()
            if found.measured or found.failed:
                _show(arguments.out, found, context)
    return RETRY if found.failed else DONE


def _write_numbers(out: str, found: Results, context: Dict[str, Any]) -> None:
    from studies.files import write_json

    content: Dict[str, Any] = {
        'published': report.PUBLISHED,
        'measured': {
            pair: {f'images per {per}': found.gain(pair, per) for per in (report.SECOND, report.CPU_SECOND)}
            for pair in report.PAIRS
        },
        **context,
        'readings': [
            {
                'name': str(reading),
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
    from data.files import write_whole

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
