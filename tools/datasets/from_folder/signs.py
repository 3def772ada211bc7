"""Signs that the folders of a data set are not its classes, but splits, parts, or images beside their companions.

Each is a function of names alone, and may be wrong: a user can declare the folders to be classes.
"""

import collections
import os
import re
from typing import Counter, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from data.records import TRAIN, VALIDATION
from tools.datasets.from_folder.tables import SPLIT_NAMES, TEST, divides, is_split_column
from tools.image_files import listed

_OTHER = 'images without labels'
# The words that name a split within longer names, as in cars_train and ISIC_2019_Test_Input.
_SPLIT_WORDS = {
    **SPLIT_NAMES,
    **dict.fromkeys(('validate', 'evaluation'), VALIDATION),
    **dict.fromkeys(('tests', 'pred', 'predict', 'prediction', 'holdout'), TEST),
    **dict.fromkeys(('unlabeled', 'unlabelled'), _OTHER),
}
_SPLIT_WORD = re.compile(rf'({"|".join(sorted(_SPLIT_WORDS, key=len, reverse=True))})(?:set|data|images?|imgs?|val)?')
_FORMATS = {'images', 'imgs', 'img', 'jpg', 'jpgs', 'jpeg', 'jpegs', 'png', 'pngs'}
# Names that mean images only beside a companion, because they may also name classes.
_PICTURES = {'image', 'photo', 'photos', 'picture', 'pictures', 'pics', 'frames', 'scans', 'slices', 'input', 'inputs'}
_COMPANIONS = {
    *('annotation', 'annotations', 'annots', 'mask', 'masks', 'label', 'labels', 'segmentation', 'segmentations'),
    *('trimap', 'trimaps', 'truth', 'groundtruth', 'gt', 'target', 'targets', 'xml', 'xmls', 'json'),
}
# Words that do not describe what the images show.
_GENERIC = {
    *_FORMATS,
    'image',
    'set',
    'data',
    'dataset',
    'folder',
    'dir',
    'mini',
    'small',
    'full',
    'final',
    'input',
    'raw',
}
_PARTS = {*_FORMATS, 'part', 'batch', 'fold', 'chunk', 'shard', 'disc', 'disk', 'split', 'subset', 'folder', 'dir'}
# A file with the labels of all images; files of single images are numbered.
_LABELS_IN_MATLAB = re.compile(r'(label|anno|class)\D*[.]mat$', re.I)
_WORD = re.compile(r'[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+')
# The endings of companions: `_mask` is not part of an image's name.
_COMPANION_ENDING = re.compile(rf'[ ._-]({"|".join(sorted(_COMPANIONS))})$', re.I)
# Fewer equal names are a coincidence.
_STEMS_AT_LEAST, _SHARE_OF_STEMS = 3, 0.9
# Names beside masks and other companions are in few folders.
_FEW_FOLDERS = 5
# With more folders, equal names would be those of classes, and the search would take long.
_MANY_FOLDERS = 20
# The name of an image that begins with its class: cat.12.jpg, Abyssinian_3.jpg.
_CLASS_AND_NUMBER = re.compile(r'(.*[^\W\d_][^\d._ -]*)[._ -]*[0-9]+[.][^.]+')


# Words in the name of a column of labels. Other columns, such as sizes, are irrelevant to the folders.
_LABEL_WORDS = {
    *(
        'label',
        'labels',
        'class',
        'classes',
        'category',
        'categories',
        'target',
        'breed',
        'species',
        'genus',
        'diagnosis',
    ),
    *('dx', 'tag', 'tags', 'disease', 'expression', 'emotion', 'variety', 'prediction', 'type'),
}


class ImageTable(NamedTuple):
    """A table that names images, which lies among the folders."""

    path: str
    names: List[str]  # The names of its columns; empty if it has none.
    rows: List[Tuple[Set[str], List[str]]]  # The cells of each row, after the paths of images that its name may mean.
    file_column: int = 0  # The index of the column that names the images.

    @property
    def splits(self) -> List[int]:
        """The columns that divide the images into splits, by their names or values."""
        width, rows = max((len(row) for _, row in self.rows), default=0), [row for _, row in self.rows]
        named = [number < len(self.names) and is_split_column(self.names[number]) for number in range(width)]
        return [number for number in range(width) if named[number] or divides(rows, number)]

    def may_have_labels(self, column: int) -> bool:
        """Whether a column may have the labels, by its name or because there is no other."""
        if column in self.splits:
            return False
        width = max((len(row) for _, row in self.rows), default=0)
        is_named = column < len(self.names) and bool({*words(self.names[column])} & _LABEL_WORDS)
        return is_named or not self.names or width == 2


