"""Turns image files into features, by the network of a run, or by the Inception graph of 2015."""

import contextlib
import os
import sys
from typing import Any, Dict, List, NamedTuple, Sequence

import numpy as np

from console.errors import CommandError
from console.progress import Progress
from console.screen import Screen
from console.tensorflow_versions import tf
from data import image_files
from data.convert.intake import Intake
from data.image_files import ImageFiles, UnreadableError, listed, show, why_undecodable
from data.read_ahead import in_order
from inception_v3.batch_norm import BatchNorm
from inception_v3.commands.features import graph_2015
from inception_v3.commands.features.endpoints import Endpoints
from inception_v3.config import ConfigError
from inception_v3.input import infeed
from inception_v3.model_fn import inception_model_fn
from inception_v3.networks import layers
from inception_v3.networks.registry import NETWORKS
from inception_v3.run import history, trained_model
from inception_v3.run.memory.estimate import bytes_per_image, check_batch
from inception_v3.weights.model_dir import digest_of_values, is_complete
from preprocessing.decoding import decode_image
from preprocessing.resizing import resize_for_eval

FEATURES, LOGITS = 'features', 'logits'
# The graph of 2015 computes (x - 128) / 128.
_GREY = 128.0


class Extractor(NamedTuple):
    """A network with its weights, of a name for users and a digest, and its preparation of images.

    `encoded` is the placeholder of an image file, `image` its prepared image, float32 [height, width, 3], `images` the
    placeholder of a batch of these, and `outputs` are the batch's outputs by name, float32 [batch, values]. Any thread
    may call `prepare`.
    """

    name: str
    digest: str
    session: tf.Session
    encoded: tf.Tensor
    image: tf.Tensor
    images: tf.Tensor
    outputs: Dict[str, tf.Tensor]

    def prepare(self, encoded: bytes) -> np.ndarray:
        """Decodes and resizes an image; UnreadableError if it cannot be decoded."""
        try:
            return self.session.run(self.image, {self.encoded: encoded})
        except tf.errors.InvalidArgumentError as error:
            raise UnreadableError(why_undecodable(encoded, error.message.partition('\n')[0]))

    def extract(self, prepared: Sequence[np.ndarray]) -> Dict[str, np.ndarray]:
        """Runs the network on a batch, and returns its outputs by name."""
        return self.session.run(self.outputs, {self.images: np.stack(prepared)})

    def close(self) -> None:
        """Closes the session."""
        self.session.close()


def of_run(path: str, layer: str) -> Extractor:
    """The network of a run, with the weights that the run evaluates and the preprocessing of its evaluation.

    The path is the model_dir of a run, or one of its checkpoints. Raises ConfigError, CheckpointError or RemoteError if
    it cannot be used, and CommandError if the network has no such layer.
    """
    if is_complete(path):
        model = trained_model.find(os.path.dirname(path) or '.', os.path.basename(path))
    elif tf.saved_model.loader.maybe_saved_model_directory(path):
        raise ConfigError(f'--model={path}: is a SavedModel. Name the model_dir of the run, or one of its checkpoints.')
    elif not tf.io.gfile.isdir(path):
        raise ConfigError(f'--model={path}: no such folder or checkpoint.')
    else:
        model = trained_model.find(path)
    config, checkpoint = model.config, model.checkpoint
    with tf.Graph().as_default() as graph:
        encoded = tf.placeholder(tf.string, [])
        image = infeed.as_evaluated(resize_for_eval(encoded, config), config)
        images = tf.placeholder(tf.float32, [None, config.height, config.width, 3])
        inception_model_fn(images, None, tf.estimator.ModeKeys.PREDICT, {'config': config})
        outputs = {FEATURES: Endpoints(graph).features(layer)}
        session = tf.Session(graph=graph)
        model.restore(session)
        return Extractor(checkpoint, history.digest_of_checkpoint(checkpoint), session, encoded, image, images, outputs)


