"""Runs of predict in this process, and the images that it cannot read."""

import json
import os
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import numpy as np

from inception_v3.commands.predict import __main__ as predict
from inception_v3.config import Config
from tests.support import commands

# Files of the fixture `odd_images`, and the problem that is reported.
PROBLEMS = {
    'moving.gif': 'is a damaged or animated GIF image',
    'cut.jpg': 'truncated or damaged',
    'empty.jpg': 'is empty',
    'text.jpg': 'is not a JPEG, PNG, GIF, WebP, BMP or TIFF image',
    'huge.png': 'has 20,000 x 20,000 pixels; at most 100,000,000 are allowed',
    'pipe.jpg': 'is not a regular file',
}


class Trained(NamedTuple):
    """A run with an export, and a folder of its validation images, named NUMBER-LABEL.jpg."""

    config: Config
    images: str


def run(*arguments: str) -> Tuple[int, List[str], List[str]]:
    """Runs predict; returns its exit code and the lines of standard output and standard error."""
    code, out, err = commands.run(predict.main, *arguments)
    return code, out.splitlines(), err.splitlines()


def objects(lines: Sequence[str]) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in lines]


def scores(lines: Sequence[str]) -> Tuple[List[int], np.ndarray]:
    """Returns the labels from the file names, and the probabilities [images, classes]."""
    labels, probabilities = [], np.zeros([len(lines), 11])
    for row, found in enumerate(objects(lines)):
        labels.append(int(os.path.splitext(found['image'])[0].rpartition('-')[2]))
        for likely in found['predictions']:
            probabilities[row, likely['class']] = likely['probability']
        # The rest is the background's, which is not shown.
        probabilities[row, 0] = 1 - probabilities[row].sum()
    return labels, probabilities
