"""Checks exports on the validation images, each in its own runtime, against the checkpoint that they are made of."""

from typing import Dict, Iterable, List, NamedTuple

import numpy as np

from console.screen import Screen
from console.tensorflow_versions import tf
from inception_v3.commands.export import frozen
from inception_v3.commands.export.description import INPUT, LOGITS
from inception_v3.commands.export.formats import FORMATS, Run
from inception_v3.commands.export.frozen import FrozenNetwork
from inception_v3.commands.export.images import Batch
from inception_v3.run.card import interval


class Agreement(NamedTuple):
    """The agreement of an export with its checkpoint.

    Attributes:
      name: of the format.
      images: number of validation images.
      right: number of them whose most probable class is their label, by the export.
      expected: the same, by the checkpoint.
      difference: the largest absolute difference of two logits.
    """

    name: str
    images: int
    right: int
    expected: int
    difference: float

    @property
    def top_1(self) -> float:
        """The accuracy of the export."""
        return self.right / self.images

    @property
    def is_kept(self) -> bool:
        """Whether the accuracy is the checkpoint's, or no lower than the format allows."""
        allowed = FORMATS[self.name].loses_at_most
        lost = 100 * (self.expected - self.right) / self.images
        return lost <= allowed if allowed else lost == 0

    @property
    def line(self) -> str:
        """The line of the model card."""
        return (
            f'in its own runtime, {interval(self.right, self.images)}; largest difference of logits from the '
            f"checkpoint's {self.difference:.2g}"
        )

    def __str__(self) -> str:
        return (
            f'{self.name}: top-1 {self.top_1:.2%} of {self.images:,} validation images (checkpoint '
            f'{self.expected / self.images:.2%}), largest difference of logits {self.difference:.2g}'
        )


def compare(
    paths: Dict[str, str], network: FrozenNetwork, validation: Iterable[Batch], screen: Screen
) -> List[Agreement]:
    """Runs exports and their checkpoint on the same images.

    Args:
      paths: the path of each export, by the name of its format.
      network: the checkpoint's network.
      validation: batches of validation images.
      screen: shows the progress.
    """
    runs = {name: FORMATS[name]().open(path, network) for name, path in paths.items()}
    checkpoint = _of_checkpoint(network)
    images, expected = 0, 0
    right = dict.fromkeys(runs, 0)
    difference = dict.fromkeys(runs, 0.0)
    for batch in validation:
        logits = checkpoint(batch)
        images += len(batch.labels)
        expected += _right(logits, batch.labels)
        for name, run in runs.items():
            own = run(batch)
            right[name] += _right(own, batch.labels)
            # NaN, too, is a difference.
            difference[name] = float(np.maximum(difference[name], np.abs(own - logits).max()))
        screen.update(f'verifying: {images:,} images')
    return [Agreement(name, images, right[name], expected, difference[name]) for name in runs]


def _of_checkpoint(network: FrozenNetwork) -> Run:
    with tf.Graph().as_default() as graph:
        frozen.build(network.config)
        session = tf.Session(graph=graph)
        network.model.restore(session)
    return lambda batch: session.run(f'{LOGITS}:0', {f'{INPUT}:0': batch.images})


def _right(logits: np.ndarray, labels: np.ndarray) -> int:
    """The number of images whose label has the largest logit; ties count, as in the metrics."""
    return int((logits.max(axis=1) == logits[np.arange(len(labels)), labels]).sum())
