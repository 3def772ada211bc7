"""Tests of the analysis of errors, against scikit-learn and sums by hand, and of the figures and the page."""

import io
import json
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
import pytest
import sklearn.metrics
from PIL import Image

from inception_v3.config import PADDING_LABEL
from inception_v3.run.evaluations import Evaluation
from tests.support.browser import browser
from tests.support.pages import Page, read_page
from tools import drawing
from tools.evaluate_report import page
from tools.evaluate_report.analysis import BINS, Bin, ErrorAnalysis
from tools.evaluate_report.page import ErrorReport

CLASSES = 7


def made_up(images: int, seed: int = 0) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns random labels, logits that favour them, and pixels whose value is the number of the image."""
    random = np.random.RandomState(seed)
    labels = random.randint(1, CLASSES, images).astype(np.int32)
    logits = random.normal(0, 1.5, [images, CLASSES]).astype(np.float32)
    logits[np.arange(images), labels] += 1.5
    pixels = (
        np.zeros([images, 2, 3, 3], np.uint8) + np.arange(images, dtype=np.uint8)[:, np.newaxis, np.newaxis, np.newaxis]
    )
    return labels, logits, pixels


def analysed(labels: Sequence[int], logits: np.ndarray, pixels: Optional[np.ndarray] = None) -> ErrorAnalysis:
    """Analyses images, black by default, in batches of 16, the last one padded."""
    count, classes = logits.shape
    analysis = ErrorAnalysis(classes)
    missing = -count % 16
    padded = (
        np.append(np.array(labels, np.int32), np.full(missing, PADDING_LABEL, np.int32)),
        np.concatenate([logits, 100 * np.ones([missing, classes], np.float32)]),
        np.zeros([count + missing, 2, 3, 3], np.uint8),
    )
    if pixels is not None:
        padded[2][:count] = pixels
    places = [(f'data/<{number}>', number) for number in range(count)]
    for begin in range(0, len(padded[0]), 16):
        batch_labels, batch_logits, batch_pixels = (part[begin : begin + 16] for part in padded)
        analysis.add(batch_labels, batch_logits, batch_pixels, places[begin : begin + 16])
    return analysis


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def test_analysis__agrees_with_scikit_learn_and_with_sums_over_the_images() -> None:
    labels, logits, pixels = made_up(250)
    analysis = analysed(labels, logits, pixels)
    predicted, probabilities = logits.argmax(axis=1), softmax(logits)
    expected = sklearn.metrics.confusion_matrix(labels, predicted, labels=range(CLASSES))
    np.testing.assert_array_equal(analysis.confusion, expected)
    assert analysis.images == 250
    top_5 = (np.argsort(-logits, axis=1)[:, :5] == labels[:, np.newaxis]).any(axis=1)
    # The background has no images.
    assert analysis.classes[0] == (0, 0, None, None, (predicted == 0).sum())
    for c in analysis.classes[1:]:
        own = labels == c.label
        assert (c.images, c.predicted) == (own.sum(), (predicted == c.label).sum())
        assert (c.top_1, c.top_5) == pytest.approx(((predicted[own] == c.label).mean(), top_5[own].mean()))
    # The mean recall of the classes with images.
    recalls = sklearn.metrics.recall_score(labels, predicted, labels=[*{*labels}], average=None)
    assert analysis.balanced_accuracy == pytest.approx(recalls.mean())
    assert abs(analysis.balanced_accuracy - (predicted == labels).mean()) > 1e-3
    counts = [pair.images for pair in analysis.confusions]
    assert counts == sorted(counts, reverse=True) and sum(counts) == (predicted != labels).sum()
    first = analysis.confusions[0]
    assert first.images == ((labels == first.label) & (predicted == first.predicted)).sum()

    confidences, right, error = probabilities.max(axis=1), predicted == labels, 0.0
    for index, b in enumerate(analysis.bins):
        inside = (confidences > index / BINS) & (confidences <= (index + 1) / BINS)
        assert b.images == inside.sum()
        if b.images:
            assert (b.confidence, b.top_1) == pytest.approx((confidences[inside].mean(), right[inside].mean()))
            error += inside.mean() * abs(right[inside].mean() - confidences[inside].mean())
    assert analysis.expected_calibration_error == pytest.approx(error) and error > 0.01

    wrong = np.flatnonzero(~right)
    worst = wrong[np.argsort(-confidences[wrong], kind='stable')][:48]
    assert len(wrong) > 48
    assert [mistake.position for mistake in analysis.mistakes] == worst.tolist()
    for number, mistake in zip(worst, analysis.mistakes):
        assert (mistake.label, mistake.predicted) == (labels[number], predicted[number])
        assert mistake.path == f'data/<{number}>'
        assert mistake.confidence == pytest.approx(confidences[number], rel=1e-5)
        assert mistake.probability_of_label == pytest.approx(probabilities[number, labels[number]], rel=1e-5)
        assert [c for c, _ in mistake.likeliest] == np.argsort(-logits[number])[:5].tolist()
        assert mistake.pixels.base is None and (mistake.pixels == number).all()


def test_ties__count_as_correct_and_keep_the_first_mistakes() -> None:
    logits = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1]], np.float32)
    analysis = analysed([0, 1, 0], logits)
    np.testing.assert_array_equal(analysis.confusion, [[1, 1, 0], [0, 1, 0], [0, 0, 0]])
    assert [mistake.position for mistake in analysis.mistakes] == [2]
    # In two batches.
    analysis = analysed([1] * 20, np.tile([[1.0, 0.0]], [20, 1]))
    assert [mistake.position for mistake in analysis.mistakes] == [*range(20)]


@pytest.mark.parametrize(('classes', 'edge'), [(3, 5), (15, 1), (1, 15)])
def test_bins__a_confidence_on_an_edge_is_in_the_bin_below(classes: int, edge: int) -> None:
    # Equal logits: the confidence is 1 / classes, which is edge / 15. Bins exclude their lower bound.
    analysis = analysed([0], np.zeros([1, classes], np.float32))
    assert [b.images for b in analysis.bins] == [int(index == edge - 1) for index in range(15)]
    found = analysis.bins[edge - 1]
    assert (found.lower, found.upper) == (pytest.approx((edge - 1) / 15), pytest.approx(edge / 15))
    assert found.confidence == pytest.approx(1 / classes) and found.top_1 == 1


@pytest.fixture
def drawn(monkeypatch: Any) -> List[Any]:
    """The figures that a test draws; their files are not written."""
    figures: List[Any] = []
    monkeypatch.setattr(drawing, 'png', figures.append)
    return figures


@pytest.mark.parametrize(
    ('rows', 'first', 'shares', 'numbers'),
    [
        # Class 1 has images; class 3 has none, but is predicted. The other classes do not occur.
        ({1: [0, 3, 0, 1, 0]}, 0, [[0.75, 0.25], [0, 0]], [((0, 0), '3'), ((1, 0), '1')]),
        # Images classified as the background count in their rows; a new network may classify all of them so.
        ({1: [3, 1, 0, 0, 0], 3: [2, 0, 0, 0, 0]}, 1, [[0.25, 0], [0, 0]], [((0, 0), '1')]),
        ({1: [4, 0, 0, 0, 0], 3: [2, 0, 0, 0, 0]}, 1, [[0, 0], [0, 0]], []),
    ],
)
def test_confusion_matrix__has_shares_of_labels_that_occur(
    drawn: List[Any], rows: Any, first: int, shares: Any, numbers: Any
) -> None:
    confusion = np.zeros([5, 5], np.int64)
    for label, row in rows.items():
        confusion[label] = row
    names = ['background', 'ant', 'bee', 'a name of $20 characters', 'dog']
    page.confusion_matrix(confusion, names, first)
    axes = drawn[0].axes[0]
    np.testing.assert_allclose(axes.images[0].get_array(), shares)
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        assert [label.get_text() for label in labels] == ['ant', r'a name of \$20 ch…']
    assert [(text.get_position(), text.get_text()) for text in axes.texts] == numbers
    assert (axes.get_xlabel(), axes.get_ylabel()) == ('predicted class', 'label')


def test_confusion_matrix__of_a_thousand_classes_has_a_pixel_for_each() -> None:
    size = Image.open(io.BytesIO(page.confusion_matrix(np.eye(1001, dtype=int), [''] * 1001))).size
    assert min(size) > 1001


def test_confusion_matrix__of_many_classes_has_few_labels(drawn: List[Any]) -> None:
    page.confusion_matrix(np.eye(31, dtype=int), [''] * 31)
    assert [label.get_text() for label in drawn[0].axes[0].get_xticklabels()] == [str(n) for n in range(0, 31, 3)]
    assert not drawn[0].axes[0].texts


def test_reliability_diagram__has_top_1_and_confidence_of_each_bin(drawn: List[Any]) -> None:
    bins = [Bin(0, 1 / 15, 0, None, None), Bin(0.8, 0.8 + 1 / 15, 40, 0.82, 0.7), Bin(1 - 1 / 15, 1, 2, 0.99, 1.0)]
    page.reliability_diagram(bins, 0.1234)
    above, below = drawn[0].axes
    assert [patch.get_height() for patch in above.patches] == [0.7, 1.0]
    assert [patch.get_height() for patch in below.patches] == [40, 2]
    for axes in (above, below):
        assert [patch.get_x() for patch in axes.patches] == pytest.approx([0.8, 14 / 15])
    (confidences,) = above.collections
    expected = [[[0.8, 0.82], [0.8 + 1 / 15, 0.82]], [[14 / 15, 0.99], [1, 0.99]]]
    np.testing.assert_allclose(confidences.get_segments(), expected)
    assert above.get_title(loc='left') == 'expected calibration error 12.34%'


def report_of(analysis: ErrorAnalysis, names: List[str]) -> ErrorReport:
    evaluation = Evaluation(5, 'model.ckpt-5', 'raw', 0.5, 0.75, 1.25, analysis.images, 1.0, 'now')
    return ErrorReport('runs/a&b', evaluation, analysis, names, ['A note.'])


# Drawing takes a second.
NO_FIGURES = {'confusion.png': bytes(99), 'reliability.png': bytes(99)}


def write_page(report: ErrorReport, folder: Any, figures: Any = NO_FIGURES) -> Tuple[Page, str]:
    """Writes the page; returns it parsed, and its text with bars between pieces."""
    path = folder / 'page.html'
    path.write_text(report.html(figures))
    parsed = read_page(path)
    return parsed, '|'.join(piece for piece in parsed.text if piece)


def test_page__has_the_numbers_of_the_analysis(tmp_path: Any) -> None:
    # The label and the likeliest classes of each image, most probable first.
    images = [(1, [1, 2]), (1, [2, 3]), (1, [3, 1]), (2, [2, 1]), (3, [5, 6, 4, 1, 2])]
    logits = np.zeros([len(images), 7], np.float32)
    for row, (_, likeliest) in enumerate(images):
        logits[row, likeliest] = np.log([100.0, 50.0, 25.0, 12.0, 6.0][: len(likeliest)])
    names = ['background', 'ant', 'bee', '<b>cat</b>', 'dog', '', 'eel']
    report = report_of(analysed([label for label, _ in images], logits), names)
    _, text = write_page(report, tmp_path)
    content = (tmp_path / 'page.html').read_text()
    # The lowest top-1 first; classes without images are only counted.
    rows = '3|<b>cat</b>|1|0.0 %|0.0 %|1|class 5 (1)|1|ant|3|33.3 %|100.0 %|1|bee (1)|2|bee|1|100.0 %|100.0 %|2'
    assert rows in text and '3 classes have no images' in text
    assert 'ant|bee|1|33.3 %|ant|<b>cat</b>|1|33.3 %|<b>cat</b>|class 5|1|100.0 %' in text
    # The label is added to three classes. The shares are of 193 + 2 and of 150 + 5, since other classes have 1 each.
    bars = 'class 5|51.3 %|eel|25.6 %|dog|12.8 %|<b>cat</b> (label)|0.5 %|data/<4>, record 4'
    assert f'<b>cat</b>, classified as class 5|{bars}' in text
    bars = '<b>cat</b>|64.5 %|ant (label)|32.3 %|bee|0.6 %|data/<2>, record 2'
    assert f'ant, classified as <b>cat</b>|{bars}' in text
    assert 'top-1|50.00%|95 % interval|' in text
    assert 'top-5|75.00%|balanced accuracy|44.44%|cross-entropy, nats|1.2500' in text
    assert 'A note.' in text
    values = json.loads(report.json())
    assert values['balanced_accuracy'] == pytest.approx(4 / 9)
    assert [(c['name'], c['top_1']) for c in values['classes'][4:6]] == [('dog', None), (None, None)]
    # The two most confident mistakes are equally confident, except for rounding.
    assert {mistake['position'] for mistake in values['mistakes'][:2]} == {1, 2}
    assert (len(values['bins']), values['evaluation']['step']) == (15, 5)
    assert '<i style="--share: 51.28%; --fill: var(--bad)">' in content
    assert '<i style="--share: 32.26%; --fill: var(--good)">' in content


def test_page__shows_neither_background_nor_the_top_5_of_three_classes(tmp_path: Any) -> None:
    # One image is classified as the background, and one wrongly; the last one's label is the background.
    labels, logits = [1, 2, 3, 3, 1, 0], np.eye(4, dtype=np.float32)[[1, 2, 3, 0, 2, 1]] * 9
    names = ['background', 'ant', 'bee', 'cat']
    shown, text = write_page(report_of(analysed(labels[:5], logits[:5]), names), tmp_path)
    assert 'top-1|' in text and 'top-5' not in text
    assert '1 images were classified as none of the classes' in text
    assert '|background' not in text and len(shown.images) == 2 + 1
    assert '3|cat|1|' not in text and '3|cat|2|50.0 %|1' in text
    # With images of class 0, it is a class like the others.
    assert '0|background|1|0.0 %|1' in write_page(report_of(analysed(labels, logits), names), tmp_path)[1]


def test_page__lists_twenty_pairs(tmp_path: Any) -> None:
    logits = np.eye(26, dtype=np.float32)[np.arange(1, 26)] * 9
    _, text = write_page(report_of(analysed(range(25), logits), [''] * 26), tmp_path)
    assert 'class 19|class 20|1|100.0 %' in text and 'class 20|class 21|1|100.0 %' not in text
    assert 'with the most images, of\n25; report.json lists all.' in text
    assert 'None.' in write_page(report_of(analysed(range(1, 26), logits), [''] * 26), tmp_path)[1]


@pytest.mark.program
def test_page__sorts_and_filters_classes(tmp_path: Any) -> None:
    names = ['background', 'ant', 'bee', '<b>cat</b>', 'dog', 'eel', 'bee eater']
    analysis = analysed(*made_up(300))
    script = """
