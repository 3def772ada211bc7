"""Converts weights of Inception v3 and ResNet-50 between this program and other frameworks, and compares models.

  import   a file of TF-Slim, Keras, torchvision or timm -> a model_dir for --init_from, --mode=eval, predict and export
  export   the weights of a run, or a file of any kind -> a file for another framework
  compare  two models on the same images: logits, top-1, features, and the largest difference of each layer

No framework is needed to read or write its files, and code in files of PyTorch is not executed.
"""

import argparse
import sys
from typing import List, Optional, Sequence

import numpy as np

from console import native_messages, program
from console.command_line import new_parser
from console.errors import DONE
from console.messages import shown
from console.paths import expanded
from console.screen import Screen
from data import image_files
from inception_v3.commands.weights import comparison, foreign, writing
from inception_v3.commands.weights.changes import ADD, DROP, KEEP, change_class_0
from inception_v3.commands.weights.comparison import Comparison, Model
from inception_v3.commands.weights.foreign import OURS, Weights
from inception_v3.weights.sources import WeightsError

_FOREIGN_PIXELS = ('inception', 'imagenet')


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Imports, exports or compares as a command line asks, and returns the exit code."""
    arguments = _parser().parse_args(expanded(argv))

    def command(screen: Screen) -> int:
        screen.update(f'{arguments.task}: reading weights')
        lines = {'import': _import, 'export': _export, 'compare': _compare}[arguments.task](arguments)
        screen.clear()
        for line in lines:
            print(line)
        return DONE

    with native_messages.captured():
        return program.run(command)


def _parser() -> argparse.ArgumentParser:
    parser = new_parser('weights', __doc__)
    tasks = parser.add_subparsers(dest='task', required=True)
    task = tasks.add_parser('import', help='make a model_dir of a file of another framework')
    task.add_argument('source', metavar='FILE', help='a checkpoint, .npz, .h5, .keras, .pth or .safetensors file')
    task.add_argument('model_dir', metavar='MODEL_DIR', help='a new folder; may be remote')
    task.add_argument('--data_dir', default='', metavar='DIR', help='data set of these classes; names the classes')
    _add_changes(task, 'write the weights without averages; without it, the averages equal the weights')
    task = tasks.add_parser('export', help='write the weights of a run for another framework')
    task.add_argument('source', metavar='SOURCE', help='a model_dir, checkpoint or SavedModel, or a file as for import')
    task.add_argument('file', metavar='FILE', help='a new file, or for slim a new checkpoint; may be remote')
    task.add_argument('--to', required=True, choices=sorted(writing.TARGETS), help='the framework')
    _add_changes(task, 'the weights of a run, not the averages of them')
    task = tasks.add_parser('compare', help='run two models on the same images')
    task.add_argument('a', metavar='A', help='a model_dir, checkpoint or SavedModel, or a file as for import')
    task.add_argument('b', metavar='B', help='the same')
    task.add_argument('images', nargs='+', metavar='IMAGE', help='an image file, a folder, or a pattern in quotes')
    task.add_argument(
        '--own_framework',
        action='store_true',
        help='run files of Keras and PyTorch there; without it, all weights run in the network of this program',
    )
    task.add_argument('--torch_python', metavar='PATH', help='Python with torchvision (default: .venv-frameworks)')
    task.add_argument('--no_averages', action='store_true', help='the weights of a run, not the averages of them')
    _add_reading(task)
    return parser


def _add_changes(task: argparse.ArgumentParser, about_averages: str) -> None:
    task.add_argument(
        '--class_0',
        choices=(KEEP, ADD, DROP),
        default=KEEP,
        help='the class 0, which is the background here and in TF-Slim, and not there in other frameworks: leave the '
        'classes as they are (default), add one that is never predicted, or drop it',
    )
    task.add_argument('--no_auxiliary_head', action='store_true', help='leave the auxiliary classifier out')
    task.add_argument('--no_classifier', action='store_true', help='leave all classifiers out, to begin a run from')
    task.add_argument('--no_averages', action='store_true', help=about_averages)
    _add_reading(task)


def _add_reading(task: argparse.ArgumentParser) -> None:
    task.add_argument(
        '--pixels',
        choices=_FOREIGN_PIXELS,
        default='',
        help='the pixels that the other framework gives the model: inception, in [-1, 1], as to the published '
        'Inception v3 of all frameworks; or imagenet, minus the mean and divided by the deviation of each colour, as '
        'to the ResNet-50 of torchvision. Default: those of the published network',
    )
    task.add_argument(
        '--which', default='', metavar='KEY', help='of several models in a file of PyTorch; default: the averages'
    )
    task.add_argument(
        '--depth_multiplier', type=float, default=0.0, metavar='X', help="default: that of the run's config.json, or 1"
    )


def _read(path: str, arguments: argparse.Namespace) -> Weights:
    return foreign.read(
        path,
        averages=not arguments.no_averages,
        auxiliary_head=not getattr(arguments, 'no_auxiliary_head', False),
        images=arguments.pixels,
        depth_multiplier=arguments.depth_multiplier,
        classifier=not getattr(arguments, 'no_classifier', False),
        which=arguments.which,
    )


def _with_classes(weights: Weights, arguments: argparse.Namespace) -> Weights:
    return weights._replace(values=change_class_0(weights.values, weights.architecture, arguments.class_0))


def _about(weights: Weights) -> List[str]:
    lines = [f'read {weights}', *weights.notes]
    if weights.folded:
        lines.append(
            f'  folded the scales of {len(weights.folded)} layers into their kernels: evaluation computes the same; '
            'batch normalization in training removes them'
        )
    return lines


def _import(arguments: argparse.Namespace) -> List[str]:
    weights = _read(arguments.source, arguments)
    changed = _with_classes(weights, arguments)
    lines = writing.import_into(
        arguments.model_dir, changed, not arguments.no_averages, arguments.data_dir, not arguments.no_classifier
    )
    return [*_about(weights), *lines]


def _export(arguments: argparse.Namespace) -> List[str]:
    weights = _read(arguments.source, arguments)
    # The flag is about the framework that this program is not.
    images = arguments.pixels if weights.origin == OURS else ''
    return [*_about(weights), *writing.export(_with_classes(weights, arguments), arguments.file, arguments.to, images)]


def _compare(arguments: argparse.Namespace) -> List[str]:
    models = []
    for path in (arguments.a, arguments.b):
        weights = _read(path, arguments)
        framework = weights.origin if arguments.own_framework else OURS
        models.append(Model(weights, framework, arguments.torch_python))
    found = image_files.find(arguments.images)
    if found.problems:
        path, problem = next(iter(found.problems.items()))
        raise WeightsError(f'{image_files.show(path)}: {problem}')
    config = comparison.config_for(models)
    contents = [image_files.read(path) for path in found.paths]
    result = comparison.compare(models, comparison.prepared(found.paths, contents, config), config.preprocessing)
    return [*_models(models), *_table(result), *_classes(found.paths, result)]


def _models(models: Sequence[Model]) -> List[str]:
    return [f'{letter}  {model}' for letter, model in zip('AB', models)]


def _table(result: Comparison) -> List[str]:
    lines = ['', f'{"layer":<20}  {"largest difference":>18}  {"largest value of A":>18}']
    for row in result.rows:
        lines.append(f'{row.name:<20}  {row.difference:>18.3g}  {row.largest:>18.3g}')
    sizes = [logits.shape[1] for logits in result.logits]
    if sizes[0] != sizes[1]:
        lines.append(
            f'logits: not compared, because A has {sizes[0]:,} classes and B {sizes[1]:,}. If one of them has a '
            'background as class 0, convert it with --class_0=drop.'
        )
    return lines


def _classes(paths: Sequence[str], result: Comparison) -> List[str]:
    """The most probable class of each image in both models."""
    probabilities = [_softmax(logits) for logits in result.logits]
    lines = ['', f'{"top-1 of A":>16}  {"top-1 of B":>16}  image']
    agree = 0
    for number, path in enumerate(paths):
        best = [int(each[number].argmax()) for each in probabilities]
        texts = [f'{label:>8} {each[number][label]:7.2%}' for label, each in zip(best, probabilities)]
        lines.append(f'{texts[0]:>16}  {texts[1]:>16}  {shown(image_files.show(path))}')
        agree += best[0] == best[1]
    return [*lines, f'the same top-1 for {agree:,} of {len(paths):,} images']


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


if __name__ == '__main__':
    sys.exit(main())
