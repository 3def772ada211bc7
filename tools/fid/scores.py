"""Reads sets of images from folders, or their features or moments from files, and computes their scores."""

import argparse
import contextlib
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np

from compat.errors import CommandError
from compat.messages import counted, full
from console.screen import Screen
from data import remote
from inception_v3.weights import sources
from tools.features import POOL, extraction
from tools.features.extraction import FEATURES, LOGITS
from tools.fid import archives, formulas
from tools.fid.formulas import ScoreError, Statistics

# The arrays of moments in files of pytorch-fid and of FID's authors, and in guided-diffusion's reference batches.
_MEAN, _COVARIANCE = 'mu', 'sigma'
# A file with one of these arrays is read as features or moments, even if it also holds images.
_OF_FILES = {FEATURES, _MEAN, _COVARIANCE}
_PICKLES = ('.pkl', '.pickle')


class Sample(NamedTuple):
    """A set of images under the user's name for it: features [images, features] of a layer, logits [images, classes].

    Unknown values are None: a file may have only the moments of the features, and may lack the layer and the digest of
    the weights. `unreadable` is the number of image files that were left out.
    """

    name: str
    features: Optional[np.ndarray] = None
    logits: Optional[np.ndarray] = None
    statistics: Optional[Statistics] = None
    layer: Optional[str] = None
    digest: Optional[str] = None
    unreadable: int = 0

    @property
    def size(self) -> int:
        """The number of features."""
        return int(self.moments().mean.size if self.features is None else self.features.shape[1])

    def moments(self) -> Statistics:
        """The moments of the features. Raises ScoreError if they are not defined."""
        if self.statistics is not None:
            return self.statistics
        assert self.features is not None, 'features or moments are known'
        return formulas.statistics_of(self.features)


def read(arguments: argparse.Namespace, screen: Screen) -> List[Sample]:
    """Reads the sets that a command line names, and describes them on standard error.

    Raises:
      CommandError: a set cannot be read, or two sets have features of different kinds.
    """
    # Missing and damaged files are found first, because reading the images takes long.
    for name in arguments.names:
        if name.endswith(_PICKLES):
            raise CommandError(_no_pickle(name))
    held = {name: archives.names_in(name) for name in arguments.names if name.endswith('.npz')}
    archive_of = {
        name: archives.find(name, bool(arguments.weights))
        for name, arrays in held.items()
        if archives.IMAGES in arrays and not _OF_FILES & {*arrays}
    }
    sample_of = {name: of_file(name) for name in held if name not in archive_of}
    files_of = {name: extraction.find([name]) for name in arguments.names if name not in held}
    if files_of or archive_of:
        screen.update(f'loading {arguments.weights}')
        with contextlib.closing(extraction.of_2015(arguments.weights, POOL)) as extractor:
            screen.clear()
            about: Dict[str, Any] = {'layer': POOL, 'digest': extractor.digest}
            for name, files in files_of.items():
                found = extraction.extract(extractor, files, arguments.batch_size, screen)
                values, unreadable = found.values, found.unreadable
                sample_of[name] = Sample(name, values[FEATURES], values[LOGITS], **about, unreadable=unreadable)
            for name, archive in archive_of.items():
                size = arguments.batch_size
                values = extraction.extract_pixels(extractor, archive.images(), archive.shape[0], size, screen)
                sample_of[name] = Sample(name, values[FEATURES], values[LOGITS], **about)
    sets = [sample_of[name] for name in arguments.names]
    if len(sets) > 1:
        kinds = [(each.layer, each.digest, each.size) for each in sets]
        for what, one, other in zip(('layers', 'weights', 'numbers of features'), *kinds):
            if None not in (one, other) and one != other:
                raise CommandError(
                    f'{sets[0].name} and {sets[1].name} cannot be compared: their {what} differ, {str(one)[:12]} and '
                    f'{str(other)[:12]}.'
                )
    few = []
    for sample in sets:
        count = None if sample.features is None else len(sample.features)
        images = 'an unknown number of images' if count is None else counted(count, 'image')
        print(f'{full(sample.name)}: {images}, {sample.size:,} features', file=sys.stderr)
        if 'fid' in arguments.chosen and len(sets) > 1 and count is not None and count <= sample.size:
            few.append(f'{full(sample.name)} has {images}')
    if few:
        size = f'{sets[0].size:,}'
        print(
            f'warning: {" and ".join(few)} for {size} features: the covariance is singular, and FID is biased far '
            f'upwards. Use more than {size} images, or KID, which has no bias; published FIDs are of 50,000 images',
            file=sys.stderr,
        )
    return sets


