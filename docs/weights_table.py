"""Measures the tables of docs/weights.md: every pair of kinds of weights, in their own frameworks, with random weights.

./run python -m docs.weights_table

Each framework writes a file of its Inception v3 with random weights. The file is converted to every kind, and the
framework of that kind computes the logits of the same random images. It takes TensorFlow 1.15, which contains TF-Slim,
and `.venv-frameworks`, which `./run --frameworks true` makes.
"""

import importlib
import os
import subprocess
import tempfile
from typing import Dict, List, Tuple

import numpy as np

from console.tensorflow_versions import tf
from docs import frameworks
from inception_v3.commands.weights import comparison, foreign, writing
from inception_v3.commands.weights.comparison import LOGITS

CLASSES = 1000
IMAGES = np.random.RandomState(0).uniform(-1, 1, [2, 299, 299, 3]).astype(np.float32)
# Kernels of this variance, times the number of inputs, give logits of a few units.
_VARIANCE = 1.6
FILES = {
    'this program': ('run', ''),
    'TF-Slim': ('slim.ckpt', 'slim'),
    'Keras': ('keras.h5', 'keras'),
    'torchvision': ('torchvision.pth', 'torchvision'),
    'timm': ('timm.safetensors', 'timm'),
    '.npz': ('weights.npz', 'npz'),
}
_WRITE_TORCH = f"""
import timm, torch, torchvision
from safetensors.torch import save_file
random = torch.Generator().manual_seed(1)
def values_of(model):
    for name, value in model.state_dict().items():
        if name.endswith('running_var'):
            value.copy_(torch.rand(value.shape, generator=random) + 0.5)
        elif name.endswith('fc.weight'):
            value.copy_(torch.randn(value.shape, generator=random) * 0.01)
        elif value.dim() == 4:
            value.copy_(torch.randn(value.shape, generator=random) * ({_VARIANCE} / value[0].numel()) ** 0.5)
        elif value.dtype == torch.float32 and not name.endswith('bn.weight'):
            value.copy_(torch.randn(value.shape, generator=random) * 0.1)
    return model.state_dict()
torch.save(values_of(torchvision.models.inception_v3(num_classes={CLASSES}, init_weights=False)), 'torchvision.pth')
save_file(values_of(timm.create_model('tf_inception_v3', num_classes={CLASSES})), 'timm.safetensors')
"""


def _random(name: str, shape: List[int], random: np.random.RandomState) -> np.ndarray:
    if 'moving_variance' in name:
        return random.uniform(0.5, 1.5, shape)
    if len(shape) == 2 or ('Conv2d_1c' in name and len(shape) > 1):
        return random.normal(0, 0.01, shape)
    return random.normal(0, np.sqrt(_VARIANCE / np.prod(shape[:-1])) if len(shape) > 1 else 0.1, shape)


def _build_slim(images: tf.Tensor) -> Tuple[tf.Tensor, Dict[str, tf.Variable]]:
    slim = importlib.import_module('tensorflow.contrib.slim')
    inception = importlib.import_module('tensorflow.contrib.slim.nets').inception
    with slim.arg_scope(inception.inception_v3_arg_scope()):
        logits, _ = inception.inception_v3(images, CLASSES, is_training=False)
    return logits, {variable.op.name: variable for variable in slim.get_model_variables()}


def _in_slim(path: str) -> np.ndarray:
    with tf.Graph().as_default(), tf.Session() as session:
        logits, variables = _build_slim(tf.constant(IMAGES))
        # A file from Keras or timm has no auxiliary head, which the logits do not need.
        restored = tf.train.load_checkpoint(path).get_variable_to_shape_map()
        tf.train.Saver({name: variables[name] for name in variables if name in restored}).restore(session, path)
        return session.run(logits)


def logits_of(kind: str, path: str, count_padding: bool = False) -> np.ndarray:
    """The logits of IMAGES that the framework of a kind of weights computes from a file."""
    if kind == 'TF-Slim':
        return _in_slim(path)
    if kind == 'Keras':
        return frameworks.in_keras(path, CLASSES, IMAGES)[LOGITS]
    if kind in ('torchvision', 'timm'):
        return frameworks.in_torch(kind, foreign.read(path), path, IMAGES, count_padding)[LOGITS]
    return comparison.in_this_program(foreign.read(path), IMAGES)[LOGITS]


def write_sources(folder: str) -> Dict[str, str]:
    """Lets each framework write its file; the paths by kind."""
    paths = {kind: os.path.join(folder, name) for kind, (name, _) in FILES.items()}
    subprocess.run([str(frameworks.TORCH_PYTHON), '-W', 'ignore', '-c', _WRITE_TORCH], cwd=folder, check=True)
    with tf.Graph().as_default(), tf.Session() as session:
        random = np.random.RandomState(1)
        _, variables = _build_slim(tf.constant(IMAGES))
        for name, variable in variables.items():
            variable.load(_random(name, variable.shape.as_list(), random), session)
        tf.train.Saver(variables).save(session, paths['TF-Slim'], write_meta_graph=False, write_state=False)
    with tf.Graph().as_default(), tf.Session() as session:
        random = np.random.RandomState(2)
        tf.keras.backend.set_session(session)
        model = tf.keras.applications.InceptionV3(weights=None, classes=CLASSES)
        model.set_weights([_random(each.name, each.shape.as_list(), random) for each in model.weights])
        model.save_weights(paths['Keras'])
    # This program's own come from weights that differ from all others.
    weights = foreign.read(paths['TF-Slim'])
    values = {name: value[..., ::-1].copy() for name, value in weights.values.items()}
    writing.import_into(paths['this program'], weights._replace(values=values), averages=True)
    writing.export(weights._replace(values=values), paths['.npz'], 'npz')
    return paths


def convert(source: str, kind: str, folder: str) -> str:
    """Writes a file of weights as another kind, and returns its path."""
    name, target = FILES[kind]
    path = os.path.join(folder, name)
    if target:
        writing.export(foreign.read(source), path, target)
    else:
        writing.import_into(path, foreign.read(source), averages=True)
    return path


def main() -> None:
    """Prints the tables."""
    with tempfile.TemporaryDirectory() as folder:
        paths = write_sources(folder)
        expected = {kind: logits_of(kind, path) for kind, path in paths.items()}
        print('| from | to | largest difference of logits | values |')
        print('|---|---|---|---|')
        for source, path in paths.items():
            before = foreign.read(path).values
            for kind in FILES:
                with tempfile.TemporaryDirectory() as converted:
                    other = convert(path, kind, converted)
                    difference = np.abs(logits_of(kind, other) - expected[source]).max()
                    # The values that both kinds have.
                    after = foreign.read(other).values
                same = all(np.array_equal(before[name], after[name]) for name in after)
                values = ('to the bit' if same else 'different') + ', no auxiliary head' * (len(before) != len(after))
                print(f'| {source} | {kind} | {difference:.1e} | {values} |', flush=True)
        print('\nlargest logits:', {kind: round(float(np.abs(logits).max()), 2) for kind, logits in expected.items()})
        for library in ('torchvision', 'timm'):
            difference = np.abs(logits_of(library, paths[library], count_padding=True) - expected[library])
            print(
                f'{library}, average pools that count the padding: the logits differ by {difference.max():.2f} at most '
                f'and {difference.mean():.3f} on average; their standard deviation is {expected[library].std():.2f}'
            )


if __name__ == '__main__':
    main()
