"""Measures the growth of costs with the work: python -m benchmarks.scaling."""

import json
import math
import os
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from benchmarks import arguments, charts, photographs, program, tables
from benchmarks.comparison import Spread, spread
from benchmarks.measurement import MeasurementError
from benchmarks.scaling.points import Point
from console import processes
from console.program import raise_on_sigterm
from console.screen import Screen
from inception_v3.config import ConfigError
from inception_v3.flags import CommandLine, OwnFlag


class Axis(NamedTuple):
    """A kind of work.

    Attributes:
      about: what the values count.
      values: the amounts of work.
      variants: the measurements at each amount; empty for one without a name.
    """

    about: str
    values: Sequence[int]
    variants: Sequence[str] = ('',)


_INPUTS = ('no seed', 'seed', 'resumed')
AXES = {
    'images': Axis('training images, in 64 files', (1000, 10_000, 100_000, 1_000_000), ('counting', *_INPUTS)),
    'files': Axis('files with 16,384 training images', (1, 16, 256, 1024), _INPUTS),
    'hosts': Axis('hosts that share 16,384 training images in 64 files', (1, 4, 16, 64), ('no seed', 'seed')),
    'classes': Axis('classes of Inception v3, 75 x 75 pixels, batches of 2', (10, 1001, 20_000)),
    'pixels': Axis('pixels along a side, one image per step', (75, 149, 299, 599), ('input', 'step')),
}

_OWN_FLAGS: Dict[str, OwnFlag] = {
    'axes': OwnFlag(str, None, f'comma-separated kinds of work, of {", ".join(AXES)}; default: all'),
    'largest': OwnFlag(int, None, 'leave out larger amounts of work'),
    'repeats': arguments.MEASURING['repeats']._replace(default=1),
    'plot': OwnFlag(str, None, 'draw the growth to this .png file'),
    'json': arguments.MEASURING['json'],
}
_PURPOSE = (
    'Measures what a run costs as its work grows: the start and the reading of a host, the construction of a network,\n'
    'a training step. Each measurement has a process of its own. The data are tiny generated images, so that the\n'
    'input shows what surrounds the decoding of images. The last line of a table is the growth between the last two\n'
    'amounts of work: 1 is proportional, 0 constant.'
)
# Seconds after which a measurement counts as hung.
_TIMEOUT = 1800

# For each amount of work, the spread of each quantity.
Measured = Dict[int, Dict[str, Spread]]


def main(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    return program.run(argv, 'benchmarks.scaling', _PURPOSE, _OWN_FLAGS, _perform)


def _perform(own: Dict[str, Any], command_line: CommandLine, screen: Screen) -> None:
    given = [*(['preset'] if command_line.preset else []), *sorted(command_line.given)]
    if given:
        raise ConfigError(f'--{given[0]}: this benchmark sets the flags of its runs. Omit it.')
    names = arguments.chosen('axes', own['axes'], [*AXES])
    axes = {name: AXES[name]._replace(values=_up_to(own['largest'], AXES[name].values)) for name in names}
    for name, axis in axes.items():
        if len(axis.values) < 2:
            raise ConfigError(
                f'--largest={own["largest"]}: leaves fewer than two amounts of {name}: {AXES[name].values}.'
            )
    if own['plot']:
        charts.check('plot', own['plot'])
    measured = {name: _measure(name, axis, own['repeats'], screen) for name, axis in axes.items()}
    screen.clear()
    if own['json']:
        content = {
            name: {
                value: {each: found._asdict() for each, found in of_value.items()} for value, of_value in rows.items()
            }
            for name, rows in measured.items()
        }
        print(json.dumps({'machine': tables.machine(), 'repeats': own['repeats'], **content}, indent=2))
    else:
        print(f'repeats: {own["repeats"]}; on {tables.machine()}')
        for name, rows in measured.items():
            print(f'\n{axes[name].about}')
            tables.show(*table_of(name, rows), names=1)
    if own['plot']:
        growth = {axes[name].about: relative(rows) for name, rows in measured.items()}
        charts.growth(own['plot'], f'repeats: {own["repeats"]}; on {tables.machine()}', growth)


def _up_to(largest: Any, values: Sequence[int]) -> Sequence[int]:
    return [value for value in values if largest is None or value <= largest]


def _measure(name: str, axis: Axis, repeats: int, screen: Screen) -> Measured:
    points = [(value, variant) for value in axis.values for variant in axis.variants]
    found: Dict[int, Dict[str, List[float]]] = {value: {} for value in axis.values}
    for repeat in range(repeats):
        for value, variant in points:
            screen.update(f'round {repeat + 1} of {repeats}: {value:,} {name}{", " * bool(variant)}{variant}')
            for quantity, number in measure(Point(name, value, variant, photographs.DATA_DIR)).items():
                label = f'{quantity}, {variant}' if variant and variant != 'counting' else quantity
                found[value].setdefault(label, []).append(number)
    return {value: {label: spread(numbers) for label, numbers in of.items()} for value, of in found.items()}


def measure(point: Point) -> Dict[str, float]:
    """Measures a point in a new process.

    Raises:
      MeasurementError: the measurement failed; the message gives the reason.
    """
    where = f'{point.value:,} {point.axis}'
    try:
        process = subprocess.run(
            processes.module('benchmarks.scaling.points'),
            input=json.dumps(point._asdict()),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
        )
    except subprocess.TimeoutExpired:
        raise MeasurementError(f'{where}: not done after {_TIMEOUT} seconds')
    if process.returncode:
        raise MeasurementError(f'{where}: {[f"exit code {process.returncode}", *process.stderr.splitlines()][-1]}')
    return json.loads(process.stdout)


def exponent(work: Sequence[float], costs: Sequence[float]) -> float:
    """The exponent p of cost ~ work^p between the last two amounts of work."""
    return math.log(costs[-1] / costs[-2]) / math.log(work[-1] / work[-2])


def table_of(name: str, rows: Measured) -> Tuple[List[str], List[List[str]]]:
    """The head and the lines of a table: a line for each amount of work, and the growth."""
    quantities = [*next(iter(rows.values()))]
    lines = [
        [f'{value:,}', *(f'{of_value[quantity].median:,.4g}' for quantity in quantities)]
        for value, of_value in rows.items()
    ]
    growth = [exponent([*rows], [of_value[quantity].median for of_value in rows.values()]) for quantity in quantities]
    return [name, *quantities], [*lines, ['growth', *(f'{number:.2f}' for number in growth)]]


def relative(rows: Measured) -> Dict[str, List[Tuple[int, float]]]:
    """For each quantity, the amounts of work, and the cost divided by that of the smallest amount."""
    first = next(iter(rows.values()))
    return {
        quantity: [(value, of_value[quantity].median / first[quantity].median) for value, of_value in rows.items()]
        for quantity in first
    }


if __name__ == '__main__':
    # After SIGTERM, child processes end, too.
    raise_on_sigterm()
    sys.exit(main(sys.argv))
