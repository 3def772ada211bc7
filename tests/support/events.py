"""The values in event files."""

import glob
import os
from typing import Dict

from compat import tf


def read_events(folder: str) -> Dict[str, Dict[int, float]]:
    """Reads the values that the host call wrote, by tag and step."""
    values: Dict[str, Dict[int, float]] = {}
    for path in glob.glob(os.path.join(folder, 'events.*.v2')):
        for event in tf.train.summary_iterator(path):
            for value in event.summary.value:
                number = float(tf.make_ndarray(value.tensor)) if value.HasField('tensor') else value.simple_value
                values.setdefault(value.tag, {})[event.step] = number
    return values
