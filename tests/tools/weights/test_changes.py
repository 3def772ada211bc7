"""Tests of changes of weights that keep the outputs: folded scales, class 0, and the range of the images."""

from typing import Dict, List

import numpy as np
import pytest

from inception_v3.weights.sources import WeightsError
from tools.weights.architecture import Architecture, Layer
from tools.weights.changes import change_class_0, change_images, fold_scales, images_of, with_images
from tools.weights.changes import normalized as normalized_by
from tools.weights.choices import ADD, DROP, KEEP

LAYER, CLASSIFIER = 'Net/Layer', 'Net/Logits'
NETWORK = Architecture(
    'net',
    'Net',
    CLASSIFIER,
    False,
    [Layer(LAYER, (1, 1, 3, 4), 'layer.conv', 'layer.bn'), Layer(CLASSIFIER, (1, 1, 4, 0), 'fc', '')],
)
PADDED = NETWORK._replace(name='resnet50')
EPSILON = 1e-3

RANGES = ('inception', 'imagenet', 'unit', 'cifar', 'vgg')


def weights(classes: int = 3) -> Dict[str, np.ndarray]:
    random = np.random.RandomState(0)
    shapes = {'weights': [1, 1, 3, 4], 'BatchNorm/beta': [4], 'BatchNorm/moving_mean': [4], 'BatchNorm/gamma': [4]}
    values = {f'{LAYER}/{name}': random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    values[f'{LAYER}/BatchNorm/moving_variance'] = random.uniform(0.5, 2, 4).astype(np.float32)
    values[f'{CLASSIFIER}/weights'] = random.normal(size=[1, 1, 4, classes]).astype(np.float32)
    values[f'{CLASSIFIER}/biases'] = random.normal(size=classes).astype(np.float32)
    return values


def normalized(values: Dict[str, np.ndarray], pixels: np.ndarray) -> np.ndarray:
    """The definition of a 1 x 1 convolution with batch normalization by moving statistics, in float64."""
    own = {name[len(LAYER) + 1 :]: value.astype(np.float64) for name, value in values.items() if name.startswith(LAYER)}
    outputs = pixels @ own['weights'][0, 0] - own['BatchNorm/moving_mean']
    scale = own.get('BatchNorm/gamma', 1.0) / np.sqrt(own['BatchNorm/moving_variance'] + EPSILON)
    return outputs * scale + own['BatchNorm/beta']


def logits(values: Dict[str, np.ndarray], features: np.ndarray) -> np.ndarray:
    return features @ values[f'{CLASSIFIER}/weights'][0, 0] + values[f'{CLASSIFIER}/biases']


# Negative scales and 0 are allowed; layers whose scales are 1 are not named.
@pytest.mark.parametrize('scale', [[0.5, 2, 1.5, 1], [-1.5, 0, 1, 1], [1, 1, 1, 1]])
def test_fold_scales__keeps_the_outputs(scale: List[float]) -> None:
    values = {**weights(), f'{LAYER}/BatchNorm/gamma': np.array(scale, np.float32)}
    folded, layers = fold_scales(values, NETWORK)
    assert layers == [LAYER] * (scale != [1, 1, 1, 1]) and f'{LAYER}/BatchNorm/gamma' not in folded
    pixels = np.random.RandomState(1).normal(size=[5, 3])
    np.testing.assert_allclose(normalized(folded, pixels), normalized(values, pixels), rtol=1e-6, atol=1e-6)


def test_change_class_0__drops_it_or_adds_one_that_is_never_predicted() -> None:
    values, features = weights(), np.random.RandomState(1).normal(size=[5, 4])
    whole = logits(values, features)
    # Not equal to the bit: with another number of columns, a matrix product may add in another order.
    np.testing.assert_allclose(logits(change_class_0(values, NETWORK, DROP), features), whole[:, 1:], rtol=1e-12)
    added = logits(change_class_0(values, NETWORK, ADD), features)
    np.testing.assert_allclose(added[:, 1:], whole, rtol=1e-12)
    powers = np.exp(added - added.max(axis=1, keepdims=True))
    assert (powers[:, 0] / powers.sum(axis=1) < 1e-40).all()
    assert change_class_0(values, NETWORK, KEEP) is values
    # Dropping is the inverse of adding.
    np.testing.assert_equal(change_class_0(change_class_0(values, NETWORK, ADD), NETWORK, DROP), values)


def test_change_class_0__needs_classes() -> None:
    with pytest.raises(WeightsError, match='--class_0=drop: the weights have one class only'):
        change_class_0(weights(classes=1), NETWORK, DROP)
    body = {name: value for name, value in weights().items() if not name.startswith(CLASSIFIER)}
    with pytest.raises(WeightsError, match='--class_0=add: the weights have no classifier'):
        change_class_0(body, NETWORK, ADD)


@pytest.mark.parametrize('old', RANGES)
@pytest.mark.parametrize('new', RANGES)
def test_change_images__keeps_the_outputs_for_the_same_pixels(old: str, new: str) -> None:
    values, pixels = weights(), np.random.RandomState(1).uniform(size=[5, 3])
    changed = change_images(values, NETWORK, old, new)
    before = normalized(values, pixels * images_of(old).scale + images_of(old).shift)
    after = normalized(changed, pixels * images_of(new).scale + images_of(new).shift)
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4 * np.abs(before).max())


