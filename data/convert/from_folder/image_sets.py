"""Finds the images of a data set and their classes, from folders or from a table of labels.

The rules for the folders that have images below them, in this order:

1. A single folder that has only subfolders is stepped through.
2. A training folder beside a validation or test folder, known by their names, are splits; so are folders that have the
   same subfolders and no images of their own. If the names do not say which is which, they are refused.
3. If each folder has a training and a validation or test folder, each class is split in itself.
4. Other folders are classes. Their names are compared in Unicode's form NFC.

A table is a CSV file with commas, semicolons or tabs. The first row may hold the names of the columns. Files are named
by their paths in the folder, or by their names alone, with or without their endings.
"""

import collections
import csv
import io
import os
import re
import shlex
import unicodedata
from typing import Counter, Dict, Iterable, Iterator, List, NamedTuple, NoReturn, Optional, Sequence, Set, Tuple

from console.messages import counted, shown
from data import image_files
from data.image_files import listed, show
from data.records import TRAIN, VALIDATION, DataError

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
_EMPTY_CLASS = 'a class folder without images'
_FILE_NAMES = ('filename', 'file_name', 'file', 'image', 'image_name', 'image_path', 'image_id', 'path', 'img', 'id')
_LABEL_NAMES = ('label', 'labels', 'class', 'class_name', 'category', 'target', 'breed', 'species')
_DELIMITERS = ',;\t'
_UNKNOWN = -2
_WITHOUT_ROW = 'an image without a row in the table of labels'


class ImageFile(NamedTuple):
    """An image file and its class."""

    path: str
    class_name: str


class ImageSet(NamedTuple):
    """The images of a data set, in order."""

    splits: List[List[ImageFile]]  # The training and the validation images, or all images if they are not split.
    # Files in each of the `splits` that belong to a class but cannot be recognized as images.
    lost: List[List[ImageFile]]
    left_out: List[Tuple[str, str]]  # The paths of other files and folders, with the reasons.
    notes: List[str]  # Sentences about the way the files were read.


class TreeFile(NamedTuple):
    """The path of a file, and the reason why it is no image, if it is none."""

    path: str
    reason: str


class Folder(NamedTuple):
    """A folder: its path, the files in it, and its subfolders by name."""

    path: str
    own: List[TreeFile]
    folders: Dict[str, 'Folder']

    def has_own_images(self) -> bool:
        """Whether there are images outside of the subfolders."""
        return any(not file.reason for file in self.own)

    def has_images(self) -> bool:
        """Whether there are images in or below the folder."""
        return self.has_own_images() or any(folder.has_images() for folder in self.folders.values())

    def filled(self) -> Dict[str, 'Folder']:
        """The subfolders that have images, by name."""
        return {name: folder for name, folder in self.folders.items() if folder.has_images()}

    def files(self) -> Iterator[TreeFile]:
        """Yields all files in and below the folder, in order."""
        yield from self.own
        for folder in self.folders.values():
            yield from folder.files()

    def stepped(self) -> 'Folder':
        """The first folder on the way down that has images of its own, several subfolders with images, or classes."""
        inner = [*self.filled().values()]
        return inner[0].stepped() if len(inner) == 1 and not inner[0].has_own_images() else self


def walk(folder: str, without: Iterable[str] = ()) -> Tuple[Folder, List[Tuple[str, str]]]:
    """Lists the files below a folder, without some of its subfolders. Links to folders are followed.

    Returns the folder, and the paths that are left out, with the reasons.
    """
    if not os.path.isdir(folder):
        raise DataError(f'{show(folder)}: no such folder.')
    folder = folder.rstrip(os.sep) or os.sep
    visited = {os.path.realpath(each) for each in without}
    found: Dict[str, Folder] = {}
    left_out: List[Tuple[str, str]] = []
    for parent, folders, names in os.walk(folder, onerror=_refuse_listing, followlinks=True):
        if os.path.realpath(parent) in visited:
            # A link to a visited folder, possibly a cycle.
            folders[:] = []
            left_out.append((parent, _READ_ALREADY))
            continue
        visited.add(os.path.realpath(parent))
        hidden = {*filter(image_files.is_hidden, [*folders, *names])}
        left_out.extend((os.path.join(parent, name), _HIDDEN) for name in sorted(hidden))
        folders[:] = sorted({*folders} - hidden)
        paths = [os.path.join(parent, name) for name in sorted({*names} - hidden)]
        found[parent] = Folder(parent, [TreeFile(path, image_files.why_no_image(path)) for path in paths], {})
        if parent != folder:
            found[os.path.dirname(parent)].folders[os.path.basename(parent)] = found[parent]
    return found.get(folder, Folder(folder, [], {})), left_out


