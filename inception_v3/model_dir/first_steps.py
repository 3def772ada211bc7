"""What a run with a seed leaves of its first steps, `first_steps.json`, so that they can be repeated and compared."""

import json
import os
from typing import List, NamedTuple

from inception_v3.model_dir.files import text_of, write_whole

FIRST_STEPS_FILE = 'first_steps.json'
# As many are recorded; between visits of a TPU's host there may be more, and the first visit is recorded.
FIRST_STEPS = 10


class Step(NamedTuple):
    """After a training step.

    Attributes:
      step: the number of steps done.
      loss: of the last of them.
      digest: of all variables, as `digests.of_values` makes it.
    """

    step: int
    loss: float
    digest: str


def read(model_dir: str) -> List[Step]:
    """The first steps that a run has recorded; none if it has recorded none, or they cannot be read.

    Raises:
      RemoteError: they are refused, or cannot be reached.
    """
    try:
        steps = json.loads(text_of(os.path.join(model_dir, FIRST_STEPS_FILE)))
        return [Step(**step) for step in steps]
    except (TypeError, ValueError):
        return []


def write(model_dir: str, steps: List[Step]) -> None:
    """Replaces the recorded first steps."""
    text = json.dumps([step._asdict() for step in steps], indent=2) + '\n'
    write_whole(os.path.join(model_dir, FIRST_STEPS_FILE), text)
