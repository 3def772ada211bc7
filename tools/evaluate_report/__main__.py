"""Evaluates a checkpoint of a run on this machine's CPU, and reports its errors.

Writes a self-contained page, report.html, with the top-1 accuracy of every class, the confusion matrix, a reliability
diagram and the worst mistakes with their images; report.json with all numbers; predictions.csv with the prediction for
each image; and the figures as PNG files. --against=RUN compares the checkpoint with that of another report, image by
image. The balanced accuracy is the mean of the classes' top-1: every class counts the same, however many images it has.

Examples: the newest checkpoint, one step, other images, and a comparison.

    inception-v3 evaluate runs/digits
    inception-v3 evaluate runs/digits --checkpoint=model.ckpt-500 --out=step_500
    inception-v3 evaluate my_run --data_dir=more_records --batch_size=16
    inception-v3 evaluate my_run --against=earlier_run
"""

import argparse
import os
import sys
from typing import Optional, Sequence

from console import program
from console.command_line import check_given_once
from console.paths import check_folder, expanded
from console.screen import Screen
from tools import extras, other_data
from tools.evaluate_report import FOLDER
from tools.parsers import folder, new_parser, number_of


def parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    """Parses a command line; flags that are not given are None."""
    parser = new_parser('evaluate', __doc__)
    add = parser.add_argument
    add('model_dir', type=folder, help='the model_dir of a run; may be at gs:// or, on TensorFlow 1.15, s3://')
    about = 'a checkpoint in model_dir, such as model.ckpt-500, or its path (default: the newest)'
    add('--checkpoint', metavar='NAME', help=about)
    add('--out', type=folder, metavar='DIR', help=f'folder for the report (default: {FOLDER} in model_dir)')
    about = "compare with the report of a run's checkpoint on the same images, by McNemar's exact test"
    add('--against', type=folder, metavar='RUN', help=about)
    about = "the files to evaluate (default: the run's, or those in --data_dir)"
    add('--eval_files', type=folder, metavar='PATTERNS', help=about)
    other_data.add_flags(parser)
    about = "images per batch (default: the run's, at most 64)"
    add('--batch_size', type=number_of(int, 1), metavar='N', help=about)
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Writes the report that a command line asks for, and returns the exit code."""
    arguments = parse(argv)

    def command(screen: Screen) -> None:
        check_folder(arguments.model_dir)
        check_given_once(expanded(argv), ['eval_files'])
        extras.require('studies', 'matplotlib', 'scipy')
        from tools.evaluate_report import evaluation

        out = arguments.out or os.path.join(arguments.model_dir, FOLDER)
        print(evaluation.write_report(arguments, out, screen))

    return program.run(command, on_interrupt='interrupted; nothing was written')


if __name__ == '__main__':
    sys.exit(main())
