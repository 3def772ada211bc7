"""Classifies image files with the newest checkpoint of a run, or with a SavedModel.

Images are prepared and classified as in the run's evaluation, with the averaged weights if the run keeps them. An image
that cannot be read is reported with the reason, and the others are classified.

Examples: photographs with a run, all files of a folder as JSON, and a page of an exported model's answers.

    inception-v3 predict cat.jpg dog.png --model=my_run
    inception-v3 predict photos --model=my_run --top=1 --json
    inception-v3 predict photos --model=my_export --html=answers.html
"""

import os
import sys
from typing import Optional, Sequence

from compat import native_messages
from compat.errors import FIX
from console import program
from console.paths import check_folder
from console.screen import Screen
from tools.parsers import new_parser, number_of


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Classifies the images that a command line names, and returns the exit code."""
    parser = new_parser('predict', f'{__doc__}\nIf an image cannot be read, the exit code is {FIX}.')
    add, count = parser.add_argument, number_of(int, 1)
    add('images', nargs='+', metavar='IMAGE', help='an image file, or a folder')
    about = 'the model_dir of a run, a SavedModel, or an export_dir (its newest SavedModel is used); may be remote'
    add('--model', required=True, metavar='DIR', help=about)
    add('--top', type=count, default=5, metavar='N', help='classes to show per image, at most all (default: 5)')
    add('--json', action='store_true', help='print a JSON object per image, one per line')
    add('--html', metavar='FILE', help='also write a self-contained page with thumbnails')
    add('--batch_size', type=count, default=32, metavar='N', help='images per batch (default: 32)')
    arguments = parser.parse_args(argv)
    if arguments.html is not None and not os.path.basename(arguments.html):
        parser.error(f'--html={arguments.html}: must be the path of a file.')

    def command(screen: Screen) -> int:
        check_folder(arguments.model, 'model')
        from tools.predict import prediction

        return prediction.perform(arguments, screen)

    with native_messages.captured():
        return program.run(command, on_interrupt='interrupted; the output holds the images that were done')


if __name__ == '__main__':
    sys.exit(main())
