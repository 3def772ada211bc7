"""The page of an evaluation report."""

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from console import html
from console.messages import shown
from data.image_header import read_header
from inception_v3.evaluate_report import figures
from inception_v3.evaluate_report.analysis import BINS, Mistake
from inception_v3.evaluate_report.report import JSON_FILE, ErrorReport

_PAIRS_SHOWN = 20
_JPEG_QUALITY = 90
_LONGEST_PLACE = 4200
_PAGE_PIXELS_PER_INCH = 96

_PAGE = html.template("""{{ layout.begin('Evaluation report') }}
<p class="faint path">{{ subtitle }}</p>
<dl class="figures">
{% for name, value in figures %}
<div><dt>{{ name }}</dt><dd>{{ value }}</dd></div>
{% endfor %}
</dl>
{% for note in notes %}
<p class="faint path">{{ note }}</p>
{% endfor %}

<h2>Confusion</h2>
<div class="side">
<picture><source srcset="{{ confusion.dark }}" media="(prefers-color-scheme: dark)">
<img src="{{ confusion.light }}" width="{{ confusion.width }}"
alt="Confusion matrix: images by label and predicted class"></picture>
{% if pairs %}
<table><thead><tr><th>label</th><th>classified as</th><th>images</th><th>of the label's</th></tr></thead>
<tbody>
{% for pair in pairs %}
<tr><td>{{ pair.label }}</td><td>{{ pair.predicted }}</td><td>{{ '{:,}'.format(pair.images) }}</td>
<td>{{ '%.1f' | format(100 * pair.share) }} %</td></tr>
{% endfor %}
</tbody></table>
{% endif %}
</div>
{% if more_pairs > 0 %}
<p class="faint">The {{ pairs | length }} pairs with the most images, of
{{ '{:,}'.format(more_pairs + pairs | length) }}; {{ json_file }} lists all.</p>
{% endif %}

<h2>Reliability</h2>
<p>The top-1 accuracy by confidence, which is the probability of the most probable class, in {{ bins }} bins of equal
width. Where a bar ends below its mean confidence, the network is too confident. The expected calibration error is the
mean distance between the two, weighted by the number of images.</p>
<picture><source srcset="{{ reliability.dark }}" media="(prefers-color-scheme: dark)">
<img src="{{ reliability.light }}" width="{{ reliability.width }}"
alt="Reliability diagram: top-1 by confidence"></picture>

<h2>Worst mistakes</h2>
{% if mistakes %}
<p>The images that were assigned to a wrong class with the highest confidence, as the network saw them. Some of them may
have wrong labels.</p>
<div class="cards">
{% for mistake in mistakes %}
<figure class="card" style="margin: 0">
<img src="{{ mistake.picture }}" alt="">
<figcaption><div class="path">{{ mistake.label }}, classified as {{ mistake.predicted }}</div>
<ul class="bars">
{% for name, probability, is_label in mistake.likeliest %}
{{ layout.bar(name ~ (' (label)' if is_label else ''), probability, 'good' if is_label else 'bad') }}
{% endfor %}
</ul>
<div class="faint place path">{{ mistake.place }}</div></figcaption>
</figure>
{% endfor %}
</div>
{% else %}
<p>None.</p>
{% endif %}

<h2>Classes</h2>
<p><label>Show classes with <input id="filter" type="search" placeholder="part of a name"></label>
<span id="shown" class="faint"></span></p>
<table id="classes"><thead><tr>
{% for name in ('class', 'name', 'images', 'top-1', 'top-5', 'predicted', 'most often classified as') %}
<th><button type="button">{{ name }}</button></th>
{% endfor %}
</tr></thead>
<tbody>
{% for c in classes %}
<tr><td>{{ c.label }}</td><td>{{ c.name }}</td><td>{{ '{:,}'.format(c.images) }}</td>
<td class="share" style="--share: {{ '%.2f' | format(100 * c.top_1) }}%">{{ '%.1f' | format(100 * c.top_1) }} %</td>
<td>{{ '%.1f' | format(100 * c.top_5) }} %</td><td>{{ '{:,}'.format(c.predicted) }}</td>
<td>{{ c.most_often }}</td></tr>
{% endfor %}
</tbody></table>
<p class="faint">Classes with the lowest top-1 come first; click the name of a column to sort by it. Predicted: the
number of images, of any label, whose most probable class it is.{% if without_images %}
 {{ '{:,}'.format(without_images) }} classes have no images.{% endif %}</p>
<style>
.figures { display: flex; flex-wrap: wrap; gap: .5rem 2.25rem; margin: 1rem 0; }
.figures dt { color: var(--faint); font-size: .85rem; }
.figures dd { margin: 0; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
.place { font-weight: 400 !important; font-size: .75rem !important; }
.side { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start; }
.side picture { flex: 0 1 auto; min-width: 0; }
picture img { max-width: 100%; height: auto; display: block; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; }
th, td { padding: .2rem .75rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
#classes { display: block; overflow-x: auto; }
#classes :is(th, td):is(:first-child, :nth-child(n+3):nth-child(-n+6)), .side :is(th, td):nth-child(n+3) {
  text-align: right; }
.share { background: linear-gradient(var(--good), var(--good)) 0 100% / var(--share) 3px no-repeat; min-width: 6rem; }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:hover, th button:focus-visible { text-decoration: underline; }
th[aria-sort=ascending] button::after { content: ' ↑'; }
th[aria-sort=descending] button::after { content: ' ↓'; }
input { font: inherit; padding: .15rem .5rem; border: 1px solid var(--line); border-radius: 5px;
  background: var(--card); color: inherit; }
</style>
<script>
const table = document.getElementById('classes'), body = table.tBodies[0], rows = [...body.rows];
const heads = [...table.tHead.rows[0].cells], filter = document.getElementById('filter');
const valueOf = (row, column) => {
  const text = row.cells[column].textContent, number = parseFloat(text.replace(/,/g, ''));
  return /^[\\d.,]+( %)?$/.test(text) ? number : text;
};
const compare = (a, b) => typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b));
heads.forEach((head, column) => head.addEventListener('click', () => {
  const sign = head.getAttribute('aria-sort') === 'ascending' ? -1 : 1;
  heads.forEach(other => other.removeAttribute('aria-sort'));
  head.setAttribute('aria-sort', sign > 0 ? 'ascending' : 'descending');
  rows.sort((a, b) => sign * compare(valueOf(a, column), valueOf(b, column)));
  body.append(...rows);
}));
filter.addEventListener('input', () => {
  const wanted = filter.value.toLowerCase();
  rows.forEach(row => { row.hidden = !row.textContent.toLowerCase().includes(wanted); });
  const count = rows.filter(row => !row.hidden).length;
  document.getElementById('shown').textContent = wanted ? `${count} of ${rows.length}` : '';
});
</script>
</body>
</html>
""")


