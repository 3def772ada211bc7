"""Converts CIFAR-10 to the tar shards of the published streaming example.

Writes 640 shards with 1,280,000 training images, and 50 with 50,000 validation images:

  inception-v3 cifar10 cifar-10-binary.tar.gz --data_dir=cifar10

The source is the archive of the binary version as published, cifar-10-binary.tar.gz, or the folder that it unpacks to.
Classes are numbered from 1; 0 is the background.

The published data set, called upsampled, has more images than CIFAR-10. This command repeats the 50,000 training
images 25.6 times, and the 10,000 test images 5 times, each time in a different order. The last, partial repetition has
the same number of images of each class.

Images stay 32 x 32 pixels, in lossless PNG files, about 5 GB in all; the input pipeline resizes its crops. The
published speed, 1,522 images/s on each core of a TPU v3, is for small images.

An interrupted conversion resumes with the same command: finished shards are kept. Each image is encoded once, on all
cores, and stays in memory for its repetitions.
"""

import functools
import sys

from console import program
from console.screen import Screen
from tools.parsers import new_parser, number_of

IMAGES = {'train': 1280000, 'validation': 50000}
SHARDS = {'train': 640, 'validation': 50}


def main() -> int:
    """Converts the source named on the command line."""
    parser = new_parser('cifar10', __doc__)
    add, positive = parser.add_argument, number_of(int, 1)
    add('source', help='the archive, or the folder that it unpacks to; local, gs:// or, on TensorFlow 1.15, s3://')
    add('--data_dir', required=True, help='new folder for the shards; local, gs:// or, on TensorFlow 1.15, s3://')
    for split, number in IMAGES.items():
        add(f'--{split}_images', type=positive, default=number, help=f'{split} images (default {number:,})')
    for split, number in SHARDS.items():
        add(f'--{split}_shards', type=positive, default=number, help=f'{split} shards (default {number})')
    arguments = parser.parse_args()
    images, shards = (
        {split: getattr(arguments, f'{split}_{what}') for split in IMAGES} for what in ('images', 'shards')
    )
    for split in IMAGES:
        if shards[split] > images[split]:
            parser.error(f'--{split}_shards={shards[split]}: must be at most --{split}_images={images[split]}.')

    def command(screen: Screen) -> None:
        from tools.datasets.cifar10 import conversion as cifar10

        say = functools.partial(print, file=sys.stderr)
        cifar10.convert(cifar10.read(arguments.source), arguments.data_dir, images, shards, say)

    return program.run(command, 'interrupted; the same command resumes and keeps finished files')


if __name__ == '__main__':
    sys.exit(main())
