"""Comparisons on the same images, against published values and a simulation; files of predictions."""

import json
import os
from typing import Any, List, Sequence

import numpy as np
import pytest

from inception_v3.config import ConfigError
from tests.support import recorded
from tools.evaluate_report import predictions
from tools.evaluate_report.predictions import Prediction
from tools.paired import Pairs

IMAGES = [Prediction(f'/data/b, "{file}".tfrecord', number, 3, 3) for file in 'yx' for number in range(2)]


def write(folder: Any, images: Sequence[Prediction], **changes: Any) -> str:
    right = sum(each.label == each.predicted for each in images)
    score = right / max(1, len(images))
    evaluation = recorded.evaluation(5, 0)._replace(top_1=score, top_5=score, images=len(images), **changes)
    os.makedirs(str(folder / 'evaluation_report'))
    (folder / 'evaluation_report' / 'report.json').write_text(json.dumps({'evaluation': evaluation._asdict()}))
    (folder / 'evaluation_report' / 'predictions.csv').write_bytes(predictions.content(images))
    return str(folder)


def test_pairs__test_and_interval_have_published_values() -> None:
    # The example of `ci.prop.ps` in statpsych, the package of one of the authors.
    value, *ends = Pairs(48, 26, 4).difference
    assert value == 22 / 48 and ends == pytest.approx([0.2548067, 0.6251933], abs=1e-7)
    # The binomial distribution: at most one of eight, on either side.
    assert Pairs(21, 1, 7).p_value == Pairs(9000, 7, 1).p_value == pytest.approx(2 * (1 + 8) / 2**8)
    assert Pairs(21, 0, 0).p_value == 1 and Pairs(21, 0, 0).difference[0] == 0
    assert str(Pairs(2100, 1, 7)) == (
        "not told apart (p = 0.07, McNemar's exact test): top-1 -0.29 points, 95 % interval -0.58 to +0.01; of 2,100 "
        'images, 1 are right only here, 7 only there'
    )
    assert str(Pairs(21, 0, 7)).startswith('told apart (p = 0.016')


def test_pairs__interval_of_few_images_ends_at_100_points() -> None:
    assert Pairs(3, 3, 0).difference[2] == 1.0 and Pairs(3, 0, 3).difference[1] == -1.0


@pytest.mark.parametrize(('images', 'ours', 'theirs'), [(359, 0.03, 0.02), (359, 0.01, 0.005), (2000, 0.05, 0.05)])
def test_pairs__interval_contains_the_true_difference(images: int, ours: float, theirs: float) -> None:
    drawn = np.random.RandomState(0).multinomial(images, [ours, theirs, 1 - ours - theirs], 4000).tolist()
    intervals = np.array([Pairs(images, one, other).difference for one, other, _ in drawn])
    # With only five images that differ, the interval contains the difference more often.
    assert 0.94 <= np.mean((intervals[:, 1] <= ours - theirs) & (ours - theirs <= intervals[:, 2])) <= 0.985


def test_read__gives_what_was_written_and_pairs_by_image(tmp_path: Any) -> None:
    images = [*IMAGES[:2], Prediction('/data/\udcff', 0, 1, 2)]
    theirs = predictions.read(write(tmp_path, images, changed=('a: 1 -> 2',)))
    assert (theirs.images, theirs.evaluation.changed) == (images, ('a: 1 -> 2',))
    assert predictions.read(str(tmp_path / 'evaluation_report')).images == images
    # In another order and another folder. The first image is wrong here, the last is right.
    other = [IMAGES[0]._replace(predicted=1), IMAGES[1], images[2]._replace(predicted=1)]
    moved = [each._replace(file=each.file.replace('/data', '/moved')) for each in other[::-1]]
    assert predictions.pairs(moved, theirs) == Pairs(3, 1, 1)
    # Files of the same names in several folders: each is right in one of the two.
    parted = [Prediction('/data/a/x', 0, 1, 1), Prediction('/data/b/x', 0, 1, 2)]
    found = predictions.Predictions('', theirs.evaluation, parted, '')
    again = [Prediction('/m/b/x', 0, 1, 1), Prediction('/m/a/x', 0, 1, 2)]
    assert predictions.pairs(again, found) == Pairs(2, 1, 1)
    # The folders of these files now have other names, in another order.
    unique = [Prediction(f'/data/{name}', 0, label, 1) for label, name in enumerate(('a/y', 'b/x'))]
    gathered = [each._replace(file=f'/new/{each.file[-1]}') for each in unique]
    assert predictions.pairs(gathered, found._replace(images=unique)) == Pairs(2, 0, 0)
    wrong = [*images[:2], images[2]._replace(predicted=5)]
    assert predictions.pairs(wrong, theirs) == Pairs(3, 0, 0)


@pytest.mark.parametrize(
    ('images', 'place'),
    [
        ([IMAGES[0], *IMAGES[2:]], 'record 1 of b, "y"'),
        ([*IMAGES[:3], IMAGES[3]._replace(label=4)], 'record 1 of b, "x".tfrecord, la'),
    ],
)
def test_pairs__refuses_other_images(tmp_path: Any, images: List[Prediction], place: str) -> None:
    theirs = predictions.read(write(tmp_path, IMAGES))
    with pytest.raises(ConfigError, match=f'is of other images: 4, here {len(images)}; the first .* {place}'):
        predictions.pairs(images, theirs)


def test_read__refuses_missing_and_damaged_reports(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match=r'none: has no evaluation report with predictions.csv. Write it .*/none$'):
        predictions.read(str(tmp_path / 'none'))
    folder = write(tmp_path, IMAGES)
    file = tmp_path / 'evaluation_report' / 'predictions.csv'
    (tmp_path / 'half').mkdir()
    (tmp_path / 'half' / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ConfigError, match=r'half: has no evaluation report'):
        predictions.read(str(tmp_path / 'half'))
    for content in ('file,record\n', '\n'.join(['file,record,label,predicted', *['a,b,c,d'] * 4]), '', 'a\n'):
        file.write_text(content)
        with pytest.raises(ConfigError, match='is damaged'):
            predictions.read(folder)


@pytest.mark.parametrize(
    ('images', 'problem'),
    [
        (IMAGES[:3], 'it must have a line for each of 4 images'),
        ([*IMAGES, IMAGES[0]._replace(record=9)], 'it must have a line for each of 4 images'),
        ([IMAGES[0]._replace(predicted=1), *IMAGES[1:]], '3 predictions are right, which top_1 = 50.0000% contradicts'),
        ([*IMAGES[:3], *[each._replace(predicted=1) for each in IMAGES[3:]]], '3 predictions are right'),
        (
            [each._replace(predicted=1) for each in IMAGES],
            '0 predictions are right, which',
        ),
    ],
)
def test_read__refuses_predictions_that_the_report_contradicts(
    images: List[Prediction], problem: str, tmp_path: Any
) -> None:
    folder = write(tmp_path, [*IMAGES[:2], *[each._replace(predicted=1) for each in IMAGES[2:]]])
    (tmp_path / 'evaluation_report' / 'predictions.csv').write_bytes(predictions.content(images))
    with pytest.raises(ConfigError, match=rf'predictions\.csv is damaged: {problem}'):
        predictions.read(folder)
