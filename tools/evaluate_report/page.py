"""The results of an evaluation report: as JSON, as figures, and as a page."""

import json
import pathlib
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke
from matplotlib.ticker import StrMethodFormatter

from compat.messages import shown
from console import html, processes
from console.json_content import sealed
from data.dataset_info import is_background
from inception_v3.run.evaluations import Evaluation, shows_top_5
from inception_v3.run.export.card import wilson_interval
from tools import drawing
from tools.evaluate_report import JSON_FILE
from tools.evaluate_report.analysis import BINS, Bin, Confusion, ErrorAnalysis, Mistake
from tools.paired import Pairs

_PAIRS_SHOWN = 20
_HEADS = ('class', 'name', 'images', 'top-1', 'top-5', 'predicted', 'most often classified as')
# With more classes, a confusion matrix has no room for names and numbers.
_LABELLED_AT_MOST = 30
_LONGEST_NAME = 18

_PAGE = html.template(pathlib.Path(__file__).with_name('page.html').read_text())


class ErrorReport(NamedTuple):
    """The results of an evaluation report. `names` has the name of each class by label, empty for a class without one.

    `against` is another checkpoint's evaluation on the same images, and the comparison with it, if there is one.
    """

    model_dir: str
    evaluation: Evaluation
    analysis: ErrorAnalysis
    names: Sequence[str]
    notes: Sequence[str]
    against: Optional[Tuple[Evaluation, Pairs]] = None

    def name(self, label: int) -> str:
        """The name of a class in printable characters, or `class LABEL` if there is none."""
        return shown(self.names[label]) if self.names[label] else f'class {label}'

    @property
    def first(self) -> int:
        """The first label that is shown: 1 if label 0 is the background and no image has it."""
        return int(is_background(self.names[0]) and not self.analysis.confusion[0].sum())

    @property
    def confusions(self) -> List[Confusion]:
        """The pairs of confused classes that are shown."""
        return [pair for pair in self.analysis.confusions if pair.predicted >= self.first]

    @property
    def scores(self) -> Dict[str, str]:
        """The scores for a page and for the terminal."""
        evaluation = self.evaluation
        interval = wilson_interval(round(evaluation.top_1 * evaluation.images), evaluation.images)
        top_5 = {'top-5': f'{evaluation.top_5:.2%}'} if shows_top_5(len(self.names)) else {}
        return {
            'top-1': f'{evaluation.top_1:.2%}',
            '95 % interval': f'{interval[0]:.2%} to {interval[1]:.2%}',
            **top_5,
            'balanced accuracy': f'{self.analysis.balanced_accuracy:.2%}',
            'cross-entropy, nats': f'{evaluation.cross_entropy:.4f}',
            'expected calibration error': f'{self.analysis.expected_calibration_error:.2%}',
            'images': f'{evaluation.images:,}',
            'step': f'{evaluation.step:,}',
            'data set': evaluation.data_set or 'unnamed',
        }

    def json(self) -> str:
        """The content of report.json."""
        analysis = self.analysis
        own_fields = Mistake._fields[: Mistake._fields.index('likeliest')]
        values: Dict[str, Any] = {
            'model_dir': self.model_dir,
            'evaluation': sealed(self.evaluation._asdict()),
            **({'against': _comparison(*self.against)} if self.against else {}),
            'balanced_accuracy': analysis.balanced_accuracy,
            'expected_calibration_error': analysis.expected_calibration_error,
            'bins': [each._asdict() for each in analysis.bins],
            'classes': [{**each._asdict(), 'name': self.names[each.label] or None} for each in analysis.classes],
            'confusions': [pair._asdict() for pair in analysis.confusions],
            'mistakes': [dict(zip(own_fields, mistake)) for mistake in analysis.mistakes],
        }
        return json.dumps(values, indent=2) + '\n'

    def figures(self) -> Dict[str, bytes]:
        """The confusion matrix and the reliability diagram, as PNG files by name."""
        names = [self.name(label) for label in range(len(self.names))]
        error = self.analysis.expected_calibration_error
        return {
            'confusion.png': confusion_matrix(self.analysis.confusion, names, self.first),
            'reliability.png': reliability_diagram(self.analysis.bins, error),
        }

    def html(self, figures: Dict[str, bytes]) -> str:
        """Renders the page with its figures."""
        pairs = self.confusions
        most_often = {pair.label: f'{self.name(pair.predicted)} ({pair.images:,})' for pair in reversed(pairs)}
        mistakes = [mistake for mistake in self.analysis.mistakes if mistake.predicted >= self.first]
        with drawing.thumbnails() as thumbnail:
            pictures = [html.data_uri(thumbnail(mistake.pixels), 'image/jpeg') for mistake in mistakes]
        classes = self.analysis.classes[self.first :]
        return _PAGE.render(
            report=self,
            command=processes.command_line('evaluate'),
            mistakes=[*zip(mistakes, pictures)],
            figures=[drawing.on_page(png) for png in figures.values()],
            pairs=pairs[:_PAIRS_SHOWN],
            more_pairs=len(pairs) - _PAIRS_SHOWN,
            json_file=JSON_FILE,
            bins=BINS,
            classes=sorted((each for each in classes if each.images), key=lambda each: each.top_1 or 0),
            most_often=most_often,
            without_images=sum(not each.images for each in classes),
            heads=[head for head in _HEADS if head != 'top-5' or head in self.scores],
            # Images that are classified as the background, which is not shown.
            as_background=int(self.analysis.confusion[:, : self.first].sum()),
        )

    def bars(self, mistake: Mistake) -> List[Tuple[str, float, bool]]:
        """(name, probability, whether it is the label) of the three most probable classes and the label."""
        likeliest = [each for each in mistake.likeliest if each[0] >= self.first][:3]
        if mistake.label not in dict(likeliest):
            likeliest.append((mistake.label, mistake.probability_of_label))
        return [(self.name(c), probability, c == mistake.label) for c, probability in likeliest]


