"""What an evaluation gets wrong: by class, by pair of classes, by confidence, and worst of all."""

import heapq
from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from inception_v3.metrics import PADDING_LABEL

# Guo et al. take as many.
BINS = 15
_TOP = 5


class ClassAccuracy(NamedTuple):
    """How the images of a class fared.

    Attributes:
      label: the class.
      images: images with this label.
      top_1: fraction of them whose likeliest class it is; None if there are none.
      top_5: fraction of them for which it is among the five likeliest; None if there are none.
      predicted: images of whatever label whose likeliest class it is.
    """

    label: int
    images: int
    top_1: Optional[float]
    top_5: Optional[float]
    predicted: int


class Confusion(NamedTuple):
    """Images of one class that were taken for those of another."""

    label: int
    predicted: int
    images: int


class Bin(NamedTuple):
    """The images whose confidence is above `lower` and at most `upper`.

    Attributes:
      lower, upper: of their confidence, the probability of their likeliest class.
      images: how many there are.
      confidence: its mean; None if there are none.
      top_1: fraction of them whose likeliest class is their label; None if there are none.
    """

    lower: float
    upper: float
    images: int
    confidence: Optional[float]
    top_1: Optional[float]


class Mistake(NamedTuple):
    """An image whose likeliest class is not its label.

    Attributes:
      number: of the image in the evaluation, from 0.
      label: its class.
      likeliest: the likeliest classes and their probabilities, the likeliest first.
      probability: of the label.
      pixels: uint8 [height, width, 3], what the network saw of it.
    """

    number: int
    label: int
    likeliest: Tuple[Tuple[int, float], ...]
    probability: float
    pixels: np.ndarray

    @property
    def predicted(self) -> int:
        """The likeliest class."""
        return self.likeliest[0][0]

    @property
    def confidence(self) -> float:
        """The probability of the likeliest class."""
        return self.likeliest[0][1]


class ErrorAnalysis:
    """Takes the batches of an evaluation, and keeps of them counts, and the worst mistakes.

    It holds a matrix of all classes by all classes, and the pixels of those mistakes.

    Args:
      num_classes: of the network.
      mistakes: how many of the worst mistakes are kept.

    Attributes:
      confusion: int64 [num_classes, num_classes], images by label and predicted class.
      images: how many there were; padding does not count.
    """

    def __init__(self, num_classes: int, mistakes: int):
        self.confusion = np.zeros([num_classes, num_classes], np.int64)
        self.images = 0
        self._top_5 = np.zeros([num_classes], np.int64)
        self._binned = np.zeros([BINS], np.int64)
        self._binned_right = np.zeros([BINS], np.int64)
        self._binned_confidence = np.zeros([BINS])
        self._at_most = mistakes
        # The least of them first; no two have the same number.
        self._mistakes: List[Tuple[float, int, Mistake]] = []

    def add(self, labels: np.ndarray, logits: np.ndarray, pixels: np.ndarray) -> None:
        """Adds a batch.

        Args:
          labels: int32 [batch]; `metrics.PADDING_LABEL` for padding.
          logits: float32 [batch, num_classes].
          pixels: uint8 [batch, height, width, 3], what the network saw.
        """
        real = labels != PADDING_LABEL
        labels, logits, pixels = labels[real], logits[real], pixels[real]
        rows = np.arange(len(labels))
        ranks = (logits > logits[rows, labels][:, np.newaxis]).sum(axis=1)
        # As the metrics have it: of classes that are equally likely, the label.
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
        for row in np.flatnonzero(ranks):
            self._keep_if_bad(self.images + int(row), int(labels[row]), probabilities[row], pixels[row])
        self.images += len(labels)

    def _keep_if_bad(self, number: int, label: int, probabilities: np.ndarray, pixels: np.ndarray) -> None:
        confidence = float(probabilities.max())
        is_full = len(self._mistakes) >= self._at_most
        if is_full and (not self._mistakes or confidence <= self._mistakes[0][0]):
            return
        order = np.argsort(-probabilities, kind='stable')[:_TOP]
        likeliest = tuple((int(c), float(probabilities[c])) for c in order)
        # A copy: a part of the batch would keep all of it in memory.
        mistake = Mistake(number, label, likeliest, float(probabilities[label]), pixels.copy())
        keep = heapq.heapreplace if is_full else heapq.heappush
        keep(self._mistakes, (confidence, -number, mistake))

    @property
    def mistakes(self) -> Sequence[Mistake]:
        """Those that were most confident, the worst first; of equals, the first."""
        return [mistake for _, _, mistake in sorted(self._mistakes, key=lambda kept: kept[:2], reverse=True)]

    @property
    def classes(self) -> Sequence[ClassAccuracy]:
        """Every class, by label."""
        images, predicted = self.confusion.sum(axis=1).tolist(), self.confusion.sum(axis=0).tolist()
        right, top_5 = self.confusion.diagonal().tolist(), self._top_5.tolist()
        return [
            ClassAccuracy(
                label, count, right[label] / count if count else None, top_5[label] / count if count else None, taken
            )
            for label, (count, taken) in enumerate(zip(images, predicted))
        ]

    @property
    def confusions(self) -> Sequence[Confusion]:
        """All pairs of classes that were confused, those with the most images first."""
        labels, predicted = np.nonzero(self.confusion)
        pairs = [
            Confusion(label, other, int(self.confusion[label, other]))
            for label, other in zip(labels.tolist(), predicted.tolist())
            if label != other
        ]
        return sorted(pairs, key=lambda pair: (-pair.images, pair.label, pair.predicted))

    @property
    def bins(self) -> Sequence[Bin]:
        """The images by their confidence, in `BINS` bins of equal width."""
        return [
            Bin(
                index / BINS,
                (index + 1) / BINS,
                count,
                float(self._binned_confidence[index] / count) if count else None,
                float(self._binned_right[index] / count) if count else None,
            )
            for index, count in enumerate(self._binned.tolist())
        ]

    @property
    def expected_calibration_error(self) -> float:
        """The mean over the images of |top-1 - mean confidence| of the bin that an image is in.

        That is the sum over the bins of n_b / n · |top-1_b - confidence_b| (Naeini et al., "Obtaining Well Calibrated
        Probabilities Using Bayesian Binning"; Guo et al., "On Calibration of Modern Neural Networks", equation 3).
        """
        return float(np.abs(self._binned_right - self._binned_confidence).sum() / max(1, self.images))
