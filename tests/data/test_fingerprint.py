"""The fingerprint of a data set: equal for equal images, independent of order and files."""

import hashlib
import random
from typing import List

from data.fingerprint import SplitFingerprint, fingerprint

IMAGES = [(label, b'image %d' % index) for index, label in enumerate([1, 2, 1, 3, 2])]


def of(images: list) -> SplitFingerprint:
    split = SplitFingerprint()
    for label, encoded in images:
        split = split.with_image(label, encoded)
    return split


def test_fingerprint__is_the_sum_of_the_digests() -> None:
    digests = [int(hashlib.sha256(f'{label} '.encode() + encoded).hexdigest(), 16) for label, encoded in IMAGES]
    assert of(IMAGES) == (5, sum(digests) % 2**256)
    assert sum(digests) > 2**256, 'the sum must have been cut for this test to show that it is'
    text = f'5 {sum(digests) % 2**256:064x} 0 {0:064x}'
    assert fingerprint(of(IMAGES), SplitFingerprint()) == hashlib.sha256(text.encode()).hexdigest()


def test_fingerprint__is_independent_of_order_and_files() -> None:
    shuffled = random.Random(0).sample(IMAGES, len(IMAGES))
    assert of(shuffled) == of(IMAGES)
    assert of(IMAGES[:2]) + of(IMAGES[2:]) == of(IMAGES)


def test_fingerprint__depends_on_labels_bytes_copies_and_splits() -> None:
    label, encoded = IMAGES[0]
    others: List[list] = [[(label + 1, encoded)], [(label, encoded + b'!')], [(label, encoded)] * 2, []]
    splits = [of(IMAGES)] + [of(IMAGES[1:] + other) for other in others]
    assert len(set(splits)) == len(splits)
    assert fingerprint(splits[0], splits[1]) != fingerprint(splits[1], splits[0])
