"""Repeats a published experiment on batch normalization across replicas, on 8 emulated cores.

Prints measured and published figures, and further experiments: unequal replicas, groups of replicas, the
variance of the means, and the decay of one replica in eight. Writes all numbers as JSON, and a figure.
studies/README.md discusses the results.
"""

import os
import sys
from typing import Any, Optional, Sequence

from console import program
from console.command_line import folder, new_parser
from console.paths import expanded
from console.screen import Screen
from studies import extras

OUT = os.path.join('runs', 'studies', 'batch_norm')
JSON_FILE = 'batch_norm.json'
FIGURE_FILE = 'batch_norm.png'


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the study that a command line asks for, and returns its exit code."""
    parser = new_parser('batch-norm', __doc__)
    text = f'folder for {JSON_FILE} and {FIGURE_FILE}, created if missing (default {OUT})'
    parser.add_argument('--out', type=folder, default=OUT, help=text)
    out = parser.parse_args(expanded(argv)).out
    return program.run(lambda screen: _perform(out, screen), 'interrupted; nothing was written')


def _perform(out: str, screen: Screen) -> None:
    extras.require('studies')

    from inception_v3.run.files import check_writable
    from studies.batch_norm import experiments, report

    check_writable('out', out)
    screen.update('measuring; this takes less than a minute')
    measured = experiments.measure(experiments.Settings())
    screen.clear()
    print(report.text(measured))
    write(out, measured)
    print(f'\nwritten: {JSON_FILE} and {FIGURE_FILE} in {out}')


def write(out: str, measured: Any) -> None:
    """Writes the numbers, with the published ones and the versions, and the figure into a folder."""
    from data.files import write_whole
    from inception_v3.run import source
    from studies.batch_norm import report
    from studies.batch_norm.experiments import PUBLISHED, as_dict
    from studies.files import write_json

    content = {'published': as_dict(PUBLISHED), 'measured': as_dict(measured), 'versions': source.versions()}
    write_json(os.path.join(out, JSON_FILE), content)
    write_whole(os.path.join(out, FIGURE_FILE), report.figure(measured))


if __name__ == '__main__':
    sys.exit(main())
