"""Measures memory and time of a RevNet's training step against its depth, with activations rebuilt and kept.

Each training runs in a process of its own; its memory and CPU time are those that the kernel counts. Plain and
reversible training take turns. Then the study searches for the largest batch that fits a memory limit. It writes all
measurements as JSON, tables as Markdown, and a figure. The same command resumes: it keeps earlier measurements.

--architecture=published measures a network as published instead: the memory of each of 100 iterations of RevNet-104 at
224 pixels, with the largest batch up to 128 that fits the memory of this machine.

studies/README.md discusses the results.
"""

import argparse
import functools
import os
import statistics
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from benchmarks import tables
from benchmarks.comparison import Spread, spread
from benchmarks.drawing import Panel, chart
from benchmarks.measurement import MeasurementError
from console import json_content, program
from console.command_line import folder, new_parser, number_of, numbers_of
from console.errors import DONE, RETRY
from console.messages import shown
from console.paths import expanded
from console.screen import Screen
from inception_v3.config import ConfigError
from studies.files import Table, prepare, publish, write_json
from studies.revnet_memory.measurement import (
    AS_PUBLISHED,
    ENVIRONMENT,
    PUBLISHED,
    OutOfMemoryError,
    Training,
    config_of,
    largest_batch,
    measure,
    memory_of_iterations,
    way,
)

OUT = os.path.join('runs', 'studies', 'revnet_memory')
VARIED, AS_IN_DOCUMENT = 'varied', 'published'
# Additional time of a step, as published for another TensorFlow program of RevNet (not by Gomez et al., the paper).
PUBLISHED_OVERHEAD = 0.25
# The batch of the document's plot, and the first that a search tries.
_PUBLISHED_BATCH, _FIRST_BATCH = 128, 8
# The part of the available memory that a process of the published network may use.
_SHARE = 0.9

# The content of a JSON file, or a part of it; a plain and a reversible measurement of one network.
Content = Dict[str, Any]
Pair = List[Optional[Content]]

