"""Converts weights of Inception v3 and ResNet-50 between this program and other frameworks, and compares models.

  import   a file of TF-Slim, Keras, torchvision or timm -> a model_dir, for
           --init_from, --mode=eval, predict and export
  export   the weights of a run, or a file of any kind -> a file for another
           framework
  compare  two models on the same images: logits, top-1, features, and the
           largest difference of each layer

No framework is needed to read or write its files, and code in files of PyTorch is not executed.
"""

import argparse
import sys
from typing import Any, Callable, List, Optional, Sequence, Tuple

from compat import native_messages
from compat.errors import DONE, CommandError
from compat.messages import full
from console import program
from console.screen import Screen
from tools.parsers import new_parser
from tools.weights.choices import ADD, DROP, KEEP, PIXELS, TARGETS


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Imports, exports or compares as a command line asks, and returns the exit code."""
    arguments = _parser().parse_args(argv)

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
    add = tasks.add_parser('import', help='make a model_dir of a file of another framework').add_argument
    add(
        'source',
        metavar='FILE',
        help='a checkpoint, SavedModel, .npz, .h5, .keras, .pth, .safetensors or .pb file, or a folder or tar of one',
    )
    add('model_dir', metavar='MODEL_DIR', help='a new folder; may be remote')
    add('--data_dir', default='', metavar='DIR', help='data set of these classes; names the classes')
    about = 'names of the classes: a name per line, synset_words.txt, imagenet_class_index.json and the like'
    add('--labels', default='', metavar='FILE', help=about)
    _add_changes(add)
    _add_reading(add, 'write the weights without averages; without it, the averages equal the weights')
    add = tasks.add_parser('export', help='write the weights of a run for another framework').add_argument
    add('source', metavar='SOURCE', help='a model_dir, checkpoint or SavedModel, or a file as for import')
    add('file', metavar='FILE', help='a new file, or for slim a new checkpoint; may be remote')
    add('--to', required=True, choices=sorted(TARGETS), help='the framework')
    _add_changes(add)
    _add_reading(add, 'the weights of a run, not the averages of them')
    task = tasks.add_parser('compare', help='run two models on the same images')
    task.set_defaults(auxiliary_head=True, classifier=True, class_0=KEEP)
    add = task.add_argument
    add('a', metavar='A', help='a model_dir, checkpoint or SavedModel, or a file as for import')
    add('b', metavar='B', help='the same')
    add('images', nargs='+', metavar='IMAGE', help='an image file, or a folder')
    _add_reading(add, 'the weights of a run, not the averages of them')
    return parser


def _add_changes(add: Callable[..., Any]) -> None:
    about = (
        'the class 0, which is the background here and in TF-Slim, and not there in other frameworks: leave the '
        'classes as they are (default), add one that is never predicted, or drop it'
    )
    add('--class_0', choices=(KEEP, ADD, DROP), default=KEEP, help=about)
    add('--no_auxiliary_head', dest='auxiliary_head', action='store_false', help='leave the auxiliary classifier out')
    about = 'leave all classifiers out, to begin a run from'
    add('--no_classifier', dest='classifier', action='store_false', help=about)


def _add_reading(add: Callable[..., Any], about_averages: str) -> None:
    add('--no_averages', dest='averages', action='store_false', help=about_averages)
    about = (
        'the pixels that the other framework gives the model: inception, in [-1, 1], as to the published Inception v3 '
        'of all frameworks; imagenet, minus the mean and divided by the deviation of each colour, as to the ResNet-50 '
        'of torchvision; or unit, in [0, 1]. Default: those that the file or a config.json beside it describes, or '
        'those of the published network'
    )
    add('--pixels', choices=PIXELS, default='', help=about)
    about = 'one of several models in a file of PyTorch or in a checkpoint'
    add('--which', default='', metavar='KEY', help=about)
    about = "default: that of the run's config.json, or 1"
    add('--depth_multiplier', type=float, default=0.0, metavar='X', help=about)


def _read(path: str, arguments: argparse.Namespace) -> Tuple[Any, List[str]]:
    """The weights of a file, with class 0 changed as requested, and lines about them."""
    from tools.weights import changes, foreign

    options = {name: getattr(arguments, name) for name in foreign.Options._fields}
    weights = foreign.read(path, foreign.Options(**options))
    values = changes.change_class_0(weights.values, weights.architecture, arguments.class_0)
    return weights._replace(values=values), [f'read {weights}', *weights.notes]


def _import(arguments: argparse.Namespace) -> List[str]:
    from tools.weights import class_names, foreign, writing

    # Before anything takes time.
    writing.check_new_folder(arguments.model_dir)
    labels = class_names.read(arguments.labels) if arguments.labels else []
    weights, lines = _read(arguments.source, arguments)
    if arguments.pixels and weights.config:
        raise CommandError(f'--pixels={arguments.pixels}: {weights.path} is of a run; its config.json has its pixels.')
    if labels and not weights.num_classes:
        raise CommandError(f'--labels={arguments.labels}: {weights.path} has no classifier, and so no classes.')
    names, origin = labels, f'--labels={arguments.labels}'
    if not names and weights.description:
        names, origin = [*weights.description.names], weights.description.origin
    if names and weights.num_classes:
        is_ours = weights.origin == foreign.OURS
        names = class_names.for_classes(names, origin, weights.num_classes, arguments.class_0, is_ours)
    options = arguments.averages, arguments.data_dir, arguments.classifier, names
    return [*lines, *writing.import_into(arguments.model_dir, weights, *options)]


def _export(arguments: argparse.Namespace) -> List[str]:
    from tools.weights import foreign, writing

    # Before anything takes time.
    writing.check_new_file(arguments.file, arguments.to)
    pixels, arguments.pixels = arguments.pixels, ''
    weights, lines = _read(arguments.source, arguments)
    # The flag concerns the other framework: the one that wrote the file, or the one that will read it.
    images = pixels if weights.origin == foreign.OURS else ''
    if pixels != images:
        arguments.pixels = pixels
        weights, lines = _read(arguments.source, arguments)
    return [*lines, *writing.export(weights, arguments.file, arguments.to, images)]


def _compare(arguments: argparse.Namespace) -> List[str]:
    from tools import image_files
    from tools.weights import comparison
    from tools.weights.foreign import OneModelError

    models, which, unused = [], arguments.which, []
    for path in (arguments.a, arguments.b):
        try:
            models.append(_read(path, arguments)[0])
        except OneModelError as error:
            # The key may be for the other file.
            unused.append(error)
            arguments.which = ''
            models.append(_read(path, arguments)[0])
            arguments.which = which
    if len(unused) > 1:
        raise unused[0]
    found = image_files.find(arguments.images)
    for path, problem in found.problems.items():
        raise CommandError(f'{full(path)}: {problem}')
    return comparison.compare(models, found.paths)


if __name__ == '__main__':
    sys.exit(main())
