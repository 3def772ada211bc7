"""Images of a data set whose files are equal, byte for byte."""

from typing import Any, Dict, List, Sequence

import numpy as np

from data import records
from data.audit.shard import LISTED_AT_MOST


def find_duplicates(paths: Dict[str, List[str]], images: Dict[str, Sequence[np.ndarray]]) -> Dict[str, Any]:
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
    all_paths = [path for of_split in paths.values() for path in of_split]
    arrays = [array for of_split in images.values() for array in of_split]
    every = np.concatenate(arrays)
    path_of = np.repeat(np.arange(len(all_paths)), [len(array) for array in arrays])
    in_train = path_of < len(paths[records.TRAIN])
    labels = every['label']
    # Sorted by digest, and equal digests by position.
    order = np.argsort(every['digest'], kind='stable')
    digests = every['digest'][order]
    starts = np.flatnonzero(np.append(True, digests[1:] != digests[:-1])[: len(every)])
    sizes = np.diff(np.append(starts, len(every)))

    def of_each(operation: np.ufunc, values: np.ndarray) -> np.ndarray:
        return operation.reduceat(values[order], starts) if len(starts) else np.zeros([0], np.int64)

    train = of_each(np.add, in_train.astype(np.int64))
    validation = sizes - train
    differ = of_each(np.minimum, labels) != of_each(np.maximum, labels)
    between = (train > 0) & (validation > 0)
    several = np.flatnonzero(sizes > 1)
    # Groups with different labels first, then groups in both splits, each in the order of the files.
    several = several[np.lexsort((order[starts[several]], ~between[several], ~differ[several]))]

    def listed(group: np.ndarray) -> np.ndarray:
        """The positions of a group to list, in order: the first of each split and label, and then others."""
        _, firsts = np.unique(np.stack([in_train[group], labels[group]]), return_index=True, axis=1)
        rest = np.setdiff1d(np.arange(len(group)), firsts)
        return group[np.sort(np.concatenate([np.sort(firsts), rest])[:LISTED_AT_MOST])]

    def place(index: int) -> Dict[str, Any]:
        return {
            'split': records.TRAIN if in_train[index] else records.VALIDATION,
            'path': all_paths[path_of[index]],
            'position': int(every['position'][index]),
            'label': int(labels[index]),
        }

    return {
        records.TRAIN: int(np.maximum(train - 1, 0).sum()),
        records.VALIDATION: int(np.maximum(validation - 1, 0).sum()),
        'between': int(validation[between].sum()),
        'of_several_labels': int(differ.sum()),
        'first': [
            [place(index) for index in listed(order[starts[group] : starts[group] + sizes[group]])]
            for group in several[:LISTED_AT_MOST]
        ],
    }
