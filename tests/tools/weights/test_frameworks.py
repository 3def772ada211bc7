"""Tests with the frameworks themselves: Keras of this TensorFlow, and torchvision and timm in `.venv-frameworks`."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Dict, List

import numpy as np
import pytest

from compat import tf
from tests.support.shared import once
from tools.weights import comparison, foreign, keras_files, writing
from tools.weights.architecture import inception
from tools.weights.comparison import BLOCKS, FEATURES, LOGITS, rows_of
from tools.weights.foreign import Weights

HERE = pathlib.Path(__file__).resolve().parent
# The environment of requirements-frameworks.lock.
TORCH_PYTHON = HERE.parents[2] / '.venv-frameworks' / 'bin' / 'python'
CLASSES = 7
# Images are small to save time; the networks have their published widths.
IMAGES = np.random.RandomState(0).uniform(-1, 1, [2, 107, 107, 3]).astype(np.float32)
# Writes torchvision's and timm's networks with random weights, whose scales are 1 but for a layer.
WRITE = f"""
import timm, torch, torchvision
from safetensors.torch import save_file
random = torch.Generator().manual_seed(1)

def with_values(model):
    for name, value in model.state_dict().items():
        if name.endswith('running_var'):
            value.copy_(torch.rand(value.shape, generator=random) + 0.5)
        elif value.dim() == 4 or name.endswith('fc.weight'):
            value.copy_(torch.randn(value.shape, generator=random) * (1.6 / value[0].numel()) ** 0.5)
        elif value.dtype == torch.float32 and not name.endswith(('n.weight', '1.weight', '2.weight', '3.weight')):
            value.copy_(torch.randn(value.shape, generator=random) * 0.1)
    return model.state_dict()

own = with_values(torchvision.models.inception_v3(num_classes={CLASSES}, init_weights=False))
own['Mixed_5b.branch1x1.bn.weight'] *= -1.5
torch.save(own, 'scales.pth')
save_file(with_values(timm.create_model('tf_inception_v3', num_classes={CLASSES})), 'timm.safetensors')
torch.save(with_values(torchvision.models.resnet50(num_classes={CLASSES})), 'resnet50.pth')
"""
with_torch = pytest.mark.skipif(not TORCH_PYTHON.exists(), reason='./run --frameworks true makes .venv-frameworks')


@pytest.fixture(scope='module')
def torch_files(tmp_path_factory: Any) -> pathlib.Path:
    def make(folder: str) -> None:
        subprocess.run([str(TORCH_PYTHON), '-W', 'ignore', '-c', WRITE], cwd=folder, check=True)

    return pathlib.Path(once(tmp_path_factory, 'torch', make))


def check_close(one: np.ndarray, other: np.ndarray) -> None:
    """Other kernels sum in other orders: in float32, differences are below 1e-5 of the largest value."""
    assert np.abs(one - other).max() <= 1e-5 * max(1, np.abs(other).max())


def in_torch(library: str, weights: Weights, paths: List[str], folder: pathlib.Path) -> List[Dict[str, np.ndarray]]:
    """The outputs of all rows in torchvision or timm, whose average pools leave the padding out, as here.

    One process gives those of each file of weights.
    """
    np.save(str(folder / 'images.npy'), IMAGES)
    spec = {
        'library': library,
        'model': weights.architecture.name,
        'classes': weights.num_classes,
        'auxiliary_head': weights.has_auxiliary_head,
        'weights': paths,
        'modules': rows_of(weights.architecture),
    }
    # This program's environment names packages of another Python.
    environment = {key: value for key, value in os.environ.items() if not key.startswith('PYTHON')}
    command = [str(TORCH_PYTHON), '-W', 'ignore', str(HERE / 'torch_forward.py'), json.dumps(spec)]
    subprocess.run(command, cwd=str(folder), env=environment, check=True)
    return [dict(np.load(str(folder / f'outputs-{number}.npz'))) for number in range(len(paths))]


@with_torch
@pytest.mark.program
@pytest.mark.parametrize(
    ('library', 'name'), [('torchvision', 'scales.pth'), ('timm', 'timm.safetensors'), ('torchvision', 'resnet50.pth')]
)
def test_torch__computes_the_same_logits_with_files_in_both_directions(
    library: str, name: str, torch_files: Any, tmp_path: Any
) -> None:
    path = str(torch_files / name)
    weights = foreign.read(path)
    assert weights.num_classes == CLASSES
    assert any('scales of 1 layers' in note for note in weights.notes) == (name == 'scales.pth')
    ours = comparison.in_this_program(weights, IMAGES)
    written = str(tmp_path / f'weights{path[path.rindex(".") :]}')
    writing.export(weights, written, library)
    # With scales, also from the file that the framework wrote itself.
    paths = [written, path] if name == 'scales.pth' else [written]
    theirs, *of_own_file = in_torch(library, weights, paths, tmp_path)
    assert ours.keys() == theirs.keys()
    for row in ours:
        check_close(ours[row], theirs[row])
    assert len(of_own_file) == (name == 'scales.pth')
    for outputs in of_own_file:
        check_close(ours[LOGITS], outputs[LOGITS])


# Gives a network of Keras random weights.
RANDOM = """
import numpy as np
import tensorflow as tf
if not tf.executing_eagerly():
    tf.compat.v1.enable_eager_execution()
