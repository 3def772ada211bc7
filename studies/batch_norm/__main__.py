"""Repeats a published experiment on batch normalization across replicas, on 8 emulated cores.

Prints measured and published figures, and further experiments: unequal replicas, groups of replicas, the
variance of the means, and the decay of one replica in eight. Writes all numbers as JSON, and a figure.
studies/README.md discusses the results.
"""

import argparse
import os
import sys
from typing import Optional, Sequence

from console import program
from console.command_line import folder, new_parser
from console.paths import expanded
from console.screen import Screen
from data.files import write_whole
from inception_v3.run import source
from inception_v3.run.files import check_writable
from studies import extras
from studies.batch_norm import report
from studies.batch_norm.comparison import PUBLISHED
from studies.batch_norm.experiments import Results, Settings, as_dict, measure
from studies.files import write_json

OUT = os.path.join('runs', 'studies', 'batch_norm')
JSON_FILE = 'batch_norm.json'
FIGURE_FILE = 'batch_norm.png'


def write(out: str, measured: Results) -> None:
    """Writes the numbers, with the published ones and the versions, and the figure into a folder."""
    content = {'published': as_dict(PUBLISHED), 'measured': as_dict(measured), 'versions': source.versions()}
    write_json(os.path.join(out, JSON_FILE), content)
    write_whole(os.path.join(out, FIGURE_FILE), report.figure(measured))


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the study that a command line asks for, and returns its exit code."""
    parser = new_parser('batch-norm', __doc__)
    files = f'{JSON_FILE} and {FIGURE_FILE}'
    parser.add_argument(
        '--out',
        type=folder,
        default=OUT,
        help=f'folder for {files}, created if missing (default {OUT})',
    )
    arguments = parser.parse_args(expanded(argv))
    return program.run(lambda screen: _perform(arguments, screen), 'interrupted; nothing was written')


def _perform(arguments: argparse.Namespace, screen: Screen) -> None:
    extras.require('studies')
    check_writable('out', arguments.out)
    screen.update('measuring; this takes less than a minute')
    measured = measure(Settings())
    screen.clear()
    print(report.text(measured))
    write(arguments.out, measured)
    print(f'\nwritten: {JSON_FILE} and {FIGURE_FILE} in {arguments.out}')


if __name__ == '__main__':
    sys.exit(main())
