"""Exports a checkpoint of a run to other formats, with everything that is needed to use it.

Each format gets a folder in --out: the model; preprocessing.json, which describes its input, its outputs and the steps
from decoded pixels to the input; prepare.py, which carries them out with NumPy alone; labels.txt; and README.md, the
model card. The weights are those that the run evaluates. With --verify, each export classifies all validation images in
its own runtime. An export with another accuracy than its checkpoint gives exit code 2. Exports in int8 may lose a
point; a larger loss counts if McNemar's exact test shows that it is not chance. A warning says if there are too few
images for the test.

Examples: several formats, checked; integers alone, for an Edge TPU; and ranges of other images, if the run's are gone.

    inception-v3 export runs/digits --format=saved_model,onnx,onnx_nchw --verify
    inception-v3 export my_run --format=tflite_full_int8 --verify --out=edge
    inception-v3 export my_run --format=tflite_int8 --data_dir=my_records
"""

import argparse
import os
import sys
from typing import List, Optional, Sequence

from compat import native_messages
from console import program
from console.paths import check_folder
from console.screen import Screen
from tools import other_data
from tools.parsers import folder, new_parser, number_of

FOLDER = 'exports'
NAMES = ('saved_model', 'onnx', 'onnx_nchw', 'tflite', 'tflite_int8', 'tflite_full_int8', 'npz')


def _formats(text: str) -> List[str]:
    names = [*dict.fromkeys(text.split(','))]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise argparse.ArgumentTypeError(f'{", ".join(unknown) or "none"}: the formats are {", ".join(NAMES)}')
    return names


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Makes the exports that a command line asks for, and returns the exit code."""
    parser = new_parser('export', __doc__)
    add = parser.add_argument
    add('model_dir', help='the model_dir of a run; may be at gs:// or, on TensorFlow 1.15, s3://')
    add('--format', required=True, type=_formats, metavar='FORMATS', help=f'one or several of {", ".join(NAMES)}')
    about = f'local folder for the exports (default: {FOLDER} in model_dir)'
    add('--out', type=folder, metavar='DIR', help=about)
    about = 'a checkpoint in model_dir, such as model.ckpt-500, or its path (default: the newest)'
    add('--checkpoint', metavar='NAME', help=about)
    add('--verify', action='store_true', help='classify all validation images with each export')
    about = 'training images that give the ranges for int8 (default: 200)'
    add('--calibration_images', type=number_of(int, 1), metavar='N', help=about)
    other_data.add_flags(parser)
    arguments = parser.parse_args(argv)

    def command(screen: Screen) -> int:
        check_folder(arguments.model_dir)
        from tools.export import exports

        return exports.perform(arguments, arguments.out or os.path.join(arguments.model_dir, FOLDER), screen)

    # The converters and runtimes of TensorFlow Lite and ONNX report their own progress.
    with native_messages.captured():
        return program.run(command, on_interrupt='interrupted')


if __name__ == '__main__':
    sys.exit(main())
