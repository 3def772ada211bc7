"""Computes FID, KID and Inception Score of generated images, as TensorFlow 1 computed them.

FID and KID compare two sets of images; the Inception Score is of each set alone. Published scores are from the
Inception graph of December 2015: --weights=FILE is its classify_image_graph_def.pb, or pytorch-fid's .pth file of the
same weights. A set may also be an .npz file of features, as inception-v3 features writes it, or of moments (`mu` and
`sigma`), as pytorch-fid writes it. docs/scores.md tells which scores may be compared.

A score that is not defined for the images is shown with the reason; with --scores, it is an error. An image that cannot
be read is reported with the reason, and the others are used.
"""

import argparse
import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence

from console import native_messages, program
from console.command_line import new_parser
from console.errors import DONE, FIX, CommandError
from console.messages import counted, shown
from console.paths import expanded
from console.screen import Screen
from inception_v3.commands.features import FILES_OF_2015, POOL

if TYPE_CHECKING:
    from inception_v3.commands.fid.samples import Sample

_HELP = f'{__doc__}\nIf an image cannot be read, the exit code is {FIX}.'
_NAMES = {'fid': 'FID', 'kid': 'KID', 'is': 'Inception Score'}
_COUNTS = {
    'batch_size': (32, 'images per batch'),
    'kid_subsets': (100, 'random subsets for KID'),
    'kid_subset_size': (1000, 'images per subset for KID'),
    'splits': (10, 'splits for the Inception Score'),
}
# The seed of torch-fidelity's subsets and shuffling.
_SEED = 2020


