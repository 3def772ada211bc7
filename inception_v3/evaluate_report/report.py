"""What there is to tell of an evaluation's errors, and the same for programs."""

import json
from typing import Any, Dict, NamedTuple, Optional, Sequence

from console.messages import shown
from inception_v3.evaluate_report.analysis import ErrorAnalysis
from inception_v3.model_dir.evaluations import Evaluation

PAGE_FILE = 'report.html'
JSON_FILE = 'report.json'
CONFUSION_FILE = 'confusion.png'
RELIABILITY_FILE = 'reliability.png'


class Place(NamedTuple):
    """Where a record is: its file, and its position there, from 0."""

    path: str
    position: int

    def __str__(self) -> str:
        return f'{self.path}, record {self.position}'


class ErrorReport(NamedTuple):
    """The report.

    Attributes:
      model_dir: of the run.
      evaluation: of all the images, as a line of `results.jsonl`.
      analysis: of the errors.
      names: of the classes, by label; empty where there is none.
      places: of the mistakes' records, in their order; None if the images are made up.
      notes: what else there is to say, in lines.
    """

    model_dir: str
    evaluation: Evaluation
    analysis: ErrorAnalysis
    names: Sequence[str]
    places: Optional[Sequence[Place]]
    notes: Sequence[str]

    def name(self, label: int) -> str:
        """What people call a class."""
        return shown(self.names[label]) if self.names[label] else f'class {label}'

    def json(self) -> str:
        """The report for programs."""
        analysis, places = self.analysis, self.places
        mistakes = [
            {
                'label': mistake.label,
                'predicted': mistake.predicted,
                'confidence': mistake.confidence,
                'probability_of_label': mistake.probability,
                'path': places[index].path if places else None,
                'position': places[index].position if places else None,
            }
            for index, mistake in enumerate(analysis.mistakes)
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
