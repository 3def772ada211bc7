"""Turns image files into features, by the network of a run, or by the Inception graph of 2015."""

import os
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

import numpy as np

from compat import tf
from compat.errors import CommandError
from compat.messages import full
from console.screen import Screen
from inception_v3.batch_norm import BatchNorm
from inception_v3.input.infeed import Infeed
from inception_v3.model_dir import digest_of_checkpoint, digest_of_values, is_complete
from inception_v3.model_fn import inception_model_fn
from inception_v3.networks import layers
from inception_v3.networks.registry import NETWORKS
from inception_v3.weights.selection import HEAD, Patterns
from preprocessing.decoding import decode_image
from tools import image_batches, trained_model
from tools.datasets.intake import Intake
from tools.features import POOL, graph_2015
from tools.image_batches import bytes_per_image, check_batch, report
from tools.image_files import ImageFiles, UnreadableError, listed
from tools.progress import Progress

FEATURES, LOGITS = 'features', 'logits'
# The graph of 2015 computes (x - 128) / 128.
_GREY = 128.0
# The number of axes of a feature map, and of a vector per image.
_MAP, _VECTOR = 4, 2


class Endpoints:
    """The layers of the network in a graph that predicts.

    A layer is a scope of variables, such as `Mixed_6e`, with or without the network's own scope in front, or a pooling
    between scopes. Its features are the tensors that operations outside it read, each averaged over the image.
    """

    def __init__(self, graph: tf.Graph):
        # Recorded now: operations that read features are added to the graph later.
        self._operations = {operation.name: operation for operation in graph.get_operations()}
        with graph.as_default():
            variables = [variable.op.name for variable in tf.global_variables()]
        first = {name.partition('/')[0] for name in variables if '/' in name}
        # A network's variables may lie in a scope of its own.
        self._root = f'{first.pop()}/' if len(first) == 1 else ''
        self._scopes = {self._inner(name).partition('/')[0] for name in variables}

    def classifier(self) -> tf.Operation:
        """The last convolution or matrix product of the network. Its input is the layer `pool`."""
        head = Patterns(HEAD)
        return [o for o in self._operations.values() if o.type in ('Conv2D', 'MatMul') and head.match(o.name)][-1]

    def names(self) -> List[str]:
        """The layers, in the order of the network: the outer scopes, and the poolings between them."""
        names = [POOL]
        for name, operation in self._operations.items():
            inner = self._inner(name)
            scope = inner.partition('/')[0]
            is_pool = operation.type in ('AvgPool', 'MaxPool') and inner == scope
            if (is_pool or scope in self._scopes) and scope not in names:
                names.append(scope)
        return names

    def features(self, layer: str) -> tf.Tensor:
        """The features of a layer: float32 [batch, features]. For an unknown layer, CommandError lists all layers."""
        scope = self._root + self._inner(layer.strip('/'))
        inside = [name for name in self._operations if name == scope or name.startswith(f'{scope}/')]
        found = [self.classifier().inputs[0]] if layer == POOL else []
        for tensor in (tensor for name in inside if layer != POOL for tensor in self._operations[name].outputs):
            readers = {reader.name for reader in tensor.consumers()} & self._operations.keys()
            # Activations have an open batch size.
            is_activation = tensor.shape.ndims in (_MAP, _VECTOR) and tensor.shape.as_list()[0] is None
            if is_activation and tensor.dtype.is_floating and not readers <= {*inside}:
                found.append(tensor)
        if not found:
            raise CommandError(
                f'--layer={layer}: the network has no such layer. It has {", ".join(self.names())}; and scopes '
                'inside of these, such as Mixed_5b/Branch_0.'
            )
        floats = [tf.cast(tensor, tf.float32) for tensor in found]
        return tf.concat([tf.reduce_mean(t, [1, 2]) if t.shape.ndims == _MAP else t for t in floats], axis=1)

    def _inner(self, name: str) -> str:
        return name[len(self._root) :] if name.startswith(self._root) else name