def _refuse_listing(error: OSError) -> NoReturn:
    raise DataError(f'{show(error.filename)}: cannot be listed: {error.strerror}. Make it readable, or remove it.')


def find_in_folders(folder: str, validation_folder: Optional[str] = None, no_splits: bool = False) -> ImageSet:
    """Finds the images of a folder of class folders, split or not.

    Validation images may be in another folder. With `no_splits`, the folders in `folder` are classes, whatever their
    names and subfolders.
    """
    outside = [validation_folder] if validation_folder is not None else []
    walked = [walk(folder, outside), *map(walk, outside)]
    divided = [_splits(tree, no_splits) for tree, _ in walked]
    for (tree, _), splits in zip(walked, divided):
        if outside and len(splits) > 1:
            raise DataError(
                f'--validation_folder={show(outside[0])}: {show(tree.path)} has validation images of its own, in '
                f'{show(splits[1].path)}. To leave them out, name {show(splits[0].path)} instead.'
            )
    splits = [split for each in divided for split in each]
    _check_utf_8([each.path for split in splits for each in split.filled().values()])
    found = ImageSet([], [], [each for _, left_out in walked for each in left_out], _notes(walked, splits))
    for split in splits:
        in_class = [(_nfc(name), file) for name, each in split.folders.items() for file in each.files()]
        found.splits.append([ImageFile(file.path, name) for name, file in in_class if not file.reason])
        lost = [ImageFile(file.path, name) for name, file in in_class if file.reason == image_files.UNRECOGNIZED]
        found.lost.append(lost)
        found.left_out.extend((each.path, _EMPTY_CLASS) for each in split.folders.values() if not each.has_images())
    used = {image.path for images in found.splits for image in images}
    in_split = {file.path for split in splits for file in split.files()}
    found.left_out.extend(
        (file.path, file.reason or (_IN_NO_CLASS if file.path in in_split or len(splits) == 1 else _IN_NO_SPLIT))
        for tree, _ in walked
        for file in tree.files()
        if file.path not in used
    )
    return found


def _nfc(name: str) -> str:
    return unicodedata.normalize('NFC', name)


def _notes(walked: Sequence[Tuple[Folder, object]], splits: Sequence[Folder]) -> List[str]:
    stepped = [(tree.path, tree.stepped().path) for tree, _ in walked]
    notes = [f'{show(outer)}: all images are in {show(inner)}' for outer, inner in stepped if outer != inner]
    forms: Dict[str, Set[str]] = collections.defaultdict(set)
    for name in (name for split in splits for name in split.filled()):
        forms[_nfc(name)].add(name)
    twice = sorted(name for name, names in forms.items() if len(names) > 1)
    if twice:
        notes.append(f'folders whose names differ only in their Unicode form are one class: {listed(twice)}')
    return notes


def _check_utf_8(folders: Sequence[str]) -> None:
    # Python represents other bytes of file names by surrogates.
    wrong = [folder for folder in folders if re.search(r'[\ud800-\udfff]', os.path.basename(folder))]
    if wrong:
        raise DataError(
            f'{listed(wrong)}: the name of a class must be UTF-8. Rename the folder, for example from Latin-1: '
            f'convmv -f latin1 -t utf8 --notest {shlex.quote(os.path.dirname(wrong[0]))}/*'
        )


