"""Memory and time of a RevNet's training step against its depth, beside the same network with its activations kept.

Each training has a process of its own, whose memory and CPU time are what the kernel tells of it; plain and reversible
take turns. Then the largest batch that fits a memory is looked for, by trying. Writes all
measurements as JSON, tables as Markdown, and a figure. The same command goes on from what is measured already.
studies/README.md tells what came of it.
"""

from studies import extras

if __name__ == '__main__':
    extras.require('studies')

import argparse
import json
import os
import signal
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import tensorflow as tf
from absl import app

from benchmarks import tables
from benchmarks.measurement import MeasurementError
from console.screen import Screen, failure, set_up_logging
from inception_v3.config import ConfigError
from inception_v3.model_dir import source
from inception_v3.model_dir.files import check_writable, text_of, write_whole
from studies.arguments import number_of, numbers_of
from studies.revnet_memory import report
from studies.revnet_memory.measurement import (
    ENVIRONMENT,
    PUBLISHED,
    Largest,
    Measurement,
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

_FAILED = 1
_INTERRUPTED = 130
# The batch that the search for the largest begins with.
_FIRST_BATCH = 8


class Plan(NamedTuple):
    """What is to be measured.

    Attributes:
      trainings: plain ones; the reversible ones are measured with them.
      repeats: rounds of time.
      steps: of a round, at least.
      searches: for largest batches.
    """

    trainings: List[Training]
    repeats: int
    steps: int
    searches: List[Search]


def perform(plan: Plan, found: Results, screen: Screen, save: Callable[[], None]) -> None:
    """Measures what is not measured yet.

    Args:
      plan: what is wanted.
      found: what there is; it is added to.
      screen: where it is shown how far it is.
      save: is called when there is more.
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
            _look(search, found, screen)
            save()


def _look(search: Search, found: Results, screen: Screen) -> None:
    """Looks for the largest batch."""
    what = f'{search.memory_mb / 1e3:g} GB, {"reversible" if search.is_reversible else "plain"}'

    def peak_of(batch_size: int) -> Optional[float]:
        training = Training(found.network, search.units, batch_size, found.size, search.is_reversible)
        screen.update(f'the largest batch within {what}: {batch_size} images')
        try:
            return peak_within(training, search.memory_mb)
        except MeasurementError as error:
            raise MeasurementError(f'batches of {batch_size}: {error}')

    try:
        found.largest[search] = largest_batch(peak_of, search.memory_mb, _FIRST_BATCH)
    except MeasurementError as error:
        found.failed[f'the largest batch within {what}'] = str(error)


# Files.


def settings_of(network: str, size: int, plan: Plan) -> Dict[str, Any]:
    """What all measurements of a folder have in common."""
    return {
        'network': network,
        'size': size,
        'steps': plan.steps,
        'repeats': plan.repeats,
        'environment': ENVIRONMENT,
        'machine': tables.machine(),
        'source': source.versions()['source'],
    }


def to_json(found: Results, settings: Dict[str, Any]) -> str:
    """The results; `from_json` reads them back."""
    content = {
        'settings': settings,
        'published_overhead': report.PUBLISHED_OVERHEAD,
        'measurements': [
            {**training._asdict(), **measurement._asdict()} for training, measurement in found.measured.items()
        ],
        'largest': [
            {**search._asdict(), **largest._asdict(), 'tries': [*largest.tries.items()]}
            for search, largest in found.largest.items()
        ],
        'failed': found.failed,
        'versions': source.versions(),
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + '\n'


def from_json(text: str, settings: Dict[str, Any]) -> Results:
    """The results that `to_json` wrote, but for what failed, which is to be tried again.

    Raises:
      ConfigError: they were measured with other settings, or are none.
    """
    found = Results(settings['network'], settings['size'])
    try:
        content = json.loads(text)
        before = {name: content['settings'][name] for name in settings}
        for each in content['measurements']:
            training = Training(*(each[name] for name in Training._fields))
            found.measured[training] = Measurement(*(each[name] for name in Measurement._fields))
        for each in content['largest']:
            search = Search(*(each[name] for name in Search._fields))
            found.largest[search] = Largest(each['fits'], each['too_many'], dict(each['tries']))
    except (ValueError, KeyError, TypeError):
        raise ConfigError('it is none of this program')
    for name, value in settings.items():
        if before[name] != value:
            raise ConfigError(f'{name} was {before[name]}, and is {value} now')
    return found


def _begun(out: str, settings: Dict[str, Any]) -> Results:
    """The results of a folder, which may be none."""
    text = text_of(os.path.join(out, JSON_FILE))
    if not text:
        return Results(settings['network'], settings['size'])
    try:
        return from_json(text, settings)
    except ConfigError as error:
        raise ConfigError(f'--out={out}: cannot go on from its {JSON_FILE}: {error}. Name another folder.')


def _notes(plan: Plan) -> List[str]:
    return [
        'Each training has a process of its own, on made-up images; for time, plain and reversible take turns, in '
        f'{plan.repeats} rounds, of which the median is told. Memory is the peak of what is resident, CPU time is of '
        'all threads, both as the kernel tells them.',
        f'On {tables.machine()}. Memory is measured with '
        f'{" ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())}: what is freed goes back to the system '
        'at once, so that what is resident is in use. Time is measured after that, with freed memory kept for the '
        'next tensor, as the program has it by default.',
    ]


def write(out: str, found: Results, plan: Plan) -> None:
    """Writes the tables and the figure, after the measurements."""
    with tf.io.gfile.GFile(os.path.join(out, FIGURE_FILE), 'wb') as file:
        file.write(report.figure(found))
    text = report.markdown(found, FIGURE_FILE, _notes(plan))
    write_whole(os.path.join(out, MARKDOWN_FILE), text)


# The command.


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='python -m studies.revnet_memory',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add('--out', default=OUT, help=f'folder for {JSON_FILE}, {MARKDOWN_FILE} and {FIGURE_FILE} (default {OUT})')
    add('--network', default='revnet38', choices=[*PUBLISHED], help='what the blocks are of (default revnet38)')
    add(
        '--size',
        type=number_of(int, 1),
        help='height and width of the images, in pixels (default as the paper has them)',
    )
    add(
        '--units', type=numbers_of(int, 1), default='1,2,4,8,16,32', help='blocks in each stage (default 1,2,4,8,16,32)'
    )
    add('--batch_sizes', type=numbers_of(int, 1), default='16,32', help='images in a step (default 16,32)')
    add('--repeats', type=number_of(int, 1), default=3, help='rounds of time (default 3)')
    add('--steps', type=number_of(int, 1), default=1, help='steps of a round, at least (default 1)')
    memory_help = 'find the largest batch for so many GB; 0: do not (default 1)'
    add('--memory_gb', type=number_of(float, 0), default=1.0, help=memory_help)
    add('--memory_units', type=number_of(int, 1), default=8, help='blocks in each stage for that (default 8)')
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Measures what a command line asks for, and returns the exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if not arguments.out:
        parser.error('--out: must be the path of a folder')
    size = arguments.size or PUBLISHED[arguments.network].size
    plan = Plan(
        [
            Training(arguments.network, units, batch_size, size, is_reversible=False)
            for units in arguments.units
            for batch_size in arguments.batch_sizes
        ],
        arguments.repeats,
        arguments.steps,
        [
            Search(1000 * arguments.memory_gb, arguments.memory_units, is_reversible)
            for is_reversible in (False, True)
            if arguments.memory_gb
        ],
    )
    screen = Screen(sys.stderr)
    set_up_logging(screen, verbose=False)
    try:
        config_of(plan.trainings[0], arguments.out)
        check_writable('out', arguments.out)
        settings = settings_of(arguments.network, size, plan)
        found = _begun(arguments.out, settings)
    except app.UsageError as error:
        parser.error(str(error))
    code = 0
    try:
        path = os.path.join(arguments.out, JSON_FILE)
        perform(plan, found, screen, lambda: write_whole(path, to_json(found, settings)))
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except (OSError, app.UsageError, tf.errors.OpError) as error:
        # What is measured is shown, wherever it cannot be written.
        code = _FAILED
        print(f'error: {failure(error)}', file=sys.stderr)
    screen.clear()
    if not (found.measured or found.failed):
        parser.exit(code, 'nothing was measured\n')
    for table in report.tables(found):
        print(f'{table.title}\n')
        tables.show(table.head, table.rows, table.names)
        print('\n'.join(['', *table.notes, '']))
    try:
        write(arguments.out, found, plan)
    except (OSError, app.UsageError, tf.errors.OpError) as error:
        parser.exit(_FAILED, f'--out={arguments.out}: cannot be written to: {failure(error)}\n')
    print(f'written: {JSON_FILE}, {MARKDOWN_FILE} and {FIGURE_FILE} in {arguments.out}')
    return code or (_FAILED if found.failed else 0)


if __name__ == '__main__':
    # Who ends it by `timeout` has it end what it has started, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