class Extractor(NamedTuple):
    """A network with its weights and its preparation of images. Any thread may call `prepare`.

    Attributes:
      name: the network's name for users.
      digest: the digest of the weights.
      encoded: the placeholder of an image file.
      image: the prepared image of that file, float32 [height, width, 3].
      images: the placeholder of a batch of prepared images.
      outputs: the outputs of the batch by name, float32 [batch, values].
      decoded: the pixels of the file, uint8 [height, width, 3]; only for the graph of 2015.
    """

    name: str
    digest: str
    session: tf.Session
    encoded: tf.Tensor
    image: tf.Tensor
    images: tf.Tensor
    outputs: Dict[str, tf.Tensor]
    decoded: Optional[tf.Tensor] = None

    def prepare(self, encoded: bytes) -> np.ndarray:
        """Decodes and resizes an image; UnreadableError if it cannot be decoded."""
        return image_batches.run_decoding(self.session, self.image, self.encoded, encoded)

    def prepare_pixels(self, pixels: np.ndarray) -> np.ndarray:
        """Resizes an image that is decoded already."""
        return self.session.run(self.image, {self.decoded: pixels})

    def extract(self, prepared: Sequence[np.ndarray]) -> Dict[str, np.ndarray]:
        """Runs the network on a batch, and returns its outputs by name."""
        return self.session.run(self.outputs, {self.images: np.stack(prepared)})

    def close(self) -> None:
        """Closes the session."""
        self.session.close()


def of_run(path: str, layer: str) -> Extractor:
    """The network of a run, with the weights that the run evaluates and the preprocessing of its evaluation.

    The path is the model_dir of a run, or one of its checkpoints. Raises ConfigError, CheckpointError or RemoteError if
    the run cannot be used, and CommandError if the network has no such layer.
    """
    if is_complete(path):
        model = trained_model.find(os.path.dirname(path), os.path.basename(path))
    else:
        model = trained_model.find(path)
    config, checkpoint = model.config, model.checkpoint
    with tf.Graph().as_default() as graph:
        encoded = tf.placeholder(tf.string, [])
        infeed = Infeed(config)
        image = infeed.as_evaluated(infeed.preprocessing.resize_encoded(encoded))
        images = tf.placeholder(tf.float32, [None, config.height, config.width, 3])
        inception_model_fn(images, None, tf.estimator.ModeKeys.PREDICT, {'config': config})
        outputs = {FEATURES: Endpoints(graph).features(layer)}
        session = tf.Session(graph=graph)
        model.restore(session)
        return Extractor(checkpoint, digest_of_checkpoint(checkpoint), session, encoded, image, images, outputs)


def of_2015(path: str, layer: str) -> Extractor:
    """The Inception graph of 2015, with its preparation of images: resizing of TensorFlow 1, and (x - 128) / 128.

    Its outputs also have the logits without their biases, from which the Inception Score has always been computed
    (https://github.com/openai/improved-gan/blob/master/inception_score/model.py). Raises the errors of
    `graph_2015.read`, and CommandError if the network has no such layer.
    """
    with tf.Graph().as_default() as graph:
        encoded = tf.placeholder(tf.string, [])
        decoded = decode_image(encoded)
        image = prepared(decoded)
        images = tf.placeholder(tf.float32, [None, graph_2015.SIZE, graph_2015.SIZE, 3])
        tf.identity(build(images))
        endpoints = Endpoints(graph)
        logits = tf.squeeze(endpoints.classifier().outputs[0], [1, 2])
        outputs = {FEATURES: endpoints.features(layer), LOGITS: logits}
        variables: List[Any] = tf.global_variables()
        values = graph_2015.read(path, {v.op.name: v.shape.as_list() for v in variables}, f'--weights={path}')
        session = tf.Session(graph=graph)
        # In one call: a call per variable takes longer than running the network.
        feeds = {variable.initializer.inputs[1]: values[variable.op.name] for variable in variables}
        session.run([variable.initializer for variable in variables], feeds)
        return Extractor(path, digest_of_values(values), session, encoded, image, images, outputs, decoded)