def _splits(tree: Folder, no_splits: bool) -> List[Folder]:
    """The training and the validation folder, whose subfolders are the classes; or the folder of all classes."""
    whole = tree.stepped()
    folders = {name: inner.stepped() for name, inner in whole.filled().items()}
    if not folders:
        raise DataError(f'{show(tree.path)}: no images in class folders. Name a table of labels with --labels=FILE.')
    if no_splits:
        return [whole]
    kinds = {name: _kind(name) for name in folders}
    unless_classes = f'If {listed(sorted(kinds))} are the classes, add --no_splits.'
    if not _is_pair(kinds.values()):
        inside = _splits_in_classes(whole)
        if inside:
            return inside
        for one in folders.values():
            # It would become a class.
            inner = [_kind(name) for name in one.filled()]
            if not one.has_own_images() and '' not in inner and _is_pair(inner):
                raise DataError(
                    f'{show(one.path)}: has folders that look like splits, {listed(sorted(one.filled()))}, and there '
                    f'are images beside it. Name that folder. {unless_classes}'
                )
        alike = _alike(folders)
        kinds.update({name: kinds[name] or _kind_in(name) for name in alike})
        suspects = alike or [name for name in kinds if kinds[name] and not folders[name].has_own_images()]
        if not suspects:
            return [whole]
    else:
        suspects = [name for name in kinds if kinds[name]]
    chosen = []
    for split in (TRAIN, VALIDATION):
        named = [name for name in kinds if kinds[name] == split] or [name for name in kinds if kinds[name] == _TEST]
        if len(named) != 1 or not _is_pair(kinds.values()):
            raise DataError(
                f'{show(whole.path)}: has folders that look like splits, not like classes: {listed(suspects)}. Name '
                f'the folder of the training images, and the other with --validation_folder. {unless_classes}'
            )
        chosen.append(folders[named[0]])
    for one, other in (chosen, chosen[::-1]):
        if not one.filled():
            raise DataError(
                f'{show(one.path)}: its images are in no class folders. To convert {show(other.path)} alone, name that '
                f'folder. {unless_classes}'
            )
    return chosen


def _kind(name: str) -> str:
    """The split that a folder is for, by its name; empty if the name is that of no split."""
    return _SPLIT_NAMES.get(name.casefold(), '')


def _kind_in(name: str) -> str:
    """The split that one word of a name stands for, as in `seg_train` or `test2017`; empty if there is not one."""
    kinds = {_kind(word) for word in re.findall('[a-z]+', name.casefold())} - {''}
    return kinds.pop() if len(kinds) == 1 else ''


def _is_pair(kinds: Iterable[str]) -> bool:
    return TRAIN in kinds and bool({VALIDATION, _TEST} & {*kinds})


def _alike(folders: Dict[str, Folder]) -> List[str]:
    """The folders without images of their own that share most of their subfolders, and those they share them with."""
    inner = {
        name: {_nfc(each).casefold() for each in folder.filled()}
        for name, folder in folders.items()
        if not folder.has_own_images()
    }
    # A split may be among the classes of another one.
    outer = {_nfc(name).casefold() for name in folders}
    counts: Counter[str] = collections.Counter(each for names in (outer, *inner.values()) for each in names)
    shared = {each for each, count in counts.items() if count > 1}
    # One subfolder of the same name in each class, such as `images`, is usual; unless the names are those of splits.
    is_pair = _is_pair([_kind_in(name) for name in inner])
    core = [names for names in inner.values() if (len(names) > 1 or is_pair) and 2 * len(names & shared) > len(names)]
    of_core = shared & {each for names in core for each in names}
    return [name for name, names in inner.items() if names & of_core]


def _splits_in_classes(whole: Folder) -> List[Folder]:
    """The splits of CLASS/train/ and CLASS/val/, as if the classes were inside; none if there are images elsewhere."""
    classes = whole.filled()
    inner = [(name, _kind(split), each) for name, one in classes.items() for split, each in one.filled().items()]
    kinds = {kind for _, kind, _ in inner}
    has_others = any(one.has_own_images() for one in classes.values())
    if has_others or '' in kinds or not _is_pair(kinds) or not all(each.has_own_images() for _, _, each in inner):
        return []
    splits = []
    for wanted in (TRAIN, VALIDATION if VALIDATION in kinds else _TEST):
        splits.append(Folder(whole.path, [], {}))
        for name, kind, each in inner:
            if kind == wanted:
                of_class = splits[-1].folders.setdefault(name, Folder(classes[name].path, [], {}))
                of_class.folders[os.path.basename(each.path)] = each
    return splits


