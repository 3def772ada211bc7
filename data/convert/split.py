"""Divides images into training and validation images, with no image in both."""

import collections
import hashlib
from typing import Dict, List, Sequence, Tuple


def digest(content: bytes) -> bytes:
    """The identity of an image: the SHA-256 digest of its content."""
    return hashlib.sha256(content).digest()


def split_by_content(digests: Sequence[bytes], labels: Sequence[int], fraction: float) -> Tuple[List[int], List[int]]:
    """Divides images, given by digest and label: the indices of the training and of the validation images.

    Equal contents stay together, and each class contributes the same share of its contents, rounded to the nearest
    whole number, for validation. The order mixes the classes, and depends on the contents alone.
    """
    copies: Dict[bytes, List[int]] = collections.defaultdict(list)
    for index, content in enumerate(digests):
        copies[content].append(index)
    of_class: Dict[int, List[bytes]] = collections.defaultdict(list)
    for content in sorted(copies):
        of_class[min(labels[index] for index in copies[content])].append(content)
    validation = {content for contents in of_class.values() for content in contents[: round(fraction * len(contents))]}
    # Digests are pseudo-random, so that their order mixes the classes.
    return (
        [index for content in sorted(set(copies) - validation) for index in copies[content]],
        [index for content in sorted(validation) for index in copies[content]],
    )
