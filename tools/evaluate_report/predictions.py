"""The predictions of an evaluation, image by image, and the comparison of two checkpoints on the same images."""

import csv
import io
import itertools
import os
from typing import List, NamedTuple, Sequence

from compat.messages import shown
from console.json_content import from_json
from data import remote
from data.sources import common_folder
from inception_v3.config import ConfigError
from inception_v3.run.evaluations import Evaluation, evaluation_in
from tools.evaluate_report import FOLDER, JSON_FILE
from tools.paired import Pairs

PREDICTIONS_FILE = 'predictions.csv'


class Prediction(NamedTuple):
    """The label and the most probable class of the image at a position, from 0, in a file of records."""

    file: str
    record: int
    label: int
    predicted: int


class Predictions(NamedTuple):
    """An evaluation with its predictions, the path that the user named, and the file of the predictions."""

    path: str
    evaluation: Evaluation
    images: Sequence[Prediction]
    file: str


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
            evaluation = from_json(report, lambda values: evaluation_in(values['evaluation']))
            header, *rows = csv.reader(io.StringIO(found.decode(errors='surrogateescape'), newline=''))
            if tuple(header) != Prediction._fields or len(rows) != evaluation.images:
                raise ValueError(f'it must have a line for each of {evaluation.images:,} images')
            images = [Prediction(file, *map(int, rest)) for file, *rest in rows]
            right = sum(each.label == each.predicted for each in images)
            if right != round(evaluation.top_1 * evaluation.images):
                raise ValueError(f'{right:,} predictions are right, which top_1 = {evaluation.top_1:.4%} contradicts')
            return Predictions(path, evaluation, images, os.path.join(folder, PREDICTIONS_FILE))
        except (ValueError, TypeError, csv.Error) as error:
            raise ConfigError(f'{folder}: {JSON_FILE} or {PREDICTIONS_FILE} is damaged: {shown(error, 300)}.')
    raise ConfigError(
        f'{path}: has no evaluation report with {PREDICTIONS_FILE}. Write it first: inception-v3 evaluate {path}'
    )


def _by_name(images: Sequence[Prediction]) -> List[Prediction]:
    """The predictions sorted by image, with file names without folders, because the data set may have been moved.

    If files in several folders have the same name, their folders below the common one are kept.
    """
    files = {each.file for each in images}
    names = {file: os.path.basename(file) for file in files}
    if len({*names.values()}) < len(files):
        begin = len(common_folder([*files]))
        names = {file: file[begin:] for file in files}
    return sorted(each._replace(file=names[each.file]) for each in images)


def pairs(ours: Sequence[Prediction], theirs: Predictions) -> Pairs:
    """Compares our predictions with others, image by image.

    Raises:
      ConfigError: the predictions are for different images.
    """
    ours_alone = theirs_alone = 0
    for one, other in itertools.zip_longest(*map(_by_name, (ours, theirs.images))):
        names = [(each.file, each.record, each.label) for each in (one, other) if each]
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
