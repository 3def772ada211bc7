"""Compares TensorFlow 1.15 and 2.15: runs the same parts of the program in both environments.

`./run --tf=VERSION` makes an environment that is missing. The comparisons: the first batches of the input pipeline, bit
by bit; a training run, whose checkpoints the other version resumes and whose SavedModels it serves; the accuracy of
trained digits; and CPU time. Prints tables, and writes them as Markdown and all numbers as JSON. Comparisons that are
not chosen keep their earlier results; finished runs of the digits are kept, too.
"""

import argparse
import dataclasses
import datetime
import os
import sys
from typing import Callable, Dict, Optional, Sequence

from benchmarks import photographs, tables
from console import processes, program
from console.command_line import folder, new_parser, number_of
from console.errors import DONE, CommandError
from console.json_content import from_json
from console.messages import shown
from console.paths import expanded
from console.screen import Screen
from data import digits
from data.files import text_of, write_whole
from inception_v3.config import Config, ConfigError
from inception_v3.model_dir.files import check_writable
from inception_v3.presets import PRESETS
from studies import extras
from studies.files import write_json
from studies.report import sections
from studies.versions import comparison, environments, part, report
from studies.versions.comparison import Numbers, Place

OUT = os.path.join('runs', 'studies', 'versions')
JSON_FILE, MARKDOWN_FILE = 'versions.json', 'versions.md'
_SEED = 1
# Photographs for the batches and for the cost of the pipeline.
_PHOTOGRAPHS = 64
_BATCH_SIZE = 8


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Makes the comparisons that a command line asks for, and returns the exit code."""
    arguments = _parser().parse_args(expanded(argv))
    return program.run(
        lambda screen: _perform(arguments, screen), 'interrupted; comparisons that were completed are written'
    )


def _parser() -> argparse.ArgumentParser:
    parser = new_parser('studies.versions', __doc__)
    add = parser.add_argument
    out_help = f'folder for {JSON_FILE}, {MARKDOWN_FILE}, data and runs (default {OUT})'
    add('--out', type=folder, default=OUT, help=out_help)
    names = ','.join(_COMPARISONS)
    add('--only', type=_names, default=[*_COMPARISONS], metavar='NAME,…', help=f'comparisons to make (default {names})')
    add('--batches', type=number_of(int, 1), default=4, help='batches of each pipeline to compare (default 4)')
    add('--steps', type=number_of(int, 2, 10), default=10, help='steps of the compared training run (default 10)')
    add('--runs', type=number_of(int, 1), default=5, help='runs of the digits with each version (default 5)')
    add('--run_steps', type=number_of(int, 1), default=1500, help='steps of each of these runs (default 1500)')
    add('--rounds', type=number_of(int, 1), default=3, help='rounds of measurements of CPU time (default 3)')
    return parser


def _names(text: str) -> Sequence[str]:
    names = text.split(',')
    for wrong in sorted({*names} - {*_COMPARISONS}):
        raise argparse.ArgumentTypeError(f'{wrong or "an empty name"} is not one of {", ".join(_COMPARISONS)}')
    return [name for name in _COMPARISONS if name in names]


def _photographs(place: Place) -> Config:
    data_dir = place.path('photographs')
    photographs.make(data_dir, _PHOTOGRAPHS, _PHOTOGRAPHS, shards=4)
    return Config(
        use_tpu=False,
        data_dir=data_dir,
        num_train_images=_PHOTOGRAPHS,
        num_eval_images=_PHOTOGRAPHS,
        num_classes=8,
        train_batch_size=_BATCH_SIZE,
        eval_batch_size=_BATCH_SIZE,
        seed=_SEED,
        intra_op_threads=2,
    )


def _digits(place: Place) -> Config:
    data_dir = place.path('digits')
    digits.build_if_missing(data_dir)
    changes = {'data_dir': data_dir, 'export_dir': None, 'seed': _SEED, 'intra_op_threads': 2}
    return Config(**{**PRESETS['digits'], **changes})


def _compare_batches(arguments: argparse.Namespace, place: Place, screen: Screen) -> Numbers:
    configs = {'photographs': _photographs(place), 'digits': _digits(place)}
    return comparison.compare_batches(configs, [*comparison.PIPELINES], arguments.batches, place, screen.update)


def _compare_training(arguments: argparse.Namespace, place: Place, screen: Screen) -> Numbers:
    config = _digits(place)
    return comparison.compare_training(config, arguments.steps, config.num_eval_images, place, screen.update)


def _compare_accuracy(arguments: argparse.Namespace, place: Place, screen: Screen) -> Numbers:
    return comparison.compare_accuracy(arguments.runs, arguments.run_steps, place, screen.update)


def _compare_serving(arguments: argparse.Namespace, place: Place, screen: Screen) -> Numbers:
    config = _digits(place)
    exports = {
        version: os.path.join(comparison.digits_dir(version, 1, place), 'export') for version in environments.VERSIONS
    }
    for path in exports.values():
        if not os.path.isdir(path):
            raise CommandError(f'{path}: no such folder. The comparison `accuracy` makes it.')
    return comparison.compare_serving(exports, config.data_dir, config.num_eval_images, place, screen.update)


def _compare_cost(arguments: argparse.Namespace, place: Place, screen: Screen) -> Numbers:
    photos = _photographs(place)
    jobs: Dict[str, part.Job] = {
        'CPU-ms per training image, photographs': part.job(
            part.input_cost, config=photos, is_training=True, images=4 * _PHOTOGRAPHS
        ),
        'CPU-ms per image of an evaluation, photographs': part.job(
            part.input_cost, config=photos, is_training=False, images=4 * _PHOTOGRAPHS
        ),
        'CPU-s per training step of the digits (32 images of 75 x 75, input included)': part.job(
            part.step_cost, config=dataclasses.replace(_digits(place), train_steps=25, mode='train')
        ),
    }
    return comparison.compare_cost(jobs, arguments.rounds, place, screen.update)


_COMPARISONS: Dict[str, Callable[[argparse.Namespace, Place, Screen], Numbers]] = {
    report.BATCHES: _compare_batches,
    report.TRAINING: _compare_training,
    report.ACCURACY: _compare_accuracy,
    report.SERVING: _compare_serving,
    report.COST: _compare_cost,
}


def _perform(arguments: argparse.Namespace, screen: Screen) -> int:
    extras.require('studies')
    environments.check()
    check_writable('out', arguments.out)
    place = Place(os.path.abspath(arguments.out))
    json_path = os.path.join(arguments.out, JSON_FILE)
    try:
        found = from_json(text_of(json_path) or '{}', lambda values: {**values})
    except ValueError as error:
        raise ConfigError(f'{json_path}: is damaged: {shown(error)}. Remove it, or name another folder with --out.')
    for name in arguments.only:
        numbers = _COMPARISONS[name](arguments, place, screen)
        made = {
            'date': f'{datetime.date.today()}',
            'machine': tables.machine(),
            'command': f'./run {processes.command_line("studies.versions")}',
        }
        found[name] = {'made': made, 'numbers': numbers}
        write_json(json_path, found)
        screen.clear()
        sections.show([report.section(name, numbers, made)])
    parts = [
        report.section(name, found[name]['numbers'], found[name]['made']) for name in _COMPARISONS if name in found
    ]
    text = '\n\n'.join(['# TensorFlow 1.15 and 2.15', *sections.markdown(parts)])
    write_whole(os.path.join(arguments.out, MARKDOWN_FILE), text + '\n')
    print(f'\nwritten: {JSON_FILE} and {MARKDOWN_FILE} in {arguments.out}')
    return DONE


if __name__ == '__main__':
    program.raise_on_sigterm()
    sys.exit(main())
