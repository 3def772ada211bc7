"""Reads tables of labels: CSV files and other texts with a row for each image.

Commas, semicolons, tabs or vertical bars divide a row, or else blanks. The first row has the names of the columns,
unless it names an image. A cell may hold a class and its boxes, and columns of 0 and 1 may stand for the classes.
"""

import collections
import csv
import io
import re
import unicodedata
from typing import Callable, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from compat.messages import counted, full, shown
from console import inputs
from data.records import TRAIN, VALIDATION, DataError
from tools import image_files
from tools.image_files import listed

TEST = 'test'
# The splits by the names of folders, and of the values in a table's column.
SPLIT_NAMES = {
    **dict.fromkeys(('train', 'training'), TRAIN),
    **dict.fromkeys(('validation', 'val', 'valid', 'dev', 'eval'), VALIDATION),
    **dict.fromkeys(('test', 'testing'), TEST),
}
_DELIMITERS = ',;\t|'
# Names of a column of splits, without blanks and capitals.
_SPLIT_COLUMNS = {'split', 'set', 'subset', 'dataset', 'partition', 'phase'}
# The line in which Excel names the delimiter.
_EXCEL = re.compile(r'sep=(.)\r?\n')
# Spellings of a missing value. `None` is not among them, because it may be a class.
_MISSING = {'', 'NaN', 'nan', 'NAN', '<NA>', 'NA', 'N/A', 'n/a', '#N/A', 'NULL', 'null'}
_MAY_BE_MISSING = {'none', 'unknown', '?', '-', 'undefined'}
# A class and its boxes, once or more, as in Kaggle's tables of ImageNet: `n01440764 13 57 304 595`.
_NUMBER = r'-?\d+(?:\.\d+)?'
_WITH_BOXES = re.compile(rf'(?:\S*[^\s\d.-]\S*(?: +{_NUMBER}){{4}}(?: +|$))+')
_ONE_HOT = {'0': False, '0.0': False, '1': True, '1.0': True}
# Beginnings of files that are not text, with the way to convert each.
_OTHER_FORMATS = (
    (b'PK\x03\x04', 'is a workbook or an archive: save its sheet as "CSV UTF-8"'),
    (b'\xd0\xcf\x11\xe0', 'is a workbook: save its sheet as "CSV UTF-8"'),
    (b'PAR1', "is a Parquet file: write a CSV file with pandas.read_parquet(PATH).to_csv('labels.csv')"),
    (
        b'MATLAB',
        'is a MATLAB file: read it with scipy.io.loadmat, and write a CSV file with the columns file and label',
    ),
    (b'\x89HDF', 'is an HDF5 or MATLAB file: write a CSV file with the columns file and label'),
    (b'{', 'is a JSON file: write a CSV file with the columns file and label'),
)

# The most columns that are all named.
_SHOWN_AT_MOST = 20

IsFile = Callable[[str], bool]
# The line number of a row, and its cells without surrounding blanks.
Row = Tuple[int, List[str]]


class LabelFile(NamedTuple):
    """A table of labels, as a user names it."""

    path: str
    file_column: str = ''  # The name or, from 1, the number of a column; empty for the first of two.
    label_column: str = ''  # The same, for the second of two.
    flag: str = '--labels'

    @property
    def named(self) -> str:
        """The flag and the path, for messages."""
        return f'{self.flag}={full(self.path)}'


class Labels(NamedTuple):
    """The content of a table."""

    rows: List[Tuple[str, str, str]]  # The name of a file, its class, and TRAIN, VALIDATION, TEST or nothing.
    without: List[Tuple[int, str]]  # The lines without a label, with the names of their files.
    notes: List[str]  # Sentences about the way the table was read.


class _Columns(NamedTuple):
    """The columns of a table, and the indices of the columns that are read."""

    names: List[str]  # Their numbers, from 1, if the table has no row of names.
    has_names: bool
    file: int
    labels: List[int]  # Several for one-hot labels.
    split: Optional[int] = None


