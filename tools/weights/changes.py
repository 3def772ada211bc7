"""Changes of weights that keep what a network computes in evaluation: scales, class 0, and the range of its images."""

from typing import Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from inception_v3.config import Config
from inception_v3.weights.sources import WeightsError
from preprocessing.preprocessings import preprocessing_for
from preprocessing.steps import WHITE
from tools.weights.architecture import Architecture, Values
from tools.weights.choices import DROP, KEEP, PIXELS

# The bias of a class 0 that is added: its probability is below 1e-40 unless all other logits are below -7.
ADDED_BIAS = -100.0
# The mean and the standard deviation of the pixels of ImageNet, in [0, 1], with which torchvision's models are trained.
_MEAN, _DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
# Published means of ImageNet differ by up to 0.0072 standard deviations. This difference remains at the borders of the
# images, where a padded convolution sees zeros.
_NEGLIGIBLE = 0.01


class Images(NamedTuple):
    """A range of pixels: `scale` x pixel + `shift` for pixels in [0, 1], for red, green and blue."""

    scale: np.ndarray
    shift: np.ndarray

    def __str__(self) -> str:
        # Adding zero turns -0 into 0.
        ends = np.stack([self.shift, self.shift + self.scale], axis=1) + 0.0
        if np.allclose(ends, ends[0], atol=1e-6):
            return f'pixels in [{ends[0, 0]:.4g}, {ends[0, 1]:.4g}]'
        mean, deviation = (', '.join(f'{each:.4g}' for each in values) for values in self.mean_and_deviation)
        return f'pixels in [0, 1] minus {mean}, divided by {deviation}'

    @property
    def mean_and_deviation(self) -> Tuple[np.ndarray, np.ndarray]:
        """The mean and the deviation with which pixels in [0, 1] are normalized to this range."""
        return -self.shift / self.scale, 1 / self.scale

    @property
    def name(self) -> str:
        """The name in `PIXELS` of this range; empty if it has none. A thousandth of a deviation makes no difference."""
        close = (each for each in PIXELS if all(np.allclose(*pair, atol=1e-3) for pair in zip(self, images_of(each))))
        return next(close, '')


def normalized(mean: Sequence[float], deviation: Sequence[float]) -> Images:
    """The range of pixels in [0, 1] minus a mean and divided by a deviation, one for each colour or one for all."""
    scale = 1 / np.broadcast_to(np.asarray(deviation, np.float64), 3)
    return Images(scale, -np.asarray(mean, np.float64) * scale)


_IMAGES: Dict[str, Images] = {
    'imagenet': normalized(_MEAN, _DEVIATION),
    'unit': Images(np.ones(3), np.zeros(3)),
}


def images_of(name: str) -> Images:
    """The range with a name in `PIXELS`, or of a preprocessing."""
    if name in _IMAGES:
        return _IMAGES[name]
    preprocessing = preprocessing_for(Config(preprocessing=name))
    return Images(np.full(3, WHITE * preprocessing.factor), np.array(preprocessing.offsets))


def fold_scales(values: Values, architecture: Architecture) -> Tuple[Values, List[str]]:
    """Removes the scales of normalizations: multiplies the kernel and the moving mean by them.

    With the moving statistics, as in evaluation, the outputs are the same up to rounding. In training, the moments of
    the batch remove the scale.

    Returns:
      The values without scales, and the scopes of the layers whose scales were not all 1.
    """
    folded = []
    kept = dict(values)
    for layer in architecture.layers:
        scale = kept.pop(f'{layer.scope}/BatchNorm/gamma', None)
        if scale is not None and (scale != 1).any():
            for name in ('weights', 'BatchNorm/moving_mean'):
                kept[f'{layer.scope}/{name}'] = kept[f'{layer.scope}/{name}'] * scale
            folded.append(layer.scope)
    return kept, folded


def change_class_0(values: Values, architecture: Architecture, change: str) -> Values:
    """Adds or drops the class 0, which is the background in this program and TF-Slim."""
    if change == KEEP:
        return values
    changed = dict(values)
    scopes = [layer.scope for layer in architecture.layers if f'{layer.scope}/biases' in values]
    if not scopes:
        raise WeightsError(f'--class_0={change}: the weights have no classifier.')
    for scope in scopes:
        kernel, bias = values[f'{scope}/weights'], values[f'{scope}/biases']
        if change == DROP:
            if len(bias) < 2:
                raise WeightsError('--class_0=drop: the weights have one class only.')
            kernel, bias = kernel[..., 1:], bias[1:]
        else:
            kernel = np.concatenate([np.zeros_like(kernel[..., :1]), kernel], axis=-1)
            bias = np.concatenate([np.full_like(bias[:1], ADDED_BIAS), bias])
        changed[f'{scope}/weights'], changed[f'{scope}/biases'] = kernel, bias
    return changed


def change_images(values: Values, architecture: Architecture, old: str, new: str) -> Values:
    """Changes the first layer, so that images in the range `new` of `images_of` give the outputs of images in `old`.

    No shift is possible if the convolution pads images with zeros, which are other pixels in a shifted range.
    """
    return values if old == new else with_images(values, architecture, images_of(old), images_of(new), (old, new))


def with_images(
    values: Values, architecture: Architecture, old: Images, new: Images, names: Tuple[str, str] = ('', '')
) -> Values:
    """Changes the first layer as `change_images` does, for any two ranges; messages have their names, if any."""
    scale = old.scale / new.scale
    shift = old.shift - scale * new.shift
    # Inception v3 has no padding in its first convolution.
    if architecture.name == 'resnet50' and np.abs(shift).max() > _NEGLIGIBLE:
        one, other = (name or str(images) for name, images in zip(names, (old, new)))
        raise WeightsError(
            f'images of {one} and of {other} differ by a shift, and the first convolution of {architecture.name} pads '
            'images with zeros, so that no weights make up for it. If the difference does not matter, name the '
            'closest range with --pixels.'
        )
    first = architecture.layers[0].scope
    kernel = values[f'{first}/weights'].astype(np.float64)
    mean = values[f'{first}/BatchNorm/moving_mean'] - np.einsum('hwio,i->o', kernel, shift)
    return {
        **values,
        f'{first}/weights': (kernel * scale[:, np.newaxis]).astype(np.float32),
        f'{first}/BatchNorm/moving_mean': mean.astype(np.float32),
    }


def without(values: Values, scopes: Sequence[str]) -> Values:
    """The values outside some scopes."""
    return {name: value for name, value in values.items() if not name.startswith(tuple(scopes))}
