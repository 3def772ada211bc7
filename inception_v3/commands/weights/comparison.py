"""Compares what two models compute for the same images: each row of the network, the features and the logits."""

import os
import tempfile
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np

from console.tensorflow_versions import tf
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
        """The outputs of the rows.

        Args:
          images: float32 [images, height, width, 3].
          preprocessing: the range of the images, of `changes.IMAGES`.
        """
        weights = self.weights
        given = forward.converted(images, preprocessing, weights.images)
        if self.framework == OURS:
            return forward.in_this_program(weights, given)
        # The file itself may hold code, which its framework would run; what is written here holds weights alone.
        with tempfile.TemporaryDirectory() as folder:
            if self.framework == TORCH:
                path = os.path.join(folder, 'weights.pth')
                writing.export(weights, path, 'torchvision', weights.images)
                return forward.in_torch('torchvision', weights, path, given, python=self.torch_python)
            path = os.path.join(folder, 'weights.h5')
            writing.export(weights, path, 'keras')
            return forward.in_keras(path, weights.num_classes, given)


class Row(NamedTuple):
    """The outputs of a row of the network.

    Attributes:
      name: of the row.
      difference: the largest difference between the models.
      largest: the largest absolute value of the first model.
    """

    name: str
    difference: float
    largest: float


class Comparison(NamedTuple):
    """Two models on the same images.

    Attributes:
      rows: those that both have in the same shape.
      logits: of each model, [images, classes].
    """

    rows: List[Row]
    logits: List[np.ndarray]


def compare(models: Sequence[Model], batches: Iterator[np.ndarray], preprocessing: str) -> Comparison:
    """Runs two models on batches of prepared images.

    Args:
      models: two, each with a classifier.
      batches: float32 [images, height, width, 3].
      preprocessing: the range of the images, of `changes.IMAGES`.
    """
    differences: Dict[str, float] = {}
    largest: Dict[str, float] = {}
    logits: List[List[np.ndarray]] = [[], []]
    same_network = models[0].weights.architecture.name == models[1].weights.architecture.name
    for images in batches:
        one, other = (model.run(images, preprocessing) for model in models)
        for number, outputs in enumerate((one, other)):
            logits[number].append(outputs[LOGITS])
        for name, value in one.items():
            if name in other and value.shape == other[name].shape and (same_network or name == LOGITS):
                differences[name] = max(differences.get(name, 0.0), float(np.abs(value - other[name]).max()))
                largest[name] = max(largest.get(name, 0.0), float(np.abs(value).max()))
    order = [*forward.rows_of(models[0].weights.architecture), FEATURES, LOGITS]
    rows = [Row(name, differences[name], largest[name]) for name in order if name in differences]
    return Comparison(rows, [np.concatenate(each) for each in logits])


def config_for(models: Sequence[Model]) -> Config:
    """The settings of the images: those of the first run, or those of the published network."""
    for model in models:
        weights = model.weights
        if not weights.num_classes:
            raise WeightsError(f'{weights.path}: has no classifier, so that it has no logits to compare.')
    configs = [model.weights.config for model in models if model.weights.config]
    return configs[0] if configs else writing.settings_of(models[0].weights)


def prepared(paths: Sequence[str], contents: Sequence[bytes], config: Config) -> Iterator[np.ndarray]:
    """Batches of images, decoded, cropped and resized as in evaluation.

    Raises:
      WeightsError: an image cannot be decoded.
    """
    with tf.Graph().as_default(), tf.Session() as session:
        encoded = tf.placeholder(tf.string, [])
        image = infeed.as_evaluated(resize_for_eval(encoded, config), config)
        batch = []
        for path, content in zip(paths, contents):
            try:
                batch.append(session.run(image, {encoded: content}))
            except tf.errors.InvalidArgumentError as error:
                reason = why_undecodable(content, error.message.partition('\n')[0])
                raise WeightsError(f'{path}: {UnreadableError(reason)}')
            if len(batch) == _BATCH:
                yield np.stack(batch)
                batch = []
        if batch:
            yield np.stack(batch)
