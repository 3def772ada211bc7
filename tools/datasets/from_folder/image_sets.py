"""Finds the images of a data set and their classes, from folders or from a table of labels.

The rules for the folders that have images below them, in this order:

1. A single folder that has only subfolders is stepped through.
2. A training folder beside a validation or test folder, known by their names, are splits. The classes of validation
   images without class folders are in a table: that of the user, or one among them, as in Tiny ImageNet.
3. Other folders are classes. If one has no images of its own, but several subfolders, it may be a split, and is refused
   without `no_splits`; so are folders with one of the `signs`. The names of classes are compared in Unicode's form NFC.

Files in a table (`tables`) are named by their paths in the folder, or by their names alone, with or without their
endings.
"""

import collections
import csv
import os
import shlex
import unicodedata
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Set, Tuple

from compat.messages import counted, full, shown
from console.paths import meant_path
from data.records import TRAIN, VALIDATION, DataError
from tools import image_files
from tools.datasets.from_folder import signs, tables
from tools.datasets.from_folder.signs import ImageTable
from tools.datasets.from_folder.tables import SPLIT_NAMES, TEST, LabelFile
from tools.image_files import listed

_HIDDEN = 'hidden, or of the system'
_READ_ALREADY = 'leads to a folder that is read already'
_NOT_AN_IMAGE = 'not an image'
_IN_NO_CLASS = 'an image outside of the class folders'
_EMPTY_CLASS = 'a class folder without images'
_WITHOUT_ROW = 'an image without a row in the table of labels'
_WITHOUT_LABEL = 'an image without a label in the table'
_OF_TEST = 'a test image beside validation images'
# Endings of files that may have labels or splits: files that are read, and others.
_TEXTS, _OTHERS = (
    ('.csv', '.tsv', '.txt'),
    ('.mat', '.json', '.xlsx', '.xls', '.parquet', '.xml', '.pkl', '.npy', '.npz'),
)
# The most bytes that are read of a table among the images, and the most such tables.
_TABLE_BYTES, _TABLES_AT_MOST = 1 << 20, 50


class ImageFile(NamedTuple):
    """An image file and its class."""

    path: str
    class_name: str


class ImageSet(NamedTuple):
    """The images of a data set, in order."""

    splits: List[List[ImageFile]]  # The training and the validation images, or all images if they are not split.
    missing: List[ImageFile]  # Images in a table whose files are missing.
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
        raise DataError(f'{full(folder)}: no such folder.{meant_path(folder)}')
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
    raise DataError(f'{full(error.filename)}: cannot be listed: {error.strerror}. Make it readable, or remove it.')


def find(
    folder: str,
    validation_folder: Optional[str] = None,
    no_splits: bool = False,
    labels: Optional[LabelFile] = None,
    validation_labels: Optional[LabelFile] = None,
    skip_missing: bool = False,
) -> ImageSet:
    """Finds the images of a data set: of a folder, in class folders or with a table of labels.

    Validation images may be in another folder, with a table of their own. With `no_splits`, the folders in `folder` are
    classes, whatever their names and subfolders, and no table divides the images. With `skip_missing`, rows of tables
    whose file or label is missing are left out instead of refused.
    """
    outside = [validation_folder] if validation_folder is not None else []
    if labels is not None and validation_labels is not None:
        # Two tables may be for the same folder.
        outside = [each for each in outside if os.path.realpath(each) != os.path.realpath(folder)]
    is_in_folder = validation_labels is not None and not outside
    if labels is not None:
        found = [_in_table(labels, folder, outside, skip_missing, no_splits)]
    else:
        found = [_in_folders(folder, outside, no_splits, validation_labels if is_in_folder else None, skip_missing)]
    if validation_labels is not None and (outside or labels is not None):
        found.append(_in_table(validation_labels, validation_folder or folder, [], skip_missing, no_splits=True))
    elif validation_folder is not None:
        found.append(_in_folders(validation_folder, outside, no_splits, None, skip_missing))
    if len(found) > 1 and any(len(each.splits) > 1 for each in found):
        raise DataError(
            f'{full(folder)}: a table divides its images into training and validation images, and others are named for '
            'validation. Leave these out; or add --no_splits, and all images of the table are trained on.'
        )
    used = {image.path for each in found for images in each.splits for image in images}
    left_out = dict.fromkeys(place for each in found for place in each.left_out)
    return ImageSet(
        [images for each in found for images in each.splits],
        found[0].missing,
        [place for place in left_out if place[0] not in used],
        [note for each in found for note in each.notes],
    )


