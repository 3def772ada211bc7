"""The results of an evaluation report, and their JSON form."""

import json
from typing import Any, Dict, List, NamedTuple, Sequence

from console.messages import shown
from data.dataset_info import is_background
from inception_v3.commands.evaluate_report.analysis import ClassAccuracy, Confusion, ErrorAnalysis
from inception_v3.run.evaluations import Evaluation, shows_top_5

PAGE_FILE = 'report.html'
JSON_FILE = 'report.json'
CONFUSION_FILE = 'confusion.png'
RELIABILITY_FILE = 'reliability.png'


class ErrorReport(NamedTuple):
    """The results of an evaluation report.

    Attributes:
      model_dir: model_dir of the run.
      evaluation: the scores, as in a line of `results.jsonl`.
      analysis: the analysis of the errors.
      names: name of each class, by label; empty if a class has none.
      notes: remarks on the evaluation, a line each.
    """

    model_dir: str
    evaluation: Evaluation
    analysis: ErrorAnalysis
    names: Sequence[str]
    notes: Sequence[str]

    def name(self, label: int) -> str:
        """Returns the name of a class in printable characters, or `class LABEL` if there is none."""
        return shown(self.names[label]) if self.names[label] else f'class {label}'

    @property
    def first(self) -> int:
        """The first label that is shown: 1 if label 0 is the background and no image has it."""
        return int(is_background(self.names[0]) and not self.analysis.confusion[0].sum())

    @property
    def as_background(self) -> int:
        """The number of images that are classified as the background, which is not shown."""
        return int(self.analysis.confusion[:, : self.first].sum())

    @property
    def classes(self) -> List[ClassAccuracy]:
        """The accuracy on each class that is shown."""
        return [c for c in self.analysis.classes if c.label >= self.first]

    @property
    def confusions(self) -> List[Confusion]:
        """The pairs of confused classes that are shown."""
        return [pair for pair in self.analysis.confusions if pair.predicted >= self.first]

    @property
    def has_top_5(self) -> bool:
        """Whether the top-5 accuracy is shown."""
        return shows_top_5(len(self.names))

    def json(self) -> str:
        """Returns the content of report.json."""
        analysis = self.analysis
        mistakes = [
            {
                'label': mistake.label,
                'predicted': mistake.predicted,
                'confidence': mistake.confidence,
                'probability_of_label': mistake.probability,
                'path': mistake.place and mistake.place.path,
                'position': mistake.place and mistake.place.position,
            }
            for mistake in analysis.mistakes
        ]
        values: Dict[str, Any] = {
            'model_dir': self.model_dir,
            'evaluation': self.evaluation._asdict(),
            'expected_calibration_error': analysis.expected_calibration_error,
            'bins': [b._asdict() for b in analysis.bins],
            'classes': [{**c._asdict(), 'name': self.names[c.label] or None} for c in analysis.classes],
            'confusions': [pair._asdict() for pair in analysis.confusions],
            'mistakes': mistakes,
        }
        return json.dumps(values, indent=2) + '\n'
