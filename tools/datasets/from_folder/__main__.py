"""Converts JPEG, PNG, GIF, BMP, WebP and TIFF images, in a folder per class, to record files.

The images are in FOLDER/CLASS/, or, if they are already split, in FOLDER/train/CLASS/ and FOLDER/validation/CLASS/ (or
val, valid, dev, eval or test), or in FOLDER/CLASS/ and in CLASS/ of --validation_folder; or a table names the class of
each image in FOLDER, and may divide them by a column `split`. Classes are numbered from 1, in the order of their names;
0 is the background. Folders that look like parts of a data set, not like classes, are refused. The command first prints
how it understands the folders; --dry_run stops there, and writes nothing.

Each image is decoded whole. JPEG and PNG files are stored as they are. JPEG, WebP and TIFF images with an EXIF
orientation are turned upright, transparent ones are laid on white, and other formats are converted. The files that are
left out or refused are listed with the reasons in DATA_DIR.refused.tsv.
"""

import argparse
import sys

from compat import native_messages
from console import program
from console.paths import check_folder
from console.screen import Screen
from tools.parsers import new_parser, number_of


def _arguments() -> argparse.Namespace:
    parser = new_parser('from-folder', __doc__)
    add, positive = parser.add_argument, number_of(int, 1)
    add('folder', help='the images, in a folder per class')
    add('data_dir', help='new folder for the record files')
    add(
        '--validation_fraction',
        type=number_of(float, 0, 1),
        help='share of each class for validation, below 1 (default 0.1); 0: no validation images',
    )
    add('--validation_folder', help='validation images, in a folder per class; all others are trained on')
    text = 'the folders are classes, even if they look like splits; a column of splits in the table is not used'
    add('--no_splits', action='store_true', help=text)
    add('--labels', metavar='FILE', help='a CSV file that names the class of each image in the folder')
    text = 'the same for validation images, in --validation_folder, in FOLDER/val, or, with --labels, in the folder'
    add('--validation_labels', metavar='FILE', help=text)
    add(
        '--file_column',
        default='',
        help='name or number of the column of files (default: the one of two that has files)',
    )
    add('--label_column', default='', help='name or number of the column of labels (default: the other of two)')
    add('--dry_run', action='store_true', help='show how the folder is understood, and write nothing')
    add('--train_shards', type=positive, default=16, help='number of training files (default 16)')
    add('--validation_shards', type=positive, default=4, help='number of validation files (default 4)')
    add('--skip_unreadable', action='store_true', help='leave out images that cannot be used, instead of stopping')
    arguments = parser.parse_args()
    has_validation = arguments.validation_folder is not None or arguments.validation_labels is not None
    if arguments.validation_fraction is None:
        arguments.validation_fraction = 0.0 if has_validation else 0.1
    elif has_validation:
        flag = 'validation_labels' if arguments.validation_folder is None else 'validation_folder'
        parser.error(f'--validation_fraction, --{flag}: give one of the two.')
    elif arguments.validation_fraction == 1:
        parser.error('--validation_fraction=1: must be below 1; no training images would be left.')
    if (arguments.file_column or arguments.label_column) and not (arguments.labels or arguments.validation_labels):
        parser.error('--file_column, --label_column: are columns of --labels, which is missing.')
    return arguments


def main() -> int:
    """Converts the folder named on the command line."""
    arguments = _arguments()

    def command(screen: Screen) -> None:
        for folder in (arguments.folder, arguments.validation_folder or ''):
            check_folder(folder)
        from tools.datasets.conversion import summary
        from tools.datasets.from_folder import conversion

        output = sys.stdout if arguments.dry_run else sys.stderr
        info = conversion.import_folder(say=lambda line: print(line, file=output), **vars(arguments))
        if info is not None:
            print(summary(info, arguments.data_dir))

    with native_messages.captured():
        return program.run(command, 'interrupted; nothing was written')


if __name__ == '__main__':
    sys.exit(main())
