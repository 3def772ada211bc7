"""Measures what weights of another task are worth, by the number of images and by the layers that are trained.

A network is trained on the handwritten digits 0 to 4. From its weights, others are trained on 5 to 9 with few images of
each: only the classifier, also the last blocks, or all layers; and one begins from nothing. All take the same number
of steps, and are evaluated on all validation images of 5 to 9. Both parts are sweeps, whose study files this command
writes: OUT/source.yaml and OUT/fine_tuning.yaml. It then prints a table, and writes it with a figure. The same command
resumes.
"""

import argparse
import os
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from console import program
from console.command_line import folder, new_parser, number_of, numbers_of
from console.errors import DONE
from console.paths import expanded
from console.screen import Screen
from studies import extras

# TensorFlow, and the packages of the extra, are imported where they are used: --help does not need them.

OUT = os.path.join('runs', 'studies', 'fine_tuning')
STUDY, SOURCE = 'fine_tuning', 'source'
_OLD, _NEW = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)
# The digit 8 has 139 training images, fewer than any other new one.
IMAGES = (5, 20, 139)
SEEDS, STEPS = 5, 200
_SOURCE_STEPS = 500

# Of all runs. One thread gives the same bits on any number of cores, and lets one trial run per core.
_COMMON = {'intra_op_threads': 1, 'num_classes': 6, 'moving_average_decay': 0.99}
# As in --preset=finetune; the network and the size of the images are those of the digits.
_RECIPE = {
    'init_except': 'Logits',
    'optimizer': 'momentum',
    'schedule': 'cosine',
    'learning_rate': 0.04,
    'head_learning_rate': 0.4,
}
# What is trained, with the layers that are not.
_TRAINED = {
    'classifier': 'Conv2d_*,Mixed_*',
    'last-blocks': 'Conv2d_*,Mixed_5*,Mixed_6*',
    'all-layers': '',
}
FROM_NOTHING = 'from-nothing'


class Row(NamedTuple):
    """The results with a number of images of each digit.

    Attributes:
      images: the number.
      top_1: by what is trained: the accuracy of each seed, in per cent.
    """

    images: int
    top_1: Dict[str, List[float]]


def source_study(out: str) -> Dict[str, Any]:
    """The study that trains the source: one run of the preset on the old digits, as the content of a YAML file."""
    return {
        'question': 'Weights for the study of fine-tuning.',
        'preset': 'digits',
        'flags': {**_steps(_SOURCE_STEPS), 'data_dir': _data_dir(out, None)},
        'seeds': 1,
    }


def study(out: str, images: Sequence[int], seeds: int, steps: int) -> Dict[str, Any]:
    """The study itself, as the content of a YAML file.

    Args:
      out: the folder of the command, in which the source's run is.
      images: the numbers of training images of each digit.
      seeds: number of seeds.
      steps: training steps of each trial.
    """
    weights = os.path.join(out, SOURCE, 'trials', 'default', 'seed-1', 'model')
    ways: Dict[str, Mapping[str, Any]] = {
        name: {**_RECIPE, 'init_from': weights, 'freeze': frozen} for name, frozen in _TRAINED.items()
    }
    # The recipe of the preset.
    ways[FROM_NOTHING] = {}
    return {
        'question': 'How many images are enough to fine-tune a network, and which of its layers should be trained?',
        'preset': 'digits',
        'flags': _steps(steps),
        'axes': [
            {'cases': ways},
            {'cases': {str(count): {'data_dir': _data_dir(out, count)} for count in images}},
        ],
        'seeds': seeds,
        'report': ['top_1', 'cross_entropy'],
    }


def _steps(steps: int) -> Dict[str, Any]:
    """The flags of all runs that train so many steps, and are evaluated at the last one."""
    return {**_COMMON, 'train_steps': steps, 'train_steps_per_eval': steps}


