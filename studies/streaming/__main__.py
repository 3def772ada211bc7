"""Streaming: what is gained by tar shards that are read in sequence, and what remote storage costs.

Makes a published comparison again: training's images read from single files in random order (A), from tar shards of
this machine (B), and from tar shards in a remote store (C), and from TFRecord files besides. The store is one on the
loopback, which TensorFlow reads as s3://. Each request to it can be made to wait, as it does in a network: the study
shows how many images per second are left, and what reading more files at a time brings back.

Prints tables, and writes them as Markdown with a figure, and all numbers as JSON. studies/README.md tells what they
show. A training step is no part of it: what is measured is what the input pipeline can deliver.
"""

from studies import extras

if __name__ == '__main__':
    extras.require('studies')

import argparse
import json
import os
import signal
import sys
import tempfile
from typing import Any, Callable, Dict, Iterator, Optional, Sequence

import tensorflow as tf
from absl import app

from benchmarks import photographs, tables
from console.screen import Screen, failure, set_up_logging
from inception_v3.model_dir import source
from inception_v3.model_dir.files import check_writable, write_whole
from studies.arguments import number_of, numbers_of
from studies.streaming import measurement, report
from studies.streaming.measurement import BATCH_SIZE, DataSet, MeasurementError, measure
from studies.streaming.report import Results

OUT = os.path.join('runs', 'studies', 'streaming')
JSON_FILE = 'streaming.json'
MARKDOWN_FILE = 'streaming.md'
FIGURE_FILE = 'streaming.png'

_MEASUREMENT_FAILED = 1
_INTERRUPTED = 130
# The largest wait of a request, in ms, and the most files at a time.
_LONGEST_LATENCY = 10000
_MOST_READ_AHEAD = 256


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the study that a command line asks for, and returns its exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if not arguments.out:
        parser.error('--out: must be the path of a folder')
    screen = Screen(sys.stderr)
    set_up_logging(screen, verbose=False)
    try:
        check_writable('out', arguments.out)
        if not arguments.data_dir:
            screen.update('looking for the photographs, or making them')
            photographs.make(photographs.DATA_DIR)
        with tempfile.TemporaryDirectory(prefix='streaming-') as folder:
            screen.update(f'storing {arguments.images:,} images in three ways')
            photos = arguments.data_dir or photographs.DATA_DIR
            data = measurement.write(photos, folder, arguments.images, arguments.images_per_shard)
            found = Results(arguments.latencies, arguments.read_ahead, {}, {})
            about = {
                'made': _made(data, arguments),
                'settings': vars(arguments),
                'content_bytes': data.content_bytes,
                'versions': source.versions(),
            }
            try:
                for _ in _measure(found, data, arguments, screen.update):
                    _write_numbers(arguments.out, found, about)
            finally:
                screen.clear()
                if found.measured or found.failed:
                    _show(arguments.out, found, about)
    except app.UsageError as error:
        screen.clear()
        parser.error(str(error))
    except (OSError, tf.errors.OpError) as error:
        screen.clear()
        parser.exit(_MEASUREMENT_FAILED, f'error: {failure(error)}\n')
    except KeyboardInterrupt:
        screen.clear()
        print('interrupted; what was measured before is kept', file=sys.stderr)
        return _INTERRUPTED
    return _MEASUREMENT_FAILED if found.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='python -m studies.streaming',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    files = f'{JSON_FILE}, {MARKDOWN_FILE} and {FIGURE_FILE}'
    parser.add_argument('--out', default=OUT, help=f'folder for {files}, made if need be (default {OUT})')
    parser.add_argument('--data_dir', help='folder of TFRecord files to take images from (default: made photographs)')
    parser.add_argument('--images', type=number_of(int, 1), default=1024, help='images that are stored (default 1024)')
    parser.add_argument(
        '--images_per_shard',
        type=number_of(int, 1),
        default=32,
        help='images in each tar or TFRecord file (default 32)',
    )
    parser.add_argument('--repeats', type=number_of(int, 1), default=3, help='rounds of measurements (default 3)')
    parser.add_argument(
        '--seconds', type=number_of(float, 0.01), default=1.5, help='length of each measurement, at least (default 1.5)'
    )
    parser.add_argument(
        '--latencies',
        type=numbers_of(float, 0, _LONGEST_LATENCY),
        default=[0.0, 10.0, 50.0, 100.0],
        metavar='MS,…',
        help='how long each request waits, in ms (default 0,10,50,100)',
    )
    parser.add_argument(
        '--read_ahead',
        type=numbers_of(int, 1, _MOST_READ_AHEAD),
        default=[1, 8, 32],
        metavar='FILES,…',
        help='files that are read at a time, --num_files_infeed of a run (default 1,8,32)',
    )
    return parser


def _made(data: DataSet, arguments: argparse.Namespace) -> str:
    """How it was measured, in a sentence."""
    size = data.content_bytes[measurement.FILES] / len(data.files) / 1000
    return (
        f'{len(data.files):,} images of {size:.0f} kB on average, in {data.shards:,} shards; for ResNet-50, 224 x 224, '
        f'in batches of {BATCH_SIZE}; {arguments.seconds:g} s a measurement, {arguments.repeats} rounds; on '
        f'{tables.machine()}.'
    )


def _measure(
    found: Results, data: DataSet, arguments: argparse.Namespace, say: Callable[[str], None]
) -> Iterator[None]:
    """Measures all, one after the other, in rounds: what disturbs the machine disturbs them alike. Stops after each."""
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


def _write_numbers(out: str, found: Results, about: Dict[str, Any]) -> None:
    content: Dict[str, Any] = {
        'published': report.PUBLISHED,
        'measured': {
            pair: {f'images per {per}': found.gain(pair, per) for per in (report.SECOND, report.CPU_SECOND)}
            for pair in report.PUBLISHED
        },
        **about,
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
    write_whole(os.path.join(out, JSON_FILE), json.dumps(content, indent=2, ensure_ascii=False) + '\n')


def _show(out: str, found: Results, about: Dict[str, Any]) -> None:
    """Prints the tables, and writes all files."""
    print(about['made'])
    for section in report.sections(found):
        print(f'\n{section.title}\n')
        tables.show(section.header, section.rows, section.words)
        print('\n'.join(section.lines))
    _write_numbers(out, found, about)
    write_whole(os.path.join(out, MARKDOWN_FILE), report.markdown(found, about['made'], FIGURE_FILE))
    with tf.io.gfile.GFile(os.path.join(out, FIGURE_FILE), 'wb') as file:
        file.write(report.figure(found))
    print(f'\nwritten: {JSON_FILE}, {MARKDOWN_FILE} and {FIGURE_FILE} in {out}')


if __name__ == '__main__':
    # Who ends it by `timeout` has it end its children, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
