"""The results of an evaluation report, and their JSON form."""

import json
from typing import Any, Dict, NamedTuple, Sequence

from console.messages import shown
from inception_v3.evaluate_report.analysis import ErrorAnalysis
from inception_v3.model_dir.evaluations import Evaluation

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
