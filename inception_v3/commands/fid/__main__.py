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
import functools
import json
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from console import native_messages, program
from console.command_line import new_parser
from console.errors import DONE, FIX, CommandError
from console.messages import counted, shown
from console.paths import expanded
from console.screen import Screen
from inception_v3.commands.features import extraction, extractors, graph_2015
from inception_v3.commands.features.endpoints import POOL
from inception_v3.commands.fid import formulas, samples
from inception_v3.commands.fid.formulas import ScoreError, Spread
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


class Score(NamedTuple):
    """A score of one set of images or of two.

    Attributes:
      name: 'fid', 'kid' or 'is'.
      of: the names of the sets.
      value: a number, or the mean and standard deviation; None if it is not defined.
      problem: the reason why it is not defined; empty if it is.
    """

    name: str
    of: Tuple[str, ...]
    value: Union[float, Spread, None]
    problem: str = ''

    def json(self) -> Dict[str, Any]:
        """The object that `--json` prints."""
        value = self.value._asdict() if isinstance(self.value, Spread) else self.value
        return {
            'score': self.name,
            'of': [*self.of],
            'value': value,
            **({'problem': self.problem} if self.problem else {}),
        }

    def __str__(self) -> str:
        name = _NAMES[self.name] + (f' of {shown(self.of[0])}' if len(self.of) == 1 else '')
        if self.value is None:
            return f'{name}: not computed: {self.problem}'
        if isinstance(self.value, Spread):
            return f'{name}: {self.value.mean:.7g} ± {self.value.deviation:.3g}'
        return f'{name}: {self.value:.7g}'


def _parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = new_parser('fid', _HELP)
    add = parser.add_argument
    add('images', metavar='IMAGES', help='a folder of images, or an .npz file of features or moments')
    add('others', metavar='OTHERS', nargs='?', help='the images to compare with; without them, only Inception Score')
    add(
        '--weights',
        metavar='FILE',
        help='weights of the Inception graph of 2015: .pb, .pth or .npz; needed for folders',
    )
    add(
        '--layer',
        default=POOL,
        metavar='NAME',
        help='layer of the features of folders (default: pool, as in all papers)',
    )
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
        parser.error(f'--weights is needed for images. It is a file of the weights: {graph_2015.FILES}.')
    arguments.chosen, arguments.names = chosen, names
    return arguments


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Computes the scores that a command line asks for, and returns the exit code."""
    arguments = _parse(argv)
    with native_messages.captured():
        return program.run(lambda screen: _run(arguments, screen))


def _run(arguments: argparse.Namespace, screen: Screen) -> int:
    sets = _samples(arguments, screen)
    if len(sets) > 1:
        samples.check_comparable(*sets)
    for sample in sets:
        _describe(sample, 'fid' in arguments.chosen and len(sets) > 1)
    found = []
    for score in _scores(sets, arguments, screen):
        screen.clear()
        found.append(score)
        print(json.dumps(score.json()) if arguments.json else score, flush=True)
    undefined = [score for score in found if score.value is None]
    if undefined and (arguments.scores is not None or len(undefined) == len(found)):
        raise CommandError('\n'.join(map(str, undefined)))
    return FIX if any(sample.unreadable for sample in sets) else DONE


def _samples(arguments: argparse.Namespace, screen: Screen) -> List[Sample]:
    # What is missing or damaged is found before the images are read, which takes long.
    samples_of = {name: samples.of_file(name) for name in arguments.names if name.endswith('.npz')}
    files_of = {name: extraction.find([name]) for name in arguments.names if name not in samples_of}
    if files_of:
        screen.update(f'loading {arguments.weights}')
        with contextlib.closing(extractors.of_2015(arguments.weights, arguments.layer)) as extractor:
            screen.clear()
            for name, files in files_of.items():
                samples_of[name] = samples.of_images(
                    name, files, extractor, arguments.layer, arguments.batch_size, screen
                )
    return [samples_of[name] for name in arguments.names]


def _describe(sample: Sample, is_for_fid: bool) -> None:
    """Shows the size of a set, and warns if its covariance must be singular."""
    images = 'an unknown number of images' if sample.images is None else counted(sample.images, 'image')
    print(f'{shown(sample.name)}: {images}, {sample.size:,} features', file=sys.stderr)
    if is_for_fid and sample.images is not None and sample.images <= sample.size:
        print(
            f'warning: {shown(sample.name)}: with {counted(sample.images, "image")} for {sample.size:,} features, the '
            f'covariance is singular, and FID is biased far upwards. Use more than {sample.size:,} images, or KID, '
            'which has no bias; published FIDs are of 50,000 images',
            file=sys.stderr,
        )


def _scores(found: Sequence[Sample], arguments: argparse.Namespace, screen: Screen) -> Any:
    """Yields the chosen scores, in the order in which they were chosen."""
    both = tuple(sample.name for sample in found)
    for name in arguments.chosen:
        screen.update(f'computing {_NAMES[name]}')
        if name == 'is':
            for sample in found:
                yield _score(name, (sample.name,), functools.partial(_inception_score, sample, arguments))
        elif len(found) > 1:
            compute: Any = _fid if name == 'fid' else _kid
            yield _score(name, both, functools.partial(compute, *found, arguments))


def _score(name: str, of: Tuple[str, ...], compute: Callable[[], Union[float, Spread]]) -> Score:
    try:
        return Score(name, of, compute())
    except ScoreError as error:
        return Score(name, of, None, str(error))


def _fid(one: Sample, other: Sample, arguments: argparse.Namespace) -> float:
    return formulas.frechet_distance(one.moments(), other.moments())


def _kid(one: Sample, other: Sample, arguments: argparse.Namespace) -> Spread:
    if one.features is None or other.features is None:
        raise ScoreError('a file of moments has no features of single images')
    images, size = min(len(one.features), len(other.features)), arguments.kid_subset_size
    if images < size:
        raise ScoreError(f'{counted(images, "image")} are fewer than --kid_subset_size={size}')
    return formulas.kernel_distance(
        one.features, other.features, arguments.kid_subsets, arguments.kid_subset_size, arguments.seed
    )


def _inception_score(sample: Sample, arguments: argparse.Namespace) -> Spread:
    if sample.logits is None:
        raise ScoreError('the file has no logits')
    if len(sample.logits) < arguments.splits:
        raise ScoreError(f'{counted(len(sample.logits), "image")} are fewer than --splits={arguments.splits}')
    return formulas.inception_score(sample.logits, arguments.splits, arguments.seed)


if __name__ == '__main__':
    sys.exit(main())