def _in_folders(
    folder: str,
    outside: Sequence[str],
    no_splits: bool,
    validation_labels: Optional[LabelFile],
    skip_missing: bool,
) -> ImageSet:
    """Finds the images of a folder of class folders, split or not; `outside` is the folder of validation images.

    The labels of validation images in it may be in a table.
    """
    tree, left_out = walk(folder, [each for each in outside if each != folder])
    whole = tree.stepped()
    found = ImageSet([], [], left_out, [])
    if whole is not tree:
        found.notes.append(f'{full(tree.path)}: all images are in {full(whole.path)}')
    beside = _Beside.of(tree, whole, left_out)
    if folder in outside and not tree.filled():
        raise DataError(
            f'--validation_folder={full(folder)}: has no images in class folders. Name a table of their labels with '
            '--validation_labels=FILE.'
        )
    splits = _splits(tree, whole, no_splits, beside, validation_labels)
    only = [*whole.filled()]
    if len(only) == len(splits) == 1 and folder not in outside:
        text = f'{full(tree.path)}: all training images are of one class, {full(only[0])}. There must be two or more.'
        raise DataError(f'{text} {beside.way(whole.filled()[only[0]].stepped(), whole)}')
    if outside and len(splits) > 1:
        raise DataError(
            f'--validation_folder={full(outside[0])}: {full(tree.path)} has validation images of its own, in '
            f'{full(splits[1].path)}. To leave them out, name {full(splits[0].path)} instead.'
        )
    for split in splits:
        if split is not splits[0] and (validation_labels is not None or not _has_classes(split)):
            classes = {image.class_name for image in found.splits[0]}
            table = validation_labels or beside.table_of(split, classes)
            if table is None:
                raise DataError(_flat(whole, splits, beside))
            of_table = _of_table(table, split, split.path, skip_missing, no_splits=True)
            found.splits.append(of_table.splits[0])
            found.left_out.extend(of_table.left_out)
            found.notes.extend(of_table.notes)
            continue
        classes_of = [(_class_name(each), each) for each in split.filled().values()]
        found.splits.append([ImageFile(path, name) for name, each in classes_of for path in each.images()])
        empty = {*split.folders} - {*split.filled()}
        found.left_out.extend((split.folders[name].path, _EMPTY_CLASS) for name in sorted(empty))
        nested = [each.path for each in split.filled().values() if not each.own and len(each.filled()) > 1]
        if nested and len(splits) > 1:
            what = counted(len(nested), 'class', 'classes')
            found.notes.append(
                f'{what} whose images are all in several subfolders, which are not classes: {listed(nested)}'
            )
    used = {image.path for images in found.splits for image in images}
    test = [
        each for name, each in whole.filled().items() if len(splits) > 1 and SPLIT_NAMES.get(name.casefold()) == TEST
    ]
    tested = {path for each in test for path in each.images()} - used
    known = {path for path, _ in found.left_out}
    found.left_out.extend(
        (path, _OF_TEST if path in tested else _IN_NO_CLASS) for path in tree.images() if path not in used | known
    )
    if len(splits) == 1 and not outside and beside.lists:
        found.notes.append(
            f'not read: {listed(beside.lists)}, which may say how the images are divided. To keep that, use '
            '--labels=FILE, a table that has a column split with train and val'
        )
    return found


def _has_classes(split: Folder) -> bool:
    """Whether a split has class folders; not if it has one, named like images or a split, as in `val/images`."""
    names = [*split.filled()]
    return bool(names) and not (len(names) == 1 and (signs.images_beside_others([*names, '']) or signs.kind_of(*names)))


def _class_name(folder: Folder) -> str:
    name = os.path.basename(folder.path)
    try:
        # Python represents other bytes of file names by surrogates.
        name.encode()
    except UnicodeEncodeError:
        raise DataError(f'{full(folder.path)}: the name of a class must be UTF-8. Rename the folder.')
    return unicodedata.normalize('NFC', name)


