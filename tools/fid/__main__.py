"""Computes FID, KID and Inception Score of generated images, as TensorFlow 1 computed them.

FID and KID compare two sets of images; the Inception Score rates each set alone. Published scores use the Inception
graph of December 2015: --weights=FILE is its classify_image_graph_def.pb, or pytorch-fid's .pth file of the same
weights. Instead of a folder, a set may be an .npz file of features, as inception-v3 features writes it; of moments
(`mu` and `sigma`), as in pytorch-fid's files and guided-diffusion's reference batches; or of images (`arr_0`, uint8),
as guided-diffusion's samplers write them. Compare two scores only if their weights, numbers of images and resizing are
the same.

A score that is not defined for the images is shown with the reason; with --scores, it is an error. An image that cannot
be read is reported with the reason, and the others are used.
"""

import argparse
import json
import os
import sys
from typing import Any, Dict, Optional, Sequence

from compat import native_messages
from compat.errors import DONE, FIX, CommandError
from compat.messages import full
from console import program
from console.paths import meant_path
from console.screen import Screen
from tools.features import FILES_OF_2015
from tools.parsers import new_parser, number_of

_HELP = f'{__doc__}\nIf an image cannot be read, the exit code is {FIX}.'
_NAMES = {'fid': 'FID', 'kid': 'KID', 'is': 'Inception Score'}
# The least value, the default and the purpose. The default seed is that of torch-fidelity's subsets and shuffling.
_NUMBERS = {
    'batch_size': (1, 32, 'images per batch'),
    'kid_subsets': (1, 100, 'random subsets for KID'),
    'kid_subset_size': (2, 1000, 'images per subset for KID'),
    'splits': (1, 10, 'splits for the Inception Score'),
    'seed': (0, 2020, 'seed of subsets and splits'),
}


def _parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = new_parser('fid', _HELP)
    add = parser.add_argument
    add('images', metavar='IMAGES', help='a folder of images, or an .npz file of features, moments or images')
    add('others', metavar='OTHERS', nargs='?', help='the images to compare with; without them, only Inception Score')
    about = 'weights of the Inception graph of 2015: .pb, .pth or .npz; needed for folders and for .npz files of images'
    add('--weights', metavar='FILE', help=about)
    add('--scores', metavar='NAME,…', help=f'scores to compute, of {",".join(_NAMES)} (default: all that are defined)')
    for name, (least, default, text) in _NUMBERS.items():
        bounds = number_of(int, least, (1 << 32) - 1)
        add(f'--{name}', type=bounds, default=default, metavar='N', help=f'{text} (default: {default})')
    add('--json', action='store_true', help='print a JSON object per score, one per line')
    arguments = parser.parse_args(argv)
    is_chosen = arguments.scores is not None
    chosen = [name.strip().lower() for name in arguments.scores.split(',')] if is_chosen else [*_NAMES]
    unknown = [name for name in chosen if name not in _NAMES]
    if unknown:
        parser.error(f'--scores={arguments.scores}: {unknown[0] or "an empty name"} is none of {", ".join(_NAMES)}.')
    if is_chosen and not arguments.others and {*chosen} != {'is'}:
        parser.error(f'--scores={arguments.scores}: FID and KID need two sets of images: IMAGES OTHERS.')
    names = [name for name in (arguments.images, arguments.others) if name]
    absent = [name for name in names if '://' not in name and not os.path.exists(name)]
    if absent:
        parser.error(f'{full(absent[0])}: no such file or folder.{meant_path(absent[0])}')
    if not arguments.weights and not all(name.endswith(('.npz', '.pkl', '.pickle')) for name in names):
        parser.error(f'--weights is needed for images. It is a file of the weights: {FILES_OF_2015}.')
    arguments.chosen, arguments.names = chosen, names
    return arguments


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Computes the scores that a command line asks for, and returns the exit code."""
    arguments = _parse(argv)
    with native_messages.captured():
        return program.run(lambda screen: _run(arguments, screen))


def _run(arguments: argparse.Namespace, screen: Screen) -> int:
    from tools.fid import scores

    sets = scores.read(arguments, screen)
    computed, undefined = 0, []
    for score in scores.compute(sets, arguments, screen):
        screen.clear()
        print(json.dumps(score) if arguments.json else _text(score), flush=True)
        computed += 1
        undefined += [_text(score)] if 'problem' in score else []
    if undefined and (arguments.scores is not None or len(undefined) == computed):
        raise CommandError('\n'.join(undefined))
    return FIX if any(sample.unreadable for sample in sets) else DONE


def _text(score: Dict[str, Any]) -> str:
    name = _NAMES[score['score']] + (f' of {full(score["of"][0])}' if len(score['of']) == 1 else '')
    value = score['value']
    if value is None:
        return f'{name}: not computed: {score["problem"]}'
    if isinstance(value, dict):
        return f'{name}: {value["mean"]:.7g} ± {value["deviation"]:.3g}'
    return f'{name}: {value:.7g}'


if __name__ == '__main__':
    sys.exit(main())
