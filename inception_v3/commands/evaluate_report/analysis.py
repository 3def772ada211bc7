"""Analyses the errors of an evaluation: by class, by pair of classes, by confidence, and the worst mistakes."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from inception_v3.metrics import PADDING_LABEL

# As in Guo et al., "On Calibration of Modern Neural Networks".
BINS = 15
_TOP = 5


class ClassAccuracy(NamedTuple):
    """The accuracy on the images of one class; fractions are None without images.

    Attributes:
      label: the class.
      images: number of images with this label.
      top_1: fraction of these images for which this class is the most probable.
      top_5: fraction of these images for which this class is among the five most probable.
      predicted: number of images, of any label, for which this class is the most probable.
    """

    label: int
    images: int
    top_1: Optional[float]
    top_5: Optional[float]
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


class Place(NamedTuple):
    """The place of a record: the path of its file, and its position there, from 0."""

    path: str
    position: int

    def __str__(self) -> str:
        return f'{self.path}, record {self.position}'


class Mistake(NamedTuple):
    """An image whose most probable class is not its label.

    Attributes:
      number: number of the image in the evaluation, from 0.
      place: the place of its record; None for synthetic images.
      label: the image's label.
      likeliest: the five most probable classes with their probabilities, most probable first.
      probability: probability of the label.
      pixels: uint8 [height, width, 3], the image as the network saw it.
    """

    number: int
    place: Optional[Place]
    label: int
    likeliest: Tuple[Tuple[int, float], ...]
    probability: float
    pixels: np.ndarray

    @property
    def predicted(self) -> int:
        """The most probable class."""
        return self.likeliest[0][0]

    @property
    def confidence(self) -> float:
        """The probability of the most probable class."""
        return self.likeliest[0][1]


class ErrorAnalysis:
    """Accumulates the batches of an evaluation.

    Args:
      num_classes: number of classes of the network.
      mistakes: number of worst mistakes to keep.

    Attributes:
      confusion: int64 [num_classes, num_classes], number of images by label and predicted class.
      images: number of images, without padding.
      mistakes: the most confident mistakes, worst first; among equally confident ones, the earliest first.
    """

    def __init__(self, num_classes: int, mistakes: int):
        self.confusion = np.zeros([num_classes, num_classes], np.int64)
        self.images = 0
        self.mistakes: List[Mistake] = []
        self._at_most = mistakes
        self._top_5 = np.zeros([num_classes], np.int64)
        # By bin: images, right ones, and the sum of the confidences.
        self._binned, self._binned_right, self._binned_confidence = np.zeros([3, BINS])

    def add(
        self, labels: np.ndarray, logits: np.ndarray, pixels: np.ndarray, places: Optional[Sequence[Place]] = None
    ) -> None:
        """Adds a batch.

        Args:
          labels: int32 [batch]; `metrics.PADDING_LABEL` for padding.
          logits: float32 [batch, num_classes].
          pixels: uint8 [batch, height, width, 3], the images as the network saw them.
          places: the places of the records, without padding; None for synthetic images.
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
        np.add.at(self._binned, bins, 1)
        np.add.at(self._binned_right, bins[ranks == 0], 1)
        np.add.at(self._binned_confidence, bins, confidences)
        is_full = len(self.mistakes) == self._at_most
        least = self.mistakes[-1].confidence if is_full and self.mistakes else 0.0
        for row in np.flatnonzero((ranks > 0) & (confidences > least)) if self._at_most else ():
            order = np.argsort(-probabilities[row], kind='stable')[:_TOP]
            likeliest = tuple((int(c), float(probabilities[row, c])) for c in order)
            label, place = int(labels[row]), places[row] if places is not None else None
            # A copy of the pixels: a view would keep the whole batch in memory.
            probability, own_pixels = float(probabilities[row, label]), pixels[row].copy()
            self.mistakes.append(Mistake(self.images + int(row), place, label, likeliest, probability, own_pixels))
        self.mistakes = sorted(self.mistakes, key=lambda mistake: -mistake.confidence)[: self._at_most]
        self.images += len(labels)

    @property
    def classes(self) -> Sequence[ClassAccuracy]:
        """The accuracy on every class, by label."""
        columns = self.confusion.sum(axis=1), self.confusion.diagonal(), self._top_5, self.confusion.sum(axis=0)
        return [
            ClassAccuracy(label, count, right / count if count else None, top_5 / count if count else None, predicted)
            for label, (count, right, top_5, predicted) in enumerate(zip(*(column.tolist() for column in columns)))
        ]

    @property
    def confusions(self) -> Sequence[Confusion]:
        """All pairs of confused classes, most images first."""
        pairs = np.argwhere(self.confusion).tolist()
        found = [Confusion(label, other, int(self.confusion[label, other])) for label, other in pairs if label != other]
        return sorted(found, key=lambda pair: (-pair.images, pair.label, pair.predicted))

    @property
    def bins(self) -> Sequence[Bin]:
        """The images grouped by confidence, in `BINS` bins of equal width."""
        columns = self._binned, self._binned_confidence, self._binned_right
        return [
            Bin(
                index / BINS,
                (index + 1) / BINS,
                int(count),
                confidence / count if count else None,
                right / count if count else None,
            )
            for index, (count, confidence, right) in enumerate(zip(*(column.tolist() for column in columns)))
        ]

    @property
    def expected_calibration_error(self) -> float:
        """The mean over all images of |top-1 - mean confidence| of the bin that contains the image.

        It equals the sum over the bins of n_b / n · |top-1_b - confidence_b| (Naeini et al., "Obtaining Well Calibrated
        Probabilities Using Bayesian Binning"; Guo et al., "On Calibration of Modern Neural Networks", equation 3).
        """
        return float(np.abs(self._binned_right - self._binned_confidence).sum() / max(1, self.images))