def _splits(
    tree: Folder, whole: Folder, no_splits: bool, beside: '_Beside', validation_labels: Optional[LabelFile]
) -> List[Folder]:
    """The training and the validation folder, whose subfolders are the classes; or the folder of all classes.

    The validation folder may have no subfolders, if a table has its labels.
    """
    folders = {name: inner.stepped() for name, inner in whole.filled().items()}
    if not folders:
        raise DataError(_without_classes(whole, beside))
    if no_splits and validation_labels is None:
        return [whole]
    kinds = {name: SPLIT_NAMES.get(name.casefold(), '') for name in folders}
    named = {kind: [name for name in folders if kinds[name] == kind] for kind in (TRAIN, VALIDATION, TEST)}
    validation = named[VALIDATION] or named[TEST]
    is_split = len(named[TRAIN]) == len(validation) == 1
    if validation_labels is not None and (no_splits or not is_split):
        raise DataError(
            f'{validation_labels.named}: {full(whole.path)} is not read as folders train and val. Name the folder '
            'of the validation images with --validation_folder.'
        )
    if is_split:
        chosen = [folders[named[TRAIN][0]], folders[validation[0]]]
        classes = {*map(_class_name, chosen[0].filled().values())}
        is_labelled = validation_labels is not None or beside.table_of(chosen[1], classes) is not None
        if not _has_classes(chosen[0]) or not (_has_classes(chosen[1]) or is_labelled):
            raise DataError(_flat(whole, chosen, beside))
        for split in chosen:
            found = [*signs.of_folders(_images_of(split.filled()), beside.tables, [], is_split=True)]
            if found and _has_classes(split):
                raise DataError(_refusal(split, found, beside, chosen))
        return chosen
    # Folders that are not classes, because all of their images are in subfolders with different names.
    suspects = [name for name, one in folders.items() if not one.own and len(one.filled()) > 1]
    if suspects:
        raise DataError(_nested(whole, folders, suspects))
    found = [*signs.of_folders(_images_of(folders), beside.tables, beside.others)]
    if found and len(folders) > 1:
        raise DataError(_refusal(whole, found, beside))
    return [whole]


def _images_of(folders: Mapping[str, Folder]) -> Dict[str, List[str]]:
    return {name: [*each.images()] for name, each in folders.items()}