def test_images__are_in_the_documented_ranges() -> None:
    # torchvision's documentation of Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]), for grey.
    np.testing.assert_equal(images_of('cifar'), images_of('inception'))
    inception, imagenet, vgg = (
        0.5 * np.array(images_of(n).scale) + images_of(n).shift for n in ('inception', 'imagenet', 'vgg')
    )
    np.testing.assert_allclose(inception, 0)
    np.testing.assert_allclose(imagenet, [(0.5 - 0.485) / 0.229, (0.5 - 0.456) / 0.224, (0.5 - 0.406) / 0.225])
    np.testing.assert_allclose(vgg, [127.5 - 123.68, 127.5 - 116.78, 127.5 - 103.94])


def test_change_images__of_padded_images_may_scale_and_not_shift() -> None:
    # All shifts of the first are above 0, and all of the second below.
    for old, new in (('imagenet', 'inception'), ('inception', 'imagenet')):
        with pytest.raises(WeightsError, match=f'images of {old} and of {new} differ by a shift'):
            change_images(weights(), PADDED, old, new)
    changed = change_images(weights(), PADDED, 'imagenet', 'vgg')
    kernel = weights()[f'{LAYER}/weights'][0, 0] / (255 * np.array([[0.229], [0.224], [0.225]]))
    np.testing.assert_allclose(changed[f'{LAYER}/weights'][0, 0], kernel, rtol=1e-6)


@pytest.mark.parametrize(
    ('name', 'text'),
    [
        ('inception', 'pixels in [-1, 1]'),
        ('unit', 'pixels in [0, 1]'),
        ('imagenet', 'pixels in [0, 1] minus 0.485, 0.456, 0.406, divided by 0.229, 0.224, 0.225'),
    ],
)
def test_images__in_words_have_their_ends_or_mean_and_deviation(name: str, text: str) -> None:
    own = images_of(name)
    assert (str(own), own.name) == (text, name)
    # A thousandth of a deviation makes no difference.
    blue = np.array([0, 0, 1])
    for shift, expected in ((0.0009, name), (0.0015, '')):
        assert own._replace(shift=own.shift + shift * blue).name == expected
    assert str(own._replace(shift=own.shift + 1e-3 * blue)).startswith('pixels in [0, 1] minus ')


def test_change_images__of_padded_images_allows_the_shifts_of_published_means() -> None:
    old = normalized_by([0.5] * 3, [0.25] * 3)
    for shift, is_allowed in ((0.0099, True), (-0.0099, True), (0.0101, False), (-0.0101, False)):
        new = old._replace(shift=old.shift + shift * np.array([0, 1, 0]))
        if is_allowed:
            with_images(weights(), PADDED, old, new)
        else:
            with pytest.raises(WeightsError, match='differ by a shift'):
                with_images(weights(), PADDED, old, new)
        with_images(weights(), NETWORK, old, new)


def test_change_class_0__drops_one_of_two_classes() -> None:
    values = change_class_0(weights(classes=2), NETWORK, DROP)
    assert values[f'{CLASSIFIER}/biases'].shape == (1,)
