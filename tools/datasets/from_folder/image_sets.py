"""Finds the images of a data set and their classes, from folders or from a table of labels.

The rules for the folders that have images below them, in this order:

1. A single folder that has only subfolders is stepped through.
2. A training folder beside a validation or test folder, known by their names, are splits.
3. Other folders are classes. If one has no images of its own, but several subfolders, it may be a split, and is refused
   without `no_splits`. The names of classes are compared in Unicode's form NFC.

A table is a CSV file with commas, semicolons or tabs, whose first row has the names of the columns. Files are named by
their paths in the folder, or by their names alone, with or without their endings.
"""

import collections
import csv
import io
import os
import unicodedata
from typing import Dict, Iterable, Iterator, List, NamedTuple, NoReturn, Optional, Sequence, Set, Tuple

from compat.messages import counted, shown
from console.paths import meant_path
from data import image_files
from data.image_files import listed, show
from data.records import TRAIN, VALIDATION, DataError

# Its images are for validation if there is no validation folder.
_TEST = 'test'
_SPLIT_NAMES = {
    **dict.fromkeys(('train', 'training'), TRAIN),
    **dict.fromkeys(('validation', 'val', 'valid', 'dev', 'eval'), VALIDATION),
    _TEST: _TEST,
}
_HIDDEN = 'hidden, or of the system'
_READ_ALREADY = 'leads to a folder that is read already'
_NOT_AN_IMAGE = 'not an image'
_IN_NO_CLASS = 'an image outside of the class folders'
_EMPTY_CLASS = 'a class folder without images'
_WITHOUT_ROW = 'an image without a row in the table of labels'
_DELIMITERS = ',;\t'


class ImageFile(NamedTuple):
    """An image file and its class."""

    path: str
    class_name: str


class ImageSet(NamedTuple):
    """The images of a data set, in order."""

    splits: List[List[ImageFile]]  # The training and the validation images, or all images if they are not split.
    missing: List[ImageFile]  # Those of a table whose files are missing.
    left_out: List[Tuple[str, str]]  # The paths of other files and folders, with the reasons.
    notes: List[str]  # Sentences about the way the files were read.


class Folder(NamedTuple):
    """A folder: its path, the paths of the images in it, and its subfolders by name."""

    path: str
    own: List[str]
    folders: Dict[str, 'Folder']

    def images(self) -> Iterator[str]:
        """Yields the images in and below the folder, in order."""
        yield from self.own
        for folder in self.folders.values():
            yield from folder.images()

    def filled(self) -> Dict[str, 'Folder']:
        """The subfolders that have images in or below them, by name."""
        return {name: folder for name, folder in self.folders.items() if any(folder.images())}

    def stepped(self) -> 'Folder':
        """The first folder on the way down that has images of its own, several subfolders with images, or classes."""
        inner = [*self.filled().values()]
        return inner[0].stepped() if len(inner) == 1 and not inner[0].own else self


def walk(folder: str, without: Iterable[str] = ()) -> Tuple[Folder, List[Tuple[str, str]]]:
    """Lists the images below a folder, without some of its subfolders. Links to folders are followed.

    Returns the folder, and the paths that are left out, with the reasons.
    """
    if not os.path.isdir(folder):
        raise DataError(f'{show(folder)}: no such folder.{meant_path(folder)}')
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
        found[parent] = Folder(parent, [], {})
        for path in (os.path.join(parent, name) for name in sorted({*names} - hidden)):
            if image_files.is_image(path):
                found[parent].own.append(path)
            else:
                left_out.append((path, _NOT_AN_IMAGE))
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
    found = ImageSet([], [], [], [])
    for tree, left_out in (walk(folder, outside), *map(walk, outside)):
        whole = tree.stepped()
        if whole is not tree:
            found.notes.append(f'{show(tree.path)}: all images are in {show(whole.path)}')
        splits = _splits(tree, whole, no_splits)
        if outside and len(splits) > 1:
            raise DataError(
                f'--validation_folder={show(outside[0])}: {show(tree.path)} has validation images of its own, in '
                f'{show(splits[1].path)}. To leave them out, name {show(splits[0].path)} instead.'
            )
        found.left_out.extend(left_out)
        for split in splits:
            classes = [(_class_name(each), each) for each in split.filled().values()]
            found.splits.append([ImageFile(path, name) for name, each in classes for path in each.images()])
            empty = {*split.folders} - {*split.filled()}
            found.left_out.extend((split.folders[name].path, _EMPTY_CLASS) for name in sorted(empty))
        used = {path for split in splits for each in split.folders.values() for path in each.images()}
        found.left_out.extend((path, _IN_NO_CLASS) for path in tree.images() if path not in used)
    return found


def _class_name(folder: Folder) -> str:
    name = os.path.basename(folder.path)
    try:
        # Python represents other bytes of file names by surrogates.
        name.encode()
    except UnicodeEncodeError:
        raise DataError(f'{show(folder.path)}: the name of a class must be UTF-8. Rename the folder.')
    return unicodedata.normalize('NFC', name)