class _Beside(NamedTuple):
    """The files among the folders that may have labels, or say how the images are divided."""

    tables: List[ImageTable]  # The tables that name images.
    others: List[str]  # The paths of files that this program does not read.
    files: List[str]  # The paths of all files that are not images.
    lists: List[str]  # The paths of files that are named like splits.
    archives: List[str]

    @classmethod
    def of(cls, tree: Folder, whole: Folder, left_out: Sequence[Tuple[str, str]]) -> '_Beside':
        """Looks at the other files: in the folder, in the folders stepped through, and in their subfolders."""
        depth = whole.path.count(os.sep) + 1
        near = [path for path, reason in left_out if reason == _NOT_AN_IMAGE and path.count(os.sep) <= depth + 1]
        texts = [path for path in near if path.lower().endswith(_TEXTS)]
        others = [path for path in near if path.lower().endswith(_OTHERS)]
        lists = [path for path in (*texts, *others) if signs.is_of_splits(os.path.basename(path))]
        archives = [path for path in near if path.lower().endswith(('.zip', '.tar', '.gz', '.tgz', '.rar', '.7z'))]
        rows = {path: _rows_at_beginning(path) for path in texts[:_TABLES_AT_MOST]}
        wanted = {_normal(cell) for of_path in rows.values() for row in of_path for cell in row if cell}
        by_name = _paths_by_name([*tree.images()], tree.path, wanted) if wanted else {}
        found = [table for table in (_table_of_images(path, rows[path], by_name) for path in rows) if table is not None]
        lists += [table.path for table in found if table.splits and table.path not in lists]
        return cls(found, others, near, lists, archives)

    def table_of(self, split: Folder, classes: Set[str]) -> Optional[LabelFile]:
        """The table among the images of a split that gives each of them one of the classes."""
        images = {*split.images()}
        for table in self.tables:
            rows = [(paths & images, row) for paths, row in table.rows if paths & images]
            named = [path for paths, _ in rows for path in paths]
            if not table.path.startswith(split.path + os.sep) or sorted(named) != sorted(images):
                continue
            columns = [
                number
                for number in range(min(len(row) for _, row in rows))
                if all(unicodedata.normalize('NFC', row[number]) in classes for _, row in rows)
            ]
            if len(columns) == 1:
                names = table.names or [str(number + 1) for number in range(len(rows[0][1]))]
                return LabelFile(table.path, names[table.file_column], names[columns[0]], '--validation_labels')
        return None

    def labels_of(self, images: Set[str], classes: Iterable[str] = (), split: str = TRAIN) -> Optional[ImageTable]:
        """The table that names most of some images; among equals, one that has the classes, or is of the split.

        A sample submission of a competition does not count.
        """
        known = {*classes}

        def rank(table: ImageTable) -> Tuple[int, bool, bool]:
            name = os.path.basename(table.path)
            named = {path for paths, _ in table.rows for path in paths} & images
            has_classes = any(cell.partition(' ')[0] in known for _, row in table.rows for cell in row)
            return len(named), has_classes, signs.kind_of(name) in (split, '')

        of_labels = [table for table in self.tables if 'submission' not in os.path.basename(table.path).casefold()]
        best = max(of_labels, key=rank, default=None)
        return best if best is not None and rank(best)[0] else None

    def way(self, folder: Folder, whole: Folder) -> str:
        """The commands that convert the images of a folder without class folders, which may be a part of the whole."""
        while len(folder.filled()) == 1 and not folder.own:
            (folder,) = folder.filled().values()
        quoted, images = shlex.quote(full(folder.path)), {*folder.images()}
        table, ways = self.labels_of(images), []
        if table is not None:
            # A name that occurs in several folders means the image in this one.
            beyond = {path for paths, _ in table.rows if not paths & images for path in paths}
            path = shlex.quote(full(whole.path)) if beyond else quoted
            command = f'inception-v3 from-folder {path} DATA_DIR --labels={shlex.quote(full(table.path))}'
            cells = [row for _, row in table.rows]
            width = len(cells[0])
            names = table.names or [str(number + 1) for number in range(width)]
            if width > 2 and not tables.is_one_hot(cells, [n for n in range(width) if n != table.file_column]):
                columns = [shown(name) for number, name in enumerate(names) if number != table.file_column]
                command += f' --file_column={shlex.quote(names[table.file_column])} --label_column=NAME'
                command += f', where NAME is {" or ".join(columns)}' if len(columns) < 8 else ''
            ways.append(f'{full(table.path)} names images. If it has their classes: {command}.')
        classes = signs.classes_in_names([os.path.basename(image) for image in folder.own])
        command = f'inception-v3 from-folder {quoted} DATA_DIR --labels=labels.csv'
        if classes:
            make = signs.table_of_names(quoted, [os.path.basename(image) for image in folder.own])
            ways.append(
                f'If the names of the images begin with their classes ({listed(classes)}): {make} && {command}.'
            )
        if not ways:
            others = f'; from-folder does not read {listed(self.others)}' if self.others else ''
            ways.append(f'Name a table of their labels, a CSV file with the columns file and label{others}: {command}.')
        return ' '.join(ways)


def _rows_at_beginning(path: str) -> List[List[str]]:
    """The first rows of a text, as a table; empty if the file is not a table."""
    try:
        # A pipe would wait for a writer.
        if not os.path.isfile(path):
            return []
        with open(path, 'rb') as file:
            content = file.read(_TABLE_BYTES)
        text = content.decode('utf-8-sig', errors='replace')
        return [row for _, row in tables.rows_in(text.rpartition('\n')[0] if len(content) == _TABLE_BYTES else text)]
    except (OSError, csv.Error):
        return []


def _table_of_images(path: str, rows: Sequence[List[str]], by_name: Mapping[str, Set[str]]) -> Optional[ImageTable]:
    """A text as a table, if most of its rows name images in one column."""
    found: Dict[int, List[Tuple[Set[str], List[str]]]] = collections.defaultdict(list)
    for row in rows:
        for number, cell in enumerate(row):
            paths = by_name.get(_normal(cell)) if cell else None
            if paths:
                found[number].append((paths, row))
    column = max(found, key=lambda number: len(found[number]), default=None)
    if column is None or 2 * len(found[column]) < len(rows):
        return None
    has_names = found[column][0][1] is not rows[0]
    # A first row that is shorter than others, such as a title, names fewer columns.
    numbers = [str(number + 1) for number in range(max(map(len, rows)))]
    return ImageTable(path, [*rows[0], *numbers[len(rows[0]) :]] if has_names else [], found[column], column)


