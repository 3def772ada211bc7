"""Networks that turn image files into features: that of a run, and the Inception graph of 2015."""

import os
from typing import Any, Dict, List, Mapping, Sequence

import numpy as np

from console.tensorflow_versions import tf
from data.image_files import UnreadableError, why_undecodable
from inception_v3.batch_norm import BatchNorm
from inception_v3.commands.features import graph_2015
from inception_v3.commands.features.endpoints import Endpoints
from inception_v3.config import ConfigError
from inception_v3.input import infeed
from inception_v3.model_fn import inception_model_fn
from inception_v3.networks import layers
from inception_v3.networks.registry import NETWORKS
from inception_v3.run import digests, trained_model
from inception_v3.run.checkpoints import is_complete
from inception_v3.run.memory.estimate import bytes_per_image
from inception_v3.run.trained_model import TrainedModel
from preprocessing.decoding import decode_image
from preprocessing.resizing import resize_for_eval

FEATURES, LOGITS = 'features', 'logits'
# The graph of 2015 computes (x - 128) / 128.
_GREY = 128.0


class Extractor:
    """A network with its weights and its preparation of images. Any thread may call `prepare`.

    Args:
      name: for users: whose weights.
      digest: SHA-256 of the weights.
      session: holds the weights.
      encoded: the placeholder of an image file's bytes.
      image: the prepared image of `encoded`, float32 [height, width, 3].
      images: the placeholder of a batch of prepared images.
      outputs: tensors of the batch by name, float32 [batch, values].

    Attributes:
      name: as given.
      digest: as given.
      bytes_per_image: memory that each image of a batch needs, at least.
    """

    def __init__(
        self,
        name: str,
        digest: str,
        session: tf.Session,
        encoded: tf.Tensor,
        image: tf.Tensor,
        images: tf.Tensor,
        outputs: Mapping[str, tf.Tensor],
    ):
        self.name, self.digest = name, digest
        self.bytes_per_image = bytes_per_image(session.graph)
        self._session, self._encoded, self._image, self._images = session, encoded, image, images
        self._outputs = dict(outputs)

    def prepare(self, encoded: bytes) -> np.ndarray:
        """Decodes and resizes an image.

        Raises:
          UnreadableError: it cannot be decoded.
        """
        try:
            return self._session.run(self._image, {self._encoded: encoded})
        except tf.errors.InvalidArgumentError as error:
            raise UnreadableError(why_undecodable(encoded, error.message.partition('\n')[0]))

    def extract(self, prepared: Sequence[np.ndarray]) -> Dict[str, np.ndarray]:
        """Runs the network on a batch, and returns its outputs by name."""
        return self._session.run(self._outputs, {self._images: np.stack(prepared)})

    def close(self) -> None:
        """Closes the session."""
        self._session.close()


def of_run(path: str, layer: str) -> Extractor:
    """The network of a run, with the weights that the run evaluates and the preprocessing of its evaluation.

    Args:
      path: the model_dir of a run, or one of its checkpoints.
      layer: as `--layer` has it.

    Raises:
      ConfigError: there is no such folder, or its `config.json` is missing.
      CheckpointError: there is no checkpoint, or it cannot be used.
      LayerError: the network has no such layer.
      RemoteError: access is denied, or the store cannot be reached.
    """
    model = _model(path)
    config = model.config
    with tf.Graph().as_default() as graph:
        encoded = tf.placeholder(tf.string, [])
        image = infeed.as_evaluated(resize_for_eval(encoded, config), config)
        images = tf.placeholder(tf.float32, [None, config.height, config.width, 3])
        inception_model_fn(images, None, tf.estimator.ModeKeys.PREDICT, {'config': config})
        outputs = {FEATURES: Endpoints(graph).features(layer, '--layer')}
        session = tf.Session(graph=graph)
        model.restore(session)
        return Extractor(
            model.checkpoint, digests.of_checkpoint(model.checkpoint), session, encoded, image, images, outputs
        )


def _model(path: str) -> TrainedModel:
    if is_complete(path):
        return trained_model.find(os.path.dirname(path) or '.', os.path.basename(path))
    if tf.saved_model.loader.maybe_saved_model_directory(path):
        raise ConfigError(f'--model={path}: is a SavedModel. Name the model_dir of the run, or one of its checkpoints.')
    if not tf.io.gfile.isdir(path):
        raise ConfigError(f'--model={path}: no such folder or checkpoint.')
    return trained_model.find(path)


def of_2015(path: str, layer: str, others: Sequence[str] = ()) -> Extractor:
    """The Inception graph of 2015, with its preparation of images: resizing of TensorFlow 1, and (x - 128) / 128.

    Its outputs also have the logits without their biases, from which the Inception Score has always been computed
    (https://github.com/openai/improved-gan/blob/master/inception_score/model.py).

    Args:
      path: the file of the weights, as `graph_2015.read` takes it.
      layer: as `--layer` has it.
      others: more layers, whose features are outputs of their names.

    Raises:
      WeightsError: the weights cannot be read, or are those of another graph.
      LayerError: the network has no such layer.
      RemoteError: access is denied, or the store cannot be reached.
    """
    with tf.Graph().as_default() as graph:
        encoded = tf.placeholder(tf.string, [])
        image = prepared(decode_image(encoded))
        images = tf.placeholder(tf.float32, [None, graph_2015.SIZE, graph_2015.SIZE, 3])
        tf.identity(build(images))
        endpoints = Endpoints(graph)
        outputs = {name: endpoints.features(name, '--layer') for name in others}
        outputs[FEATURES] = endpoints.features(layer, '--layer')
        outputs[LOGITS] = tf.squeeze(endpoints.classifier().outputs[0], [1, 2])
        variables: List[Any] = tf.global_variables()
        values = graph_2015.read(path, {v.op.name: v.shape.as_list() for v in variables}, f'--weights={path}')
        session = tf.Session(graph=graph)
        # All at once: a call per variable takes longer than the network.
        feeds = {variable.initializer.inputs[1]: values[variable.op.name] for variable in variables}
        session.run([variable.initializer for variable in variables], feeds)
        return Extractor(path, digests.of_values(values), session, encoded, image, images, outputs)


def prepared(pixels: tf.Tensor) -> tf.Tensor:
    """The input of the graph of 2015.

    TensorFlow 1 resized bilinearly with the corner of a pixel as its place, and without averaging: position i of 299
    reads i * size / 299. Later conventions take the centre, (i + 1/2) * size / 299 - 1/2.

    Args:
      pixels: uint8 [height, width, 3].

    Returns:
      float32 [299, 299, 3].
    """
    size = [graph_2015.SIZE, graph_2015.SIZE]
    resized = tf.image.resize_bilinear(tf.cast(pixels, tf.float32)[tf.newaxis], size, align_corners=False)[0]
    return (resized - _GREY) / _GREY


def build(images: tf.Tensor) -> tf.Tensor:
    """The graph of 2015 on prepared images: logits, float32 [batch, 1008]."""
    network = NETWORKS[graph_2015.NETWORK]
    norm = BatchNorm(is_training=False, decay=0.0)
    logits, _ = network.build(images, graph_2015.CLASSES, False, conv=layers.conv2d, norm=norm)
    return logits