const order = () => [...body.rows].filter(row => !row.hidden).map(row => row.cells[1].textContent).join('|');
const seen = [order()];
heads[1].click(); seen.push(order());
heads[1].click(); seen.push(order());
heads[2].click(); seen.push(order());
filter.value = 'BEE'; filter.dispatchEvent(new Event('input')); seen.push(order());
return seen;
"""
    report = report_of(analysis, names)
    write_page(report, tmp_path, report.figures())
    path = str(tmp_path / 'page.html')
    with browser() as opened:
        opened.open(path)
        lists = [text.split('|') for text in opened.run(script)]
        assert opened.complaints() == []
        # The figures have 150 dots per inch in their files, and 96 pixels per inch on the page.
        widths = opened.run('return [...document.images].slice(0, 2).map(image => image.width / image.naturalWidth)')
        assert widths == pytest.approx([96 / 150] * 2, abs=0.002)
        opened.open(path, width=360)
        assert opened.run('return document.documentElement.scrollWidth') <= 360
        assert opened.run('return table.getBoundingClientRect().right') <= 360
        alts = opened.run('return [...document.images].map(image => image.alt)')
        assert all(alts) and 'background' not in opened.run('return document.body.innerText')
    described = [c for c in analysis.classes if c.images]
    by_top_1 = sorted(described, key=lambda c: c.top_1 or 0)
    assert lists[0] == [names[c.label] for c in by_top_1]
    assert sorted(lists[1]) == sorted(names[1:]) and lists[2] == lists[1][::-1]
    by_images = {names[c.label]: c.images for c in described}
    assert [by_images[name] for name in lists[3]] == sorted(by_images.values())
    assert sorted(lists[4]) == ['bee', 'bee eater']