def _refusal(whole: Folder, found: Sequence[str], beside: _Beside, splits: Sequence[Folder] = ()) -> str:
    """The refusal of class folders for their signs; `splits` are the training and the validation folder around them."""
    folders = whole.filled()
    names = sorted(folders)
    images = whole if signs.parts_among(names) else folders[signs.folder_of_images(names)].stepped()
    add = 'add --no_splits'
    if splits:
        train, validation = (shlex.quote(full(split.path)) for split in splits)
        add = f'inception-v3 from-folder {train} DATA_DIR --validation_folder={validation} --no_splits'
    return (
        f'{full(whole.path)}: its folders look like parts of a data set, not like classes: {"; ".join(found)}. '
        f'{beside.way(images, whole)} If {listed(names)} are the classes, {add}.'
    )


def _without_classes(whole: Folder, beside: _Beside) -> str:
    text = f'{full(whole.path)}: no images in class folders.'
    own = [*whole.images()]
    if own:
        above = full(os.path.dirname(os.path.abspath(whole.path)))
        text += f' It has {counted(len(own), "image")} of its own: if they are of one class, name the folder above it, '
        text += f'{above}.'
        return f'{text} {beside.way(whole, whole)}'
    if beside.archives:
        return f'{text} Unpack {listed(beside.archives)} first, and name the folder of the images.'
    found = f' It has other files, such as {listed(beside.files)}.' if beside.files else ''
    return (
        f'{text}{found} Write the images to files, in a folder per class, or in one folder with a table, --labels=FILE.'
    )


def _flat(whole: Folder, chosen: Sequence[Folder], beside: _Beside) -> str:
    """The refusal of a training and a validation folder, one of which has images outside class folders."""
    train, validation = chosen
    flat = [each.path for each in chosen if not _has_classes(each)]
    table = beside.labels_of({*validation.images()}, train.filled(), VALIDATION)
    of_training = {*train.images()}
    # The numbers of training images may be names of validation images, too.
    is_of_training = table is not None and any(paths & of_training for paths, _ in table.rows)
    named = shlex.quote(full(table.path)) if table is not None and not is_of_training else 'FILE'
    if _has_classes(train):
        way = (
            f'If a table names the classes of the validation images, add --validation_labels={named}. '
            f'Without these images: inception-v3 from-folder {shlex.quote(full(train.path))} DATA_DIR.'
        )
    else:
        folder = shlex.quote(full(validation.path))
        more = f'For validation, add --validation_folder={folder}'
        more += '' if _has_classes(validation) else f' --validation_labels={named}, a table of its own labels'
        way = f'{beside.way(train, whole)} {more}.'
    return (
        f'{listed(flat)}: look like splits, and their images are in no class folders. {way} If their class '
        'folders are elsewhere, name the folder of the training images, and the other with --validation_folder. If '
        f'{listed(sorted(whole.filled()))} are the classes, add --no_splits.'
    )


def _nested(whole: Folder, folders: Mapping[str, Folder], suspects: Sequence[str]) -> str:
    """The refusal of folders some of which contain folders of images."""
    inside = [{*folders[name].filled()} for name in suspects]
    common = {*inside[0]}.intersection(*inside[1:])
    training = [name for name in suspects if signs.kind_of(name) == TRAIN]
    others = [name for kind in (VALIDATION, TEST) for name in sorted(folders) if signs.kind_of(name) == kind]
    others.sort(key=lambda name: name not in suspects)
    way = 'Name the folder of the training images, and the other with --validation_folder'
    if len(training) == 1 and others:
        train, validation = (shlex.quote(full(folders[name].path)) for name in (training[0], others[0]))
        command, more = f'inception-v3 from-folder {train} DATA_DIR', f'--validation_folder={validation}'
        if _has_classes(folders[others[0]]):
            way += f': {command} {more}'
        else:
            way += f': {command}; with a table of the labels of {validation}, also {more} --validation_labels=FILE'
    elif common & {*folders}:
        way += f'. If {listed(suspects)} has a copy of the others, name it: {full(folders[suspects[0]].path)}'
    elif len(suspects) > 1 and 2 * len(common) >= max(map(len, inside)):
        way += f'. If they show the same images in several ways, name one of them: {full(folders[suspects[0]].path)}'
    else:
        links = f'mkdir links && ln -s {shlex.quote(full(os.path.abspath(whole.path)))}/*/* links/'
        way += f'. If the folders in {listed(suspects)} are the classes, name a folder of links to them: {links}'
    return (
        f'{full(whole.path)}: has folders that look like splits, not like classes: {listed(suspects)}. {way}. If '
        f'{listed(sorted(folders))} are the classes, add --no_splits.'
    )


