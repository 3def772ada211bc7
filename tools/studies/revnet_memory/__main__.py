"""Measures memory and time of a RevNet's training step against its depth, with activations rebuilt and kept.

Each training runs in a process of its own; its memory and CPU time are those that the kernel counts. Plain and
reversible training of RevNet-38 take turns. The study writes all measurements as JSON, and tables as Markdown with a
figure.

--architecture=published measures a network as published instead: the memory of each of 100 iterations of RevNet-104 at
224 pixels, with the largest batch up to 128 that fits the memory of this machine.
"""

import argparse
import os
import sys
from typing import Any, Dict, List, Optional, Sequence

from compat.errors import DONE, RETRY
from console import program
from console.screen import Screen
from tools.benchmarks import tables
from tools.benchmarks.measurement import MeasurementError
from tools.benchmarks.tables import Spread, spread
from tools.parsers import folder, new_parser, number_of, numbers_of
from tools.studies.drawing import Panel, chart
from tools.studies.files import Table, prepare, publish, write_json
from tools.studies.revnet_memory.measurement import (
    AS_PUBLISHED,
    ENVIRONMENT,
    OutOfMemoryError,
    Training,
    measure,
    memory_of_iterations,
    way,
)

OUT = os.path.join('runs', 'studies', 'revnet_memory')
VARIED, AS_IN_DOCUMENT = 'varied', 'published'
# Additional time of a step, as published for another RevNet in TensorFlow, not by the paper (Gomez et al.).
PUBLISHED_OVERHEAD = 0.25
# The batch of the document's plot.
_PUBLISHED_BATCH = 128
# The part of the available memory that a process of the published network may use.
_SHARE = 0.9
# The flags of each architecture.
_DEFAULTS: Dict[str, Dict[str, Any]] = {
    VARIED: {'units': [1, 2, 4, 8, 16, 32], 'batch_sizes': [16, 32], 'repeats': 3},
    AS_IN_DOCUMENT: {'batch_size': None, 'iterations': 100},
}