def rows_in(text: str) -> List[Row]:
    """The rows of a table with at least one cell that is not empty. Raises csv.Error."""
    excel = _EXCEL.match(text)
    text = text[excel.end() :] if excel else text
    head = text.partition('\n')[0]
    delimiter = excel.group(1) if excel else max(_DELIMITERS, key=head.count)
    if delimiter in head:
        reader = csv.reader(io.StringIO(text, newline=''), delimiter=delimiter, strict=True)
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    else:
        rows = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1)]
        # Names with blanks.
        if head.split() and len({len(row) for _, row in rows if row}) > 1:
            rows = [(number, [' '.join(row)]) for number, row in rows]
    return [(number + bool(excel), row) for number, row in rows if any(row)]


def read(table: LabelFile, is_file: IsFile, no_splits: bool = False) -> Labels:
    """Reads a table; `is_file` says whether a text names an image. With `no_splits`, a column of splits is not used."""
    rows = _read(table)
    columns = _columns(table, rows, is_file, no_splits)
    names, content = columns.names, rows[columns.has_names :]
    notes = [*_notes_of_columns(table, columns, no_splits)]

    def cell(row: Sequence[str], column: int) -> str:
        return row[column] if column < len(row) else ''

    def label_of(row: Sequence[str]) -> str:
        if len(columns.labels) == 1:
            return cell(row, columns.labels[0])
        return next((names[column] for column in columns.labels if _ONE_HOT.get(cell(row, column))), '')

    found = [(line, cell(row, columns.file), label_of(row), row) for line, row in content]
    labels = [label for _, _, label, _ in found if label not in _MISSING]
    with_boxes = labels and all(map(_WITH_BOXES.fullmatch, labels))
    if with_boxes:
        cell_of = f'each cell of column {full(names[columns.labels[0]])}'
        notes.append(f'{full(table.path)}: {cell_of} has a class and boxes, of which the class is read')
    read_rows: List[Tuple[str, str, str]] = []
    without: List[Tuple[int, str]] = []
    forms: Set[str] = set()
    for line, file, label, row in found:
        of_split = SPLIT_NAMES[cell(row, columns.split).casefold()] if columns.split is not None else ''
        if not file:
            raise DataError(f'{full(table.path)}, line {line}: has no file.')
        if label in _MISSING:
            # A class is not needed for images that are not read.
            if of_split != TEST:
                without.append((line, file))
            continue
        if with_boxes:
            several = sorted({part for part in label.split() if not re.fullmatch(_NUMBER, part)})
            if len(several) > 1:
                problem = f'{shown(file)} has boxes of several classes: {listed(several)}. Keep one for each file.'
                raise DataError(f'{full(table.path)}, line {line}: {problem}')
            label = several[0]
        forms.add(label)
        read_rows.append((file, unicodedata.normalize('NFC', label), of_split))
    notes += _notes_of_labels(table, frozenset(forms))
    return Labels(read_rows, without, notes)


def _read(table: LabelFile) -> List[Row]:
    """The rows of a table, of which the first has a cell."""
    try:
        content = inputs.read(table.path)
        for begin, problem in _OTHER_FORMATS:
            if content.startswith(begin):
                raise DataError(f'{table.named}: {problem}.')
        # Excel's `Unicode text`.
        encoding = 'utf-16' if content.startswith((b'\xff\xfe', b'\xfe\xff')) else 'utf-8-sig'
        rows = rows_in(content.decode(encoding))
    except OSError as error:
        raise DataError(f'{table.named}: cannot be read: {error.strerror}.')
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f'{table.named}: is not a CSV file in UTF-8: {shown(error)}. If it has another encoding, convert it: iconv '
            '-f latin1 -t utf-8 FILE > labels.csv.'
        )
    if not rows:
        raise DataError(f'{table.named}: its first row must have the names of the columns, and has none: it is empty.')
    if max(len(row) for _, row in rows) == 1 and all(row[0].isdigit() for _, row in rows):
        raise DataError(
            f'{table.named}: has numbers alone, and no names of files. Such numbers follow the order of the files, and '
            "a development kit says what they mean, as for ImageNet's validation images: inception-v3 imagenet reads "
            'both. For other images, write a CSV file with the columns file and label.'
        )
    return rows


