"""The two sets of images that are compared: folders of images, features or moments from files."""

from typing import NamedTuple, Optional

import numpy as np

from console.errors import CommandError
from inception_v3.commands.features.extraction import FEATURES, LOGITS, Extracted
from inception_v3.commands.fid import formulas
from inception_v3.commands.fid.formulas import Statistics
from inception_v3.weights import sources

# The moments of pytorch-fid's files, of the files of FID's authors, and of guided-diffusion's reference batches.
_MEAN, _COVARIANCE = 'mu', 'sigma'


class Sample(NamedTuple):
    """A set of images.

    Attributes:
      name: as the user gave it.
      features: [images, features]; None if only their moments are known.
      logits: [images, classes]; None if they are not known.
      statistics: moments of the features; None until they are needed.
      layer: the layer of the features; None if it is not known.
      digest: of the weights; None if it is not known.
      unreadable: number of image files that could not be read.
    """

    name: str
    features: Optional[np.ndarray] = None
    logits: Optional[np.ndarray] = None
    statistics: Optional[Statistics] = None
    layer: Optional[str] = None
    digest: Optional[str] = None
    unreadable: int = 0

    @property
    def images(self) -> Optional[int]:
        """The number of images; None if it is not known."""
        return None if self.features is None else len(self.features)

    @property
    def size(self) -> int:
        """The number of features."""
        return int(self.features.shape[1] if self.features is not None else self.moments().mean.size)

    def moments(self) -> Statistics:
        """The moments of the features.

        Raises:
          ScoreError: they are not defined.
        """
        if self.statistics is not None:
            return self.statistics
        assert self.features is not None, 'features or moments are known'
        return formulas.statistics_of(self.features)


def of_images(name: str, found: Extracted, layer: str, digest: str) -> Sample:
    """The features of image files."""
    return Sample(name, found.values[FEATURES], found.values[LOGITS], None, layer, digest, found.unreadable)


def of_file(path: str) -> Sample:
    """Reads features that `inception-v3 features` wrote, or moments in the layout of pytorch-fid.

    Raises:
      WeightsError: the file cannot be read.
      CommandError: it has neither, or they have no sense.
      RemoteError: access is denied, or the store cannot be reached.
    """
    wanted = {FEATURES, LOGITS, 'layer', 'digest', _MEAN, _COVARIANCE}
    arrays = sources.arrays(path, path, wanted.__contains__)
    for name in wanted & arrays.keys() - {'layer', 'digest'}:
        if not np.issubdtype(arrays[name].dtype, np.floating) or not np.isfinite(arrays[name]).all():
            raise CommandError(f'{path}: {name} has values that are not finite, or no numbers.')
    if FEATURES in arrays:
        features, logits = arrays[FEATURES], arrays.get(LOGITS)
        if features.ndim != 2 or (logits is not None and logits.shape[:1] != features.shape[:1]):
            shapes = {name: arrays[name].shape for name in (FEATURES, LOGITS) if name in arrays}
            raise CommandError(f'{path}: features and logits must have a row per image; their shapes are {shapes}.')
        layer, digest = (str(arrays[name]) if name in arrays else None for name in ('layer', 'digest'))
        return Sample(path, features, logits, None, layer, digest)
    if _MEAN not in arrays or _COVARIANCE not in arrays:
        raise CommandError(
            f'{path}: has neither {FEATURES}, as inception-v3 features writes them, nor {_MEAN} and {_COVARIANCE}, as '
            'pytorch-fid writes them.'
        )
    mean, covariance = (arrays[name].astype(np.float64) for name in (_MEAN, _COVARIANCE))
    if mean.ndim != 1 or covariance.shape != (*mean.shape, *mean.shape):
        raise CommandError(
            f'{path}: {_MEAN} {mean.shape} and {_COVARIANCE} {covariance.shape} are no vector and square '
            'matrix of the same size.'
        )
    return Sample(path, statistics=Statistics(mean, covariance))


def check_comparable(one: Sample, other: Sample) -> None:
    """Checks that two sets have features of the same kind.

    Raises:
      CommandError: they have not.
    """
    for what, first, second in (
        ('layers', one.layer, other.layer),
        ('weights', one.digest, other.digest),
        ('numbers of features', one.size, other.size),
    ):
        if None not in (first, second) and first != second:
            raise CommandError(
                f'{one.name} and {other.name} cannot be compared: their {what} differ, {str(first)[:12]} and '
                f'{str(second)[:12]}.'
            )
