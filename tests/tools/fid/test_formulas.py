"""Tests of FID, KID and Inception Score on given features and logits: against other packages, and their own limits."""

from typing import Tuple

import numpy as np
import pytest
import scipy.linalg

from tools.fid import formulas
from tools.fid.formulas import ScoreError, Spread, Statistics


@pytest.fixture(scope='module')
def samples() -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of two sets of images, and logits."""
    random = np.random.RandomState(7)
    one = random.gamma(2.0, 0.5, [64, 16])
    other = random.gamma(2.5, 0.4, [80, 16]) @ (np.eye(16) + 0.1 * random.normal(size=[16, 16]))
    return one, other, 3 * random.normal(size=[64, 11])


def test_scores__are_those_of_torch_fidelity_and_pytorch_fid(samples: Tuple[np.ndarray, ...]) -> None:
    """The expected numbers are those of torch-fidelity 0.4.0 and pytorch-fid 0.3.0 on the same arrays.

    They are the results of `fid_statistics_to_metric`, `calculate_frechet_distance`, `kid_features_to_metric`
    (kid_subsets=20, kid_subset_size=50, rng_seed=2020) and `isc_features_to_metric`, with PyTorch 2.14.1.
    """
    one, other, logits = samples
    distance = formulas.frechet_distance(formulas.statistics_of(one), formulas.statistics_of(other))
    assert distance == pytest.approx(6.035800133838466, rel=1e-9)
    assert distance == pytest.approx(6.03580013383846, rel=1e-9)
    kernel = formulas.kernel_distance(one, other, subsets=20, subset_size=50, seed=2020)
    assert kernel == pytest.approx(Spread(3.018624161358891, 0.37872542871943027), rel=1e-9)
    score = formulas.inception_score(logits, splits=10, seed=2020)
    assert score == pytest.approx(Spread(2.789586558736032, 0.31538229989682537), rel=1e-9)


def test_scores_of_too_few_images__are_refused(samples: Tuple[np.ndarray, ...]) -> None:
    one, other, logits = samples
    with pytest.raises(ScoreError, match='64 images are fewer than --kid_subset_size=65'):
        formulas.kernel_distance(other, one, 1, 65, 0)
    with pytest.raises(ScoreError, match='9 images are fewer than --splits=10'):
        formulas.inception_score(logits[:9], 10, 0)


def test_statistics_of__are_numpys_in_float64(samples: Tuple[np.ndarray, ...]) -> None:
    # Several chunks, and a mean so large that float32 would lose the deviations.
    features = (np.repeat(samples[0], 40, axis=0) + 1000).astype(np.float32)
    found = formulas.statistics_of(features)
    np.testing.assert_allclose(found.mean, features.astype(np.float64).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.covariance, np.cov(features.astype(np.float64), rowvar=False), rtol=1e-9)


def test_frechet_distance__is_that_of_the_matrix_square_root(samples: Tuple[np.ndarray, ...]) -> None:
    one, other = (formulas.statistics_of(each) for each in samples[:2])
    root = scipy.linalg.sqrtm(one.covariance @ other.covariance)
    difference = one.mean - other.mean
    expected = difference @ difference + np.trace(one.covariance + other.covariance - 2 * root.real)
    assert formulas.frechet_distance(one, other) == pytest.approx(expected, rel=1e-10)
    assert formulas.frechet_distance(other, one) == pytest.approx(expected, rel=1e-10)


def test_frechet_distance__is_exact_for_singular_covariances() -> None:
    # The root of C D has the trace of the roots of the common eigenvalues: sqrt(4 * 9) + sqrt(0 * 1) + sqrt(1 * 0).
    turn = np.linalg.qr(np.random.RandomState(0).normal(size=[3, 3]))[0]
    one, other = (Statistics(np.zeros(3), turn @ np.diag(values) @ turn.T) for values in ([4, 0, 1], [9.0, 1, 0]))
    assert formulas.frechet_distance(one, other) == pytest.approx(5 + 10 - 2 * 6, abs=1e-12)
    zero = Statistics(np.ones(3), np.zeros([3, 3]))
    assert formulas.frechet_distance(zero, one) == pytest.approx(3 + 5, abs=1e-12)
    # Fewer images than features; the same images have no distance.
    few = formulas.statistics_of(np.random.RandomState(1).normal(size=[10, 50]))
    assert formulas.frechet_distance(few, few) == pytest.approx(0, abs=1e-10)


def test_kernel_distance__is_unbiased(samples: Tuple[np.ndarray, ...]) -> None:
    x, y = samples[0][:6], samples[1][:6]

    def kernel(a: np.ndarray, b: np.ndarray) -> float:
        return float((np.dot(a, b) / 16 + 1) ** 3)

    pairs = [(i, j) for i in range(6) for j in range(6)]
    within = [np.mean([kernel(z[i], z[j]) for i, j in pairs if i != j]) for z in (x, y)]
    across = np.mean([kernel(x[i], y[j]) for i, j in pairs])
    found = formulas.kernel_distance(x, y, subsets=3, subset_size=6, seed=0)
    # All images are in every subset.
    assert found == pytest.approx(Spread(within[0] + within[1] - 2 * across, 0.0), abs=1e-12)


def test_inception_score__has_the_limits_of_its_definition() -> None:
    certain = np.tile(1000.0 * np.eye(5), [20, 1])
    assert formulas.inception_score(certain, splits=1, seed=0) == pytest.approx(Spread(5.0, 0.0))
    assert formulas.inception_score(np.zeros([20, 5]), splits=4, seed=0) == pytest.approx(Spread(1.0, 0.0))


def test_frechet_distance__refuses_a_matrix_that_is_no_covariance() -> None:
    with pytest.raises(ScoreError, match='is not a covariance'):
        formulas.frechet_distance(Statistics(np.zeros(3), np.diag([1.0, -0.5, 1])), Statistics(np.zeros(3), np.eye(3)))
