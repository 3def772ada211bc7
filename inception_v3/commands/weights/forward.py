"""Runs a network with given weights on images: in this program, in Keras, or in PyTorch."""

import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any, Dict, Optional

import numpy as np

from console.errors import CommandError
from console.messages import shown
from console.tensorflow_versions import tf
from inception_v3.batch_norm import BatchNorm
from inception_v3.commands.weights import keras_files, torch_forward
from inception_v3.commands.weights.architecture import Architecture, inception
from inception_v3.commands.weights.changes import IMAGES, check_range
from inception_v3.commands.weights.foreign import Weights
from inception_v3.networks import layers
from inception_v3.networks.inception_v3 import MIXED_8, MIXED_17, MIXED_35
from inception_v3.networks.registry import NETWORKS
from inception_v3.networks.resnet import STAGES

FEATURES, LOGITS = 'features', 'logits'
# The environment of requirements-frameworks.lock.
TORCH_PYTHON = pathlib.Path(__file__).resolve().parents[3] / '.venv-frameworks' / 'bin' / 'python'
_BLOCKS = (*MIXED_35, *MIXED_17, *MIXED_8)

Outputs = Dict[str, np.ndarray]


class ForwardError(CommandError):
    """A framework cannot run a network."""


def rows_of(architecture: Architecture) -> Dict[str, str]:
    """The blocks of a network by the names of PyTorch's modules: the rows of the table in its paper."""
    if architecture.name == 'inception_v3':
        stem = [layer.scope.rpartition('/')[2] for layer in architecture.layers if layer.scope.count('/') == 1]
        return {name: name for name in (*stem, *(block.scope for block in _BLOCKS))}
    blocks = ((number, block) for number, stage in enumerate(STAGES, 1) for block in range(stage.blocks))
    return {f'stage_{number}/block_{block + 1}': f'layer{number}.{block}' for number, block in blocks}


def in_this_program(weights: Weights, images: np.ndarray) -> Outputs:
    """The outputs of all rows, the features and the logits, in evaluation.

    Args:
      weights: of the network, with a classifier.
      images: float32 [images, height, width, 3].
    """
    architecture = weights.architecture
    options: Dict[str, Any] = {'auxiliary_head': False} if architecture.name == 'inception_v3' else {}
    options.update(depth_multiplier=weights.depth_multiplier, conv=layers.conv2d, norm=BatchNorm(False, decay=0.0))
    with tf.Graph().as_default() as graph, tf.Session() as session:
        placeholder = tf.placeholder(tf.float32, [None, *images.shape[1:]])
        logits, _ = NETWORKS[architecture.name].build(placeholder, weights.num_classes, False, **options)
        classifier = graph.get_operation_by_name(f'{architecture.classifier}/Conv2D')
        outputs = {row: _output(graph, f'{architecture.scope}/{row}') for row in rows_of(architecture)}
        outputs.update({FEATURES: tf.squeeze(classifier.inputs[0], [1, 2]), LOGITS: logits})
        variables = tf.global_variables()
        feeds = {variable.initializer.inputs[1]: weights.values[variable.op.name] for variable in variables}
        session.run([variable.initializer for variable in variables], feeds)
        return session.run(outputs, {placeholder: images})


def _output(graph: tf.Graph, scope: str) -> tf.Tensor:
    """The output of a block: its last concatenation or ReLU."""
    own = [op for op in graph.get_operations() if op.name.startswith(f'{scope}/') and op.type in ('ConcatV2', 'Relu')]
    return own[-1].outputs[0]


def in_keras(path: str, classes: int, images: np.ndarray) -> Outputs:
    """The same in `keras.applications` of this TensorFlow, from an .h5 file of its weights, for images in [-1, 1]."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.keras.backend.set_session(session)
        model = tf.keras.applications.InceptionV3(weights=None, classes=classes, input_shape=images.shape[1:])
        model.load_weights(path)
        by_name = {layer.name: layer for layer in model.layers}
        convs = [layer for layer in model.layers if layer.name.startswith('activation')]
        convs.sort(key=lambda layer: keras_files.number_of(layer.name))
        outputs = {block.scope: by_name[f'mixed{number}'].output for number, block in enumerate(_BLOCKS)}
        rows = [row for row in rows_of(inception()) if row not in outputs]
        outputs.update({row: conv.output for row, conv in zip(rows, convs)})
        outputs[FEATURES] = by_name['avg_pool'].output
        # The layer ends with a softmax.
        outputs[LOGITS] = by_name['predictions'].output.op.inputs[0]
        return session.run(outputs, {model.input: images})


def in_torch(
    library: str,
    weights: Weights,
    path: str,
    images: np.ndarray,
    count_padding: bool = True,
    python: Optional[str] = None,
) -> Outputs:
    """The same in torchvision or timm, by a process of an environment that has them.

    Args:
      library: `torchvision` or `timm`.
      weights: as read from the file.
      path: of a local file of weights that was checked to hold no code.
      images: float32 [images, height, width, 3], in the range that the network is given there.
      count_padding: whether average pools count padding as zeros, as both libraries do.
      python: of the environment; None for that of `.venv-frameworks`.

    Raises:
      ForwardError: there is no such environment, or the network cannot run there.
    """
    interpreter = python or str(TORCH_PYTHON)
    if not os.path.exists(interpreter):
        raise ForwardError(
            f'{interpreter}: does not exist. `./run --frameworks true` installs PyTorch in an environment of its own; '
            '--torch_python=PATH names the Python of another one that has torch and torchvision.'
        )
    name = weights.architecture.name
    with tempfile.TemporaryDirectory() as folder:
        np.save(f'{folder}/images.npy', images)
        spec = {
            'library': library,
            'model': f'tf_{name}' if (library, name) == ('timm', 'inception_v3') else name,
            'classes': weights.num_classes,
            'auxiliary_head': weights.has_auxiliary_head,
            'weights': os.path.abspath(path),
            'images': f'{folder}/images.npy',
            'modules': rows_of(weights.architecture),
            'count_padding': count_padding,
            'outputs': f'{folder}/outputs.npz',
        }
        pathlib.Path(folder, 'spec.json').write_text(json.dumps(spec))
        # This program's environment names packages of another Python.
        environment = {key: value for key, value in os.environ.items() if not key.startswith('PYTHON')}
        command = [interpreter, '-W', 'ignore', str(torch_forward.__file__), f'{folder}/spec.json']
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip() or 'no message').splitlines()[-1]
            raise ForwardError(f'{path}: {library} cannot run it in {interpreter}: {shown(last, 300)}')
        with np.load(spec['outputs']) as outputs:
            return dict(outputs)


def converted(images: np.ndarray, old: str, new: str) -> np.ndarray:
    """Images in another range of `changes.IMAGES`."""
    if old == new:
        return images
    for each in (old, new):
        check_range(each)
    pixels = (images - np.array(IMAGES[old].shift)) / np.array(IMAGES[old].scale)
    return (pixels * np.array(IMAGES[new].scale) + np.array(IMAGES[new].shift)).astype(np.float32)