def _data_dir(out: str, images: Optional[int]) -> str:
    """The folder of the new digits with a number of images; None: of the old ones with all images."""
    return os.path.join(out, 'data', 'old' if images is None else f'new-{images}')


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the study that a command line asks for, and returns its exit code."""
    parser = new_parser('fine-tuning', __doc__)
    parser.add_argument(
        '--out', type=folder, default=OUT, help=f'folder of everything, created if missing (default {OUT})'
    )
    parser.add_argument(
        '--images',
        type=numbers_of(int, 1, IMAGES[-1]),
        default=IMAGES,
        help=f'numbers of training images of each digit (default {",".join(map(str, IMAGES))})',
    )
    for name, default, purpose in (
        ('seeds', SEEDS, 'seeds of each case'),
        ('steps', STEPS, 'training steps from the weights'),
        ('workers', 1, 'trials at a time'),
    ):
        number = number_of(int, 1)
        parser.add_argument(f'--{name}', type=number, default=default, help=f'{purpose} (default {default})')
    arguments = parser.parse_args(expanded(argv))
    return program.run(lambda screen: _perform(arguments, screen), 'interrupted; the same command resumes')


def _perform(arguments: argparse.Namespace, screen: Screen) -> int:
    extras.require('studies')
    from data.convert import digits
    from inception_v3.run.files import check_writable

    out = arguments.out
    check_writable('out', out)
    screen.update('writing the data sets')
    for images in (None, *arguments.images):
        digits.build_if_missing(_data_dir(out, images), _OLD if images is None else _NEW, images)
    screen.clear()
    planned = study(out, arguments.images, arguments.seeds, arguments.steps)
    for name, content in ((SOURCE, source_study(out)), (STUDY, planned)):
        code = _sweep(out, name, content, arguments.workers)
        if code != DONE:
            return code
    rows = results(out, arguments.images)
    print(f'\n{table(rows)}')
    _write(out, rows)
    print(f'\nwritten: {STUDY}.json, {STUDY}.md and {STUDY}.png in {out}')
    return DONE


def _sweep(out: str, name: str, content: Mapping[str, Any], workers: int) -> int:
    """Writes a study file, and runs its sweep."""
    import yaml

    from data.files import write_whole
    from studies.sweep import plan, run

    path = os.path.join(out, f'{name}.yaml')
    write_whole(path, yaml.safe_dump(content, sort_keys=False))
    return run.run(plan.make(path, os.path.join(out, name)), workers)


def results(out: str, images: Sequence[int]) -> List[Row]:
    """Reads the results of the trials that are done."""
    from studies.study import load
    from studies.sweep import trials

    found: Dict[str, List[float]] = {}
    planned = load(os.path.join(out, f'{STUDY}.yaml'))
    for trial in trials.trials_of(planned, os.path.join(out, STUDY)):
        evaluation = trials.last_evaluation(trial)
        if evaluation and evaluation.step == trial.config.train_steps:
            found.setdefault(trial.case, []).append(100 * evaluation.top_1)
    ways = [*_TRAINED, FROM_NOTHING]
    return [Row(count, {way: found.get(f'{way},{count}', []) for way in ways}) for count in images]


def table(rows: Sequence[Row]) -> str:
    """A table in Markdown: top-1 in per cent, mean ± standard deviation over the seeds."""
    from studies.report.runs import Metric
    from studies.report.sections import markdown_table
    from studies.report.statistics import summarize

    metric = Metric('top-1', '%', 'points', 1)
    head = ['images of each digit', *(way.replace('-', ' ') for way in rows[0].top_1)]
    cells = [[str(row.images), *(metric.mean(summarize(values)) for values in row.top_1.values())] for row in rows]
    return markdown_table(head, cells, words=0)


def _write(out: str, rows: Sequence[Row]) -> None:
    from data.files import write_whole
    from inception_v3.run import source
    from studies.files import write_json

    measured = {str(row.images): row.top_1 for row in rows}
    write_json(os.path.join(out, f'{STUDY}.json'), {'top_1': measured, 'versions': source.versions()})
    write_whole(os.path.join(out, f'{STUDY}.md'), table(rows) + '\n')
    write_whole(os.path.join(out, f'{STUDY}.png'), figure(rows))


def figure(rows: Sequence[Row]) -> bytes:
    """Draws the accuracy by the number of images as PNG: the means as lines, the seeds as points."""
    from matplotlib.figure import Figure

    from studies.report.drawing import dashes, lay_out, png
    from studies.report.palette import sign_of
    from studies.report.statistics import summarize

    drawn = Figure(figsize=(7.5, 4.5), dpi=130, facecolor='white')
    axes = drawn.subplots()
    lay_out(axes)
    for index, way in enumerate(rows[0].top_1):
        sign = sign_of(index)
        done = [row for row in rows if row.top_1[way]]
        means = [summarize(row.top_1[way]).mean for row in done]
        label = way.replace('-', ' ') + ('' if way == FROM_NOTHING else ' trained')
        axes.plot([row.images for row in done], means, color=sign.light, linestyle=dashes(sign), label=label)
        x, y = zip(*[(row.images, value) for row in done for value in row.top_1[way]]) if done else ((), ())
        axes.scatter(x, y, s=18, color=sign.light, marker=sign.matplotlib_mark, alpha=0.6)
    axes.set_xscale('log')
    axes.set_xticks([row.images for row in rows])
    axes.set_xticklabels([str(row.images) for row in rows])
    axes.minorticks_off()
    axes.set_xlabel('training images of each digit')
    axes.set_ylabel('top-1 on the digits 5 to 9, %')
    axes.legend(loc='lower right', frameon=False)
    drawn.tight_layout()
    return png(drawn)


if __name__ == '__main__':
    sys.exit(main())