def prepared(pixels: tf.Tensor) -> tf.Tensor:
    """The input of the graph of 2015, float32 [299, 299, 3], from pixels, uint8 [height, width, 3].

    TensorFlow 1 resized bilinearly without averaging, and measured positions at the corners of pixels: position i of
    299 reads i * size / 299. Later conventions measure at the centres: (i + 1/2) * size / 299 - 1/2.
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
    """The extractor's outputs, float32 [images, values], for the readable paths, and the number of unreadable ones."""

    paths: List[str]
    values: Dict[str, np.ndarray]
    unreadable: int


def find(names: Sequence[str]) -> ImageFiles:
    """Finds the image files named by arguments, and reports files that are not images. At least one must be usable."""
    found = image_batches.find(names)
    if len(found.problems) == len(found.paths):
        raise CommandError('\n'.join(f'{full(path)}: {reason}' for path, reason in found.problems.items()))
    return found


def extract(extractor: Extractor, found: ImageFiles, batch_size: int, screen: Screen) -> Extracted:
    """Extracts the features of image files, and reports those that cannot be read.

    Threads, one per core, read and prepare files while the network runs. Raises ConfigError if a batch does not fit
    in memory, and CommandError if no image can be read, or if features are not finite.
    """
    check_batch('batch_size', min(batch_size, len(found.paths)), bytes_per_image(extractor.session.graph))
    progress = Progress(screen, len(found.paths), batch_size)
    paths: List[str] = []
    batches: List[Dict[str, np.ndarray]] = []

    def prepare(intake: Intake, encoded: bytes) -> np.ndarray:
        return extractor.prepare(intake.accept(encoded).encoded)

    for batch in image_batches.batches(found, batch_size, prepare):
        images = {}
        for path, image in batch:
            if isinstance(image, UnreadableError):
                screen.clear()
                report(f'{full(path)}: {image}')
            else:
                images[path] = image
        if images:
            paths += images
            batches.append(extractor.extract([*images.values()]))
        for _ in batch:
            progress.add()
    screen.clear()
    unreadable = len(found.paths) - len(paths)
    if not paths:
        raise CommandError(f'{listed(found.paths)}: no image can be read; the lines above have the reasons.')
    if unreadable:
        report(f'{unreadable:,} of {len(found.paths):,} images could not be read')
    return Extracted(paths, _joined(extractor, batches), unreadable)


def extract_pixels(
    extractor: Extractor, images: Iterable[np.ndarray], total: int, batch_size: int, screen: Screen
) -> Dict[str, np.ndarray]:
    """The extractor's outputs, float32 [images, values], for images that are decoded already, uint8 [height, width, 3].

    Raises ConfigError if a batch does not fit in memory, and CommandError if features are not finite.
    """
    check_batch('batch_size', min(batch_size, total), bytes_per_image(extractor.session.graph))
    progress = Progress(screen, total, batch_size)
    batches: List[Dict[str, np.ndarray]] = []
    waiting: List[np.ndarray] = []
    for number, image in enumerate(images, 1):
        waiting.append(extractor.prepare_pixels(image))
        progress.add()
        if len(waiting) == batch_size or number == total:
            batches.append(extractor.extract(waiting))
            waiting = []
    screen.clear()
    return _joined(extractor, batches)


def _joined(extractor: Extractor, batches: Sequence[Dict[str, np.ndarray]]) -> Dict[str, np.ndarray]:
    values = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    if not all(np.isfinite(value).all() for value in values.values()):
        raise CommandError(f'{extractor.name}: features are not finite: the training of the network has diverged.')
    return values