def words(name: str) -> List[str]:
    """The words of a folder's name in lower case, without numbers: `JPEGImages2` has `jpeg` and `images`."""
    return [word.casefold() for word in _WORD.findall(name)]


def kind_of(name: str) -> str:
    """The split that is named by a word in a name; empty if there is none, or words of several splits."""
    matches = [_SPLIT_WORD.fullmatch(word) for word in words(name)]
    kinds = {_SPLIT_WORDS[match.group(1)] for match in matches if match}
    return kinds.pop() if len(kinds) == 1 else ''


def is_of_splits(file_name: str) -> bool:
    """Whether a file is named like a list of the images of a split, or of all splits."""
    found = words(os.path.splitext(file_name)[0])
    return any(_SPLIT_WORD.fullmatch(word) or word in ('split', 'splits', 'partition') for word in found)


def folder_of_images(names: Sequence[str]) -> str:
    """Among folders that are not classes, the one that most likely has the labelled images."""
    images = images_beside_others(names)
    return min(names, key=lambda name: (kind_of(name) != TRAIN, name not in images, name))


def splits_among(names: Sequence[str]) -> List[str]:
    """The names that contain a word for a split, and otherwise differ only in words that describe no class.

    train and test1, cars_train and cars_test; but not train_station and test_tube, nor train beside bus.
    """
    groups: Dict[Tuple[str, ...], Dict[str, FrozenSet[str]]] = collections.defaultdict(dict)
    for name in names:
        found = [(word, _SPLIT_WORD.fullmatch(word)) for word in words(name)]
        kinds = frozenset(_SPLIT_WORDS[match.group(1)] for _, match in found if match)
        if kinds:
            groups[tuple(word for word, match in found if not match and word not in _GENERIC)][name] = kinds
    return sorted(name for group in groups.values() if len({*group.values()}) > 1 for name in group)


def images_beside_others(names: Sequence[str]) -> List[str]:
    """The names that only mean images, if there are other names: images beside annotations."""
    companions = [name for name in names if words(name) and {*words(name)} <= _COMPANIONS | _GENERIC]
    known = _FORMATS | _GENERIC | (_PICTURES if companions else set())
    at_least = _FORMATS | (_PICTURES if companions else set())
    found = [name for name in names if {*words(name)} <= known and {*words(name)} & at_least]
    return sorted(found) if len(found) < len(names) else []


def parts_among(names: Sequence[str]) -> List[str]:
    """The names that differ only in a number or letter, and name parts of a set: images_part_1 and images_part_2."""
    groups: Dict[Tuple[str, ...], List[str]] = collections.defaultdict(list)
    for name in names:
        groups[tuple(word for word in words(name) if len(word) > 1)].append(name)
    return sorted(name for key, group in groups.items() if len(group) > 1 and {*key} & _PARTS for name in group)


def same_images(folders: Mapping[str, Sequence[str]]) -> List[str]:
    """The names of two folders whose images have the same names, like images and masks; `folders` has the paths.

    Numbers such as 0001 and image_0001 are equal in ordinary classes, too, unless all of them are, in another format.
    """
    if len(folders) > _MANY_FOLDERS:
        return []
    stems: Dict[str, Set[str]] = {}
    endings: Dict[str, Set[str]] = {}
    for name, paths in folders.items():
        split = [os.path.splitext(os.path.basename(path).casefold()) for path in paths]
        stems[name] = {_COMPANION_ENDING.sub('', stem) for stem, _ in split}
        endings[name] = {ending for _, ending in split}
    shared: Counter[Tuple[str, str]] = collections.Counter()
    of_stem: Dict[str, List[str]] = collections.defaultdict(list)
    for name in sorted(folders):
        for stem in stems[name]:
            of_stem[stem].append(name)
    for together in of_stem.values():
        if len(together) <= _FEW_FOLDERS:
            shared.update((one, other) for at, one in enumerate(together) for other in together[at + 1 :])
    for (one, other), count in sorted(shared.items()):
        smaller, larger = sorted((len(stems[one]), len(stems[other])))
        is_counted = _is_counted(stems[one]) or _is_counted(stems[other])
        if is_counted and ({*endings[one]} & endings[other] or len(folders) > _FEW_FOLDERS):
            continue
        if count >= max(_STEMS_AT_LEAST, _SHARE_OF_STEMS * (larger if is_counted else smaller)):
            return [one, other]
    return []


