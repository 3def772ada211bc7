"""Runs networks in Keras, torchvision and timm, to compare their outputs with those of this program."""

import json
import os
import pathlib
import subprocess
import tempfile
from typing import Dict

import numpy as np

from console.tensorflow_versions import tf
from inception_v3.commands.weights import keras_files
from inception_v3.commands.weights.architecture import inception
from inception_v3.commands.weights.comparison import BLOCKS, FEATURES, LOGITS, rows_of
from inception_v3.commands.weights.foreign import Weights

# The environment of requirements-frameworks.lock.
TORCH_PYTHON = pathlib.Path(__file__).resolve().parents[2] / '.venv-frameworks' / 'bin' / 'python'


def in_keras(path: str, classes: int, images: np.ndarray) -> Dict[str, np.ndarray]:
    """The outputs of all rows in `keras.applications`, from an .h5 file of its weights, for images in [-1, 1]."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.keras.backend.set_session(session)
        model = tf.keras.applications.InceptionV3(weights=None, classes=classes, input_shape=images.shape[1:])
        model.load_weights(path)
        by_name = {layer.name: layer for layer in model.layers}
        convs = [layer for layer in model.layers if layer.name.startswith('activation')]
        convs.sort(key=lambda layer: keras_files.number_of(layer.name))
        outputs = {block.scope: by_name[f'mixed{number}'].output for number, block in enumerate(BLOCKS)}
        rows = [row for row in rows_of(inception()) if row not in outputs]
        outputs.update({row: conv.output for row, conv in zip(rows, convs)})
        outputs[FEATURES] = by_name['avg_pool'].output
        # The layer ends with a softmax.
        outputs[LOGITS] = by_name['predictions'].output.op.inputs[0]
        return session.run(outputs, {model.input: images})


def in_torch(
    library: str, weights: Weights, path: str, images: np.ndarray, count_padding: bool = True
) -> Dict[str, np.ndarray]:
    """The outputs of all rows in torchvision or timm, by a process of `.venv-frameworks`.

    Images are in the range that the network is given there. Average pools count padding as zeros, as in both libraries,
    or not.
    """
    with tempfile.TemporaryDirectory() as folder:
        np.save(f'{folder}/images.npy', images)
        spec = {
            'library': library,
            'model': weights.architecture.name,
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
        command = [
            str(TORCH_PYTHON),
            '-W',
            'ignore',
            str(pathlib.Path(__file__).with_name('torch_forward.py')),
            f'{folder}/spec.json',
        ]
        subprocess.run(command, env=environment, check=True)
        with np.load(spec['outputs']) as outputs:
            return dict(outputs)
