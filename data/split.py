"""Dividing images into training and validation, with no image in both."""

import collections
import hashlib
from typing import Dict, List, Sequence, Tuple


def digest(content: bytes) -> bytes:
    """What tells an image from others: a hash of its content."""
    return hashlib.sha256(content).digest()


def split_by_content(digests: Sequence[bytes], labels: Sequence[int], fraction: float) -> Tuple[List[int], List[int]]:
    """Divides images so that equal contents stay together, and every class gives the same share.

    The division depends on the contents alone: neither their order nor a random number matters.

    Args:
      digests: the `digest` of each image.
      labels: their classes.
      fraction: the share of the different contents of each class that goes to validation, to the nearest
        whole number.

    Returns:
      The indices of the training and of the validation images, each in an order that mixes the classes.
    """
    copies: Dict[bytes, List[int]] = collections.defaultdict(list)
    for index, content in enumerate(digests):
        copies[content].append(index)
    of_class: Dict[int, List[bytes]] = collections.defaultdict(list)
    for content in sorted(copies):
        of_class[min(labels[index] for index in copies[content])].append(content)
    validation = {content for contents in of_class.values() for content in contents[: round(fraction * len(contents))]}
    # Digests are as good as random: their order mixes the classes.
    return (
        [index for content in sorted(set(copies) - validation) for index in copies[content]],
        [index for content in sorted(validation) for index in copies[content]],
    )
