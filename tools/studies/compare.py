"""Compares runs: writes the report of a sweep for the model_dirs of any runs.

Runs that differ only in their seeds form one case. Cases are named after the settings in which they differ, or after
their first run if that name would be too long. Writes report.html, a page that needs no other file.
"""

import argparse
import os
import sys
from typing import Optional, Sequence

from console import program
from console.screen import Screen
from tools.parsers import folder, new_parser
from tools.studies.files import require_packages

OUT = os.path.join('runs', 'studies', 'compare')


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Compares the runs that a command line names, and returns the exit code."""
    parser = new_parser('compare', __doc__)
    parser.add_argument(
        'runs', nargs='+', metavar='RUN', help='model_dir of a run; it may be at gs:// or, on TensorFlow 1.15, s3://'
    )
    out_help = f'folder for the report, created if missing (default {OUT})'
    parser.add_argument('--out', type=folder, default=OUT, help=out_help)
    arguments = parser.parse_args(argv)
    return program.run(lambda screen: _perform(arguments, screen))


def _perform(arguments: argparse.Namespace, screen: Screen) -> None:
    require_packages()
    # Imported late: these need TensorFlow and the extra's packages, which --help does not.
    from inception_v3.model_dir import check_writable
    from tools.studies.report import page, runs

    comparison = runs.compare(arguments.runs)
    check_writable('out', arguments.out)
    page.write(arguments.out, comparison)
    for case in comparison.cases:
        print(f'{case.name}: {", ".join(run.name for run in case.runs)}')
    for note in comparison.notes:
        print(f'note: {note}')
    print(f'written: {page.PAGE_FILE} in {arguments.out}')


if __name__ == '__main__':
    sys.exit(main())
