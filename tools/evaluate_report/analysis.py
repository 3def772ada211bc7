"""Analyses the errors of an evaluation: by class, by pair of classes, by confidence, and the worst mistakes."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from inception_v3.config import PADDING_LABEL
from tools.evaluate_report.predictions import Prediction

# As in Guo et al., "On Calibration of Modern Neural Networks".
BINS = 15
_TOP = 5
# The number of mistakes to keep.
_MISTAKES = 48


class ClassAccuracy(NamedTuple):
    """The accuracy on the images of one class; the fractions are None without images."""

    label: int
    images: int
    # Fractions of these images for which this class is the most probable, and among the five most probable.
    top_1: Optional[float]
    top_5: Optional[float]
    # The number of images, of any label, for which this class is the most probable.
    predicted: int


class Confusion(NamedTuple):
    """The number of images of one class that were classified as another."""

    label: int
    predicted: int
    images: int


class Bin(NamedTuple):
    """The images whose confidence, the probability of the most probable class, is in (lower, upper].

    `confidence` is their mean confidence, and `top_1` the fraction whose most probable class is their label; None
    without images.
    """

    lower: float
    upper: float
    images: int
    confidence: Optional[float]
    top_1: Optional[float]


class Mistake(NamedTuple):
    """An image whose most probable class, with a probability of `confidence`, is not its label.

    `position` is the record's in the file `path`, from 0. `likeliest` has the five most probable classes with their
    probabilities, and `pixels`, uint8 [height, width, 3], are those that the network saw.
    """

    label: int
    predicted: int
    confidence: float
    probability_of_label: float
    path: str
    position: int
    likeliest: Sequence[Tuple[int, float]]
    pixels: np.ndarray


class ErrorAnalysis:
    """Accumulates the batches of an evaluation.

    Attributes:
      confusion: int64 [num_classes, num_classes], number of images by label and predicted class.
      images: number of images, without padding.
      predictions: the predictions for images that come from files.
      mistakes: the 48 most confident mistakes, worst first; among equally confident ones, the earliest first.
    """

    def __init__(self, num_classes: int):
        self.confusion = np.zeros([num_classes, num_classes], np.int64)
        self.images = 0
        self.predictions: List[Prediction] = []
        self.mistakes: List[Mistake] = []
        self._top_5 = np.zeros([num_classes], np.int64)
        # Rows: the number of images, the sum of their confidences, the number of right ones. A column per bin.
        self._binned = np.zeros([3, BINS])

    def add(
        self, labels: np.ndarray, logits: np.ndarray, pixels: np.ndarray, places: Sequence[Tuple[str, int]]
    ) -> None:
        """Adds a batch: labels [batch], logits [batch, num_classes], pixels [batch, height, width, 3] as in `Mistake`.

        `places` has the path and the position of each record, without padding.
        """
        real = labels != PADDING_LABEL
        labels, logits, pixels = labels[real], logits[real], pixels[real]
        ranks = (logits > logits[np.arange(len(labels)), labels][:, np.newaxis]).sum(axis=1)
        # A tie for the most probable class counts as correct, as in the metrics.
        predicted = np.where(ranks == 0, labels, logits.argmax(axis=1))
        exponentials = np.exp((logits - logits.max(axis=1, keepdims=True)).astype(np.float64))
        probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
        confidences = probabilities.max(axis=1)
        np.add.at(self.confusion, (labels, predicted), 1)
        np.add.at(self._top_5, labels[ranks < _TOP], 1)
        bins = np.clip(np.ceil(confidences * BINS).astype(int) - 1, 0, BINS - 1)
        for row, values in enumerate((1, confidences, ranks == 0)):
            np.add.at(self._binned[row], bins, values)
        self.images += len(labels)
        for (path, position), label, found in zip(places, labels.tolist(), predicted.tolist()):
            self.predictions.append(Prediction(path, position, label, found))
        for row in np.flatnonzero(ranks > 0):
            order = np.argsort(-probabilities[row], kind='stable')[:_TOP]
            likeliest = [(int(c), float(probabilities[row, c])) for c in order]
            # A copy of the pixels: a view would keep the whole batch in memory.
            label, seen = int(labels[row]), pixels[row].copy()
            probability = float(probabilities[row, label])
            self.mistakes.append(Mistake(label, *likeliest[0], probability, *places[row], likeliest, seen))
        self.mistakes = sorted(self.mistakes, key=lambda mistake: -mistake.confidence)[:_MISTAKES]

    @property
    def classes(self) -> List[ClassAccuracy]:
        """The accuracy on every class, by label."""
        columns = self.confusion.sum(axis=1), self.confusion.diagonal(), self._top_5, self.confusion.sum(axis=0)
        return [
            ClassAccuracy(label, count, right / count if count else None, top_5 / count if count else None, predicted)
            for label, (count, right, top_5, predicted) in enumerate(zip(*(column.tolist() for column in columns)))
        ]

    @property
    def balanced_accuracy(self) -> float:
        """The mean of the classes' top-1, over the classes with images; every class counts the same.

        Brodersen et al., "The Balanced Accuracy and Its Posterior Distribution". A tie for the most probable class is
        right, as in top-1.
        """
        found = [each.top_1 for each in self.classes if each.top_1 is not None]
        return sum(found) / max(1, len(found))

    @property
    def confusions(self) -> List[Confusion]:
        """All pairs of confused classes, most images first."""
        pairs = np.argwhere(self.confusion).tolist()
        found = [Confusion(label, other, int(self.confusion[label, other])) for label, other in pairs if label != other]
        return sorted(found, key=lambda pair: (-pair.images, pair.label, pair.predicted))

    @property
    def bins(self) -> List[Bin]:
        """The images grouped by confidence, in `BINS` bins of equal width."""
        return [
            Bin(index / BINS, (index + 1) / BINS, int(n), confidence / n if n else None, right / n if n else None)
            for index, (n, confidence, right) in enumerate(self._binned.T.tolist())
        ]

    @property
    def expected_calibration_error(self) -> float:
        """The mean over all images of |top-1 - mean confidence| of the bin that contains the image.

        It equals the sum over the bins of n_b / n · |top-1_b - confidence_b| (Naeini et al., "Obtaining Well Calibrated
        Probabilities Using Bayesian Binning"; Guo et al., "On Calibration of Modern Neural Networks", equation 3).
        """
        _, confidences, right = self._binned
        return float(np.abs(right - confidences).sum() / max(1, self.images))