# A measurement as in the JSON file.
Row = Dict[str, Any]


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Makes the measurements that a command line asks for, and returns the exit code."""
    parser = new_parser('revnet-memory', __doc__)
    number, numbers = number_of(int, 1), numbers_of(int, 1)
    parser.add_argument('--out', type=folder, default=OUT, help=f'folder for JSON, Markdown and figure (default {OUT})')
    architecture_help = 'stages of varied depth, or the network as published (default varied)'
    parser.add_argument('--architecture', default=VARIED, choices=[*_DEFAULTS], help=architecture_help)
    parser.add_argument('--units', type=numbers, help='blocks in each stage (default 1,2,4,8,16,32)')
    parser.add_argument('--batch_sizes', type=numbers, help='images in a step (default 16,32)')
    parser.add_argument('--repeats', type=number, help='rounds of time (default 3)')
    batch_help = 'images in a step of the published network (default: the most, up to 128, that fit)'
    parser.add_argument('--batch_size', type=number, help=batch_help)
    parser.add_argument('--iterations', type=number, help='iterations of the published network (default 100)')
    arguments = parser.parse_args(argv)
    for architecture, defaults in _DEFAULTS.items():
        for name, default in defaults.items():
            if getattr(arguments, name) is None:
                setattr(arguments, name, default)
            elif architecture != arguments.architecture:
                parser.error(f'argument --{name}: only with --architecture={architecture}')
    perform = measure_depths if arguments.architecture == VARIED else measure_iterations
    return program.run(
        lambda screen: perform(arguments, screen), f'interrupted; finished measurements are in {arguments.out}'
    )


# Networks of varied depth.


def measure_depths(arguments: argparse.Namespace, screen: Screen) -> int:
    """Measures networks of varied depth, and returns the exit code."""
    prepare(arguments.out)
    from inception_v3.run import versions

    measured: List[Row] = []
    failed: Dict[str, str] = {}
    found = {
        'machine': tables.machine(),
        'environment': ENVIRONMENT,
        'versions': versions.current(),
        'published_overhead': PUBLISHED_OVERHEAD,
        'measurements': measured,
        'failed': failed,
    }
    try:
        for units in arguments.units:
            for batch_size in arguments.batch_sizes:
                pair = [Training('revnet38', units, batch_size, kind) for kind in (False, True)]
                screen.update(f'{pair[0]}, and reversible')
                try:
                    measured += measure(pair, arguments.repeats)
                except MeasurementError as error:
                    failed[f'{units} blocks a stage, batches of {batch_size}'] = str(error)
                write_json(os.path.join(arguments.out, 'revnet_memory.json'), found)
    finally:
        # Also after an interruption.
        screen.clear()
        if measured or failed:
            title = 'Memory and time of revnet38, plain and reversible'
            note = (
                f'On generated images; time is the median of {arguments.repeats} rounds, in which plain and reversible '
                f'training take turns; on {tables.machine()}. Memory is measured with freed memory returned to the '
                "system at once, and time afterwards, with it kept for the next tensor, the program's default."
            )
            publish(arguments.out, 'revnet_memory', title, [note], tables_of(measured, failed), figure(measured))
    return RETRY if failed else DONE


def overhead(plain: Row, reversible: Row) -> Spread:
    """CPU time of a reversible step over that of a plain step in the same round, minus 1."""
    return spread([one / other - 1 for one, other in zip(reversible['cpu_seconds'], plain['cpu_seconds'])])


def _percent(found: Spread) -> str:
    return '{:+d} % ({:+d} to {:+d})'.format(*(round(100 * each) for each in found))


def tables_of(measured: Sequence[Row], failed: Dict[str, str]) -> List[Table]:
    """The tables of the measurements, alternately plain and reversible, and of the failures with their reasons."""
    rows, overheads = [], []
    for plain, reversible in sorted(zip(measured[::2], measured[1::2]), key=lambda pair: pair[0]['batch_size']):
        cells = [f'{row[field]:,.0f}' for field in ('step_mb', 'held_mb') for row in (plain, reversible)]
        cells += [f'{spread(row["cpu_seconds"]).median:,.2f}' for row in (plain, reversible)]
        overheads.append(overhead(plain, reversible))
        rows.append([str(plain['batch_size']), str(plain['units']), *cells, _percent(overheads[-1])])
    header = ['batch', 'blocks a stage', 'step, MB: plain', 'reversible', 'held, MB: plain', 'reversible']
    header += ['CPU-s a step: plain', 'reversible', 'overhead']
    in_all = f'; over all rows: {_percent(spread([each.median for each in overheads]))}' if overheads else ''
    notes = (
        'step: peak of a step beyond the memory held between steps; held: TensorFlow, weights, momentum and the graph.',
        'overhead: CPU time of a reversible step over a plain step in the same round, minus 1: median (minimum '
        f'to maximum){in_all}. Published: {100 * PUBLISHED_OVERHEAD:+.0f} %.',
    )
    return [
        Table('Memory and time of a step', header, rows, 2, notes),
        Table('Failed', ('measurement', 'reason'), [[*each] for each in failed.items()], 2),
    ]


def figure(measured: Sequence[Row]) -> bytes:
    """Memory and time against depth, as a PNG file."""
    memory: Dict[str, Dict[int, Optional[Spread]]] = {}
    time: Dict[str, Dict[int, Optional[Spread]]] = {}
    for row in sorted(measured, key=lambda row: (row['batch_size'], row['is_reversible'], row['units'])):
        label = f'batch {row["batch_size"]}, {way(row["is_reversible"])}'
        memory.setdefault(label, {})[row['units']] = spread([row['step_mb']])
        time.setdefault(label, {})[row['units']] = spread(row['cpu_seconds'])
    panels = [
        Panel('Memory of a step', 'blocks in each stage', 'peak beyond the memory held between steps, MB', memory),
        Panel('CPU time of a step', 'blocks in each stage', 'CPU-seconds', time),
    ]
    return chart('Activations kept (plain) or rebuilt (reversible)', panels)


# The network as published.


def measure_iterations(arguments: argparse.Namespace, screen: Screen) -> int:
    """Measures plain and reversible training; without --batch_size, halves the published batch until plain fits."""
    from inception_v3.run.memory import available_memory

    prepare(arguments.out)
    batch, available = arguments.batch_size or _PUBLISHED_BATCH, available_memory()
    limit = available and int(_SHARE * available)
    curves: Dict[str, Dict[str, List[float]]] = {}
    for kind in (False, True):
        while way(kind) not in curves:
            training = Training('revnet104', AS_PUBLISHED, batch, kind)
            screen.update(f'{training}: {arguments.iterations} iterations')
            try:
                curves[way(kind)] = memory_of_iterations(training, arguments.iterations, limit)
            except OutOfMemoryError:
                if arguments.batch_size or kind or batch == 1:
                    raise
                batch //= 2
        content = {'batch': batch, 'available_bytes': available, 'curves': curves}
        write_json(os.path.join(arguments.out, 'published.json'), content)
    screen.clear()
    chosen = 'as given' if arguments.batch_size else f'the largest that fits, up to {_PUBLISHED_BATCH}'
    title = f'revnet104 at 224 pixels, {arguments.iterations} iterations in batches of {batch} ({chosen})'
    rows = [
        [name, *(f'{value:,.0f}' for value in (max(of['peak_mb']), min(of['peak_mb']), max(of['held_mb'])))]
        for name, of in curves.items()
    ]
    header = ('training', 'largest peak, MB', 'smallest peak', 'largest held between')
    series = {name: {at: spread([peak]) for at, peak in enumerate(of['peak_mb'], 1)} for name, of in curves.items()}
    drawn = chart(title, [Panel('', 'iteration', 'peak memory of the process, MB', series)], columns=1)
    publish(arguments.out, 'published', 'Memory over iterations', (), [Table(title, header, rows)], drawn)
    return DONE


if __name__ == '__main__':
    sys.exit(main())