def _splits(tree: Folder, whole: Folder, no_splits: bool) -> List[Folder]:
    """The training and the validation folder, whose subfolders are the classes; or the folder of all classes."""
    folders = {name: inner.stepped() for name, inner in whole.filled().items()}
    if not folders:
        own = [*tree.images()]
        is_class = (
            f' It has {counted(len(own), "image")} of its own: if they are of one class, name the folder above it, '
            f'{show(os.path.dirname(os.path.abspath(tree.path)))}.'
        )
        raise DataError(
            f'{show(tree.path)}: no images in class folders.{is_class if own else ""} Name a table of labels with '
            '--labels=FILE.'
        )
    if no_splits:
        return [whole]
    kinds = {name: _SPLIT_NAMES.get(name.casefold(), '') for name in folders}
    named = {kind: [name for name in folders if kinds[name] == kind] for kind in (TRAIN, VALIDATION, _TEST)}
    validation = named[VALIDATION] or named[_TEST]
    # Those that are not classes, since all of their images are in subfolders of different names.
    suspects = [name for name, one in folders.items() if not one.own and len(one.filled()) > 1]
    if len(named[TRAIN]) == len(validation) == 1:
        chosen = [folders[named[TRAIN][0]], folders[validation[0]]]
        flat = [one.path for one in chosen if not one.filled()]
        if not flat:
            return chosen
        problem = f'{listed(flat)}: look like splits, and their images are in no class folders.'
    elif suspects:
        problem = f'{show(whole.path)}: has folders that look like splits, not like classes: {listed(suspects)}.'
    else:
        return [whole]
    raise DataError(
        f'{problem} Name the folder of the training images, and the other with --validation_folder. If '
        f'{listed(sorted(folders))} are the classes, add --no_splits.'
    )


def find_in_table(path: str, folder: str, file_column: str, label_column: str, skip_missing: bool) -> ImageSet:
    """Finds the images of a folder, at any depth, and their classes in a table.

    Columns are given by name; if empty, they are the first and the second of two. With `skip_missing`, rows whose file
    is missing are left out instead of refused.
    """
    tree, left_out = walk(folder)
    paths = _paths_by_name([*tree.images()], folder)
    of_path: Dict[str, Set[str]] = collections.defaultdict(set)
    missing: List[ImageFile] = []
    for name, label in _rows(path, file_column, label_column):
        found = paths.get(_normal(name), ())
        if len(found) > 1:
            raise DataError(f'{show(path)}: {shown(name)} is the name of several files: {listed(sorted(found))}.')
        if not found:
            missing.append(ImageFile(os.path.join(folder, name), label))
        for each in found:
            of_path[each].add(label)
    contradictory = [f'{show(each)} ({listed(sorted(labels))})' for each, labels in of_path.items() if len(labels) > 1]
    if contradictory:
        text = f'{counted(len(contradictory), "file")} with several labels: {listed(contradictory)}'
        raise DataError(f'{show(path)}: {text}. Keep one row for each file.')
    names = [image.path for image in missing]
    text = f'{counted(len(missing), "row")} of {show(path)} whose image is missing: {listed(names)}'
    if missing and not (skip_missing and of_path):
        raise DataError(f'{text}. Supply the files in {show(folder)}, or leave out the rows with --skip_unreadable.')
    images = [ImageFile(each, *of_path[each]) for each in tree.images() if each in of_path]
    left_out += [(each, _WITHOUT_ROW) for each in tree.images() if each not in of_path]
    return ImageSet([images], missing, left_out, [f'{text}; left out'] if missing else [])


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


def _rows(path: str, file_column: str, label_column: str) -> List[Tuple[str, str]]:
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
    names = table[0][1] if table else []
    if len(names) == 2:
        file_column = file_column or next((name for name in names if name != label_column), '')
        label_column = label_column or next((name for name in names if name != file_column), '')
    is_unclear = len(names) > 2 and not (file_column and label_column)
    if is_unclear or file_column == label_column or not {file_column, label_column} <= {*names}:
        raise DataError(
            f'--labels={show(path)}: its first row must have the names of the columns, and has {listed(names)}. Name '
            'the column of the files with --file_column, and that of the labels with --label_column.'
        )
    columns = [names.index(file_column), names.index(label_column)]
    if file_column.lower().endswith(image_files.EXTENSIONS):
        raise DataError(f'--labels={show(path)}: its first row names a file. It must have the names of the columns.')
    rows = []
    for line, row in table[1:]:
        file, label = (row[column] if column < len(row) else '' for column in columns)
        if not file or not label:
            raise DataError(f'{show(path)}, line {line}: has no {"label" if file else "file"}.')
        rows.append((file, unicodedata.normalize('NFC', label)))
    if unicodedata.normalize('NFC', label_column) in {label for _, label in rows}:
        raise DataError(f'--labels={show(path)}: its first row has a label. It must have the names of the columns.')
    return rows
