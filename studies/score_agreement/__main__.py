"""Compares every stage of FID, KID and Inception Score with torch-fidelity and pytorch-fid, on the same random weights.

The two packages run in an environment of their own, which --python names:

  python3 -m venv .venv-scores
  .venv-scores/bin/pip install torch torchvision scipy pillow pytorch-fid==0.3.0 torch-fidelity==0.4.0

Prints the largest difference of each stage, relative to the largest value where this is above 1, and fails if one is
above 1e-5. The weights, the images and the results stay in the folder of --out.
"""

import contextlib
import json
import os
import subprocess
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from benchmarks import tables
from console import program
from console.command_line import folder, new_parser, number_of
from console.errors import DONE, CommandError, RetryableError
from console.paths import expanded
from console.screen import Screen
from console.tensorflow_versions import tf
from inception_v3.features import extraction, extractors, graph_2015
from inception_v3.features.endpoints import POOL
from inception_v3.features.extractors import FEATURES, LOGITS
from inception_v3.fid import formulas
from inception_v3.model_dir.files import check_writable
from studies.score_agreement.packages import KID, LAYERS, SETS

OUT = os.path.join('runs', 'studies', 'score_agreement')
_PYTHON = os.path.join('.venv-scores', 'bin', 'python')
_LIMIT = 1e-5
_SEED, _BATCH_SIZE, _RESIZED = 2020, 16, 8
_BORDERS = (20, 600)


class Difference(NamedTuple):
    """The largest difference of a stage, relative to the largest value where this is above 1."""

    stage: str
    package: str
    value: float
    largest: float

    @property
    def relative(self) -> float:
        """The difference divided by the largest value, or by 1."""
        return self.value / max(self.largest, 1.0)


def random_weights(seed: int) -> Dict[str, np.ndarray]:
    """A state dict in the layout of pytorch-fid, whose activations keep their size from layer to layer."""
    with tf.Graph().as_default():
        extractors.build(tf.placeholder(tf.float32, [None, graph_2015.SIZE, graph_2015.SIZE, 3]))
        shapes = {variable.op.name: variable.shape.as_list() for variable in tf.global_variables()}
    random = np.random.RandomState(seed)
    tensors: Dict[str, np.ndarray] = {}
    for layer in graph_2015.layers():
        height, width, inputs, outputs = shapes[f'{layer.scope}/weights']
        spread = np.sqrt(2 / (height * width * inputs))
        tensors[f'{layer.module}.conv.weight'] = spread * random.normal(size=[outputs, inputs, height, width])
        tensors[f'{layer.module}.bn.weight'] = np.ones(outputs)
        tensors[f'{layer.module}.bn.bias'] = 0.1 * random.normal(size=outputs)
        tensors[f'{layer.module}.bn.running_mean'] = 0.1 * random.normal(size=outputs)
        tensors[f'{layer.module}.bn.running_var'] = random.uniform(0.5, 1.5, outputs)
    tensors['fc.weight'] = 0.03 * random.normal(size=[graph_2015.CLASSES, 2048])
    tensors['fc.bias'] = 0.1 * random.normal(size=graph_2015.CLASSES)
    counts = {f'{layer.module}.bn.num_batches_tracked': np.array(0) for layer in graph_2015.layers()}
    return {**{name: value.astype(np.float32) for name, value in tensors.items()}, **counts}


def write_images(folder: str, images: int, seed: int) -> None:
    """Writes two folders of PNG files of random sizes, smaller and larger than 299 pixels, with different textures."""
    random = np.random.RandomState(seed)
    with tf.Graph().as_default(), tf.Session() as session:
        blocks, size = tf.placeholder(tf.float32, [None, None, 3]), tf.placeholder(tf.int32, [2])
        pixels = tf.cast(tf.image.resize_bicubic(blocks[tf.newaxis], size)[0], tf.int32)
        encoded = tf.image.encode_png(tf.cast(tf.clip_by_value(pixels, 0, 255), tf.uint8))
        for name, grain in zip(SETS, (6, 12)):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
            for number in range(images):
                values = random.uniform(0, 256, [grain, grain, 3])
                content = session.run(encoded, {blocks: values, size: random.randint(*_BORDERS, size=2)})
                with open(os.path.join(folder, name, f'{number:03d}.png'), 'wb') as file:
                    file.write(content)