def _columns(table: LabelFile, rows: Sequence[Row], is_file: IsFile, no_splits: bool) -> _Columns:
    """Finds the columns by names or numbers; a name may be missing if only one choice is left."""
    first = rows[0][1]
    asked = {name for name in (table.file_column, table.label_column) if name}
    # A number is not taken for a cell of an image's row.
    has_names = bool({name for name in asked if not name.isdigit()} & {*first}) or not begins_with_an_image(
        rows, is_file
    )
    names = first if has_names else [str(number) for number in range(1, len(first) + 1)]
    twice = sorted(name for name in asked if names.count(name) > 1)
    if twice:
        raise DataError(f'{table.named}: several columns are named {listed(twice)}. Give each a name of its own.')

    def index_of(name: str) -> Optional[int]:
        if name and name in names:
            return names.index(name)
        return int(name) - 1 if name.isdigit() and 1 <= int(name) <= len(names) else None

    content = [row for _, row in rows[has_names:]]
    file, label = index_of(table.file_column), index_of(table.label_column)
    splits = [number for number in range(len(names)) if has_names and is_split_column(names[number])]
    free = [number for number in range(len(names)) if number not in (file, label, *splits)]
    if len(names) > 1 and len(asked) == len({file, label} - {None}):
        if file is None:
            cells = {number: {row[number] for row in content if number < len(row)} for number in free}
            named = {number: sum(map(is_file, of_column)) for number, of_column in cells.items()}
            naming = [n for n in free if named[n] == max(named.values()) and 2 * named[n] > len(cells[n])]
            file = naming[0] if len(naming) == 1 else free[0] if len(names) == 2 and free else None
        others = [number for number in free if number != file]
        if file is not None and label is None:
            if len(others) == 1:
                label = others[0]
            elif has_names and is_one_hot(content, others):
                return _Columns(names, True, file, others)
            ones = _ones(content, others) if has_names else []
            if ones:
                line, count = next((line, count) for (line, _), count in zip(rows[1:], ones) if count != 1)
                columns = f'{counted(count, "column")} of {_all([names[number] for number in others])}'
                raise DataError(
                    f'{table.named}, line {line}: has a 1 in {columns}. An image must have one class: leave out such '
                    'rows, or name the column of one question with --label_column.'
                )
    if file is None or label is None or file == label:
        raise DataError(_unclear(table, names, has_names, file))
    if has_names and unicodedata.normalize('NFC', names[label]) in {
        unicodedata.normalize('NFC', row[label]) for row in content if label < len(row)
    }:
        raise DataError(
            f'{table.named}: its first row has a label. It must have the names of the columns. Add a line such as '
            'file,label.'
        )
    split = next((number for number in splits if number not in (file, label)), None)
    if split is not None and (no_splits or not divides(content, split)):
        split = None
    return _Columns(names, has_names, file, [label], split)


def begins_with_an_image(rows: Sequence[Row], is_file: IsFile) -> bool:
    """Whether the first row of a table is an image's: by the ending of a name, or by a name and a label."""
    (_, first), *others = rows
    if any(cell.lower().endswith(image_files.EXTENSIONS) for cell in first):
        return True
    # A column's name may be the name of an image, or of a class; hardly both.
    repeated = [
        number
        for number, cell in enumerate(first)
        if cell and any(number < len(row) and row[number] == cell for _, row in others)
    ]
    return any(is_file(cell) and {*repeated} - {number} for number, cell in enumerate(first))


def is_one_hot(content: Sequence[Sequence[str]], columns: Sequence[int]) -> bool:
    """Whether these columns hold only 0 and 1, with a single 1 in each row."""
    return bool(content) and {*_ones(content, columns)} == {1}