def of_2015(path: str, layer: str) -> Extractor:
    """The Inception graph of 2015, with its preparation of images: resizing of TensorFlow 1, and (x - 128) / 128.

    Its outputs also have the logits without their biases, from which the Inception Score has always been computed
    (https://github.com/openai/improved-gan/blob/master/inception_score/model.py). Raises as `graph_2015.read`, and
    CommandError if the network has no such layer.
    """
    with tf.Graph().as_default() as graph:
        encoded = tf.placeholder(tf.string, [])
        image = prepared(decode_image(encoded))
        images = tf.placeholder(tf.float32, [None, graph_2015.SIZE, graph_2015.SIZE, 3])
        tf.identity(build(images))
        endpoints = Endpoints(graph)
        logits = tf.squeeze(endpoints.classifier().outputs[0], [1, 2])
        outputs = {FEATURES: endpoints.features(layer), LOGITS: logits}
        variables: List[Any] = tf.global_variables()
        values = graph_2015.read(path, {v.op.name: v.shape.as_list() for v in variables}, f'--weights={path}')
        session = tf.Session(graph=graph)
        # All at once: a call per variable takes longer than the network.
        feeds = {variable.initializer.inputs[1]: values[variable.op.name] for variable in variables}
        session.run([variable.initializer for variable in variables], feeds)
        return Extractor(path, digest_of_values(values), session, encoded, image, images, outputs)


def prepared(pixels: tf.Tensor) -> tf.Tensor:
    """The input of the graph of 2015, float32 [299, 299, 3], of pixels uint8 [height, width, 3].

    TensorFlow 1 resized bilinearly with the corner of a pixel as its place, and without averaging: position i of 299
    reads i * size / 299. Later conventions take the centre, (i + 1/2) * size / 299 - 1/2.
    """
    size = [graph_2015.SIZE, graph_2015.SIZE]
    resized = tf.image.resize_bilinear(tf.cast(pixels, tf.float32)[tf.newaxis], size, align_corners=False)[0]
    return (resized - _GREY) / _GREY


def build(images: tf.Tensor) -> tf.Tensor:
    """The graph of 2015 on prepared images: logits, float32 [batch, 1008]."""
    norm = BatchNorm(is_training=False, decay=0.0)
    logits, _ = NETWORKS[graph_2015.NETWORK].build(images, graph_2015.CLASSES, False, conv=layers.conv2d, norm=norm)
    return logits


class Extracted(NamedTuple):
    """The extractor's outputs, float32 [images, values], for the paths that could be read; and the number of others."""

    paths: List[str]
    values: Dict[str, np.ndarray]
    unreadable: int


def find(names: Sequence[str]) -> ImageFiles:
    """Finds the image files that arguments name, and reports files that are no images. At least one must be usable."""
    found = image_files.find(names)
    if found.skipped:
        _report(f'skipped {len(found.skipped):,} files that are no images: {listed(found.skipped)}')
    if len(found.problems) == len(found.paths):
        raise CommandError('\n'.join(f'{show(path)}: {reason}' for path, reason in found.problems.items()))
    return found


def extract(extractor: Extractor, found: ImageFiles, batch_size: int, screen: Screen) -> Extracted:
    """Extracts the features of image files, and reports those that cannot be read.

    Threads, one per core, read and prepare files while the network runs. Raises ConfigError if a batch does not fit
    into the memory, and CommandError if no image can be read, or if features are not finite.
    """
    check_batch('batch_size', min(batch_size, len(found.paths)), bytes_per_image(extractor.session.graph))
    progress, intake = Progress(screen, len(found.paths), batch_size), Intake()
    paths: List[str] = []
    batches: List[Dict[str, np.ndarray]] = []

    def prepare(path: str) -> Any:
        try:
            if path in found.problems:
                raise UnreadableError(found.problems[path])
            return extractor.prepare(intake.accept(image_files.read(path)).encoded)
        except UnreadableError as error:
            return error

    with contextlib.closing(intake):
        prepared = in_order(prepare, found.paths, ahead=2 * batch_size)
        for begin in range(0, len(found.paths), batch_size):
            images = {}
            own = found.paths[begin : begin + batch_size]
            for path, image in zip(own, prepared):
                if isinstance(image, UnreadableError):
                    screen.clear()
                    _report(f'{show(path)}: {image}')
                else:
                    images[path] = image
            if images:
                paths += images
                batches.append(extractor.extract([*images.values()]))
            for _ in own:
                progress.add()
    screen.clear()
    unreadable = len(found.paths) - len(paths)
    if not paths:
        raise CommandError(f'{listed(found.paths)}: no image can be read; the lines above have the reasons.')
    if unreadable:
        _report(f'{unreadable:,} of {len(found.paths):,} images could not be read')
    values = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    for name, value in values.items():
        damaged = [path for path, row in zip(paths, value) if not np.isfinite(row).all()]
        if damaged:
            raise CommandError(
                f'{extractor.name}: the {name} of {len(damaged):,} images are not finite: the training of the '
                f'network has diverged. {listed(damaged)}'
            )
    return Extracted(paths, values, unreadable)


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
