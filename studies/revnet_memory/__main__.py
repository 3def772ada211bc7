"""Measures memory and time of a RevNet's training step against its depth, with activations rebuilt and kept.

Each training runs in a process of its own; its memory and CPU time are those that the kernel counts. Plain and
reversible training take turns. Then the study searches for the largest batch that fits a memory limit. It writes all
measurements as JSON, tables as Markdown, and a figure. The same command resumes: it keeps earlier measurements.

--architecture=published measures a network as published instead: the memory of each of 100 iterations of RevNet-104 at
224 pixels, with the largest batch up to 128 that fits the memory of this machine.

studies/README.md discusses the results.
"""

import argparse
import os
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from benchmarks import tables
from benchmarks.measurement import MeasurementError
from console import program
from console.command_line import folder, new_parser, number_of, numbers_of
from console.errors import DONE, RETRY
from console.paths import expanded
from console.screen import Screen
from inception_v3.config import ConfigError
from studies import extras
from studies.report import sections
from studies.revnet_memory import published, report
from studies.revnet_memory.measurement import (
    ENVIRONMENT,
    PUBLISHED,
    Training,
    config_of,
    largest_batch,
    measure,
    peak_within,
)
from studies.revnet_memory.report import Results, Search

OUT = os.path.join('runs', 'studies', 'revnet_memory')
JSON_FILE = 'revnet_memory.json'
MARKDOWN_FILE = 'revnet_memory.md'
FIGURE_FILE = 'revnet_memory.png'

# The flags of stages of varied depth, and of the published network.
_OF_VARIED = ('units', 'batch_sizes', 'repeats', 'steps', 'memory_gb', 'memory_units')
_OF_PUBLISHED = ('batch_size', 'iterations')
# As in the document's plot.
_ITERATIONS = 100
# The first batch that a search tries.
_FIRST_BATCH = 8


