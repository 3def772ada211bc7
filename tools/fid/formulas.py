"""Fréchet Inception Distance, Kernel Inception Distance and Inception Score, from features and logits, in float64.

Implemented here, because torch-fidelity and pytorch-fid need PyTorch.
"""

from typing import NamedTuple

import numpy as np

from compat.messages import counted

# Features are converted to float64 in chunks of this many images.
_CHUNK = 1024
# Bińkowski et al., "Demystifying MMD GANs", section 4: the kernel (x·y / d + 1)³ on d features.
_DEGREE, _OFFSET = 3, 1.0


class ScoreError(ValueError):
    """A score is not defined for these images; the message gives the reason."""


class Spread(NamedTuple):
    """The mean and the standard deviation of a score over subsets or splits."""

    mean: float
    deviation: float


class Statistics(NamedTuple):
    """The moments of features.

    Attributes:
      mean: float64 [features].
      covariance: float64 [features, features], with the number of images minus 1 as the divisor.
    """

    mean: np.ndarray
    covariance: np.ndarray


def statistics_of(features: np.ndarray) -> Statistics:
    """Computes the moments of features [images, features].

    Raises:
      ScoreError: there are fewer than two images.
    """
    images, size = features.shape
    if images < 2:
        raise ScoreError(f'the covariance of {images} image is not defined; at least 2 are needed')
    chunks = [features[begin : begin + _CHUNK] for begin in range(0, images, _CHUNK)]
    mean = sum(chunk.sum(axis=0, dtype=np.float64) for chunk in chunks) / images
    covariance = np.zeros([size, size])
    for chunk in chunks:
        distances = chunk - mean
        covariance += distances.T @ distances
    return Statistics(mean, covariance / (images - 1))


def frechet_distance(one: Statistics, other: Statistics) -> float:
    """The squared Fréchet distance of two normal distributions, |m - n|² + tr(C + D - 2 (C D)^½).

    Heusel et al., "GANs Trained by a Two Time-Scale Update Rule Converge to a Local Nash Equilibrium", equation 6. With
    C = F Fᵀ and D = G Gᵀ, the trace of (C D)^½ is the sum of the singular values of Fᵀ G. This is exact up to rounding
    for singular covariances too: no multiple of the identity is added, and no imaginary part is dropped.

    Raises:
      ScoreError: a covariance has negative eigenvalues.
    """
    difference = one.mean - other.mean
    mixed = np.linalg.svd(_factor(one.covariance).T @ _factor(other.covariance), compute_uv=False).sum()
    traces = np.trace(one.covariance) + np.trace(other.covariance)
    # Rounding can leave a distance of 0 slightly negative.
    return max(float(difference @ difference + traces - 2 * mixed), 0.0)


def _factor(covariance: np.ndarray) -> np.ndarray:
    """A matrix F with covariance = F Fᵀ, with as many columns as the covariance's numerical rank, and at least one."""
    values, vectors = np.linalg.eigh(covariance)
    # Eigenvalues below numpy.linalg.matrix_rank's bound are rounding errors. Their square roots would not be small.
    rounding = max(values.max(), 0.0) * len(values) * np.finfo(np.float64).eps
    # A covariance that was stored in float32 has larger rounding errors.
    if values.min() < -1e-5 * max(values.max(), np.finfo(np.float64).tiny):
        raise ScoreError(f'a matrix with the eigenvalue {values.min():.3g} is not a covariance')
    kept = values > rounding
    kept[-1] = True
    return vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0.0))


def kernel_distance(one: np.ndarray, other: np.ndarray, subsets: int, subset_size: int, seed: int) -> Spread:
    """The unbiased squared maximum mean discrepancy with the kernel (x·y / d + 1)³, over random subsets.

    Bińkowski et al., "Demystifying MMD GANs", section 4. Each subset is drawn without replacement, first from `one` and
    then from `other`, by NumPy's `RandomState`, in torch-fidelity's order.

    The features are [images, features]. Raises ScoreError if there are fewer images than `subset_size`.
    """
    images = min(len(one), len(other))
    if images < subset_size:
        raise ScoreError(f'{counted(images, "image")} are fewer than --kid_subset_size={subset_size}')
    random = np.random.RandomState(seed)
    found = []
    for _ in range(subsets):
        x = one[random.choice(len(one), subset_size, replace=False)].astype(np.float64)
        y = other[random.choice(len(other), subset_size, replace=False)].astype(np.float64)
        found.append(_within(x) + _within(y) - 2 * _kernel(x, y).mean())
    return Spread(float(np.mean(found)), float(np.std(found)))


def _kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x @ y.T / x.shape[1] + _OFFSET) ** _DEGREE


def _within(x: np.ndarray) -> float:
    """The mean kernel over pairs of different images of one set."""
    values = _kernel(x, x)
    return (values.sum() - np.trace(values)) / (len(x) * (len(x) - 1))


def inception_score(logits: np.ndarray, splits: int, seed: int) -> Spread:
    """The exponential of the mean Kullback-Leibler divergence of each image's classes from the mean of its split.

    Salimans et al., "Improved Techniques for Training GANs", section 4. The images are shuffled by `seed`, as
    torch-fidelity does; the splits are equal to within one image.

    The logits are [images, classes]. Raises ScoreError if there are fewer images than splits.
    """
    images = len(logits)
    if images < splits:
        raise ScoreError(f'{counted(images, "image")} are fewer than --splits={splits}')
    order = np.random.RandomState(seed).permutation(images)
    scores = []
    for split in range(splits):
        chosen = logits[order[split * images // splits : (split + 1) * images // splits]].astype(np.float64)
        shifted = chosen - chosen.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        probabilities = np.exp(logs)
        mean = np.maximum(probabilities.mean(axis=0), np.finfo(np.float64).tiny)
        scores.append(np.exp((probabilities * (logs - np.log(mean))).sum(axis=1).mean()))
    return Spread(float(np.mean(scores)), float(np.std(scores)))