def _ones(content: Sequence[Sequence[str]], columns: Sequence[int]) -> List[int]:
    """The number of columns with 1 in each row; empty for a single column, or if there are other values."""
    values = [[_ONE_HOT.get(row[column] if column < len(row) else '') for column in columns] for row in content]
    if len(columns) < 2 or any(None in row for row in values):
        return []
    return [sum(map(bool, row)) for row in values]


def is_split_column(name: str) -> bool:
    """Whether a column is named like a column of splits."""
    return re.sub(r'[\W_]', '', name.casefold()) in _SPLIT_COLUMNS


def divides(content: Sequence[Sequence[str]], column: int) -> bool:
    """Whether each value of a column names a split, and the column divides the images into training and others."""
    kinds = {SPLIT_NAMES.get(row[column].casefold() if column < len(row) else '') for row in content}
    return None not in kinds and TRAIN in kinds and len(kinds) > 1


def _all(names: Sequence[str]) -> str:
    return listed(names) if len(names) > _SHOWN_AT_MOST else ', '.join(map(shown, names))


def _unclear(table: LabelFile, names: Sequence[str], has_names: bool, file: Optional[int]) -> str:
    flags = 'Name the column of the files with --file_column, and that of the labels with --label_column'
    found = '' if file is None or not names[file] else f' Column {shown(names[file])} names the files.'
    numbers = f'{flags}; without a row of names, by their numbers: --file_column=1 --label_column=2.{found}'
    if not has_names:
        return f'{table.named}: its first row is of an image, so that its {len(names)} columns have no names. {numbers}'
    return f'{table.named}: its first row must have the names of the columns, and has {_all(names)}. {numbers}'


def _notes_of_columns(table: LabelFile, columns: _Columns, no_splits: bool) -> Iterator[str]:
    names, path = columns.names, full(table.path)
    one_hot = ' (1 of several columns)' if len(columns.labels) > 1 else ''
    labels = listed([names[column] for column in columns.labels])
    read = f'files are named in column {shown(names[columns.file])}, and classes in {labels}{one_hot}'
    if not columns.has_names:
        read += '; its first row is of an image'
    elif names[columns.file].isdigit() or table.file_column.isdigit():
        read += f'; its first row has the names of the columns: {listed(names)}'
    yield f'{path}: {read}'
    if columns.split is not None:
        yield f'{path}: column {shown(names[columns.split])} divides the images; --no_splits divides them anew'
    used = {columns.file, *columns.labels, columns.split}
    unused = [name or '(no name)' for number, name in enumerate(names) if number not in used]
    if unused:
        yield f'{path}: {counted(len(unused), "column")} not used: {listed(unused)}'
    splits = [name for number, name in enumerate(names) if is_split_column(name) and number not in used]
    if splits and not no_splits and columns.has_names:
        names_of = 'train, with validation, val, valid, dev, eval or test beside it'
        yield f'{path}: column {listed(splits)} would be used if it had these values alone: {names_of}'


def _notes_of_labels(table: LabelFile, forms: FrozenSet[str]) -> Iterator[str]:
    """Yields remarks on labels that may not be the intended classes; `forms` are the texts of the table."""
    path = full(table.path)
    by_normal: Dict[str, List[str]] = collections.defaultdict(list)
    for form in sorted(forms):
        by_normal[unicodedata.normalize('NFC', form)].append(form)
    joined = [name for name, of_name in by_normal.items() if len(of_name) > 1]
    if joined:
        yield f'{path}: labels in several Unicode forms, read as one class each: {listed(joined)}'
    doubtful = [name for name in by_normal if name.casefold() in _MAY_BE_MISSING]
    if doubtful:
        yield f'{path}: the label {listed(doubtful)} is read as a class. If it means a missing label, empty these cells'
    if by_normal and all(re.fullmatch(r'\d+(\.0)?', name) for name in by_normal):
        yield f'{path}: the classes are numbers, whose meaning is elsewhere; for names, write them into the table'
    combined = [name for name in by_normal if len(name.split()) > 1 and {*name.split()} <= {*by_normal}]
    if combined:
        yield f'{path}: labels of several classes, each of which is a class of its own: {listed(combined)}'
