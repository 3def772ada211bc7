"""Reads the labels of the images in a folder from a CSV file, with commas, semicolons or tabs.

The first row may hold the names of the columns. Files are named by their paths in the folder, or by their names alone,
with or without their endings.
"""

import collections
import csv
import io
import os
import unicodedata
from typing import Dict, List, Sequence, Set, Tuple

from console.messages import counted, shown
from data import image_files
from data.convert.from_folder import class_folders
from data.convert.from_folder.class_folders import ImageFile, ImageSet
from data.image_files import listed, show
from data.records import DataError

_FILE_NAMES = ('filename', 'file_name', 'file', 'image', 'image_name', 'image_path', 'image_id', 'path', 'img', 'id')
_LABEL_NAMES = ('label', 'labels', 'class', 'class_name', 'category', 'target', 'breed', 'species')
_DELIMITERS = ',;\t'
_UNKNOWN = -2
_WITHOUT_ROW = 'an image without a row in the table of labels'


def find_images(path: str, folder: str, file_column: str, label_column: str, skip_missing: bool) -> ImageSet:
    """Finds the images of a folder, at any depth, and their classes in a table.

    Args:
      path: of the table.
      folder: the images.
      file_column: the name or the number, from 1, of the column of files; empty: a usual name, or the first of two.
      label_column: the same of the column of labels; empty: a usual name, or the second of two.
      skip_missing: leave out rows whose file is missing, instead of refusing them.

    Raises:
      DataError: the table or the folder cannot be read; a column is missing; a row is incomplete; rows contradict each
        other, name several files, or name missing files.
    """
    tree, left_out = class_folders.walk(folder)
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
    """The files and labels of a table."""
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