def run_packages(python: str, folder: str) -> Tuple[Dict[str, np.ndarray], Dict[str, str]]:
    """Runs both packages, and returns their results and versions.

    Raises:
      CommandError: the environment lacks a package.
      RetryableError: they failed.
    """
    try:
        subprocess.run([python, '-c', 'import torch_fidelity, pytorch_fid.inception'], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise CommandError(
            f'--python={python}: no Python with torch-fidelity and pytorch-fid. Make one:\n'
            '  python3 -m venv .venv-scores\n'
            '  .venv-scores/bin/pip install torch torchvision scipy pillow pytorch-fid==0.3.0 torch-fidelity==0.4.0'
        )
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'packages.py')
    done = subprocess.run([python, script, folder], stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise RetryableError(f'{script}: failed with exit code {done.returncode}; its messages are above.')
    with np.load(os.path.join(folder, 'packages.npz')) as arrays:
        found = dict(arrays)
    with open(os.path.join(folder, 'packages.json'), encoding='utf-8') as file:
        return found, json.load(file)


def own_results(folder: str, screen: Screen) -> Dict[str, Any]:
    """Every stage by this program, with the names of `packages`."""
    found: Dict[str, Any] = {}
    inner = [layer for layer in LAYERS if layer != POOL]
    with contextlib.closing(extractors.of_2015(os.path.join(folder, 'weights.pth'), POOL, inner)) as extractor:
        for each in SETS:
            files = extraction.find([os.path.join(folder, each)])
            values = extraction.extract(extractor, files, _BATCH_SIZE, screen).values
            found[f'resized {each}'] = np.stack([extractor.prepare(_content(path)) for path in files.paths[:_RESIZED]])
            found.update({f'{layer} {each}': values[layer] for layer in inner})
            found[f'{POOL} {each}'], found[f'logits {each}'] = values[FEATURES], values[LOGITS]
            found[f'is {each}'] = [*formulas.inception_score(values[LOGITS], 10, _SEED)]
    for layer in LAYERS:
        moments = [formulas.statistics_of(found[f'{layer} {each}']) for each in SETS]
        found[f'fid {layer}'] = formulas.frechet_distance(*moments)
        found[f'pytorch-fid {layer}'] = found[f'{layer} one'][:_RESIZED]
    found['mean one'], found['covariance one'] = moments[0].mean, moments[0].covariance
    both = [found[f'{POOL} {each}'] for each in SETS]
    found['kid'] = [*formulas.kernel_distance(both[0], both[1], KID['subsets'], KID['subset_size'], _SEED)]
    found['pytorch-fid fid MaxPool2d'] = found['fid MaxPool2d']
    return found


def _content(path: str) -> bytes:
    with open(path, 'rb') as file:
        return file.read()


def differences(own: Dict[str, Any], others: Dict[str, np.ndarray]) -> Iterator[Difference]:
    """The differences of all stages."""
    for name, expected in others.items():
        package = 'pytorch-fid' if name.startswith('pytorch-fid ') else 'torch-fidelity'
        found = np.asarray(own[name], np.float64)
        largest = float(np.abs(expected).max())
        yield Difference(name.replace('pytorch-fid ', ''), package, float(np.abs(found - expected).max()), largest)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Makes the comparison that a command line asks for, and returns the exit code."""
    parser = new_parser('studies.score_agreement', __doc__)
    parser.add_argument('--out', type=folder, default=OUT, help=f'folder of all files (default {OUT})')
    parser.add_argument('--python', default=_PYTHON, help=f'Python with both packages (default {_PYTHON})')
    images_help = 'images of each of the two sets (default 80; more than the 64 features of the first layer)'
    parser.add_argument('--images', type=number_of(int, 65), default=80, help=images_help)
    arguments = parser.parse_args(expanded(argv))

    def command(screen: Screen) -> int:
        check_writable('out', arguments.out)
        np.savez(os.path.join(arguments.out, 'state_dict.npz'), **random_weights(seed=0))
        write_images(arguments.out, arguments.images, seed=1)
        screen.update('running torch-fidelity and pytorch-fid', at_once=True)
        others, versions = run_packages(arguments.python, arguments.out)
        found = [*differences(own_results(arguments.out, screen), others)]
        screen.clear()
        return report(found, versions)

    return program.run(command)


def report(found: Sequence[Difference], versions: Dict[str, str]) -> int:
    """Prints the table of differences.

    Raises:
      CommandError: a difference is above the limit.
    """
    rows: List[Tuple[str, ...]] = [
        (each.stage, each.package, f'{each.largest:.6g}', f'{each.value:.2g}', f'{each.relative:.1g}') for each in found
    ]
    tables.show(('stage', 'package', 'largest value', 'difference', 'relative'), rows, 2)
    print(', '.join(f'{name} {version}' for name, version in versions.items()))
    above = [each for each in found if not each.relative <= _LIMIT]
    if above:
        raise CommandError('\n'.join(f'{e.stage}: differs from {e.package} by {e.relative:.2g}' for e in above))
    return DONE


if __name__ == '__main__':
    sys.exit(main())
