"""Finds the images below a folder, and tells from the whole tree which folders are splits and which are classes.

The rules for the folders that have images below them, in this order:

1. A single folder that has only subfolders is stepped through.
2. A training folder beside a validation or test folder, known by their names, are splits; so are folders that have the
   same subfolders and no images of their own. If the names do not say which is which, they are refused.
3. If each folder has a training and a validation or test folder, each class is split in itself.
4. Other folders are classes. Their names are compared in Unicode's form NFC.
"""

import collections
import os
import re
import shlex
import unicodedata
from typing import Counter, Dict, Iterable, List, NamedTuple, NoReturn, Optional, Sequence, Set, Tuple

from data import image_files
from data.image_files import show
from data.records import TRAIN, VALIDATION, DataError
from data.refused import listed

# Its images are for validation if there is no validation folder.
_TEST = 'test'
_SPLIT_NAMES = {
    **dict.fromkeys(('train', 'training', 'trn'), TRAIN),
    **dict.fromkeys(('validation', 'val', 'valid', 'dev', 'development', 'eval', 'evaluation'), VALIDATION),
    **dict.fromkeys(('test', 'testing', 'tst'), _TEST),
}
_HIDDEN = 'hidden, or of the system'
_READ_ALREADY = 'leads to a folder that is read already'
_IN_NO_CLASS = 'an image in no class folder'
_IN_NO_SPLIT = 'an image in no folder of the two splits'


class ImageFile(NamedTuple):
    """An image file and its class."""

    path: str
    class_name: str


class ImageSet(NamedTuple):
    """The images of a data set, in order.

    Attributes:
      splits: the training and the validation images, or all images if they are not split.
      lost: files in each of the `splits` that belong to a class but cannot be recognized as images.
      left_out: the paths of other files and folders, with the reasons.
      empty: class folders without images.
      notes: sentences about the way the files were read.
    """

    splits: List[List[ImageFile]]
    lost: List[List[ImageFile]]
    left_out: List[Tuple[str, str]]
    empty: List[str]
    notes: List[str]


class TreeFile(NamedTuple):
    """A file: its path, its name after those of the folders that lead to it, and the reason why it is no image."""

    path: str
    names: Tuple[str, ...]
    reason: str


class Tree(NamedTuple):
    """Files below a folder, all its subfolders, and the paths that are left out, with the reasons."""

    folder: str
    files: List[TreeFile]
    folders: List[str]
    left_out: List[Tuple[str, str]]

    def below(self) -> Dict[str, 'Tree']:
        """The subfolders that have images, by name."""
        grouped: Dict[str, List[TreeFile]] = collections.defaultdict(list)
        for file in self.files:
            if len(file.names) > 1:
                grouped[file.names[0]].append(file._replace(names=file.names[1:]))
        return {
            name: self._replace(folder=os.path.join(self.folder, name), files=files)
            for name, files in grouped.items()
            if not all(file.reason for file in files)
        }

    def has_own_images(self) -> bool:
        """Whether there are images outside of the subfolders."""
        return any(len(file.names) == 1 and not file.reason for file in self.files)

    def stepped(self) -> 'Tree':
        """The first folder on the way down that has images of its own, several subfolders with images, or classes."""
        inner = [*self.below().values()]
        if len(inner) == 1 and not inner[0].has_own_images():
            return inner[0].stepped()
        return self


def walk(folder: str) -> Tree:
    """Lists the files below a folder, in order. Links to folders are followed.

    Raises:
      DataError: the folder does not exist, or a folder cannot be listed.
    """
    if not os.path.isdir(folder):
        raise DataError(f'{show(folder)}: no such folder.')
    tree = Tree(folder, [], [], [])
    visited: Set[str] = set()
    for parent, folders, names in os.walk(folder, onerror=_refuse_listing, followlinks=True):
        if os.path.realpath(parent) in visited:
            # A link to a visited folder, possibly a cycle.
            folders[:] = []
            tree.left_out.append((parent, _READ_ALREADY))
            continue
        visited.add(os.path.realpath(parent))
        hidden = {*filter(image_files.is_hidden, [*folders, *names])}
        tree.left_out.extend((os.path.join(parent, name), _HIDDEN) for name in sorted(hidden))
        folders[:] = sorted({*folders} - hidden)
        tree.folders.append(parent)
        inside = [name for name in os.path.relpath(parent, folder).split(os.sep) if name != os.curdir]
        for name in sorted({*names} - hidden):
            path = os.path.join(parent, name)
            tree.files.append(TreeFile(path, (*inside, name), image_files.why_no_image(path)))
    return tree