def _comparison(other: Evaluation, pairs: Pairs) -> Dict[str, Any]:
    names = 'top_1_difference', 'low', 'high'
    return {**pairs._asdict(), 'p_value': pairs.p_value, **dict(zip(names, pairs.difference)), 'other': other._asdict()}


def confusion_matrix(confusion: np.ndarray, names: Sequence[str], first: int = 0) -> bytes:
    """Draws the confusion matrix of the classes that occur, from the label `first` on, as a PNG file.

    Colours show fractions of all images of a label, including images that were classified as a class before `first`. Up
    to 30 classes are shown with names and numbers. `confusion` is int64 [num_classes, num_classes].
    """
    images = confusion.sum(axis=1)
    occurring = first + np.flatnonzero((confusion.sum(axis=0) + images)[first:])
    counts = confusion[np.ix_(occurring, occurring)]
    shares = counts / np.maximum(1, images[occurring])[:, np.newaxis]
    is_labelled = len(occurring) <= _LABELLED_AT_MOST
    side = max(4.5, 0.42 * len(occurring)) if is_labelled else 9.5
    figure = Figure(figsize=(side + 1.6, side))
    axes = figure.add_subplot()
    colours = LinearSegmentedColormap.from_list('share', ['white', drawing.GOOD, drawing.MOST])
    # On a square-root scale, single images are visible beside whole classes.
    image = axes.imshow(shares, cmap=colours, norm=PowerNorm(0.5, 0, 1), interpolation='nearest')
    bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03, ticks=[0, 0.01, 0.1, 0.25, 0.5, 1])
    bar.set_label("fraction of the label's images")
    bar.ax.set_yticklabels(['0', '1 %', '10 %', '25 %', '50 %', '100 %'])
    axes.set_xlabel('predicted class')
    axes.set_ylabel('label')
    ticks = np.arange(len(occurring)) if is_labelled else np.linspace(0, len(occurring) - 1, 11).astype(int)
    labels = [_short(names[label]) if is_labelled else str(label) for label in occurring[ticks]]
    axes.set_xticks(ticks)
    axes.set_xticklabels(labels, rotation=90 if is_labelled and max(map(len, labels)) > 3 else 0)
    axes.set_yticks(ticks)
    axes.set_yticklabels(labels)
    for (row, column), count in np.ndenumerate(counts) if is_labelled else ():
        if count:
            colour = 'black' if np.sqrt(shares[row, column]) < 0.45 else 'white'
            axes.text(column, row, f'{count:,}', ha='center', va='center', color=colour, fontsize=8)
    return drawing.png(figure)


def reliability_diagram(bins: Sequence[Bin], error: float) -> bytes:
    """Draws the top-1 accuracy and the number of images by confidence, with the error in the title, as a PNG file."""
    figure = Figure(figsize=(6.2, 6.4))
    above, below = figure.subplots(2, 1, sharex=True, gridspec_kw={'height_ratios': [3, 1], 'hspace': 0.08})
    for each in (above, below):
        each.grid(alpha=0.4, linewidth=0.6)
        each.set_axisbelow(True)
    used = [each for each in bins if each.images]
    centres = [(each.lower + each.upper) / 2 for each in used]
    above.bar(centres, [b.top_1 for b in used], 1 / BINS, color=drawing.GOOD, edgecolor='white', label='top-1')
    outline = [Stroke(linewidth=5, foreground='white'), Normal()]
    confidences = {'color': drawing.BAD, 'linewidth': 3, 'label': 'mean confidence', 'path_effects': outline}
    above.hlines([b.confidence for b in used], [b.lower for b in used], [b.upper for b in used], **confidences)
    above.plot([0, 1], [0, 1], '--', color=drawing.FAINT, linewidth=1, zorder=0.5)
    above.set(xlim=(0, 1), ylim=(0, 1), ylabel='top-1 of the images')
    above.legend(loc='lower right', bbox_to_anchor=(1, 1), ncol=2, frameon=False, fontsize=9, columnspacing=1)
    above.set_title(f'expected calibration error {error:.2%}', fontsize=9, loc='left')
    below.bar(centres, [b.images for b in used], 1 / BINS, color=drawing.FAINT, edgecolor='white')
    below.set_yscale('log')
    below.yaxis.set_major_formatter(StrMethodFormatter('{x:,.0f}'))
    below.set_ylim(bottom=0.5)
    below.set(ylabel='images', xlabel='confidence: probability of the most probable class')
    return drawing.png(figure)


def _short(name: str) -> str:
    # matplotlib interprets a dollar sign as the start of a formula.
    name = name.replace('$', r'\$')
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + '…'