def _in_table(table: LabelFile, folder: str, outside: Sequence[str], skip_missing: bool, no_splits: bool) -> ImageSet:
    """Finds the images of a folder, at any depth but not in `outside`, and their classes in a table."""
    tree, left_out = walk(folder, outside)
    found = _of_table(table, tree, folder, skip_missing, no_splits)
    return found._replace(left_out=[*left_out, *found.left_out])


def _of_table(table: LabelFile, tree: Folder, folder: str, skip_missing: bool, no_splits: bool) -> ImageSet:
    paths = _paths_by_name([*tree.images()], folder)
    labels = tables.read(table, lambda name: _normal(name) in paths, no_splits)
    path, notes = full(table.path), [*labels.notes]
    of_path: Dict[str, Set[str]] = collections.defaultdict(set)
    split_of: Dict[str, str] = {}
    missing: List[Tuple[str, ImageFile]] = []
    for name, label, split in labels.rows:
        found = paths.get(_normal(name), ())
        if len(found) > 1:
            raise DataError(f'{path}: {shown(name)} is the name of several files: {listed(sorted(found))}.')
        if not found:
            missing.append((split, ImageFile(os.path.join(folder, name), label)))
        for each in found:
            of_path[each].add(label)
            if split_of.setdefault(each, split) != split:
                raise DataError(f'{path}: {shown(name)} is in two splits, {split_of[each]} and {split}. Keep one row.')
    contradictory = [f'{full(each)} ({listed(sorted(names))})' for each, names in of_path.items() if len(names) > 1]
    if contradictory:
        text = f'{counted(len(contradictory), "file")} with several labels: {listed(contradictory)}'
        raise DataError(f'{path}: {text}. Keep one row for each file.')
    # Test images beside validation images are not read.
    kinds = {*split_of.values()}
    chosen = [{''}] if kinds <= {''} else [{TRAIN}, {VALIDATION} if VALIDATION in kinds else {TEST}]
    missing = [(split, each) for split, each in missing if any(split in one for one in chosen)]
    # Rows of other images may have the same file names as images here.
    is_below = any(os.path.basename(_normal(each.path)) in paths for _, each in missing)
    begin = ', or name the folder in which the paths of the table begin' if is_below else ''
    for what, names, supply in (
        ('whose image is missing', [each.path for _, each in missing], f'Supply the files in {full(folder)}{begin}'),
        ('without a label', [f'{name} (line {line})' for line, name in labels.without], 'Supply the labels'),
    ):
        text = f'{counted(len(names), "row")} of {path} {what}: {listed(names)}'
        if names and not (skip_missing and of_path):
            raise DataError(f'{text}. {supply}, or leave out the rows with --skip_unreadable.')
        notes += [f'{text}; left out'] * bool(names)
    unlabelled = {each for _, name in labels.without for each in paths.get(_normal(name), ())}
    left_out = []
    for each in tree.images():
        if each not in of_path:
            left_out.append((each, _WITHOUT_LABEL if each in unlabelled else _WITHOUT_ROW))
        elif not any(split_of[each] in one for one in chosen):
            left_out.append((each, _OF_TEST))
    splits = [
        [ImageFile(each, *of_path[each]) for each in tree.images() if each in of_path and split_of[each] in one]
        for one in chosen
    ]
    return ImageSet(splits, [each for split, each in missing if split in chosen[0]], left_out, notes)


def _normal(name: str) -> str:
    return unicodedata.normalize('NFC', os.path.normpath(name.replace('\\', '/')))


def _paths_by_name(paths: Sequence[str], folder: str, wanted: Optional[Set[str]] = None) -> Dict[str, Set[str]]:
    """The paths that a name in a table may stand for: the ends of paths, with and without endings; or those wanted.

    A longer end takes precedence, and the whole path in the folder over all.
    """
    forms: List[Dict[str, Set[str]]] = []
    for path in paths:
        rest, number = _normal(os.path.relpath(path, folder)), 0
        while rest:
            for name in (rest, os.path.splitext(rest)[0]):
                if number == len(forms):
                    forms.append(collections.defaultdict(set))
                if wanted is None or name in wanted:
                    forms[number][name].add(path)
                number += 1
            rest = rest.partition('/')[2]
    return {name: found for form in reversed(forms) for name, found in form.items()}
