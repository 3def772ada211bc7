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
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from benchmarks import tables
from benchmarks.measurement import MeasurementError
from console import program
from console.command_line import folder, new_parser, number_of, numbers_of
from console.errors import DONE, RETRY
from console.paths import expanded
from console.screen import Screen
from data.files import text_of, write_whole
from inception_v3.config import ConfigError
from inception_v3.run import source
from inception_v3.run.files import check_writable
from studies import extras
from studies.files import write_json
from studies.report import sections
from studies.revnet_memory import published, report
from studies.revnet_memory.measurement import largest_batch, measure, peak_within
from studies.revnet_memory.process import ENVIRONMENT
from studies.revnet_memory.results import Results, Search, from_json, to_dict
from studies.revnet_memory.training import PUBLISHED, Training, config_of

OUT = os.path.join('runs', 'studies', 'revnet_memory')
JSON_FILE = 'revnet_memory.json'
MARKDOWN_FILE = 'revnet_memory.md'
FIGURE_FILE = 'revnet_memory.png'

# The flags of stages of varied depth.
_OF_VARIED = ('units', 'batch_sizes', 'repeats', 'steps', 'memory_gb', 'memory_units')
# As in the document's plot.
_ITERATIONS = 100
# The first batch that a search tries.
_FIRST_BATCH = 8


class Plan(NamedTuple):
    """The measurements to make.

    Attributes:
      trainings: the plain trainings; each is measured together with its reversible counterpart.
      repeats: rounds of time.
      steps: minimum number of steps in a round.
      searches: searches for largest batches.
    """

    trainings: List[Training]
    repeats: int
    steps: int
    searches: List[Search]


def perform(plan: Plan, found: Results, screen: Screen, save: Callable[[], None]) -> None:
    """Makes the measurements that are missing.

    Args:
      plan: the measurements to make.
      found: earlier measurements; new ones are added.
      screen: shows the progress.
      save: called after each addition.
    """
    for index, plain in enumerate(plan.trainings):
        pair = [training for training in (plain, plain._replace(is_reversible=True)) if training not in found.measured]
        if pair:
            screen.update(f'measurement {index + 1} of {len(plan.trainings)}: {plain}, and reversible')
            failed: Dict[Training, str] = {}
            found.measured.update(measure(pair, plan.steps, plan.repeats, failed))
            found.failed.update({str(training): reason for training, reason in failed.items()})
            save()
    for search in plan.searches:
        if search not in found.largest:
            _search(search, found, screen)
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
        found.largest[search] = largest_batch(peak_of, search.memory_mb, _FIRST_BATCH)
    except MeasurementError as error:
        found.failed[f'largest batch within {limit}'] = str(error)


def settings_of(network: str, size: int, plan: Plan) -> Dict[str, Any]:
    """The settings that all measurements in a folder share."""
    return {
        'network': network,
        'size': size,
        'steps': plan.steps,
        'repeats': plan.repeats,
        'environment': ENVIRONMENT,
        'machine': tables.machine(),
        'source': source.versions()['source'],
    }


def _earlier_results(out: str, settings: Dict[str, Any]) -> Results:
    """The results in a folder; empty if there are none."""
    text = text_of(os.path.join(out, JSON_FILE))
    if not text:
        return Results(settings['network'], settings['size'])
    try:
        return from_json(text, settings)
    except ConfigError as error:
        raise ConfigError(f'--out={out}: cannot resume from its {JSON_FILE}: {error}. Name another folder.')


def _notes(plan: Plan) -> List[str]:
    return [
        'Each training runs in a process of its own, on generated images. For time, plain and reversible training take '
        f'turns in {plan.repeats} rounds; tables show the median. Memory is the peak of resident memory, and CPU time '
        'is that of all threads, both as the kernel counts them.',
        f'Machine: {tables.machine()}. Memory is measured with '
        f'{" ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())}: freed memory returns to the system at '
        'once, so that resident memory is memory in use. Time is measured afterwards, with freed memory kept for the '
        "next tensor, which is the program's default.",
    ]


