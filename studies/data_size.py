"""Measures how the error falls with the number of training images, and fits a power law to it.

Networks are trained on the handwritten digits, with few images of each digit or many, for the same number of steps, and
evaluated on all validation images. A smaller data set is a part of each larger one. The trials are a sweep, whose study
file this command writes: OUT/data_size.yaml. It then prints a table with the power law, and writes it with a figure.
The same command resumes.
"""

import argparse
import math
import os
import statistics
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from benchmarks.comparison import Spread
from console.errors import DONE
from console.screen import Screen
from studies.files import Panel, Table, chart, prepare, publish, write_json
from studies.sweep import generated

OUT = os.path.join('runs', 'studies', 'data_size')
STUDY = 'data_size'
_DIGITS = tuple(range(10))
# The fewest sizes for an interval of the exponent.
_LEAST_SIZES = 3


def study(out: str, images: Sequence[int], seeds: int, steps: int) -> Dict[str, Any]:
    """The study as the content of a YAML file, with a case for each number of images of each digit."""
    return {
        'question': 'How does the error fall with the number of training images?',
        'preset': 'digits',
        # One thread gives the same bits on any number of cores. The average is that of a short run.
        'flags': {
            **{'intra_op_threads': 1, 'moving_average_decay': 0.99},
            **{'train_steps': steps, 'train_steps_per_eval': steps},
        },
        'axes': [{'cases': {str(count): {'data_dir': _data_dir(out, count)} for count in images}}],
        'seeds': seeds,
        'report': ['top_1', 'cross_entropy'],
    }


def _data_dir(out: str, images: int) -> str:
    """The folder of the data set with a number of images of each digit."""
    return os.path.join(out, 'data', str(images))


class PowerLaw(NamedTuple):
    """error = factor · images ** -exponent, the error in per cent; the exponent's 95 % interval is ± `margin`."""

    factor: float
    exponent: float
    margin: float

    def __str__(self) -> str:
        return f'error = {self.factor:.0f} % · images^−{self.exponent:.2f}'

    def error(self, images: int) -> float:
        """The error of a number of images, in per cent."""
        return self.factor * images**-self.exponent


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the study that a command line asks for, and returns its exit code."""
    defaults = {'out': OUT, 'images': '2,4,8,16,32,64,128', 'seeds': 3, 'steps': 200}
    return generated.main('data-size', __doc__, defaults, _perform, argv)


def _perform(arguments: argparse.Namespace, screen: Screen) -> int:
    prepare(arguments.out)
    from data.convert import digits
    from inception_v3.run import source

    out = arguments.out
    screen.update('writing the data sets')
    for images in arguments.images:
        digits.build_if_missing(_data_dir(out, images), _DIGITS, images)
    screen.clear()
    planned = study(out, arguments.images, arguments.seeds, arguments.steps)
    code = generated.sweep(out, STUDY, planned, arguments.workers)
    if code != DONE:
        return code
    top_1 = generated.accuracies(out, STUDY)
    errors = {len(_DIGITS) * int(images): [100 - each for each in values] for images, values in top_1.items()}
    law = fit(errors)
    content = {'error': errors, 'power_law': law and law._asdict(), 'versions': source.versions()}
    write_json(os.path.join(out, f'{STUDY}.json'), content)
    publish(out, STUDY, 'Error by the size of the data set', (), [table(errors, law)], figure(errors, law))
    return DONE


def fit(errors: Mapping[int, Sequence[float]]) -> Optional[PowerLaw]:
    """The line of least squares through the logarithms of the mean errors, by number of images; None: fewer than three.

    A size without any error has no logarithm, and is left out.
    """
    from scipy import stats

    means = {images: statistics.mean(values) for images, values in errors.items() if sum(values)}
    if len(means) < _LEAST_SIZES:
        return None
    line = stats.linregress([*map(math.log, means)], [*map(math.log, means.values())])
    margin = stats.t.ppf(0.975, len(means) - 2) * line.stderr
    return PowerLaw(math.exp(line.intercept), -line.slope, margin)


def table(errors: Mapping[int, Sequence[float]], law: Optional[PowerLaw]) -> Table:
    """The errors and the power law."""
    title = 'Error of top-1 by training images, in per cent: mean ± standard deviation over the seeds'
    rows: List[List[str]] = []
    for images, values in errors.items():
        deviation = f' ± {statistics.stdev(values):.1f}' if len(values) > 1 else ''
        rows.append(
            [f'{images:,}', f'{statistics.mean(values):.1f}{deviation}', f'{law.error(images):.1f}' if law else '–']
        )
    notes = [f'power law: {law}; 95 % interval of the exponent: ± {law.margin:.2f}'] if law else []
    return Table(title, ('training images', 'error', 'power law'), rows, words=0, notes=notes)


def figure(errors: Mapping[int, Sequence[float]], law: Optional[PowerLaw]) -> bytes:
    """The errors as SVG: means, with bars from the least to the greatest seed, and the power law."""
    measured = {images: Spread(statistics.mean(each), min(each), max(each)) for images, each in errors.items()}
    series: Dict[str, Dict[int, Spread]] = {'measured': measured}
    if law:
        series[str(law)] = {images: Spread(*[law.error(images)] * 3) for images in errors}
    return chart('', [Panel('', 'training images', 'error of top-1, %', series, True, True)], columns=1, is_svg=True)


if __name__ == '__main__':
    sys.exit(main())