def find_in_table(path: str, folder: str, file_column: str, label_column: str, skip_missing: bool) -> ImageSet:
    """Finds the images of a folder, at any depth, and their classes in a table.

    Columns are given by name, or by number from 1; if empty, they have a usual name, or are the first and the second of
    two. With `skip_missing`, rows whose file is missing are left out instead of refused.
    """
    tree, left_out = walk(folder)
    files = [*tree.files()]
    paths = _paths_by_name([file.path for file in files if not file.reason], folder)
    rows = _rows(path, file_column, label_column, paths)
    of_path: Dict[str, Set[str]] = collections.defaultdict(set)
    missing: List[ImageFile] = []
    repeated: List[str] = []
    for name, label in rows:
        found = paths.get(_normal(name), ())
        if len(found) > 1:
            raise DataError(f'{show(path)}: {shown(name)} is the name of several files: {listed(sorted(found))}.')
        if not found:
            missing.append(ImageFile(os.path.join(folder, name), label))
        for each in found:
            repeated.extend([each] * (each in of_path))
            of_path[each].add(label)
    contradictory = [f'{show(each)} ({listed(sorted(labels))})' for each, labels in of_path.items() if len(labels) > 1]
    if contradictory:
        text = f'{counted(len(contradictory), "file")} with several labels: {listed(contradictory)}'
        raise DataError(f'{show(path)}: {text}. Keep one row for each file.')
    names = [image.path for image in missing]
    text = f'{counted(len(missing), "row")} of {show(path)} whose image is missing: {listed(names)}'
    if missing and not (skip_missing and of_path):
        raise DataError(f'{text}. Supply the files in {show(folder)}, or leave out the rows with --skip_unreadable.')
    notes = [f'{text}; left out'] if missing else []
    if repeated:
        notes.append(f'{counted(len(repeated), "repeated row")} of {show(path)} counted once: {listed(repeated)}')
    images = [ImageFile(file.path, *of_path[file.path]) for file in files if file.path in of_path]
    left_out += [(file.path, file.reason or _WITHOUT_ROW) for file in files if file.path not in of_path]
    return ImageSet([images], [missing], left_out, notes)


def _normal(name: str) -> str:
    return unicodedata.normalize('NFC', os.path.normpath(name.replace('\\', '/')))


def _paths_by_name(paths: Sequence[str], folder: str) -> Dict[str, Set[str]]:
    """The paths that a name in a table may stand for; a whole path in the folder wins over a name alone."""
    forms: List[Dict[str, Set[str]]] = [collections.defaultdict(set) for _ in range(4)]
    for path in paths:
        inside = _normal(os.path.relpath(path, folder))
        alone = os.path.basename(inside)
        for form, name in zip(forms, (inside, os.path.splitext(inside)[0], alone, os.path.splitext(alone)[0])):
            form[name].add(path)
    return {name: found for form in reversed(forms) for name, found in form.items()}


def _rows(path: str, file_column: str, label_column: str, paths: Dict[str, Set[str]]) -> List[Tuple[str, str]]:
    try:
        with open(path, encoding='utf-8-sig', newline='') as opened:
            text = opened.read()
        delimiter = max(_DELIMITERS, key=text.partition('\n')[0].count)
        reader = csv.reader(io.StringIO(text, newline=''), delimiter=delimiter, strict=True)
        table = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row))]
    except OSError as error:
        raise DataError(f'--labels={show(path)}: cannot be read: {error.strerror}.')
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f'--labels={show(path)}: is no CSV file in UTF-8: {shown(error)}.')
    header = table[0][1] if table else []
    if len(header) < 2:
        raise DataError(f'--labels={show(path)}: its first row must have a file and a label, with a comma between.')
    names = [cell.casefold() for cell in header]
    names_a_file = any(_normal(cell) in paths or cell.lower().endswith(image_files.EXTENSIONS) for cell in header)
    if names_a_file and not {*names} & {*_FILE_NAMES, *_LABEL_NAMES}:
        names = []
    file, label = _column(file_column, _FILE_NAMES, names), _column(label_column, _LABEL_NAMES, names)
    if len(header) == 2:
        # The other column, or the first of two for the files.
        file = file if file != _UNKNOWN else 0 if label == _UNKNOWN else 1 - label
        label = label if label != _UNKNOWN else 1 - file
    for flag, column in (('file_column', file), ('label_column', label)):
        if column not in range(len(header)) or file == label:
            raise DataError(
                f'{show(path)} has the columns {listed(header)}. Name one of them with --{flag}, or give its number, '
                'from 1. Files and labels are in different columns.'
            )
    rows = []
    for line, row in table[1 if names else 0 :]:
        cells = [row[column] if column < len(row) else '' for column in (file, label)]
        if not all(cells):
            raise DataError(f'{show(path)}, line {line}: has no {"label" if cells[0] else "file"}.')
        rows.append((cells[0], unicodedata.normalize('NFC', cells[1])))
    return rows


def _column(column: str, usual: Sequence[str], names: Sequence[str]) -> int:
    """The position of a column, given by its name or number; without, that of a usual name, or _UNKNOWN."""
    if not column:
        return next((names.index(each) for each in usual if each in names), _UNKNOWN)
    if column.casefold() in names:
        return names.index(column.casefold())
    return int(column) - 1 if column.isdecimal() else -1