def _parser() -> argparse.ArgumentParser:
    parser = new_parser('revnet-memory', __doc__)
    add = parser.add_argument
    files = f'{JSON_FILE}, {MARKDOWN_FILE} and {FIGURE_FILE}'
    add('--out', type=folder, default=OUT, help=f'folder for {files} (default {OUT})')
    architecture_help = 'stages of varied depth, or the network as published (default varied)'
    add('--architecture', default='varied', choices=['varied', 'published'], help=architecture_help)
    network_help = 'the network (default revnet38; published: revnet104)'
    add('--network', choices=[*PUBLISHED], help=network_help)
    size_help = "height and width of the images, in pixels (default: the paper's)"
    add('--size', type=number_of(int, 1), help=size_help)
    units_help = 'blocks in each stage (default 1,2,4,8,16,32)'
    add('--units', type=numbers_of(int, 1), default='1,2,4,8,16,32', help=units_help)
    add('--batch_sizes', type=numbers_of(int, 1), default='16,32', help='images in a step (default 16,32)')
    batch_help = 'images in a step of the published network (default: the largest up to 128 that fits)'
    add('--batch_size', type=number_of(int, 1), help=batch_help)
    iterations_help = 'iterations of the published network (default 100)'
    add('--iterations', type=number_of(int, 1), help=iterations_help)
    add('--repeats', type=number_of(int, 1), default=3, help='rounds of time (default 3)')
    add('--steps', type=number_of(int, 1), default=1, help='minimum number of steps in a round (default 1)')
    memory_help = 'memory limit in GB of the search for the largest batch; 0: no search (default 1)'
    add('--memory_gb', type=number_of(float, 0), default=1.0, help=memory_help)
    add('--memory_units', type=number_of(int, 1), default=8, help='blocks in each stage for that search (default 8)')
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Makes the measurements that a command line asks for, and returns the exit code."""
    arguments = _parser().parse_args(expanded(argv))
    return program.run(
        lambda screen: _measure_and_report(arguments, screen), 'interrupted; the same command resumes the measurements'
    )


def _plan(arguments: argparse.Namespace, size: int) -> Plan:
    trainings = [
        Training(arguments.network, units, batch_size, size, is_reversible=False)
        for units in arguments.units
        for batch_size in arguments.batch_sizes
    ]
    searches = [
        Search(1000 * arguments.memory_gb, arguments.memory_units, is_reversible)
        for is_reversible in (False, True)
        if arguments.memory_gb
    ]
    return Plan(trainings, arguments.repeats, arguments.steps, searches)


def _check_effect(arguments: argparse.Namespace, is_published: bool) -> None:
    """Refuses the flags that have no effect with the chosen architecture."""
    unused = _OF_VARIED if is_published else ('batch_size', 'iterations')
    defaults = _parser().parse_args([])
    for name in unused:
        if getattr(arguments, name) != getattr(defaults, name):
            relation = 'not' if is_published else 'only'
            advice = 'Leave one of the two out' if is_published else 'Add it, or leave this flag out'
            raise ConfigError(f'--{name}: {relation} with --architecture=published. {advice}.')


def _measure_and_report(arguments: argparse.Namespace, screen: Screen) -> int:
    extras.require('studies')
    is_published = arguments.architecture == 'published'
    _check_effect(arguments, is_published)
    arguments.network = arguments.network or ('revnet104' if is_published else 'revnet38')
    out, size = arguments.out, arguments.size or PUBLISHED[arguments.network].size
    if is_published:
        config_of(Training(arguments.network, 1, arguments.batch_size or 1, size, is_reversible=False), out)
        check_writable('out', out)
        iterations = arguments.iterations or _ITERATIONS
        return published.run(arguments.network, size, arguments.batch_size, iterations, out, screen)
    plan = _plan(arguments, size)
    config_of(plan.trainings[0], out)
    check_writable('out', out)
    settings = settings_of(arguments.network, size, plan)
    found = _earlier_results(out, settings)
    try:
        perform(plan, found, screen, lambda: write_json(os.path.join(out, JSON_FILE), to_dict(found, settings)))
    finally:
        # Also after an interruption, and if the JSON file cannot be written.
        screen.clear()
        if found.measured or found.failed:
            sections.show(report.tables(found))
            write_whole(os.path.join(out, FIGURE_FILE), report.figure(found))
            write_whole(os.path.join(out, MARKDOWN_FILE), report.markdown(found, FIGURE_FILE, _notes(plan)))
            print(f'\nwritten: {JSON_FILE}, {MARKDOWN_FILE} and {FIGURE_FILE} in {out}')
    return RETRY if found.failed else DONE


if __name__ == '__main__':
    # So that child processes end with this one, and measurements are reported.
    program.raise_on_sigterm()
    sys.exit(main())
