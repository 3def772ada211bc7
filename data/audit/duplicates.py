"""Images of a data set whose files are equal, byte for byte."""

import collections
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from data import records
from data.audit.shard import LISTED_AT_MOST


def find_duplicates(paths: Dict[str, List[str]], images: Mapping[str, Sequence[np.ndarray]]) -> Dict[str, Any]:
    """Finds equal images, within and between the splits.

    Args:
      paths: the files of each split.
      images: their images, an array of `shard.IMAGE` per file.

    Returns:
      For the report, by split: the number of its images that are copies of an earlier image; 'between': the number of
      validation images that are also training images; 'of_several_labels': the number of distinct images that have
      more than one label; 'first': the positions of up to `LISTED_AT_MOST` groups of equal images, the most serious
      problems first.
    """
    files = [(split, path) for split in paths for path in paths[split]]
    arrays = [array for split in paths for array in images[split]]
    every = np.concatenate(arrays)
    file_of = np.repeat(np.arange(len(files)), [len(array) for array in arrays])
    _, group_of, sizes = np.unique(every['digest'], return_inverse=True, return_counts=True)
    # The split, the label and the index of each image that has copies.
    groups: Dict[int, List[Tuple[str, int, int]]] = collections.defaultdict(list)
    for index in np.flatnonzero(sizes[group_of] > 1):
        groups[group_of[index]].append((files[file_of[index]][0], int(every['label'][index]), index))

    counts = {records.TRAIN: 0, records.VALIDATION: 0, 'between': 0, 'of_several_labels': 0}
    order = []
    for group in groups.values():
        in_split = collections.Counter(split for split, _, _ in group)
        for split, count in in_split.items():
            counts[split] += count - 1
        is_between, differs = len(in_split) > 1, len({label for _, label, _ in group}) > 1
        counts['between'] += in_split[records.VALIDATION] * is_between
        counts['of_several_labels'] += differs
        # Groups with different labels first, then groups in both splits, each in the order of the files.
        order.append((not differs, not is_between, group[0][2], group))

    def listed(group: List[Tuple[str, int, int]]) -> List[Dict[str, Any]]:
        """The positions of a group to list, in order: the first of each split and label, and then others."""
        firsts: Dict[Tuple[str, int], Tuple[str, int, int]] = {}
        for place in group:
            firsts.setdefault(place[:2], place)
        first = set(firsts.values())
        chosen = [*firsts.values(), *(place for place in group if place not in first)][:LISTED_AT_MOST]
        return [
            {
                'split': split,
                'path': files[file_of[index]][1],
                'position': int(every['position'][index]),
                'label': label,
            }
            for split, label, index in sorted(chosen, key=lambda place: place[2])
        ]

    return {**counts, 'first': [listed(group) for *_, group in sorted(order)[:LISTED_AT_MOST]]}
