"""Records the first steps of a run with a seed in `first_steps.json`, to compare a repetition of the run with them."""

import json
import os
from typing import List, NamedTuple

from console.json_content import from_json, record
from data.files import text_of, write_whole

FIRST_STEPS_FILE = 'first_steps.json'
# The number of recorded steps. A TPU returns to its host every --iterations steps; its first return is always recorded.
FIRST_STEPS = 10


class Step(NamedTuple):
    """The state after a training step.

    Attributes:
      step: the number of completed steps.
      loss: the loss of the last step.
      digest: the digest of all variables (`digests.of_values`).
    """

    step: int
    loss: float
    digest: str


def read(model_dir: str) -> List[Step]:
    """The recorded first steps of a run; empty if there are none, or the file is damaged."""
    try:
        text = text_of(os.path.join(model_dir, FIRST_STEPS_FILE))
        return from_json(text, lambda steps: [record(Step, step) for step in steps])
    except ValueError:
        return []


def write(model_dir: str, steps: List[Step]) -> None:
    """Replaces the recorded first steps."""
    text = json.dumps([step._asdict() for step in steps], indent=2) + '\n'
    write_whole(os.path.join(model_dir, FIRST_STEPS_FILE), text)