def _parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = new_parser('fid', _HELP)
    add = parser.add_argument
    add('images', metavar='IMAGES', help='a folder of images, or an .npz file of features or moments')
    add('others', metavar='OTHERS', nargs='?', help='the images to compare with; without them, only Inception Score')
    about = 'weights of the Inception graph of 2015: .pb, .pth or .npz; needed for folders'
    add('--weights', metavar='FILE', help=about)
    about = 'layer of the features of folders (default: pool, as in all papers)'
    add('--layer', default=POOL, metavar='NAME', help=about)
    add('--scores', metavar='NAME,…', help=f'scores to compute, of {",".join(_NAMES)} (default: all that are defined)')
    add('--seed', type=int, default=_SEED, metavar='N', help=f'of subsets and splits (default: {_SEED})')
    for name, (default, text) in _COUNTS.items():
        add(f'--{name}', type=int, default=default, metavar='N', help=f'{text} (default: {default})')
    add('--json', action='store_true', help='print a JSON object per score, one per line')
    arguments = parser.parse_args(expanded(argv))
    for name in _COUNTS:
        least = 2 if name == 'kid_subset_size' else 1
        if getattr(arguments, name) < least:
            parser.error(f'--{name}={getattr(arguments, name)}: must be at least {least}.')
    if not 0 <= arguments.seed < 1 << 32:
        parser.error(f'--seed={arguments.seed}: must be from 0 to {(1 << 32) - 1}.')
    chosen = [name.strip() for name in arguments.scores.split(',')] if arguments.scores is not None else [*_NAMES]
    unknown = [name for name in chosen if name not in _NAMES]
    if unknown:
        parser.error(f'--scores={arguments.scores}: {unknown[0] or "an empty name"} is none of {", ".join(_NAMES)}.')
    if arguments.scores is not None and not arguments.others and {*chosen} != {'is'}:
        parser.error(f'--scores={arguments.scores}: FID and KID need two sets of images: IMAGES OTHERS.')
    names = [name for name in (arguments.images, arguments.others) if name]
    if not arguments.weights and not all(name.endswith('.npz') for name in names):
        parser.error(f'--weights is needed for images. It is a file of the weights: {FILES_OF_2015}.')
    arguments.chosen, arguments.names = chosen, names
    return arguments


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Computes the scores that a command line asks for, and returns the exit code."""
    arguments = _parse(argv)
    with native_messages.captured():
        return program.run(lambda screen: _run(arguments, screen))


def _run(arguments: argparse.Namespace, screen: Screen) -> int:
    from inception_v3.commands.fid import samples

    sets = _samples(arguments, screen)
    if len(sets) > 1:
        samples.check_comparable(*sets)
    for sample in sets:
        _describe(sample, 'fid' in arguments.chosen and len(sets) > 1)
    scores, undefined = 0, []
    for score in _scores(sets, arguments, screen):
        screen.clear()
        print(json.dumps(score) if arguments.json else _text(score), flush=True)
        scores += 1
        undefined += [_text(score)] if 'problem' in score else []
    if undefined and (arguments.scores is not None or len(undefined) == scores):
        raise CommandError('\n'.join(undefined))
    return FIX if any(sample.unreadable for sample in sets) else DONE


def _samples(arguments: argparse.Namespace, screen: Screen) -> List['Sample']:
    from inception_v3.commands.features import extraction
    from inception_v3.commands.fid import samples

    # What is missing or damaged is found before the images are read, which takes long.
    sample_of = {name: samples.of_file(name) for name in arguments.names if name.endswith('.npz')}
    files_of = {name: extraction.find([name]) for name in arguments.names if name not in sample_of}
    if files_of:
        screen.update(f'loading {arguments.weights}')
        with contextlib.closing(extraction.of_2015(arguments.weights, arguments.layer)) as extractor:
            screen.clear()
            for name, files in files_of.items():
                found = extraction.extract(extractor, files, arguments.batch_size, screen)
                sample_of[name] = samples.of_images(name, found, arguments.layer, extractor.digest)
    return [sample_of[name] for name in arguments.names]


def _describe(sample: 'Sample', is_for_fid: bool) -> None:
    """Shows the size of a set, and warns if its covariance must be singular."""
    images = 'an unknown number of images' if sample.images is None else counted(sample.images, 'image')
    print(f'{shown(sample.name)}: {images}, {sample.size:,} features', file=sys.stderr)
    if is_for_fid and sample.images is not None and sample.images <= sample.size:
        print(
            f'warning: {shown(sample.name)}: with {images} for {sample.size:,} features, the covariance is singular, '
            f'and FID is biased far upwards. Use more than {sample.size:,} images, or KID, which has no bias; '
            'published FIDs are of 50,000 images',
            file=sys.stderr,
        )


def _scores(sets: Sequence['Sample'], arguments: argparse.Namespace, screen: Screen) -> Iterator[Dict[str, Any]]:
    """The chosen scores, in the order in which they were chosen, as `--json` prints them."""
    from inception_v3.commands.fid.formulas import ScoreError

    for name in arguments.chosen:
        screen.update(f'computing {_NAMES[name]}')
        groups: List[Sequence[Sample]] = [sets] if len(sets) > 1 else []
        if name == 'is':
            groups = [[sample] for sample in sets]
        for of in groups:
            score: Dict[str, Any] = {'score': name, 'of': [sample.name for sample in of]}
            try:
                yield {**score, 'value': _value(name, of, arguments)}
            except ScoreError as error:
                yield {**score, 'value': None, 'problem': str(error)}


def _value(name: str, of: Sequence['Sample'], arguments: argparse.Namespace) -> Any:
    """A score: a number, or its mean and standard deviation."""
    from inception_v3.commands.fid import formulas

    if name == 'fid':
        return formulas.frechet_distance(*(sample.moments() for sample in of))
    if name == 'is':
        if of[0].logits is None:
            raise formulas.ScoreError('the file has no logits')
        return formulas.inception_score(of[0].logits, arguments.splits, arguments.seed)._asdict()
    features = [sample.features for sample in of]
    if any(each is None for each in features):
        raise formulas.ScoreError('a file of moments has no features of single images')
    options = (arguments.kid_subsets, arguments.kid_subset_size, arguments.seed)
    return formulas.kernel_distance(features[0], features[1], *options)._asdict()


def _text(score: Dict[str, Any]) -> str:
    name = _NAMES[score['score']] + (f' of {shown(score["of"][0])}' if len(score['of']) == 1 else '')
    value = score['value']
    if value is None:
        return f'{name}: not computed: {score["problem"]}'
    if isinstance(value, dict):
        return f'{name}: {value["mean"]:.7g} ± {value["deviation"]:.3g}'
    return f'{name}: {value:.7g}'


if __name__ == '__main__':
    sys.exit(main())