_NUMBER, _NUMBERS = number_of(int, 1), numbers_of(int, 1)
# The architecture of each flag, its type, default and help.
_FLAGS: Dict[str, Tuple[str, Any, Any, str]] = {
    'units': (VARIED, _NUMBERS, [1, 2, 4, 8, 16, 32], 'blocks in each stage (default 1,2,4,8,16,32)'),
    'batch_sizes': (VARIED, _NUMBERS, [16, 32], 'images in a step (default 16,32)'),
    'repeats': (VARIED, _NUMBER, 3, 'rounds of time (default 3)'),
    'steps': (VARIED, _NUMBER, 1, 'minimum number of steps in a round (default 1)'),
    'memory_gb': (VARIED, number_of(float, 0), 1.0, 'memory limit of the largest batch; 0: no search (default 1)'),
    'memory_units': (VARIED, _NUMBER, 8, 'blocks in each stage for that search (default 8)'),
    'batch_size': (AS_IN_DOCUMENT, _NUMBER, None, 'images in a step (default: the most, up to 128, that fit)'),
    'iterations': (AS_IN_DOCUMENT, _NUMBER, 100, 'iterations of the published network (default 100)'),
}


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Makes the measurements that a command line asks for, and returns the exit code."""
    parser = new_parser('revnet-memory', __doc__)
    parser.add_argument('--out', type=folder, default=OUT, help=f'folder for JSON, Markdown and figure (default {OUT})')
    parser.add_argument('--network', choices=[*PUBLISHED], help='default revnet38; as published: revnet104')
    architecture_help = 'stages of varied depth, or the network as published (default varied)'
    parser.add_argument('--architecture', default=VARIED, choices=[VARIED, AS_IN_DOCUMENT], help=architecture_help)
    parser.add_argument('--size', type=_NUMBER, help="height and width of the images, in pixels (default: the paper's)")
    for name, (_, kind, _, text) in _FLAGS.items():
        parser.add_argument(f'--{name}', type=kind, help=text)
    arguments = parser.parse_args(expanded(argv))
    return program.run(
        lambda screen: _perform(arguments, screen), 'interrupted; the same command resumes the measurements'
    )


def _perform(arguments: argparse.Namespace, screen: Screen) -> int:
    is_published = arguments.architecture == AS_IN_DOCUMENT
    for name, (architecture, _, default, _) in _FLAGS.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, default)
        elif architecture != arguments.architecture:
            raise ConfigError(f'--{name}: only with --architecture={architecture}. Leave it out, or choose that.')
    arguments.network = arguments.network or ('revnet104' if is_published else 'revnet38')
    arguments.size = arguments.size or PUBLISHED[arguments.network][0]
    # Refuses what the program refuses, before anything is built or measured.
    try:
        config_of(Training(arguments.network, 1, 1, arguments.size, is_reversible=False), arguments.out)
    except ConfigError as error:  # A line for each side of the images.
        raise ConfigError(str(error).splitlines()[0].replace('--height', '--size'))
    prepare(arguments.out)
    return (measure_iterations if is_published else measure_depths)(arguments, screen)


def earlier(path: str, settings: Content, check: Callable[[Content], Any]) -> Optional[Content]:
    """The content of an earlier command's JSON file, which `check` can use; None if there is no file.

    Raises ConfigError for that of another study, or of other settings.
    """
    from data.files import text_of

    text = text_of(path)
    try:
        found = json_content.from_json(text, lambda content: check(content) and content) if text else None
        before = dict(found['settings']) if found else settings
    except (LookupError, TypeError, ValueError):
        raise ConfigError(f'{path}: this study did not write the file. Name another folder with --out.')
    for name, value in settings.items():
        if before.get(name) != value:
            change = f'{name} was {shown(str(before.get(name)))}, and is {value} now'
            raise ConfigError(f'{path}: cannot resume: {change}. Name another folder with --out.')
    return found


# Networks of varied depth.


def measure_depths(arguments: argparse.Namespace, screen: Screen) -> int:
    """Measures networks of varied depth, and searches for the largest batch; returns the exit code."""
    from inception_v3.run import source

    versions = source.versions()
    settings = {
        **{name: getattr(arguments, name) for name in ('network', 'size', 'steps', 'repeats')},
        'environment': ENVIRONMENT,
        'machine': tables.machine(),
        'source': versions['source'],
    }
    path = os.path.join(arguments.out, 'revnet_memory.json')
    new: Content = {'settings': settings, 'published_overhead': PUBLISHED_OVERHEAD, 'measurements': [], 'largest': []}
    # What failed is measured again.
    found = {**new, **(earlier(path, settings, tables_of) or {}), 'failed': {}, 'versions': versions}
    measured, largest, failed = found['measurements'], found['largest'], found['failed']
    try:
        for units in arguments.units:
            for batch_size in arguments.batch_sizes:
                pair = [Training(arguments.network, units, batch_size, arguments.size, kind) for kind in (False, True)]
                done = [tuple(row[name] for name in Training._fields) for row in measured]
                missing = [training for training in pair if training not in done]
                if missing:
                    screen.update(f'{pair[0]}, and reversible')
                    measured += measure(missing, arguments.steps, arguments.repeats, failed)
                    write_json(path, found)
        for kind in (False, True) if arguments.memory_gb else ():
            limit = {'memory_mb': 1000 * arguments.memory_gb, 'units': arguments.memory_units, 'is_reversible': kind}
            if not any(limit.items() <= search.items() for search in largest):
                training = Training(arguments.network, arguments.memory_units, 0, arguments.size, kind)
                try:
                    peak_of = functools.partial(_peak, training, int(1e9 * arguments.memory_gb), screen)
                    largest.append({**limit, **largest_batch(peak_of, _FIRST_BATCH)})
                except MeasurementError as error:
                    failed[f'largest batch within {arguments.memory_gb:g} GB, {way(kind)}'] = str(error)
                write_json(path, found)
    finally:
        # Also after an interruption, and if the JSON file cannot be written.
        screen.clear()
        if measured or failed:
            title = f'Memory and time of {arguments.network}, plain and reversible'
            publish(arguments.out, 'revnet_memory', title, _notes(arguments.repeats), tables_of(found), figure(found))
    return RETRY if failed else DONE


def _peak(training: Training, limit: int, screen: Screen, batch_size: int) -> Optional[float]:
    """The peak memory of two steps with a batch, in MB; None above the limit in bytes."""
    training = training._replace(batch_size=batch_size)
    screen.update(f'largest batch within {limit / 1e9:g} GB: trying {training}')
    try:
        return max(memory_of_iterations(training, 2, limit)['peak_mb'])
    except OutOfMemoryError:
        return None
    except MeasurementError as error:
        raise MeasurementError(f'batches of {batch_size}: {error}')


def pairs(found: Content) -> Dict[int, Dict[int, Pair]]:
    """The plain and the reversible measurement by batch size and depth, sorted; None if one failed."""
    sizes: Dict[int, Dict[int, Pair]] = {}
    for row in sorted(found['measurements'], key=lambda row: (row['batch_size'], row['units'])):
        pair = sizes.setdefault(row['batch_size'], {}).setdefault(row['units'], [None, None])
        pair[row['is_reversible']] = row
    return sizes


def overhead(pair: Pair) -> Optional[Spread]:
    """CPU time of a reversible step over that of a plain step in the same round, minus 1."""
    plain, reversible = pair
    if not plain or not reversible:
        return None
    return spread([one / other - 1 for one, other in zip(reversible['cpu_seconds'], plain['cpu_seconds'])])


def spread_of(row: Optional[Content], field: str) -> Optional[Spread]:
    """A field of a measurement; over the rounds, if it has an element for each."""
    if not row:
        return None
    return spread(row[field] if isinstance(row[field], list) else [row[field]])


def slope_of(rows: Sequence[Optional[Content]], field: str) -> Optional[float]:
    """The rise of a field in MB per additional block in each stage; None with fewer than two depths."""
    known = [row for row in rows if row]
    if len(known) < 2:
        return None
    return (known[-1][field] - known[0][field]) / (known[-1]['units'] - known[0]['units'])


def _number(value: Optional[float], digits: int) -> str:
    return '–' if value is None else f'{value:,.{digits}f}'


def _percent(found: Optional[Spread]) -> str:
    return '{:+d} % ({:+d} to {:+d})'.format(*(round(100 * each) for each in found)) if found else '–'


def tables_of(found: Content) -> List[Table]:
    """All tables."""
    steps, slopes = [], []
    for batch_size, depths in pairs(found).items():
        for units, pair in depths.items():
            fields = {'step_mb': 0, 'peak_mb': 0, 'cpu_seconds': 2, 'seconds': 2}
            values = [(spread_of(row, field), digits) for field, digits in fields.items() for row in pair]
            cells = [_number(value and value.median, digits) for value, digits in values]
            steps.append([str(batch_size), str(units), *cells[:6], _percent(overhead(pair)), *cells[6:]])
        rises = [slope_of(rows, field) for field in ('step_mb', 'held_mb') for rows in zip(*depths.values())]
        if None not in rises:
            overheads = [each.median for each in map(overhead, depths.values()) if each]
            total = _percent(spread(overheads) if overheads else None)
            slopes.append([str(batch_size), *(_number(rise, 2) for rise in rises), total])
    searches = []
    for search in found['largest']:
        cells = [f'{search["memory_mb"] / 1e3:g} GB', str(search['units']), way(search['is_reversible'])]
        tries = (f'{batch}: {_number(peak, 0) if peak else "more"}' for batch, peak in search['tries'])
        searches.append([*cells, str(search['fits']), str(search['too_many']), ', '.join(tries)])
    header = ['batch', 'blocks a stage', 'step, MB: plain', 'reversible', 'process, MB: plain', 'reversible']
    header += ['CPU-s a step: plain', 'reversible', 'overhead', 's a step: plain', 'reversible']
    notes = (
        'step: peak of a step beyond the memory held between steps; process: peak of the process, including '
        'TensorFlow, graph and weights.',
        'overhead: CPU time of a reversible step over a plain step in the same round, minus 1: median (minimum '
        f'to maximum). Published: {100 * PUBLISHED_OVERHEAD:+.0f} %.',
    )
    slope_header = ('batch', 'step, MB: plain', 'reversible', 'held, MB: plain', 'reversible', 'overhead, all depths')
    held = 'held: memory between two steps: weights, momentum and the graph itself.'
    search_header = ('memory', 'blocks a stage', 'training', 'fits', 'does not fit', 'tried, MB of the process')
    return [
        Table('Memory and time of a step', header, steps, 2, notes),
        Table('Cost of one more block in each stage', slope_header, slopes, 1, (held,)),
        Table('Largest batch that fits', search_header, searches, 3),
        Table('Failed', ('measurement', 'reason'), [[*each] for each in found['failed'].items()], 2),
    ]


def _notes(repeats: int) -> List[str]:
    return [
        'Each training runs in a process of its own, on generated images. For time, plain and reversible training take '
        f'turns in {repeats} rounds; tables show the median. Memory is the peak of resident memory, and CPU time '
        'is that of all threads, both as the kernel counts them.',
        f'Machine: {tables.machine()}. Memory is measured with '
        f'{" ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())}: freed memory returns to the system at '
        'once, so that resident memory is memory in use. Time is measured afterwards, with freed memory kept for the '
        "next tensor, which is the program's default.",
    ]


def figure(found: Content) -> bytes:
    """Memory and time against depth, as a PNG file."""
    panels = []
    for field, title, label in (
        ('step_mb', 'Memory of a step', 'peak beyond the memory held between steps, MB'),
        ('peak_mb', 'Memory of the process', 'peak, MB'),
        ('cpu_seconds', 'CPU time of a step', 'CPU-seconds'),
    ):
        series = {
            f'batch {batch_size}, {way(kind)}': {at: spread_of(pair[kind], field) for at, pair in depths.items()}
            for batch_size, depths in pairs(found).items()
            for kind in (False, True)
        }
        panels.append(Panel(title, 'blocks in each stage', label, series))
    added: Dict[str, Dict[int, Optional[Spread]]] = {
        f'batch {batch_size}, reversible': {at: overhead(pair) for at, pair in depths.items()}
        for batch_size, depths in pairs(found).items()
    }
    added['published'] = {at: spread([PUBLISHED_OVERHEAD]) for values in [*added.values()] for at in values}
    panels.append(Panel('Overhead of rebuilding activations', panels[0].x, 'additional CPU time of a step', added))
    return chart('Activations kept (plain) or rebuilt (reversible)', panels)


# The network as published.


def measure_iterations(arguments: argparse.Namespace, screen: Screen) -> int:
    """Measures both trainings; without --batch_size, halves the batch of the document until the plain one fits."""
    from inception_v3.run.memory import available_memory

    names = ('network', 'size', 'batch_size', 'iterations')
    network, size, batch_size, iterations = (getattr(arguments, name) for name in names)
    settings = {name: getattr(arguments, name) for name in names}
    path = os.path.join(arguments.out, 'published.json')
    found = earlier(path, settings, table_of_curves) or {'settings': settings, 'curves': {}}
    available = found.setdefault('available_bytes', available_memory() or 0)
    found.setdefault('batch', batch_size or _PUBLISHED_BATCH)
    try:
        for kind in (False, True):
            while way(kind) not in found['curves']:
                training = Training(network, AS_PUBLISHED, found['batch'], size, kind)
                screen.update(f'{training}: {iterations} iterations')
                try:
                    found['curves'][way(kind)] = memory_of_iterations(training, iterations, int(_SHARE * available))
                except OutOfMemoryError:
                    if batch_size or kind or found['batch'] == 1:
                        raise
                    found['batch'] //= 2
                else:
                    write_json(path, found)
    except MeasurementError as error:
        screen.clear()
        print(f'failed: {error}; the same command resumes')
        return RETRY
    screen.clear()
    table = table_of_curves(found)
    curves = {
        name: {at: spread([peak]) for at, peak in enumerate(curve['peak_mb'], 1)}
        for name, curve in found['curves'].items()
    }
    drawn = chart(table.title, [Panel('', 'iteration', 'peak memory of the process, MB', curves)], columns=1)
    publish(arguments.out, 'published', 'Memory over iterations', (), [table], drawn)
    return DONE


def table_of_curves(found: Content) -> Table:
    """The memory and time of each training of the published network."""
    rows, settings = [], found['settings']
    for name, curve in found['curves'].items():
        peaks, seconds = curve['peak_mb'], curve['seconds'][1:] or curve['seconds']
        memory = (f'{value:,.0f}' for value in (max(peaks), min(peaks), max(curve['held_mb'])))
        rows.append([name, *memory, f'{statistics.median(seconds):.1f}', str(len(peaks))])
    chosen = 'as given' if settings['batch_size'] else f'the largest that fits, up to {_PUBLISHED_BATCH}'
    title = f'{settings["network"]} at {settings["size"]} pixels, batches of {found["batch"]} ({chosen})'
    header = ('training', 'largest peak, MB', 'smallest peak', 'largest held between', 's, median', 'iterations')
    return Table(title, header, rows)


if __name__ == '__main__':
    # So that child processes end with this one, and measurements are reported.
    program.raise_on_sigterm()
    sys.exit(main())
