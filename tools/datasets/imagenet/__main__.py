r"""Converts ImageNet-2012 to record files with Apache Beam: 1,024 for training and 128 for validation.

  inception-v3 imagenet --train=ILSVRC2012_img_train.tar \
      --validation=ILSVRC2012_img_val.tar \
      --validation_labels=ILSVRC2012_devkit_t12.tar.gz \
      --bounding_boxes=ILSVRC2012_bbox_train_v2.tar.gz imagenet

Archives are not unpacked. Classes are numbered from 1, in the order of their synsets; 0 is the background. JPEG files
are copied byte for byte; a CMYK image, or a PNG or GIF image with a JPEG name, becomes an RGB JPEG file of quality
100. The order of the images depends only on their names, and mixes the classes.

An interrupted conversion resumes with the same command: finished files are kept. On a cluster, add --runner=RUNNER and,
after --, Beam's own options; all folders must be at gs:// or, on TensorFlow 1.15, s3://.
"""

import functools
import sys

from console import program
from console.paths import expanded
from console.processes import usable_cores
from console.screen import Screen
from tools.parsers import new_parser, number_of

SHARDS = {'train': 1024, 'validation': 128}
IMAGES = {'train': 1281167, 'validation': 50000}
_DIRECT_RUNNER = 'DirectRunner'


def main() -> int:
    """Converts the parts named on the command line."""
    words = expanded()
    end = words.index('--') if '--' in words else len(words)
    own, of_beam = words[:end], words[end + 1 :]
    cores = usable_cores()
    parser = new_parser('imagenet', __doc__)
    add, positive = parser.add_argument, number_of(int, 1)
    add('data_dir', help='new folder for the record files; local, gs:// or, on TensorFlow 1.15, s3://')
    text = 'the archive (of archives n….tar), or a folder of such archives or of folders n…'
    add('--train', required=True, help=f'training images: {text}')
    text = 'the archive, or a folder of images or of folders n…'
    add('--validation', required=True, help=f'validation images: {text}')
    text = (
        'the classes of the validation images, unless they are in folders n…: the development kit (archive or folder), '
        'which also names the classes, or a text file of their synsets in the order of the images'
    )
    add('--validation_labels', help=text)
    text = 'an archive or folder of XML annotations (repeatable)'
    add('--bounding_boxes', action='append', default=[], help=text)
    for split, number in SHARDS.items():
        add(f'--{split}_shards', type=positive, default=number, help=f'{split} files (default {number})')
    for split, number in IMAGES.items():
        add(f'--{split}_images', type=positive, default=number, help=f'expected {split} images (default {number:,})')
    text = f'processes of the {_DIRECT_RUNNER} (default: one per core, {cores} here)'
    add('--processes', type=positive, help=text)
    add('--runner', default=_DIRECT_RUNNER, help=f"Beam's runner, by name (default {_DIRECT_RUNNER})")
    arguments = parser.parse_args(own)
    if arguments.runner == _DIRECT_RUNNER:
        processes = arguments.processes or cores
        of_beam += ['--direct_running_mode=multi_processing', f'--direct_num_workers={processes}']
    elif arguments.processes is not None:
        parser.error(f'--processes={arguments.processes}: requires --runner={_DIRECT_RUNNER}.')
    shards, images = (
        {split: getattr(arguments, f'{split}_{what}') for split in SHARDS} for what in ('shards', 'images')
    )

    def command(screen: Screen) -> None:
        from tools.datasets.imagenet import beam, pipeline

        beam.check(arguments.runner, of_beam)
        source = pipeline.Source(**{name: getattr(arguments, name) for name in pipeline.Source._fields})
        run = functools.partial(beam.run, arguments.runner, of_beam)
        say = functools.partial(print, file=sys.stderr)
        pipeline.convert(source, arguments.data_dir, shards, images, run, say)

    return program.run(command, 'interrupted; the same command resumes and keeps finished files')


if __name__ == '__main__':
    sys.exit(main())
