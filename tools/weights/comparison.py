"""Runs networks with given weights, and compares the outputs of two of them."""

from typing import Any, Dict, Iterator, List, Sequence

import numpy as np

from compat import tf
from compat.messages import full, shown
from inception_v3.batch_norm import BatchNorm
from inception_v3.config import Config
from inception_v3.input.infeed import Infeed
from inception_v3.networks import layers
from inception_v3.networks.inception_v3 import MIXED_8, MIXED_17, MIXED_35
from inception_v3.networks.registry import NETWORKS
from inception_v3.networks.resnet import STAGES
from inception_v3.weights.sources import WeightsError
from tools import image_files
from tools.image_batches import run_decoding
from tools.image_files import UnreadableError
from tools.weights import writing
from tools.weights.architecture import Architecture
from tools.weights.changes import images_of
from tools.weights.foreign import Weights

FEATURES, LOGITS = 'features', 'logits'
# Outputs of all rows of a network take 40 MB for an image of 299 x 299 pixels.
_BATCH = 8
BLOCKS = (*MIXED_35, *MIXED_17, *MIXED_8)

Outputs = Dict[str, np.ndarray]


def rows_of(architecture: Architecture) -> Dict[str, str]:
    """The blocks of a network by the names of PyTorch's modules: the rows of the table in its paper."""
    if architecture.name == 'inception_v3':
        stem = [layer.scope.rpartition('/')[2] for layer in architecture.layers if layer.scope.count('/') == 1]
        return {name: name for name in (*stem, *(block.scope for block in BLOCKS))}
    blocks = ((number, block) for number, stage in enumerate(STAGES, 1) for block in range(stage.blocks))
    return {f'stage_{number}/block_{block + 1}': f'layer{number}.{block}' for number, block in blocks}


def in_this_program(weights: Weights, images: np.ndarray) -> Outputs:
    """The outputs of all rows, the features and the logits, in evaluation.

    Args:
      weights: the network's weights, with a classifier.
      images: float32 [images, height, width, 3].
    """
    architecture = weights.architecture
    options: Dict[str, Any] = {'auxiliary_head': False} if architecture.name == 'inception_v3' else {}
    options.update(
        depth_multiplier=weights.depth_multiplier, conv=layers.conv2d, norm=BatchNorm(is_training=False, decay=0.0)
    )
    with tf.Graph().as_default() as graph, tf.Session() as session:
        placeholder = tf.placeholder(tf.float32, [None, *images.shape[1:]])
        logits, _ = NETWORKS[architecture.name].build(placeholder, weights.num_classes, False, **options)
        classifier = graph.get_operation_by_name(f'{architecture.classifier}/Conv2D')
        outputs = {}
        for row in rows_of(architecture):
            # The last concatenation or ReLU of a block is its output.
            own = [op for op in graph.get_operations() if op.name.startswith(f'{architecture.scope}/{row}/')]
            outputs[row] = [op for op in own if op.type in ('ConcatV2', 'Relu')][-1].outputs[0]
        outputs.update({FEATURES: tf.squeeze(classifier.inputs[0], [1, 2]), LOGITS: logits})
        variables = tf.global_variables()
        feeds = {variable.initializer.inputs[1]: weights.values[variable.op.name] for variable in variables}
        session.run([variable.initializer for variable in variables], feeds)
        return session.run(outputs, {placeholder: images})


def converted(images: np.ndarray, old: str, new: str) -> np.ndarray:
    """Images in another range of `changes.images_of`."""
    if old == new:
        return images
    before, after = images_of(old), images_of(new)
    return ((images - before.shift) / before.scale * after.scale + after.shift).astype(np.float32)


def compare(models: Sequence[Weights], paths: Sequence[str]) -> List[str]:
    """Runs two models on image files.

    Returns lines for the screen: a table of the rows that have the same shape in both, and the most probable class of
      each image in both. Raises WeightsError if a model has no classifier, or if an image cannot be read.
    """
    for weights in models:
        if not weights.num_classes:
            raise WeightsError(f'{weights.path}: has no classifier, so that it has no logits to compare.')
    # The images are those of the first run, or of the published network.
    configs = [weights.config for weights in models if weights.config]
    config = configs[0] if configs else writing.settings_of(models[0])
    one, other = (weights.architecture for weights in models)
    # By row: the largest difference, and the largest value of the first model.
    largest: Dict[str, np.ndarray] = {}
    batches: List[List[np.ndarray]] = []
    for images in _prepared(paths, config):
        ours, theirs = (
            in_this_program(weights, converted(images, config.preprocessing, weights.images)) for weights in models
        )
        batches.append([ours[LOGITS], theirs[LOGITS]])
        for name, value in ours.items():
            is_common = name == LOGITS or one.name == other.name
            if is_common and name in theirs and value.shape == theirs[name].shape:
                own = [np.abs(value - theirs[name]).max(), np.abs(value).max()]
                largest[name] = np.maximum(largest.get(name, 0.0), own)
    lines = [line for letter, weights in zip('AB', models) for line in (f'{letter}  {weights}', *weights.notes)]
    lines += ['', f'{"layer":<20}  {"largest difference":>18}  {"largest value of A":>18}']
    for name in (*rows_of(one), FEATURES, LOGITS):
        if name in largest:
            difference, value = largest[name]
            lines.append(f'{name:<20}  {difference:>18.3g}  {value:>18.3g}')
    return [*lines, *_classes(paths, [np.concatenate(each) for each in zip(*batches)])]


def _classes(paths: Sequence[str], logits: Sequence[np.ndarray]) -> List[str]:
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
    best = [each.argmax(axis=1) for each in probabilities]
    for number, path in enumerate(paths):
        texts = [f'{own[number]:>8} {each[number].max():7.2%}' for own, each in zip(best, probabilities)]
        lines.append(f'{texts[0]:>16}  {texts[1]:>16}  {shown(full(path))}')
    return [*lines, f'the same top-1 for {(best[0] == best[1]).sum():,} of {len(paths):,} images']


def _prepared(paths: Sequence[str], config: Config) -> Iterator[np.ndarray]:
    """Batches of images, decoded, cropped and resized as in evaluation."""
    with tf.Graph().as_default(), tf.Session() as session:
        encoded = tf.placeholder(tf.string, [])
        infeed = Infeed(config)
        image = infeed.as_evaluated(infeed.preprocessing.resize_encoded(encoded))

        def prepare(path: str) -> np.ndarray:
            try:
                return run_decoding(session, image, encoded, image_files.read(path))
            except UnreadableError as error:
                raise WeightsError(f'{full(path)}: {error}')

        for begin in range(0, len(paths), _BATCH):
            yield np.stack([prepare(path) for path in paths[begin : begin + _BATCH]])