def _refuse_listing(error: OSError) -> NoReturn:
    raise DataError(
        f'{show(error.filename)}: cannot be listed: {error.strerror}. Make it readable, or remove it: its images would '
        'be missing otherwise.'
    )


def find_images(folder: str, validation_folder: Optional[str] = None, no_splits: bool = False) -> ImageSet:
    """Finds the images of a folder of class folders, split or not.

    Args:
      folder: the images.
      validation_folder: another folder, with the validation images.
      no_splits: the folders in `folder` are classes, whatever their names and subfolders.

    Raises:
      DataError: a folder does not exist or cannot be listed; there are no images; the splits are ambiguous; or the
        name of a class is not UTF-8.
    """
    trees = [walk(folder), *([walk(validation_folder)] if validation_folder else [])]
    divided = [_splits(tree, no_splits) for tree in trees]
    for name, splits in zip((folder, validation_folder), divided):
        if validation_folder and len(splits) > 1:
            raise DataError(
                f'--validation_folder={show(validation_folder)}: {show(str(name))} has validation images of its own, '
                f'in {show(splits[1].folder)}. To leave them out, name {show(splits[0].folder)} instead.'
            )
    splits = [split for each in divided for split in each]
    found = ImageSet([], [], [each for tree in trees for each in tree.left_out], [], _notes(trees, splits))
    used: Set[str] = set()
    for split in splits:
        in_class = [(ImageFile(f.path, _nfc(f.names[0])), f.reason) for f in split.files if len(f.names) > 1]
        found.splits.append([image for image, reason in in_class if not reason])
        found.lost.append([image for image, reason in in_class if reason == image_files.UNRECOGNIZED])
        used |= {image.path for image in found.splits[-1]}
        folders = {each for each in split.folders if os.path.dirname(each) == split.folder.rstrip(os.sep)}
        folders -= {os.path.join(each.folder, name) for each in splits for name in each.below()}
        found.empty.extend(sorted(folders - {*found.empty}))
    in_split = {file.path for split in splits for file in split.files}
    found.left_out.extend(
        (file.path, file.reason or (_IN_NO_CLASS if file.path in in_split or len(splits) == 1 else _IN_NO_SPLIT))
        for tree in trees
        for file in tree.files
        if file.path not in used
    )
    _check_utf_8(os.path.join(split.folder, name) for split in splits for name in split.below())
    return found


def _nfc(name: str) -> str:
    return unicodedata.normalize('NFC', name)


def _notes(trees: Sequence[Tree], splits: Sequence[Tree]) -> List[str]:
    stepped = [(tree.folder, tree.stepped().folder) for tree in trees]
    notes = [f'{show(outer)}: all images are in {show(inner)}' for outer, inner in stepped if outer != inner]
    forms: Dict[str, Set[str]] = collections.defaultdict(set)
    for name in (name for split in splits for name in split.below()):
        forms[_nfc(name)].add(name)
    twice = sorted(name for name, names in forms.items() if len(names) > 1)
    if twice:
        notes.append(f'folders whose names differ only in their Unicode form are one class: {listed(twice)}')
    return notes


def _check_utf_8(folders: Iterable[str]) -> None:
    """Raises DataError if the name of a class folder is not UTF-8."""
    # Python represents other bytes of file names by surrogates.
    wrong = [folder for folder in folders if re.search(r'[\ud800-\udfff]', os.path.basename(folder))]
    if wrong:
        raise DataError(
            f'{listed(wrong)}: the name of a class must be UTF-8. Rename the folder, for example from Latin-1: '
            f'convmv -f latin1 -t utf8 --notest {shlex.quote(os.path.dirname(wrong[0]))}/*'
        )