def _no_pickle(path: str) -> str:
    command = (
        "python -c \"import pickle, numpy; m = pickle.load(open('FILE.pkl', 'rb')); m = m.get('fid', m); "
        "numpy.savez('FILE.npz', mu=m['mu'], sigma=m['sigma'])\""
    )
    return (
        f'{full(path)}: is a pickle, which can run any code when it is loaded, and is not read. If you trust its '
        f'origin, make an .npz file of its moments with the program that wrote it, or with {command}'
    )


def of_file(path: str) -> Sample:
    """Reads features that `inception-v3 features` wrote, or moments in the layout of pytorch-fid."""
    wanted = _OF_FILES | {LOGITS}
    arrays = sources.arrays(path, path, {*wanted, 'layer', 'digest'}.__contains__)
    for name in wanted & arrays.keys():
        if not np.issubdtype(arrays[name].dtype, np.floating) or not np.isfinite(arrays[name]).all():
            raise CommandError(f'{path}: {name} has values that are not finite, or no numbers.')
    shapes = {name: arrays[name].shape for name in wanted & arrays.keys()}
    if FEATURES in arrays:
        features, logits = arrays[FEATURES], arrays.get(LOGITS)
        if features.ndim != 2 or (logits is not None and logits.shape[:1] != features.shape[:1]):
            raise CommandError(f'{path}: features and logits must have a row per image; their shapes are {shapes}.')
        layer, digest = (str(arrays[name]) if name in arrays else None for name in ('layer', 'digest'))
        return Sample(path, features, logits, None, layer, digest)
    if not {_MEAN, _COVARIANCE} <= arrays.keys():
        images = f'images in {archives.IMAGES}, as samplers of guided-diffusion write them'
        also = f'. For {images}, copy it: they are read from local files.'
        raise CommandError(
            f'{path}: has neither {FEATURES}, as inception-v3 features writes them, nor {_MEAN} and {_COVARIANCE}, as '
            f'pytorch-fid writes them{also if remote.is_remote(path) else f", nor {images}."}'
        )
    mean, covariance = (arrays[name].astype(np.float64) for name in (_MEAN, _COVARIANCE))
    if mean.ndim != 1 or covariance.shape != (*mean.shape, *mean.shape):
        raise CommandError(f'{path}: must be a vector and a square matrix of the same size; their shapes are {shapes}.')
    return Sample(path, statistics=Statistics(mean, covariance))


def compute(sets: Sequence[Sample], arguments: argparse.Namespace, screen: Screen) -> Iterator[Dict[str, Any]]:
    """Yields the chosen scores in the given order, as `--json` prints them."""
    for name in arguments.chosen:
        screen.update(f'computing {name.upper()}')
        groups: List[Sequence[Sample]] = [sets] if len(sets) > 1 else []
        if name == 'is':
            groups = [[sample] for sample in sets]
        for of in groups:
            score: Dict[str, Any] = {'score': name, 'of': [sample.name for sample in of]}
            try:
                yield {**score, 'value': _value(name, of, arguments)}
            except ScoreError as error:
                yield {**score, 'value': None, 'problem': str(error)}


def _value(name: str, of: Sequence[Sample], arguments: argparse.Namespace) -> Any:
    """A score: a number, or its mean and standard deviation."""
    if name == 'fid':
        return formulas.frechet_distance(*(sample.moments() for sample in of))
    if name == 'is':
        if of[0].logits is None:
            raise ScoreError('the file has no logits')
        return formulas.inception_score(of[0].logits, arguments.splits, arguments.seed)._asdict()
    one, other = (sample.features for sample in of)
    if one is None or other is None:
        raise ScoreError('a file of moments has no features of single images')
    options = (arguments.kid_subsets, arguments.kid_subset_size, arguments.seed)
    return formulas.kernel_distance(one, other, *options)._asdict()
