"""Extracts the features of image files: the output of any layer of a trained network, averaged over each image.

Images are prepared as in the run's evaluation, and the weights are those that it evaluates. With --weights, the network
is the Inception graph of December 2015, with its own preparation. An image that cannot be read is reported with the
reason, and the others are used.

The .npz file has `features` [images, values], `paths` [images], and `layer`, `model` and `digest` of the weights; with
--weights also `logits` [images, 1008].
"""

import argparse
import contextlib
import io
import os
import sys
from typing import Optional, Sequence

from compat import native_messages
from compat.errors import DONE, FIX
from console import program
from console.screen import Screen
from tools.features import POOL
from tools.parsers import new_parser, number_of

_HELP = f'{__doc__}\nIf an image cannot be read, the exit code is {FIX}.'


def _parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = new_parser('features', _HELP)
    add = parser.add_argument
    add('images', nargs='+', metavar='IMAGE', help='an image file, or a folder')
    network = parser.add_mutually_exclusive_group(required=True)
    about = 'the model_dir of a run (its newest checkpoint is used), or a checkpoint'
    network.add_argument('--model', metavar='DIR', help=about)
    about = 'weights of the Inception graph of 2015: its .pb file, the .pth file of pytorch-fid, or .npz'
    network.add_argument('--weights', metavar='FILE', help=about)
    about = 'the layer, such as Mixed_6e (default: pool, the input of the classifier); an unknown name lists all'
    add('--layer', default=POOL, metavar='NAME', help=about)
    add('--out', default='features.npz', metavar='FILE', help='file to write (default: features.npz)')
    add('--batch_size', type=number_of(int, 1), default=32, metavar='N', help='images per batch (default: 32)')
    arguments = parser.parse_args(argv)
    if not arguments.out.endswith('.npz'):
        parser.error(f'--out={arguments.out}: must end in .npz.')
    return arguments


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Extracts the features of the images that a command line names, and returns the exit code."""
    arguments = _parse(argv)
    with native_messages.captured():
        return program.run(lambda screen: _run(arguments, screen))


def _run(arguments: argparse.Namespace, screen: Screen) -> int:
    import numpy as np

    from console import outputs
    from data.files import write_whole
    from inception_v3.model_dir import check_writable
    from tools.features import extraction

    # Checked first, because reading the images takes long.
    check_writable('out', os.path.dirname(arguments.out) or '.')
    outputs.replaceable(arguments.out)
    files = extraction.find(arguments.images)
    outputs.check_is_no_input(arguments.out, [*files.paths, *filter(None, [arguments.weights])])
    screen.update(f'loading {arguments.model or arguments.weights}')
    load = extraction.of_2015 if arguments.weights else extraction.of_run
    with contextlib.closing(load(arguments.weights or arguments.model, arguments.layer)) as extractor:
        screen.clear()
        found = extraction.extract(extractor, files, arguments.batch_size, screen)
    about = {'layer': arguments.layer, 'model': extractor.name, 'digest': extractor.digest}
    content = io.BytesIO()
    np.savez(content, **{**found.values, 'paths': np.array(found.paths), **about})
    write_whole(arguments.out, content.getvalue())
    images, size = found.values[extraction.FEATURES].shape
    print(f'{arguments.out}: {images:,} images x {size:,} features of the layer {arguments.layer} of {extractor.name}')
    return FIX if found.unreadable else DONE


if __name__ == '__main__':
    sys.exit(main())
