"""Tables of labels: their columns, names of files, and rows that are refused or counted."""

import pathlib
from typing import Any, Dict, List

import pytest

from data import dataset_info
from data.convert.from_folder import label_table
from data.records import DataError
from tests.data.image_folders import SPLITS, import_folder, refusal, save, stored

FILES = ['a.jpg', 'b.png', 'sub/c.jpg', 'image.jpg']


@pytest.fixture
def flat(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder of images without classes."""
    for number, name in enumerate(FILES):
        save(tmp_path / 'flat' / name, 'cat', number)
    return tmp_path / 'flat'


def found(flat: pathlib.Path, text: str, file: str = '', label: str = '', skip: bool = False) -> Any:
    table = flat.parent / 'labels.csv'
    table.write_bytes(text.encode())
    return label_table.find_images(str(table), str(flat), file, label, skip)


def classes(flat: pathlib.Path, *arguments: Any) -> Dict[str, str]:
    (images,) = found(flat, *arguments).splits
    return {image.path[len(f'{flat}/') :]: image.class_name for image in images}


@pytest.mark.parametrize(
    ('text', 'columns'),
    [
        ('filename,label\na.jpg,x\nb.png,y\nsub/c.jpg,x\nimage.jpg,y\n', ('', '')),
        ('a.jpg,x\nb.png,y\nsub/c.jpg,x\nimage.jpg,y\n', ('', '')),
        ('label;image\nx;a\ny;b\nx;c\ny;image\n', ('', '')),
        ('\ufeffimage\tsize\tbreed\r\na\t1\tx\r\n\r\nb\t2\ty\r\nsub\\c\t3\tx\r\nimage\t4\ty', ('', '')),
        ('name,size,kind\na,1,x\nb,2,y\nsub/c,3,x\nimage,4, y \n', ('Name', 'kind')),
        ('a,1,x\nb,2,y\n"./sub/c.jpg",3,x\nimage,4,y\n', ('1', '3')),
        ('"what, exactly",name\nx,a\ny,b\nx,c\ny,image\n', ('2', '')),
    ],
)
def test_columns_and_names(text: str, columns: Any, flat: pathlib.Path) -> None:
    assert classes(flat, text, *columns) == {'a.jpg': 'x', 'b.png': 'y', 'sub/c.jpg': 'x', 'image.jpg': 'y'}


@pytest.mark.parametrize(
    ('text', 'columns', 'said'),
    [
        ('', ('', ''), 'its first row must have a file and a label'),
        ('filename\na.jpg\n', ('', ''), 'its first row must have a file and a label'),
        ('image,melanoma,nevus\na,1,0\nb,0,1\n', ('', ''), 'melanoma, nevus. Name one of them with --label_column'),
        ('image,label\na,x\n', ('file', ''), 'image, label. Name one of them with --file_column'),
        ('image,label\na,x\n', ('', '3'), '--label_column'),
        ('image,label\na,x\n', ('', '0'), '--label_column'),
        ('image,label\na,x\n', ('2', ''), 'Files and labels are in different columns.'),
        ('image,label\na,x\nb\n', ('', ''), 'labels.csv, line 3: has no label.'),
        ('image,label\n,x\n', ('', ''), 'labels.csv, line 2: has no file.'),
        ('image,label\na,x\n"b', ('', ''), 'is no CSV file in UTF-8'),
        ('image,label\na,x\nsub/c,x\na,y\n', ('', ''), '1 file with several labels: {}/a.jpg (x, y). Keep one row'),
        ('d.jpg,x\na.jpg,x\n', ('', ''), 'whose image is missing: {}/d.jpg'),
        ('a.jpg,x\nb.png,x\nd.jpg,y\n', ('', ''), '1 row of {}/labels.csv whose image is missing: {}/d.jpg. Supply'),
    ],
)
def test_tables_that_are_refused(text: str, columns: Any, said: str, flat: pathlib.Path) -> None:
    with pytest.raises(DataError) as error:
        found(flat, text, *columns)
    said = said.replace('{}/labels', f'{flat.parent}/labels').replace('{}', str(flat))
    assert said in str(error.value)


def test_a_table_that_is_not_utf_8_or_missing_is_refused(flat: pathlib.Path) -> None:
    table = flat.parent / 'labels.csv'
    for content in (None, b'a.jpg,caf\xe9\n'):
        if content:
            table.write_bytes(content)
        with pytest.raises(DataError, match=r'labels\.csv: (cannot be read: No such file|is no CSV file in UTF-8)'):
            label_table.find_images(str(table), str(flat), '', '', False)


def test_a_name_of_several_files_is_refused(flat: pathlib.Path) -> None:
    save(flat / 'other' / 'c.jpg', 'cat', 7)
    with pytest.raises(DataError, match=r'c\.jpg is the name of several files: .*/other/c\.jpg, .*/sub/c\.jpg'):
        found(flat, 'a.jpg,x\nc.jpg,y\n')
    # A whole path is not.
    assert classes(flat, 'a.jpg,x\nsub/c.jpg,y\n') == {'a.jpg': 'x', 'sub/c.jpg': 'y'}
    save(flat / 'c.jpg', 'cat', 8)
    assert classes(flat, 'a.jpg,x\nc.jpg,y\n') == {'a.jpg': 'x', 'c.jpg': 'y'}


def test_missing_repeated_and_unnamed_files_are_counted(flat: pathlib.Path) -> None:
    result = found(flat, 'a.jpg,x\nb.png,y\na.jpg,x\nd.jpg,y\n', '', '', True)
    assert [image.path for image in result.splits[0]] == [f'{flat}/a.jpg', f'{flat}/b.png']
    assert [image.path for image in result.lost[0]] == [f'{flat}/d.jpg']
    assert result.notes == [
        f'1 row of {flat.parent}/labels.csv whose image is missing: {flat}/d.jpg; left out',
        f'1 repeated row of {flat.parent}/labels.csv counted once: {flat}/a.jpg',
    ]
    with pytest.raises(DataError, match=r'2 rows of .* whose image is missing'):
        found(flat, 'd.jpg,x\ne.jpg,y\n', '', '', True)
    reason = 'an image without a row in the table of labels'
    assert result.left_out == [(f'{flat}/image.jpg', reason), (f'{flat}/sub/c.jpg', reason)]


def test_a_flat_folder_is_converted_with_its_table(tmp_path: pathlib.Path) -> None:
    rows: List[str] = ['id,breed']
    for number in range(12):
        save(tmp_path / 'flat' / f'{number}.png', 'cat', number)
        rows.append(f'{number},' + ('odd' if number % 2 else 'caf\u00e9' if number % 4 else 'cafe\u0301'))
    (tmp_path / 'labels.csv').write_text('\n'.join(rows))
    data_dir, _ = import_folder(tmp_path / 'flat', labels=str(tmp_path / 'labels.csv'))
    images = [image for split in SPLITS for image in stored(data_dir, split)]
    assert {image.filename: (image.label, image.text) for image in images} == {
        f'{number}.png': (2, 'odd') if number % 2 else (1, 'caf\u00e9') for number in range(12)
    }
    info = dataset_info.read(str(data_dir))
    assert info is not None and info.class_names == ['background', 'caf\u00e9', 'odd']


def test_a_class_that_loses_most_of_its_rows_is_refused(tmp_path: pathlib.Path) -> None:
    for number in range(4):
        save(tmp_path / 'flat' / f'{number}.png', 'cat', number)
    (tmp_path / 'labels.csv').write_text('0,x\n1,x\n2,y\n3,y\nz.png,w\n')
    message = refusal(tmp_path / 'flat', labels=str(tmp_path / 'labels.csv'), skip_unreadable=True)
    assert f'cannot be used: w (1 of 1, as {tmp_path}/flat/z.png)' in message
