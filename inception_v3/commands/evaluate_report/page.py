"""The page of an evaluation report."""

import pathlib
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from console import html, processes
from console.messages import shown
from console.tensorflow_versions import tf
from data.image_header import read_header
from inception_v3.commands.drawing import Look, width_on_page
from inception_v3.commands.evaluate_report import figures
from inception_v3.commands.evaluate_report.analysis import BINS, Mistake
from inception_v3.commands.evaluate_report.report import JSON_FILE, ErrorReport

_PAIRS_SHOWN = 20
# The columns of the table of classes.
_HEADS = ('class', 'name', 'images', 'top-1', 'top-5', 'predicted', 'most often classified as')
_JPEG_QUALITY = 90
_LONGEST_PLACE = 4200

_PAGE = html.template(pathlib.Path(__file__).with_name('page.html').read_text())


def figures_of(report: ErrorReport, look: Look) -> Tuple[bytes, bytes]:
    """Draws the confusion matrix and the reliability diagram, as PNG files."""
    analysis = report.analysis
    names = [report.name(label) for label in range(len(report.names))]
    return (
        figures.confusion_matrix(analysis.confusion, names, look, report.first),
        figures.reliability_diagram(analysis.bins, analysis.expected_calibration_error, look),
    )


def html_of(report: ErrorReport, light: Tuple[bytes, bytes], dark: Tuple[bytes, bytes]) -> str:
    """Renders the page.

    Args:
      report: the results.
      light: the figures of `figures_of` in the colours of a light page.
      dark: the same in the colours of a dark page.
    """
    evaluation, analysis = report.evaluation, report.analysis
    confusion, reliability = (
        {
            'light': html.data_uri(on_light, 'image/png'),
            'dark': html.data_uri(on_dark, 'image/png'),
            'width': _width_on_page(on_light),
        }
        for on_light, on_dark in zip(light, dark)
    )
    pairs = report.confusions
    classes = [c for c in _described_classes(report) if c['images']]
    return _PAGE.render(
        model=f'{report.model_dir}, {evaluation.checkpoint}, {evaluation.weights} weights',
        command=processes.command_line('evaluate'),
        date=evaluation.time,
        figures=[
            ('top-1', f'{evaluation.top_1:.2%}'),
            *([('top-5', f'{evaluation.top_5:.2%}')] if report.has_top_5 else []),
            ('cross-entropy, nats', f'{evaluation.cross_entropy:.4f}'),
            ('expected calibration error', f'{analysis.expected_calibration_error:.2%}'),
            ('images', f'{evaluation.images:,}'),
            ('step', f'{evaluation.step:,}'),
            ('data set', evaluation.data_set or 'unnamed'),
        ],
        notes=report.notes,
        mistakes=_described_mistakes(report),
        confusion=confusion,
        pairs=[
            {
                'label': report.name(pair.label),
                'predicted': report.name(pair.predicted),
                'images': pair.images,
                'share': pair.images / analysis.confusion[pair.label].sum(),
            }
            for pair in pairs[:_PAIRS_SHOWN]
        ],
        more_pairs=len(pairs) - _PAIRS_SHOWN,
        json_file=JSON_FILE,
        reliability=reliability,
        bins=BINS,
        classes=sorted(classes, key=lambda c: c['top_1']),
        without_images=sum(not c.images for c in report.classes),
        heads=[head for head in _HEADS if head != 'top-5' or report.has_top_5],
        as_background=report.as_background,
    )


def _described_classes(report: ErrorReport) -> List[Dict[str, Any]]:
    most_often: Dict[int, str] = {}
    for pair in report.confusions:
        most_often.setdefault(pair.label, f'{report.name(pair.predicted)} ({pair.images:,})')
    return [
        {**c._asdict(), 'name': report.name(c.label), 'most_often': most_often.get(c.label, '')} for c in report.classes
    ]


def _described_mistakes(report: ErrorReport) -> List[Dict[str, Any]]:
    mistakes = [mistake for mistake in report.analysis.mistakes if mistake.predicted >= report.first]
    pictures = _as_jpeg([mistake.pixels for mistake in mistakes])
    return [
        {
            'picture': html.data_uri(picture, 'image/jpeg'),
            'label': report.name(mistake.label),
            'predicted': report.name(mistake.predicted),
            'likeliest': _bars_of(mistake, report),
            'place': shown(mistake.place, _LONGEST_PLACE) if mistake.place else '',
        }
        for mistake, picture in zip(mistakes, pictures)
    ]


def _bars_of(mistake: Mistake, report: ErrorReport) -> List[Tuple[str, float, bool]]:
    """Returns (name, probability, whether it is the label) for the three most probable classes and the label."""
    likeliest = [(c, probability) for c, probability in mistake.likeliest if c >= report.first]
    bars = [(report.name(c), probability, c == mistake.label) for c, probability in likeliest[:3]]
    if not any(is_label for _, _, is_label in bars):
        bars.append((report.name(mistake.label), mistake.probability, True))
    return bars


def _width_on_page(png: bytes) -> int:
    """Returns the width, in CSS pixels, at which the text of a figure has its intended size."""
    header = read_header(png)
    assert header, 'a PNG file'
    return width_on_page(header.width)


def _as_jpeg(images: Sequence[np.ndarray]) -> List[bytes]:
    with tf.Graph().as_default(), tf.Session() as session:
        image = tf.placeholder(tf.uint8, [None, None, 3])
        encoded = tf.image.encode_jpeg(image, quality=_JPEG_QUALITY)
        return [session.run(encoded, {image: pixels}) for pixels in images]