def figures_of(report: ErrorReport, look: figures.Look) -> Tuple[bytes, bytes]:
    """Draws the confusion matrix and the reliability diagram, as PNG files."""
    analysis = report.analysis
    names = [report.name(label) for label in range(len(report.names))]
    return (
        figures.confusion_matrix(analysis.confusion, names, look),
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
    pairs = analysis.confusions
    classes = [c for c in _described_classes(report) if c['images']]
    return _PAGE.render(
        subtitle=f'{report.model_dir}, {evaluation.checkpoint}, {evaluation.weights} weights',
        figures=[
            ('top-1', f'{evaluation.top_1:.2%}'),
            ('top-5', f'{evaluation.top_5:.2%}'),
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
        without_images=sum(not c.images for c in analysis.classes),
    )


def _described_classes(report: ErrorReport) -> List[Dict[str, Any]]:
    most_often: Dict[int, str] = {}
    for pair in report.analysis.confusions:
        most_often.setdefault(pair.label, f'{report.name(pair.predicted)} ({pair.images:,})')
    return [
        {**c._asdict(), 'name': report.name(c.label), 'most_often': most_often.get(c.label, '')}
        for c in report.analysis.classes
    ]


def _described_mistakes(report: ErrorReport) -> List[Dict[str, Any]]:
    mistakes = report.analysis.mistakes
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
    bars = [(report.name(c), probability, c == mistake.label) for c, probability in mistake.likeliest[:3]]
    if not any(is_label for _, _, is_label in bars):
        bars.append((report.name(mistake.label), mistake.probability, True))
    return bars


def _width_on_page(png: bytes) -> int:
    """Returns the width, in CSS pixels, at which the text of a figure has its intended size."""
    header = read_header(png)
    assert header, 'a PNG file'
    return round(header.width * _PAGE_PIXELS_PER_INCH / figures.DOTS_PER_INCH)


def _as_jpeg(images: Sequence[np.ndarray]) -> List[bytes]:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        image = tf.compat.v1.placeholder(tf.uint8, [None, None, 3])
        encoded = tf.image.encode_jpeg(image, quality=_JPEG_QUALITY)
        return [session.run(encoded, {image: pixels}) for pixels in images]
