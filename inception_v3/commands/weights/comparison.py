"""Compares what two models compute for the same images: each row of the network, the features and the logits."""

import os
import tempfile
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np

from console.messages import shown
from console.tensorflow_versions import tf
from data import image_files
from data.image_files import UnreadableError, why_undecodable
from inception_v3.commands.weights import forward, writing
from inception_v3.commands.weights.foreign import KERAS, OURS, TORCH, Weights
from inception_v3.commands.weights.forward import FEATURES, LOGITS
from inception_v3.config import Config
from inception_v3.input import infeed
from inception_v3.weights.sources import WeightsError
from preprocessing.resizing import resize_for_eval

# Outputs of all rows of a network take 40 MB for an image of 299 x 299 pixels.
_BATCH = 8


class Model(NamedTuple):
    """A model to compare.

    Attributes:
      weights: of the network.
      framework: where it runs: `OURS`, `KERAS` or `TORCH`.
      torch_python: the Python with PyTorch; None for that of `.venv-frameworks`.
    """

    weights: Weights
    framework: str = OURS
    torch_python: Optional[str] = None

    def __str__(self) -> str:
        places = {OURS: 'this program', KERAS: f'Keras of TensorFlow {tf.__version__}', TORCH: 'torchvision in PyTorch'}
        return f'{self.weights}, run by {places[self.framework]}'

    def run(self, images: np.ndarray, preprocessing: str) -> Dict[str, np.ndarray]:
        """The outputs of the rows, for float32 images in a range of `changes.IMAGES`."""
        weights = self.weights
        own = forward.converted(images, preprocessing, weights.images)
        if self.framework == OURS:
            return forward.in_this_program(weights, own)
        # The file itself may hold code, which its framework would run; what is written here holds weights alone.
        with tempfile.TemporaryDirectory() as folder:
            if self.framework == TORCH:
                path = os.path.join(folder, 'weights.pth')
                writing.export(weights, path, 'torchvision', weights.images)
                return forward.in_torch('torchvision', weights, path, own, python=self.torch_python)
            path = os.path.join(folder, 'weights.h5')
            writing.export(weights, path, 'keras')
            return forward.in_keras(path, weights.num_classes, own)


def compare(models: Sequence[Model], paths: Sequence[str]) -> List[str]:
    """Runs two models on image files.

    Returns:
      Lines for the screen: a table of the rows that both have in the same shape, and the most probable class of each
      image in both.

    Raises:
      WeightsError: a model has no classifier, or an image cannot be read.
    """
    for model in models:
        if not model.weights.num_classes:
            raise WeightsError(f'{model.weights.path}: has no classifier, so that it has no logits to compare.')
    # The images are those of the first run, or of the published network.
    configs = [model.weights.config for model in models if model.weights.config]
    config = configs[0] if configs else writing.settings_of(models[0].weights)
    one, other = (model.weights.architecture for model in models)
    differences: Dict[str, float] = {}
    largest: Dict[str, float] = {}
    batches: List[List[np.ndarray]] = [[], []]
    for images in _prepared(paths, config):
        outputs = [model.run(images, config.preprocessing) for model in models]
        for batch, each in zip(batches, outputs):
            batch.append(each[LOGITS])
        for name, value in outputs[0].items():
            theirs = outputs[1].get(name)
            if theirs is not None and value.shape == theirs.shape and (name == LOGITS or one.name == other.name):
                differences[name] = max(differences.get(name, 0.0), float(np.abs(value - theirs).max()))
                largest[name] = max(largest.get(name, 0.0), float(np.abs(value).max()))
    lines = [f'{letter}  {model}' for letter, model in zip('AB', models)]
    lines += ['', f'{"layer":<20}  {"largest difference":>18}  {"largest value of A":>18}']
    for name in (*forward.rows_of(one), FEATURES, LOGITS):
        if name in differences:
            lines.append(f'{name:<20}  {differences[name]:>18.3g}  {largest[name]:>18.3g}')
    return [*lines, *_classes(paths, [np.concatenate(batch) for batch in batches])]


def _classes(paths: Sequence[str], logits: Sequence[np.ndarray]) -> List[str]:
    """The most probable class of each image in both models."""
    lines = []
    sizes = [each.shape[1] for each in logits]
    if sizes[0] != sizes[1]:
        lines.append(
            f'logits: not compared, because A has {sizes[0]:,} classes and B {sizes[1]:,}. If one of them has a '
            'background as class 0, convert it with --class_0=drop.'
        )
    powers = [np.exp(each - each.max(axis=1, keepdims=True)) for each in logits]
    probabilities = [each / each.sum(axis=1, keepdims=True) for each in powers]
    lines += ['', f'{"top-1 of A":>16}  {"top-1 of B":>16}  image']
    agree = 0
    for number, path in enumerate(paths):
        best = [int(each[number].argmax()) for each in probabilities]
        texts = [f'{label:>8} {each[number][label]:7.2%}' for label, each in zip(best, probabilities)]
        lines.append(f'{texts[0]:>16}  {texts[1]:>16}  {shown(image_files.show(path))}')
        agree += best[0] == best[1]
    return [*lines, f'the same top-1 for {agree:,} of {len(paths):,} images']


def _prepared(paths: Sequence[str], config: Config) -> Iterator[np.ndarray]:
    """Batches of images, decoded, cropped and resized as in evaluation."""
    with tf.Graph().as_default(), tf.Session() as session:
        encoded = tf.placeholder(tf.string, [])
        image = infeed.as_evaluated(resize_for_eval(encoded, config), config)

        def prepare(path: str) -> np.ndarray:
            try:
                content = image_files.read(path)
                return session.run(image, {encoded: content})
            except UnreadableError as error:
                reason = str(error)
            except tf.errors.InvalidArgumentError as error:
                reason = why_undecodable(content, error.message.partition('\n')[0])
            raise WeightsError(f'{image_files.show(path)}: {reason}')

        for begin in range(0, len(paths), _BATCH):
            yield np.stack([prepare(path) for path in paths[begin : begin + _BATCH]])
