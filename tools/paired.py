"""Compares the right and wrong answers of two classifiers for the same images."""

import math
from typing import NamedTuple, Tuple

# The 97.5 % quantile of the normal distribution.
_QUANTILE = 1.959963984540054
# Two classifiers count as different below this p-value.
_SIGNIFICANT = 0.05
# With fewer images on which only one classifier is right, McNemar's exact test cannot find a difference.
FEWEST_DIFFERING = 6


class Pairs(NamedTuple):
    """The number of images that two classifiers have classified, and of those that only one of them got right."""

    images: int
    ours_alone: int
    theirs_alone: int

    @property
    def p_value(self) -> float:
        """The p-value of McNemar's exact test. Null hypothesis: each is equally likely to be the only one right."""
        differing = self.ours_alone + self.theirs_alone
        # The binomial distribution for a probability of 1/2, in integers: floats underflow from 1,075 images on.
        ways, below = 1, 0
        for number in range(min(self.ours_alone, self.theirs_alone) + 1):
            below += ways
            ways = ways * (differing - number) // (number + 1)
        return min(1.0, 2 * below / 2**differing)

    @property
    def are_told_apart(self) -> bool:
        """Whether the test finds a difference at the 5 % level."""
        return self.p_value < _SIGNIFICANT

    @property
    def difference(self) -> Tuple[float, float, float]:
        """Our top-1 minus theirs, as a fraction, with the ends of its 95 % interval.

        The interval is Wald's with one image added to each count: Bonett and Price, "Adjusted Wald Confidence Interval
        for a Difference of Binomial Proportions Based on Paired Data" (2012).
        """
        total = self.images + 2
        ours, theirs = (self.ours_alone + 1) / total, (self.theirs_alone + 1) / total
        half = _QUANTILE * math.sqrt((ours + theirs - (ours - theirs) ** 2) / total)
        value = (self.ours_alone - self.theirs_alone) / self.images
        return value, max(ours - theirs - half, -1.0), min(ours - theirs + half, 1.0)

    def __str__(self) -> str:
        value, low, high = (f'{100 * each:+.2f}' for each in self.difference)
        verdict = 'told apart' if self.are_told_apart else 'not told apart'
        return (
            f"{verdict} (p = {self.p_value:.2g}, McNemar's exact test): top-1 {value} points, 95 % interval {low} "
            f'to {high}; of {self.images:,} images, {self.ours_alone:,} are right only here, '
            f'{self.theirs_alone:,} only there'
        )