def _splits(tree: Tree, no_splits: bool) -> List[Tree]:
    """The training and the validation folder, whose subfolders are the classes; or the folder of all classes.

    Raises:
      DataError: there are no class folders, or the splits are ambiguous.
    """
    whole = tree.stepped()
    below = whole.below()
    if not below:
        raise DataError(
            f'{show(tree.folder)}: no images in class folders. It must hold a folder per class with images; or name '
            'a table of the labels with --labels=FILE.'
        )
    folders = {name: inner.stepped() for name, inner in below.items()}
    kinds = {name: _SPLIT_NAMES.get(name.casefold(), '') for name in folders}
    if no_splits:
        return [whole]
    if not _is_pair(kinds.values()):
        if _is_split_in_classes(below.values()):
            return _split_in_classes(whole)
        alike = _alike(folders)
        kinds.update({name: kinds[name] or _kind_in(name) for name in alike})
        suspects = alike or [name for name in kinds if kinds[name] and not folders[name].has_own_images()]
        if not suspects:
            return [whole]
        if not _is_pair(kinds.values()):
            _refuse_splits(whole, suspects, kinds)
    chosen = []
    for split in (TRAIN, VALIDATION):
        named = [name for name in kinds if kinds[name] == split] or [name for name in kinds if kinds[name] == _TEST]
        if len(named) > 1:
            _refuse_splits(whole, [name for name in kinds if kinds[name]], kinds)
        chosen.append(folders[named[0]])
    for one, other in (chosen, chosen[::-1]):
        if not one.below():
            raise DataError(
                f'{show(one.folder)}: its images are in no class folders. To convert {show(other.folder)} alone, '
                f'name that folder. If {listed(sorted(kinds))} are the classes, add --no_splits.'
            )
    return chosen


def _is_pair(kinds: Iterable[str]) -> bool:
    return TRAIN in kinds and bool({VALIDATION, _TEST} & {*kinds})


def _kind_in(name: str) -> str:
    """The split that one word of a name stands for, as in `seg_train` or `test2017`; empty if there is not one."""
    kinds = {_SPLIT_NAMES[word] for word in re.findall('[a-z]+', name.casefold()) if word in _SPLIT_NAMES}
    return kinds.pop() if len(kinds) == 1 else ''


def _alike(folders: Dict[str, Tree]) -> List[str]:
    """The folders without images of their own that share most of their subfolders, and those they share them with."""
    inner = {
        name: {_nfc(each).casefold() for each in folder.below()}
        for name, folder in folders.items()
        if not folder.has_own_images()
    }
    counts: Counter[str] = collections.Counter(each for names in inner.values() for each in names)
    shared = {each for each, count in counts.items() if count > 1}
    # One subfolder of the same name in each class, such as `images`, is usual.
    core = [names for names in inner.values() if len(names) > 1 and 2 * len(names & shared) > len(names)]
    of_core = shared & {each for names in core for each in names}
    return [name for name, names in inner.items() if names & of_core]


def _is_split_in_classes(classes: Iterable[Tree]) -> bool:
    """Whether classes have images in folders of splits, and nowhere else."""
    inner = [each for one in classes for each in one.below().items()]
    kinds = [_SPLIT_NAMES.get(name.casefold(), '') for name, _ in inner]
    is_only_there = not any(one.has_own_images() for one in classes) and all(each.has_own_images() for _, each in inner)
    return is_only_there and '' not in kinds and _is_pair(kinds)


def _split_in_classes(whole: Tree) -> List[Tree]:
    """The training and the validation files of CLASS/train/ and CLASS/val/, as if the classes were outside."""
    parts: Dict[str, List[TreeFile]] = collections.defaultdict(list)
    for file in whole.files:
        if len(file.names) > 1 + 1:
            kind = _SPLIT_NAMES.get(file.names[1].casefold(), '')
            parts[kind].append(file._replace(names=(file.names[0], *file.names[2:])))
    return [whole._replace(files=files) for files in (parts[TRAIN], parts[VALIDATION] or parts[_TEST])]


def _refuse_splits(whole: Tree, suspects: Sequence[str], kinds: Dict[str, str]) -> NoReturn:
    train = [name for name in suspects if kinds[name] == TRAIN] or [name for name in suspects if not kinds[name]]
    train = train or [*suspects]
    others = [name for name in suspects if name != train[0]]
    validation = [name for name in others if kinds[name] == VALIDATION] or others
    command = f'python -m data.from_folder {shlex.quote(os.path.join(whole.folder, train[0]))} DATA_DIR'
    if validation:
        command += f' --validation_folder={shlex.quote(os.path.join(whole.folder, validation[0]))}'
    raise DataError(
        f'{show(whole.folder)}: has folders that look like splits, not like classes: {listed(suspects)}. Say which is '
        f'which, as in: {show(command)}. If {listed(sorted(kinds))} are the classes, add --no_splits.'
    )
