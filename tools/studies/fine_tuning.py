"""Measures the benefit of weights from another task, by the number of images and by the layers that are trained.

A network is trained on the handwritten digits 0 to 4. From its weights, others are trained on 5 to 9 with few images of
each: only the classifier, also the last blocks, or all layers. Another one is trained from nothing. All take the same
number of steps, and are evaluated on all validation images of 5 to 9. Both parts are sweeps, in the folders OUT/source
and OUT/fine_tuning. The command then prints a table, and writes it with a figure. The same command resumes.
"""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence

from compat.errors import DONE
from console.screen import Screen
from tools.studies.drawing import Panel, chart
from tools.studies.files import Table, prepare, publish, write_json
from tools.studies.sweep import generated

if TYPE_CHECKING:
    from tools.studies.study import Study

OUT = os.path.join('runs', 'studies', 'fine_tuning')
STUDY, SOURCE = 'fine_tuning', 'source'
_OLD, _NEW = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)
_SOURCE_STEPS = 500

# As in --preset=finetune; the network and the size of the images are those of the digits.
_RECIPE = {
    'init_except': 'Logits',
    'optimizer': 'momentum',
    'schedule': 'cosine',
    'learning_rate': 0.04,
    'head_learning_rate': 0.4,
}
# The frozen layers, by name of the part that is trained.
_TRAINED = {
    'classifier': 'Conv2d_*,Mixed_*',
    'last-blocks': 'Conv2d_*,Mixed_5*,Mixed_6*',
    'all-layers': '',
}
FROM_NOTHING = 'from-nothing'
_WAYS = (*_TRAINED, FROM_NOTHING)


def source_study(out: str) -> 'Study':
    """The study that trains the source: one run of the preset on the old digits."""
    question, data_dir = 'Weights for the study of fine-tuning.', _data_dir(out, None)
    return generated.study(SOURCE, question, 1, _SOURCE_STEPS, num_classes=1 + len(_OLD), data_dir=data_dir)


def study(out: str, images: Sequence[int], seeds: int, steps: int) -> 'Study':
    """The study itself; `out`, the folder of the command, has the source's run."""
    weights = os.path.join(out, SOURCE, 'trials', 'default', 'seed-1', 'model')
    ways: Dict[str, Mapping[str, Any]] = {
        name: {**_RECIPE, 'init_from': weights, 'freeze': frozen} for name, frozen in _TRAINED.items()
    }
    # This way has the preset's own recipe.
    ways[FROM_NOTHING] = {}
    data_sets = {str(count): {'data_dir': _data_dir(out, count)} for count in images}
    question = 'How many images are enough to fine-tune a network, and which of its layers should be trained?'
    return generated.study(STUDY, question, seeds, steps, [ways, data_sets], num_classes=1 + len(_NEW))


def _data_dir(out: str, images: Optional[int]) -> str:
    """The folder of the new digits with a number of images; for None, of the old digits with all images."""
    return os.path.join(out, 'data', 'old' if images is None else f'new-{images}')


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the study that a command line asks for, and returns its exit code."""
    defaults = {'out': OUT, 'images': '5,20,139', 'seeds': 5, 'steps': 200}
    return generated.main('fine-tuning', __doc__, defaults, _perform, argv)


def _perform(arguments: argparse.Namespace, screen: Screen) -> int:
    prepare(arguments.out)
    from inception_v3.run import versions
    from tools.datasets import digits

    out = arguments.out
    screen.update('writing the data sets')
    for images in (None, *arguments.images):
        digits.build_if_missing(_data_dir(out, images), _OLD if images is None else _NEW, images)
    screen.clear()
    planned = study(out, arguments.images, arguments.seeds, arguments.steps)
    for each in (source_study(out), planned):
        code = generated.sweep(out, each, arguments.workers, screen)
        if code != DONE:
            return code
    of_cases = generated.accuracies(out, planned)
    # By number of images, by trained part, by seed.
    found = {str(count): {way: of_cases.get(f'{way},{count}', []) for way in _WAYS} for count in arguments.images}
    write_json(os.path.join(out, f'{STUDY}.json'), {'top_1': found, 'versions': versions.current()})
    publish(out, STUDY, 'Weights of another task', (), [table(found)], figure(found))
    return DONE


def table(found: Mapping[str, Mapping[str, Sequence[float]]]) -> Table:
    """The table of the accuracies in per cent, given by number of images, by trained part, by seed."""
    title = 'Top-1 on the digits 5 to 9, in per cent: mean ± standard deviation over the seeds'
    header = ('images of each digit', *(way.replace('-', ' ') for way in _WAYS))
    return Table(title, header, [[images, *map(generated.text_of, of.values())] for images, of in found.items()], 0)


def figure(found: Mapping[str, Mapping[str, Sequence[float]]]) -> bytes:
    """The accuracies as PNG: the means, with bars from the least to the greatest seed."""
    series = {
        way.replace('-', ' ') + ('' if way == FROM_NOTHING else ' trained'): {
            images: generated.spread_of(of[way]) for images, of in found.items()
        }
        for way in _WAYS
    }
    return chart('', [Panel('', 'training images of each digit', 'top-1 on the digits 5 to 9, %', series)], columns=1)


if __name__ == '__main__':
    sys.exit(main())