def _is_counted(stems: Set[str]) -> bool:
    """Whether names are a few texts with numbers, so that they do not identify images."""
    forms = {re.sub(r'\d+', '', stem) for stem in stems}
    return all(len(form) < 3 for form in forms) or len(forms) <= max(1, len(stems) // 10)


def other_labels(folder_of: Mapping[str, str], tables: Sequence[ImageTable]) -> Optional[str]:
    """The path of a table that gives images of one folder several labels, and has no column of the folders' names.

    `folder_of` has the name of the folder of each image, by its path.
    """
    for table in tables:
        named = [(path, row) for paths, row in table.rows if len(paths) == 1 for path in paths]
        rows = [(folder_of[path], row) for path, row in named if path in folder_of]
        labels: List[int] = []
        for number in range(max((len(row) for _, row in rows), default=0)):
            of_folder: Dict[str, Set[str]] = collections.defaultdict(set)
            for folder, row in rows:
                of_folder[folder].add(row[number] if number < len(row) else '')
            distinct = {value for values in of_folder.values() for value in values}
            if 1 < len(of_folder) == len(distinct) and all(len(values) == 1 for values in of_folder.values()):
                # The column has the folders' names, in any spelling.
                labels = []
                break
            if table.may_have_labels(number) and 1 < len(distinct) <= len(rows) // 2:
                labels.append(number)
        if labels:
            return table.path
    return None


def classes_in_names(names: Sequence[str]) -> List[str]:
    """The classes with which all names of images begin, before a number; empty if there are fewer than two."""
    matches = [_CLASS_AND_NUMBER.fullmatch(name) for name in names]
    classes = {match.group(1) for match in matches if match}
    return sorted(classes) if None not in matches and 1 < len(classes) <= len(names) // 2 else []


def table_of_names(folder: str, names: Sequence[str]) -> str:
    """A command for a shell that writes a table of labels from names of images that begin with their classes.

    `folder` is quoted for the shell.
    """
    endings = '|'.join(sorted({name.rpartition('.')[2] for name in names}))
    expression = rf's/^(.*[^0-9._ -])[._ -]*[0-9]+[.]({endings})$/&,\1/p'
    return f"(echo file,label; ls {folder} | sed -En '{expression}') > labels.csv"


def files_of_labels(files: Sequence[str], folders: int) -> List[str]:
    """The MATLAB files beside a few folders that are named like labels of their images."""
    is_few = 1 < folders <= _FEW_FOLDERS
    return [path for path in files if is_few and _LABELS_IN_MATLAB.search(os.path.basename(path))]


def of_folders(
    folders: Mapping[str, Sequence[str]],
    tables: Sequence[ImageTable],
    files: Sequence[str],
    is_split: bool = False,
) -> Iterator[str]:
    """Yields the signs that folders are not classes, each a clause; `folders` has the paths of the images, by folder.

    `tables` and `files` lie beside them. Within a split, names of splits count as classes.
    """
    names = [*folders]
    splits = [] if is_split else splits_among(names)
    if splits:
        yield f'{listed(splits)} are named like splits'
    images = images_beside_others(names)
    if images:
        yield f'{listed(images)} is named like the images of all classes'
    parts = parts_among(names)
    if parts:
        yield f'{listed(parts)} are named like parts of one set'
    same = same_images(folders)
    if same:
        yield f'{" and ".join(same)} have images of the same names, as images and masks have'
    table = other_labels({path: name for name, paths in folders.items() for path in paths}, tables)
    if table:
        yield f'{listed([table])} has several labels for images of one folder'
    labels = files_of_labels(files, len(names))
    if labels:
        yield f'{listed(labels)} is named like labels of images'