random = np.random.RandomState(0)
def value(variable):
    shape = variable.shape.as_list()
    if len(shape) > 1:
        return random.normal(0, np.sqrt(1.6 / np.prod(shape[:-1])), shape)
    return random.uniform(0.5, 1.5, shape) if 'moving_variance' in variable.name else random.normal(0, 0.1, shape)
def with_values(model):
    model.set_weights([value(variable) for variable in model.weights])
    return model
"""


def run_keras(program: str, folder: pathlib.Path, images: np.ndarray) -> None:
    """Runs a program, in a folder with the images, in a process with the settings of TensorFlow."""
    np.save(str(folder / 'images.npy'), images)
    environment = {name: value for name, value in os.environ.items() if name != 'TF2_BEHAVIOR'}
    command = [sys.executable, '-W', 'ignore', '-c', RANDOM + program]
    subprocess.run(command, cwd=str(folder), env=environment, check=True)


# Writes Keras' network in three layouts, of which two are new since Keras 2.12.
WRITE_KERAS = f"""
model = with_values(tf.keras.applications.InceptionV3(weights=None, classes={CLASSES}, input_shape=(107, 107, 3)))
model.save_weights('weights.h5')
model.save_weights('own.weights.h5')
model.save('model.keras')
np.save('features.npy', tf.keras.Model(model.input, model.layers[-2].output)(np.load('images.npy')))
"""


def in_keras(path: str) -> Dict[str, np.ndarray]:
    """The outputs of all rows in `keras.applications`, from an .h5 file of its weights."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.keras.backend.set_session(session)
        model = tf.keras.applications.InceptionV3(weights=None, classes=CLASSES, input_shape=IMAGES.shape[1:])
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
        return session.run(outputs, {model.input: IMAGES})


@pytest.mark.program
@pytest.mark.both
def test_keras__computes_the_same_with_files_in_both_directions(tmp_path: Any) -> None:
    run_keras(WRITE_KERAS, tmp_path, IMAGES)
    first = foreign.read(str(tmp_path / 'weights.h5'))
    assert (first.origin, first.num_classes, first.has_auxiliary_head) == (foreign.KERAS, CLASSES, False)
    for name in ('own.weights.h5', 'model.keras'):
        np.testing.assert_equal(foreign.read(str(tmp_path / name)).values, first.values)
    ours = comparison.in_this_program(first, IMAGES)
    np.testing.assert_allclose(ours[FEATURES], np.load(str(tmp_path / 'features.npy')), atol=1e-5)
    writing.export(first, str(tmp_path / 'again.h5'), 'keras')
    theirs = in_keras(str(tmp_path / 'again.h5'))
    assert ours.keys() == theirs.keys()
    for row in ours:
        check_close(theirs[row], ours[row])


# Writes models around Keras' network, with their outputs for pixels in [0, 255] or, in the second, in [-1, 1].
WRITE_MODELS = f"""
tf.keras.utils.set_random_seed(1)
layers, keras = tf.keras.layers, tf.keras
size = (75, 75, 3)
base = with_values(keras.applications.InceptionV3(weights=None, include_top=False, input_shape=size))
models = {{}}
models['sequential'] = keras.Sequential([
    layers.Rescaling(1 / 127.5, offset=-1, input_shape=size), base, layers.GlobalAveragePooling2D(),
    layers.Dense({CLASSES}, activation='softmax')])
x = keras.Input(size)
flipped = keras.Sequential([layers.RandomFlip('horizontal')])(x)
pooled = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(base(flipped, training=False)))
models['functional'] = keras.Model(x, layers.Softmax()(layers.Dense({CLASSES})(pooled)))
images = np.load('images.npy')
for name, model in models.items():
    for ending in ('keras', 'weights.h5') if name == 'sequential' else ('h5',):
        given = (images + 1) * 127.5 if name == 'sequential' else images
        np.save(f'{{name}}.{{ending}}.npy', model(given, training=False))
        getattr(model, 'save_weights' if 'weights' in ending else 'save')(name + '.' + ending)
"""


@pytest.mark.program
@pytest.mark.both
@pytest.mark.skipif(tf.__version__ < '2', reason='these layers are newer than TensorFlow 1.15')
def test_keras__models_around_the_network_keep_their_predictions(tmp_path: Any) -> None:
    images = np.random.RandomState(0).uniform(-1, 1, [2, 75, 75, 3]).astype(np.float32)
    # The second one has a colour.
    images[1] = images[1] * [0.2, 0.4, 0.6] + [0.8, -0.6, -0.2]
    run_keras(WRITE_MODELS, tmp_path, images)
    read = {name: foreign.read(str(tmp_path / name)) for name in ('sequential.keras', 'functional.h5')}
    of_weights = foreign.read(str(tmp_path / 'sequential.weights.h5'))
    np.testing.assert_equal(of_weights.values, read['sequential.keras'].values)
    assert any('the file has weights alone' in note for note in of_weights.notes)
    for name, weights in read.items():
        logits = comparison.in_this_program(weights, images)[LOGITS]
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        own, expected = powers / powers.sum(axis=1, keepdims=True), np.load(f'{tmp_path / name}.npy')
        np.testing.assert_allclose(own, expected, atol=1e-5, err_msg=name)
        # Images make a difference.
        assert np.abs(expected[0] - expected[1]).max() > 1e-3, name
