"""Measures how the error falls with the number of training images, and fits a power law to it.

Networks are trained on the handwritten digits, from few images of each digit to many, for the same number of steps, and
evaluated on all validation images. Each data set contains the smaller ones. The trials are a sweep, in the folder
OUT/data_size. The command then prints a table with the power law, and writes it with a figure. The same command
resumes.
"""

import argparse
import math
import os
import statistics
import sys
from typing import TYPE_CHECKING, Mapping, NamedTuple, Optional, Sequence

from compat.errors import DONE
from console.screen import Screen
from tools.benchmarks.tables import Spread
from tools.studies.drawing import Panel, chart
from tools.studies.files import Table, prepare, publish, write_json
from tools.studies.sweep import generated

if TYPE_CHECKING:
    from tools.studies.study import Study

OUT = os.path.join('runs', 'studies', 'data_size')
STUDY = 'data_size'
_DIGITS = tuple(range(10))
# The fewest sizes for an interval of the exponent.
_LEAST_SIZES = 3


def study(out: str, images: Sequence[int], seeds: int, steps: int) -> 'Study':
    """The study, with a case for each number of images of each digit."""
    cases = {str(count): {'data_dir': _data_dir(out, count)} for count in images}
    question = 'How does the error fall with the number of training images?'
    return generated.study(STUDY, question, seeds, steps, [cases])


def _data_dir(out: str, images: int) -> str:
    return os.path.join(out, 'data', str(images))


class PowerLaw(NamedTuple):
    """error = factor · images ** -exponent, the error in per cent; the exponent's 95 % interval is ± `margin`."""

    factor: float
    exponent: float
    margin: float

    def __str__(self) -> str:
        return f'error = {self.factor:.0f} % · images^−{self.exponent:.2f}'

    def error(self, images: int) -> float:
        """The error for a number of training images, in per cent."""
        return self.factor * images**-self.exponent


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs the study that a command line asks for, and returns its exit code."""
    defaults = {'out': OUT, 'images': '2,4,8,16,32,64,128', 'seeds': 3, 'steps': 200}
    return generated.main('data-size', __doc__, defaults, _perform, argv)


def _perform(arguments: argparse.Namespace, screen: Screen) -> int:
    prepare(arguments.out)
    from inception_v3.run import versions
    from tools.datasets import digits

    out = arguments.out
    screen.update('writing the data sets')
    for images in arguments.images:
        digits.build_if_missing(_data_dir(out, images), _DIGITS, images)
    screen.clear()
    planned = study(out, arguments.images, arguments.seeds, arguments.steps)
    code = generated.sweep(out, planned, arguments.workers, screen)
    if code != DONE:
        return code
    top_1 = generated.accuracies(out, planned)
    errors = {len(_DIGITS) * int(images): [100 - each for each in values] for images, values in top_1.items()}
    law = fit(errors)
    content = {'error': errors, 'power_law': law and law._asdict(), 'versions': versions.current()}
    write_json(os.path.join(out, f'{STUDY}.json'), content)
    publish(out, STUDY, 'Error by the size of the data set', (), [table(errors, law)], figure(errors, law))
    return DONE


def fit(errors: Mapping[int, Sequence[float]]) -> Optional[PowerLaw]:
    """Fits a power law to errors by number of images, by least squares on logarithms; None for fewer than three sizes.

    Sizes without errors are left out, because 0 has no logarithm.
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
    rows = [
        [f'{images:,}', generated.text_of(values), f'{law.error(images):.1f}' if law else '–']
        for images, values in errors.items()
    ]
    notes = [f'power law: {law}; 95 % interval of the exponent: ± {law.margin:.2f}'] if law else []
    return Table(title, ('training images', 'error', 'power law'), rows, words=0, notes=notes)


def figure(errors: Mapping[int, Sequence[float]], law: Optional[PowerLaw]) -> bytes:
    """The errors as SVG: means, with bars from the least to the greatest seed, and the power law."""
    series = {'measured': {images: generated.spread_of(values) for images, values in errors.items()}}
    if law:
        series[str(law)] = {images: Spread(*[law.error(images)] * 3) for images in errors}
    return chart(
        '', [Panel('', 'training images', 'error of top-1, %', series, is_logarithmic=True)], columns=1, is_svg=True
    )


if __name__ == '__main__':
    sys.exit(main())
