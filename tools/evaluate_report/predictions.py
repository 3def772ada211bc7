"""The predictions of an evaluation, image by image, and the comparison of two checkpoints on the same images."""

import csv
import io
import itertools
import math
import os
from typing import Any, Dict, NamedTuple, Sequence, Tuple

from scipy import stats

from compat.messages import shown
from console.json_content import from_json, record
from data import remote
from inception_v3.config import ConfigError
from inception_v3.run.history import Evaluation
from tools.evaluate_report import FOLDER, JSON_FILE

PREDICTIONS_FILE = 'predictions.csv'
# The 97.5 % quantile of the normal distribution.
_QUANTILE = float(stats.norm.ppf(0.975))


class Prediction(NamedTuple):
    """The label and the most probable class of the image at a position, from 0, in a file of records."""

    file: str
    record: int
    label: int
    predicted: int


class Predictions(NamedTuple):
    """An evaluation with the predictions for its images, and the path from which it was read."""

    path: str
    evaluation: Evaluation
    images: Sequence[Prediction]


class Pairs(NamedTuple):
    """The number of images that two checkpoints have evaluated, and of those that only one of them has right."""

    images: int
    ours_alone: int
    theirs_alone: int

    @property
    def p_value(self) -> float:
        """Of McNemar's exact test: the images that one alone has right are as likely of either."""
        differing = self.ours_alone + self.theirs_alone
        return float(stats.binomtest(self.ours_alone, differing).pvalue) if differing else 1.0

    @property
    def difference(self) -> Tuple[float, float, float]:
        """Our top-1 minus theirs, as a fraction, with the ends of its 95 % interval.

        The interval is Wald's with an image added to both counts: Bonett and Price, "Adjusted Wald Confidence Interval
        for a Difference of Binomial Proportions Based on Paired Data" (2012).
        """
        total = self.images + 2
        ours, theirs = (self.ours_alone + 1) / total, (self.theirs_alone + 1) / total
        half = _QUANTILE * math.sqrt((ours + theirs - (ours - theirs) ** 2) / total)
        value = (self.ours_alone - self.theirs_alone) / self.images
        return value, max(ours - theirs - half, -1.0), min(ours - theirs + half, 1.0)

    def __str__(self) -> str:
        value, low, high = (f'{100 * each:+.2f}' for each in self.difference)
        verdict = 'told apart' if self.p_value < 0.05 else 'not told apart'
        return (
            f"{verdict} (p = {self.p_value:.2g}, McNemar's exact test): top-1 {value} points, 95 % interval {low} "
            f'to {high}; of {self.images:,} images, {self.ours_alone:,} are right only here, '
            f'{self.theirs_alone:,} only there'
        )


def content(images: Sequence[Prediction]) -> bytes:
    """The content of `predictions.csv`."""
    text = io.StringIO()
    csv.writer(text, lineterminator='\n').writerows([Prediction._fields, *images])
    return text.getvalue().encode(errors='surrogateescape')


def read(path: str) -> Predictions:
    """Reads the predictions of a run's evaluation report, from its model_dir or from the report's own folder.

    Raises:
      ConfigError: there is no report with predictions, or it cannot be read.
    """
    for folder in (os.path.join(path, FOLDER), path):
        found, report = (remote.read(os.path.join(folder, name)) for name in (PREDICTIONS_FILE, JSON_FILE))
        if found is None or report is None:
            continue
        try:
            evaluation = from_json(report, lambda values: _evaluation(values['evaluation']))
            header, *rows = csv.reader(io.StringIO(found.decode(errors='surrogateescape'), newline=''))
            if tuple(header) != Prediction._fields or len(rows) != evaluation.images:
                raise ValueError(f'it must have a line for each of {evaluation.images:,} images')
            return Predictions(path, evaluation, [Prediction(file, *map(int, rest)) for file, *rest in rows])
        except (ValueError, TypeError, csv.Error) as error:
            raise ConfigError(f'{folder}: {JSON_FILE} or {PREDICTIONS_FILE} is damaged: {shown(error, 300)}.')
    raise ConfigError(
        f'{path}: has no evaluation report with {PREDICTIONS_FILE}. Write it first: inception-v3 evaluate {path}'
    )


def _evaluation(values: Dict[str, Any]) -> Evaluation:
    return record(Evaluation, {**values, 'changed': tuple(values['changed'])})


def pairs(ours: Sequence[Prediction], theirs: Predictions) -> Pairs:
    """Compares our predictions with others, image by image.

    Raises:
      ConfigError: they are not of the same images.
    """
    ours_alone = theirs_alone = 0
    for one, other in itertools.zip_longest(sorted(ours), sorted(theirs.images)):
        # The folder of the data set may have moved.
        names = [(os.path.basename(each.file), each.record, each.label) for each in (one, other) if each]
        if names[:1] != names[1:]:
            file, position, label = names[0]
            raise ConfigError(
                f'--against={theirs.path}: its report is of other images: {len(theirs.images):,}, here {len(ours):,}; '
                f'the first that differs is record {position} of {shown(file)}, label {label}. Evaluate both '
                'checkpoints on the same files.'
            )
        ours_alone += one.label == one.predicted and one.predicted != other.predicted
        theirs_alone += other.label == other.predicted and one.predicted != other.predicted
    return Pairs(len(ours), ours_alone, theirs_alone)