def _parser() -> argparse.ArgumentParser:
    parser = new_parser('revnet-memory', __doc__)
    files = f'{JSON_FILE}, {MARKDOWN_FILE} and {FIGURE_FILE}'
    number, numbers = number_of(int, 1), numbers_of(int, 1)
    flags: Dict[str, Tuple[Any, Any, str]] = {
        'out': (folder, OUT, f'folder for {files} (default {OUT})'),
        'size': (number, None, "height and width of the images, in pixels (default: the paper's)"),
        'units': (numbers, '1,2,4,8,16,32', 'blocks in each stage (default 1,2,4,8,16,32)'),
        'batch_sizes': (numbers, '16,32', 'images in a step (default 16,32)'),
        'batch_size': (
            number,
            None,
            'images in a step of the published network (default: the most, up to 128, that fit)',
        ),
        'iterations': (number, None, 'iterations of the published network (default 100)'),
        'repeats': (number, 3, 'rounds of time (default 3)'),
        'steps': (number, 1, 'minimum number of steps in a round (default 1)'),
        'memory_gb': (
            number_of(float, 0),
            1.0,
            'memory limit in GB of the search for the largest batch; 0: no search (default 1)',
        ),
        'memory_units': (number, 8, 'blocks in each stage for that search (default 8)'),
    }
    network_help = 'the network (default revnet38; published: revnet104)'
    parser.add_argument('--network', choices=[*PUBLISHED], help=network_help)
    architecture_help = 'stages of varied depth, or the network as published (default varied)'
    parser.add_argument('--architecture', default='varied', choices=['varied', 'published'], help=architecture_help)
    for name, (kind, default, text) in flags.items():
        parser.add_argument(f'--{name}', type=kind, default=default, help=text)
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Makes the measurements that a command line asks for, and returns the exit code."""
    arguments = _parser().parse_args(expanded(argv))
    return program.run(
        lambda screen: _measure_and_report(arguments, screen), 'interrupted; the same command resumes the measurements'
    )


def _measure_and_report(arguments: argparse.Namespace, screen: Screen) -> int:
    extras.require('studies')
    is_published = arguments.architecture == 'published'
    defaults = _parser().parse_args([])
    for name in _OF_VARIED if is_published else _OF_PUBLISHED:
        if getattr(arguments, name) != getattr(defaults, name):
            relation = 'not' if is_published else 'only'
            advice = 'Leave one of the two out' if is_published else 'Add it, or leave this flag out'
            raise ConfigError(f'--{name}: {relation} with --architecture=published. {advice}.')
    arguments.network = arguments.network or ('revnet104' if is_published else 'revnet38')
    arguments.size = arguments.size or PUBLISHED[arguments.network][0]
    trainings = [
        Training(arguments.network, units, batch_size, arguments.size, is_reversible=False)
        for units in arguments.units
        for batch_size in arguments.batch_sizes
    ]
    # Refuses what the program refuses, before anything is built or measured.
    config_of(trainings[0], arguments.out)

    from inception_v3.run.files import check_writable

    check_writable('out', arguments.out)
    if is_published:
        iterations = arguments.iterations or _ITERATIONS
        return published.run(arguments.network, arguments.size, arguments.batch_size, iterations, arguments.out, screen)
    return _measure_depths(arguments, trainings, screen)


def _measure_depths(arguments: argparse.Namespace, trainings: Sequence[Training], screen: Screen) -> int:
    from data.files import text_of, write_whole
    from studies.files import write_json

    out, settings = arguments.out, settings_of(arguments)
    json_path = os.path.join(out, JSON_FILE)
    text = text_of(json_path)
    try:
        found = report.from_json(text, settings) if text else Results(arguments.network, arguments.size)
    except ConfigError as error:
        raise ConfigError(f'--out={out}: cannot resume from its {JSON_FILE}: {error}. Name another folder.')

    def save() -> None:
        write_json(json_path, report.to_dict(found, settings))

    try:
        perform(trainings, arguments.steps, arguments.repeats, found, screen, save)
        for is_reversible in (False, True) if arguments.memory_gb else ():
            search = Search(1000 * arguments.memory_gb, arguments.memory_units, is_reversible)
            if search not in found.largest:
                _search(search, found, screen)
                save()
    finally:
        # Also after an interruption, and if the JSON file cannot be written.
        screen.clear()
        if found.measured or found.failed:
            sections.show(report.tables(found))
            write_whole(os.path.join(out, FIGURE_FILE), report.figure(found))
            notes = _notes(arguments.repeats)
            write_whole(os.path.join(out, MARKDOWN_FILE), report.markdown(found, FIGURE_FILE, notes))
            print(f'\nwritten: {JSON_FILE}, {MARKDOWN_FILE} and {FIGURE_FILE} in {out}')
    return RETRY if found.failed else DONE


def settings_of(arguments: argparse.Namespace) -> Dict[str, Any]:
    """The settings that all measurements in a folder share."""
    from inception_v3.run import source

    return {
        **{name: getattr(arguments, name) for name in ('network', 'size', 'steps', 'repeats')},
        'environment': ENVIRONMENT,
        'machine': tables.machine(),
        'source': source.versions()['source'],
    }


def perform(
    trainings: Sequence[Training], steps: int, repeats: int, found: Results, screen: Screen, save: Callable[[], None]
) -> None:
    """Measures plain trainings and their reversible counterparts that `found` lacks; saves after each addition."""
    for index, plain in enumerate(trainings):
        pair = [training for training in (plain, plain._replace(is_reversible=True)) if training not in found.measured]
        if pair:
            screen.update(f'measurement {index + 1} of {len(trainings)}: {plain}, and reversible')
            failed: Dict[Training, str] = {}
            found.measured.update(measure(pair, steps, repeats, failed))
            found.failed.update({str(training): reason for training, reason in failed.items()})
            save()


def _search(search: Search, found: Results, screen: Screen) -> None:
    """Searches for the largest batch, and adds the result."""
    limit = f'{search.memory_mb / 1e3:g} GB, {"reversible" if search.is_reversible else "plain"}'

    def peak_of(batch_size: int) -> Optional[float]:
        training = Training(found.network, search.units, batch_size, found.size, search.is_reversible)
        screen.update(f'largest batch within {limit}: trying {batch_size} images')
        try:
            return peak_within(training, search.memory_mb)
        except MeasurementError as error:
            raise MeasurementError(f'batches of {batch_size}: {error}')

    try:
        found.largest[search] = largest_batch(peak_of, _FIRST_BATCH)
    except MeasurementError as error:
        found.failed[f'largest batch within {limit}'] = str(error)


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


if __name__ == '__main__':
    # So that child processes end with this one, and measurements are reported.
    program.raise_on_sigterm()
    sys.exit(main())
