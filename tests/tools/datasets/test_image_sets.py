"""The images of a data set and their classes: folders of classes, of splits, ambiguous ones, and tables of labels."""

import os
import pathlib
from typing import Any, Dict, List, Sequence

import pytest

from data import dataset_info
from data.records import DataError
from tests.data.written_records import stored
from tests.tools.datasets.image_folders import SPLITS, import_folder, refusal, save
from tools.datasets.from_folder import image_sets, tables
from tools.datasets.from_folder.tables import LabelFile

Found = List[List[str]]


def plant(folder: pathlib.Path, paths: Sequence[str]) -> str:
    """Makes files that are images by their ending, or by nothing."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    return str(folder)


def in_classes(*folders: str) -> List[str]:
    """An image of each of the classes `cat` and `dog` in each folder."""
    return [f'{folder}/{name}/{folder.replace("/", "-")}.jpg' for folder in folders for name in ('cat', 'dog')]


def found(folder: str, **options: Any) -> Found:
    """The images of each split, as `CLASS: PATH`."""
    splits = image_sets.find(folder, **options).splits
    return [[f'{image.class_name}: {os.path.relpath(image.path, folder)}' for image in split] for split in splits]


@pytest.mark.parametrize(
    ('train', 'validation'),
    [
        *(('train', name) for name in ('test', 'valid', 'val', 'validation', 'dev', 'eval')),
        *(('Train', 'Test'), ('TRAINING', 'Validation'), ('train/images', 'test/images'), ('x/y/train', 'x/y/test')),
    ],
)
def test_splits_are_known_by_their_names(train: str, validation: str, tmp_path: pathlib.Path) -> None:
    folder = plant(tmp_path, [*in_classes(train, validation), 'notes/about.txt'])
    expected = [
        [f'{name}: {split}/{name}/{split.replace("/", "-")}.jpg' for name in ('cat', 'dog')]
        for split in (train, validation)
    ]
    assert found(folder) == found(f'{folder}//') == expected


def test_test_images_beside_validation_images_are_left_out(tmp_path: pathlib.Path) -> None:
    images = image_sets.find(plant(tmp_path, in_classes('train', 'Test', 'val')))
    assert [len(split) for split in images.splits] == [2, 2]
    assert all('/val/' in image.path for image in images.splits[1])
    reason = 'a test image beside validation images'
    assert images.left_out == [(f'{tmp_path}/Test/{name}/Test.jpg', reason) for name in ('cat', 'dog')]


@pytest.mark.parametrize(
    ('paths', 'classes'),
    [
        (['my/cat/1.jpg', 'my/dog/2.jpg'], ['cat', 'dog']),
        (['a/b/c/cat/1.jpg', 'a/b/c/dog/2.jpg', 'sample.jpg'], ['cat', 'dog']),
        (['cat/1.jpg', 'dog/2.jpg', 'cat/kittens/3.jpg', 'dog/puppies/4.jpg'], ['cat', 'cat', 'dog', 'dog']),
        # Classes whose names are those of splits, or have them as a word.
        (['train/1.jpg', 'car/2.jpg', 'bus/3.jpg'], ['bus', 'car', 'train']),
        (['train_station/1.jpg', 'test_tube/2.jpg'], ['test_tube', 'train_station']),
        # A folder of the same name in each class.
        (['cat/images/1.jpg', 'dog/images/2.jpg'], ['cat', 'dog']),
        (['train/cat/1.jpg', 'train/dog/2.jpg'], ['cat', 'dog']),
    ],
)
def test_folders__become_classes_in_their_order(paths: List[str], classes: List[str], tmp_path: pathlib.Path) -> None:
    (split,) = found(plant(tmp_path, paths))
    assert [image.partition(':')[0] for image in split] == classes


@pytest.mark.parametrize(
    ('paths', 'said'),
    [
        (in_classes('one', 'two'), '{}: has folders that look like splits, not like classes: one, two. '),
        (in_classes('holdout', 'train'), 'If holdout, train are the classes, add --no_splits.'),
        (in_classes('train', 'val', 'valid'), 'not like classes: train, val, valid. '),
        (['cat/1.jpg', 'dog/2.jpg', *in_classes('holdout')], 'not like classes: holdout. '),
        ([*in_classes('train'), 'unlabeled/1.jpg'], 'not like classes: train. '),
        (['cat/train/1.jpg', 'cat/test/2.jpg', 'dog/train/3.jpg', 'dog/test/4.jpg'], 'not like classes: cat, dog. '),
        ([*in_classes('train'), 'test/1.jpg'], '{}/test: look like splits, and their images are in no class folders. '),
        (
            ['train/1.jpg', 'test/2.jpg'],
            '{}/train, {}/test: look like splits, and their images are in no class folders',
        ),
        (['images/train/cat/1.jpg', 'images/val/cat/2.jpg', 'preview/4.jpg'], 'not like classes: images. '),
    ],
)
def test_ambiguous_folders_are_refused(paths: List[str], said: str, tmp_path: pathlib.Path) -> None:
    folder = plant(tmp_path, paths)
    with pytest.raises(DataError) as error:
        image_sets.find(folder)
    assert said.replace('{}', folder) in str(error.value) and '--no_splits' in str(error.value)
    (all_images,) = found(folder, no_splits=True)
    assert len(all_images) == len(paths)


def test_a_validation_folder_inside_is_not_trained_on(tmp_path: pathlib.Path) -> None:
    folder = plant(tmp_path, ['cat/1.jpg', 'dog/2.jpg', *in_classes('holdout')])
    assert found(folder, validation_folder=f'{folder}/holdout') == [
        ['cat: cat/1.jpg', 'dog: dog/2.jpg'],
        ['cat: holdout/cat/holdout.jpg', 'dog: holdout/dog/holdout.jpg'],
    ]
    # Another folder's classes may have subfolders alone, too.
    other = plant(tmp_path / 'other', in_classes('cat', 'dog'))
    _, validation = image_sets.find(f'{folder}/holdout', other, no_splits=True).splits
    assert [image.class_name for image in validation] == ['cat', 'cat', 'dog', 'dog']


def test_two_unicode_forms_of_a_name_are_one_class(tmp_path: pathlib.Path) -> None:
    composed, decomposed = 'caf\u00e9', 'cafe\u0301'
    folder = plant(tmp_path / 'in', [f'my/{composed}/1.jpg', f'my/{decomposed}/2.jpg', 'my/tea/3.jpg'])
    images = image_sets.find(folder)
    assert sorted(image.class_name for image in images.splits[0]) == [composed, composed, 'tea']
    assert images.notes == [f'{folder}: all images are in {folder}/my']
    # A validation folder, too, which may have images of one class alone.
    other = plant(tmp_path / 'other', [f'{decomposed}/4.jpg'])
    assert image_sets.find(folder, other).splits[1][0].class_name == composed


@pytest.mark.parametrize('place', ['', 'train/'])
def test_a_class_name_that_is_not_utf_8_is_refused(place: str, tmp_path: pathlib.Path) -> None:
    name = os.fsdecode('caf\u00e9'.encode('latin-1'))
    folder = plant(tmp_path, [f'{place}{name}/1.jpg', f'{place}tea/2.jpg', f'{place.replace("train", "val")}tea/3.jpg'])
    with pytest.raises(DataError, match=r'caf\\udce9: the name of a class must be UTF-8\. Rename the folder\.'):
        image_sets.find(folder)


def test_images_are_known_by_their_ending_or_content(tmp_path: pathlib.Path) -> None:
    images = ['cat/a.jfif', 'cat/b.JPE', 'cat/c', 'cat/d.dat', 'cat/e', 'cat/f', 'cat/g', 'dog/f.heic', 'dog/g.tiff']
    folder = plant(tmp_path, [*images, 'cat/h', 'cat/i.txt'])
    heads = {'c': b'\xff\xd8\xff', 'd.dat': b'\x89PNG\r\n\x1a\n', 'e': b'II*\0', 'f': b'MM\0*', 'g': b'RIFF1234WEBP'}
    for name, head in {**heads, 'h': b'\x93NUMPY'}.items():
        (tmp_path / 'cat' / name).write_bytes(head + bytes(200))
    found = image_sets.find(folder)
    assert [os.path.relpath(image.path, folder) for image in found.splits[0]] == images
    assert found.left_out == [(f'{folder}/cat/{name}', 'not an image') for name in ('h', 'i.txt')]


def test_linked_class_folders__are_followed_without_cycles(tmp_path: pathlib.Path) -> None:
    folder = plant(tmp_path / 'in', ['cat/1.jpg'])
    plant(tmp_path / 'outside', ['dog/2.jpg'])
    (tmp_path / 'in' / 'dog').symlink_to(tmp_path / 'outside' / 'dog')
    (tmp_path / 'outside' / 'dog' / 'circle').symlink_to(tmp_path / 'in')
    assert found(folder) == [['cat: cat/1.jpg', 'dog: dog/2.jpg']]
    assert image_sets.find(folder).left_out == [(f'{folder}/dog/circle', 'leads to a folder that is read already')]


FILES = ['a.jpg', 'b.png', 'sub/c.jpg', 'image.jpg']


@pytest.fixture
def flat(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder of images without classes."""
    for number, name in enumerate(FILES):
        save(tmp_path / 'flat' / name, 'cat', number)
    return tmp_path / 'flat'


def in_table(flat: pathlib.Path, text: str, file: str = '', label: str = '', skip: bool = False) -> Any:
    table = flat.parent / 'labels.csv'
    table.write_bytes(text.encode())
    return image_sets.find(str(flat), labels=LabelFile(str(table), file, label), skip_missing=skip)


def classes_in_table(flat: pathlib.Path, *arguments: Any) -> Dict[str, str]:
    (images,) = in_table(flat, *arguments).splits
    return {image.path[len(f'{flat}/') :]: image.class_name for image in images}


@pytest.mark.parametrize(
    ('text', 'columns'),
    [
        ('filename,label\na.jpg,x\nb.png,y\nsub/c.jpg,x\nimage.jpg,y\n', ('', '')),
        ('label;image\nx;a\ny;b\nx;c\ny;image\n', ('image', '')),
        ('\ufeffimage\tsize\tbreed\r\na\t1\tx\r\n\r\nb\t2\ty\r\nsub\\c\t3\tx\r\nimage\t4\ty', ('image', 'breed')),
        ('"what, exactly",name\n x,a\ny,"./b.png"\nx,c\ny ,image\n', ('', 'what, exactly')),
        # The column that names images is that of the files.
        ('label,file\nx,a.jpg\ny,b.png\nx,sub/c.jpg\ny,image.jpg\n', ('', '')),
        # Without names of columns.
        ('a.jpg,x\nb.png,y\nsub/c.jpg,x\nimage.jpg,y\n', ('', '')),
        ('a,x\nb,y\nsub/c,x\nimage,y\n', ('', '')),
        ('1,a,x\n1,b,y\n1,sub/c,x\n1,image,y\n', ('2', '3')),
        ('id,size,breed\na,1,x\nb,1,y\nsub/c,1,x\nimage,1,y\n', ('1', '3')),
        # A number that is a column's name is that name.
        ('2,file,3\nx,a,7\ny,b,7\nx,sub/c,7\ny,image,7\n', ('file', '2')),
        # Other delimiters; Excel names its own.
        ('sep=;\r\nfile;label\r\na;x\r\nb;y\r\nsub/c;x\r\nimage;y\r\n', ('', '')),
        ('file|label\na|x\nb|y\nsub/c|x\nimage|y\n', ('', '')),
        ('a x 1\nb y 1\nsub/c x 1\nimage y 1\n', ('1', '2')),
        # Classes in columns, and beside boxes.
        ('image,x,y\na,1.0,0.0\nb,0.0,1.0\nsub/c,1.0,0.0\nimage,0.0,1.0\n', ('', '')),
        ('image,text\na,x 10 1 60 50 \nb,y 1 2 3 4 y -1 2.5 3 4\nsub/c,x 1 2 3 4\nimage,y 1 2 3 4 \n', ('', '')),
    ],
)
def test_table__finds_its_columns_and_the_files_of_its_names(text: str, columns: Any, flat: pathlib.Path) -> None:
    assert classes_in_table(flat, text, *columns) == {'a.jpg': 'x', 'b.png': 'y', 'sub/c.jpg': 'x', 'image.jpg': 'y'}


@pytest.mark.parametrize(
    ('text', 'columns', 'said'),
    [
        ('', ('', ''), 'its first row must have the names of the columns, and has'),
        ('filename\na.jpg\n', ('', ''), 'and has filename. Name the column of the files with --file_column'),
        ('image,label\na,x\n', ('file', ''), 'and has image, label. Name'),
        ('image,label\na,x\n', ('label', 'label'), 'and has image, label. Name'),
        (',filename,label\n0,a,x\n', ('filename', ''), 'and has , filename, label. Name'),
        ('image,label\na,x\nb\n', ('', ''), '1 row of {}/labels.csv without a label: b (line 3). Supply the labels'),
        (
            'image,label\na,x\nb,NaN\nsub/c,N/A',
            ('', ''),
            '2 rows of {}/labels.csv without a label: b (line 3), sub/c (',
        ),
        ('x,label\na,label\n', ('', ''), 'its first row has a label. It must have the names of the columns. Add'),
        ('x,caf\u00e9\na,cafe\u0301\n', ('', ''), 'its first row has a label. '),
        # A column that names a few images, and two that name all.
        ('one,two,label\na,1,x\nq,2,y\nr,3,x\n', ('', 'label'), 'and has one, two, label. Name'),
        ('one,two,label\na,b,x\nb,a,y\n', ('', 'label'), 'and has one, two, label. Name'),
        (
            'a.jpg,x,1\nb.png,y,2\n',
            ('', ''),
            'its 3 columns have no names. Name the column of the files with --file_co',
        ),
        (
            'image,size,label\na,1,x\nb,2,y\n',
            ('', ''),
            'by their numbers: --file_column=1 --label_column=2. Column image na',
        ),
        ('image,p,q\na,0.5,0.5\n', ('', ''), 'and has image, p, q. Name'),
        ('image,p,q\na,1\nb,0,1\n', ('', ''), 'and has image, p, q. Name'),
        ('sep=;\r\nimage;label\r\na;x\r\nb;\r\n', ('', ''), 'without a label: b (line 4). Supply the labels'),
        ('{"a": "x"}', ('', ''), 'is a JSON file: write a CSV file with the columns file and label.'),
        (
            'image,p,q\na,0,1\nb,1,1\n',
            ('', ''),
            'labels.csv, line 3: has a 1 in 2 columns of p, q. An image must have one',
        ),
        ('image,p,p\na,0,1\n', ('image', 'p'), 'several columns are named p.'),
        ('image,label\na,x 1 2 3 4 y 1 2 3 4\n', ('', ''), 'line 2: a has boxes of several classes: x, y. Keep one'),
        (
            '490\n361\n',
            ('', ''),
            'has numbers alone, and no names of files. Such numbers follow the order of the files',
        ),
        ('image,label,split\na,x,train\na,x,val\n', ('', ''), 'a is in two splits, train and validation. Keep one row'),
        ('image,label\nflat/a.jpg,x\nb.png,y\n', ('', ''), 'or name the folder in which the paths of the table begin'),
        ('PK\x03\x04', ('', ''), 'is a workbook or an archive: save its sheet as "CSV UTF-8".'),
        ('image,label\n,x\n', ('', ''), 'labels.csv, line 2: has no file.'),
        ('image,label\na,x\n"b', ('', ''), 'is not a CSV file in UTF-8'),
        ('image,label\na,x\nsub/c,x\na,y\n', ('', ''), '1 file with several labels: {}/a.jpg (x, y). Keep one row'),
        (
            'image,label\nd.jpg,x\na.jpg,y\n',
            ('', ''),
            '1 row of {}/labels.csv whose image is missing: {}/d.jpg. Supply the files in {}, or leave out the rows',
        ),
    ],
)
def test_tables_with_problems_are_refused_by_name(text: str, columns: Any, said: str, flat: pathlib.Path) -> None:
    with pytest.raises(DataError) as error:
        in_table(flat, text, *columns)
    said = said.replace('{}/labels', f'{flat.parent}/labels').replace('{}', str(flat))
    assert said in str(error.value)


def test_a_table_that_is_not_utf_8_or_missing_is_refused(flat: pathlib.Path) -> None:
    table = flat.parent / 'labels.csv'
    for content in (None, b'a,b\na.jpg,caf\xe9\n'):
        if content:
            table.write_bytes(content)
        with pytest.raises(DataError, match=r'labels\.csv: (cannot be read: No such file|is not a CSV file in UTF-8)'):
            image_sets.find(str(flat), labels=LabelFile(str(table)))


def test_rows_without_a_label_are_left_out_if_asked(flat: pathlib.Path) -> None:
    result = in_table(flat, 'image,label\na,x\nb,NaN\nsub/c,\nimage,None\n', '', '', True)
    assert [(os.path.basename(image.path), image.class_name) for image in result.splits[0]] == [
        ('a.jpg', 'x'),
        ('image.jpg', 'None'),
    ]
    reason = 'an image without a label in the table'
    assert result.left_out == [(f'{flat}/b.png', reason), (f'{flat}/sub/c.jpg', reason)]
    assert [note.partition(': ')[2] for note in result.notes[1:]] == [
        'the label None is read as a class. If it means a missing label, empty these cells',
        'b (line 3), sub/c (line 4); left out',
    ]


@pytest.mark.parametrize(
    ('split', 'no_splits', 'expected'),
    [
        (('train', 'val', 'Train', 'VALID'), False, [['a.jpg', 'c.jpg'], ['b.png', 'image.jpg']]),
        (('train', 'test', 'train', 'val'), False, [['a.jpg', 'c.jpg'], ['image.jpg']]),
        (('train', 'test', 'train', 'test'), False, [['a.jpg', 'c.jpg'], ['b.png', 'image.jpg']]),
        (('train', 'val', 'train', 'val'), True, [['a.jpg', 'b.png', 'image.jpg', 'c.jpg']]),
        (('0', '1', '0', '1'), False, [['a.jpg', 'b.png', 'image.jpg', 'c.jpg']]),
        (('train',) * 4, False, [['a.jpg', 'b.png', 'image.jpg', 'c.jpg']]),
    ],
)
def test_a_column_of_splits_is_obeyed_or_said_to_be_unused(
    split: Sequence[str], no_splits: bool, expected: Found, flat: pathlib.Path
) -> None:
    rows = [f'{name},{label},7,{part}\n' for name, label, part in zip(('a', 'b', 'sub/c', 'image'), 'xyxy', split)]
    table = flat.parent / 'labels.csv'
    table.write_text('file,label,size,Split\n' + ''.join(rows))
    result = image_sets.find(str(flat), no_splits=no_splits, labels=LabelFile(str(table), 'file', 'label'))
    assert [[os.path.basename(image.path) for image in images] for images in result.splits] == expected
    unused = 'size, Split' if len(expected) == 1 else 'size'
    assert any(note.endswith(f'not used: {unused}') for note in result.notes)
    assert ('column Split divides the images' in ' '.join(result.notes)) == (len(expected) == 2)
    left_out = ['b.png'] if sum(map(len, expected)) == 3 else []
    assert [os.path.basename(path) for path, _ in result.left_out] == left_out
    # Others for validation contradict the column.
    if len(expected) == 2:
        other, labels = plant(flat.parent / 'other', ['x/1.jpg', 'y/2.jpg']), LabelFile(str(table), 'file', 'label')
        with pytest.raises(
            DataError, match='a table divides its images into training and validation images, and others'
        ):
            image_sets.find(str(flat), other, labels=labels)
        with pytest.raises(
            DataError, match=r'sub: has no images in class folders\. Name a table .* --validation_labels='
        ):
            image_sets.find(str(flat), str(flat / 'sub'), labels=labels, skip_missing=True)


def test_validation_labels_are_in_a_table_of_their_own(tmp_path: pathlib.Path, flat: pathlib.Path) -> None:
    train, validation = tmp_path / 'train.csv', tmp_path / 'validation.csv'
    train.write_text('file,label\na,cat\nb,dog\n')
    validation.write_text('file,label\nc,cat\n')
    # Both of one folder; the training images in class folders; the validation images in class folders.
    expected = [['a.jpg', 'b.png'], ['c.jpg']]
    both = image_sets.find(str(flat), labels=LabelFile(str(train)), validation_labels=LabelFile(str(validation)))
    assert [[os.path.basename(image.path) for image in images] for images in both.splits] == expected
    assert both.left_out == [(f'{flat}/image.jpg', 'an image without a row in the table of labels')]
    columns = 'files are named in column file, and classes in label'
    assert both.notes == [f'{train}: {columns}', f'{validation}: {columns}']
    tables: Dict[str, Any] = {'labels': LabelFile(str(train)), 'validation_labels': LabelFile(str(validation))}
    assert image_sets.find(str(flat), f'{flat}/', **tables) == both
    classes = plant(tmp_path / 'classes', in_classes('train'))
    other = image_sets.find(f'{classes}/train', str(flat / 'sub'), validation_labels=LabelFile(str(validation)))
    assert [[image.class_name for image in images] for images in other.splits] == [['cat', 'dog'], ['cat']]
    third = image_sets.find(str(flat), f'{classes}/train', labels=LabelFile(str(train)), skip_missing=True)
    assert [[image.class_name for image in images] for images in third.splits] == [['cat', 'dog'], ['cat', 'dog']]
    # Images that are missing in either are left out, and count as lost for training alone.
    for path, row in ((train, 'y.jpg,dog\n'), (validation, 'z.jpg,cat\n')):
        path.write_text(path.read_text() + row)
    fewer = image_sets.find(str(flat), skip_missing=True, **tables)
    assert (fewer.splits, [each.path for each in fewer.missing]) == (both.splits, [f'{flat}/y.jpg'])
    validation.write_text('file,label\nc,cat\n')
    # The folder `val` of a folder with `train`; without such folders, there is none to look in.
    (tmp_path / 'classes' / 'val').mkdir()
    (flat / 'sub' / 'c.jpg').rename(tmp_path / 'classes' / 'val' / 'c.jpg')
    save(tmp_path / 'classes' / 'val' / 'z.png', 'cat', 0)
    inside = image_sets.find(classes, validation_labels=LabelFile(str(validation)))
    assert inside.left_out == [(f'{classes}/val/z.png', 'an image without a row in the table of labels')]
    assert [[image.class_name for image in images] for images in inside.splits] == [['cat', 'dog'], ['cat']]
    with pytest.raises(DataError, match='is not read as folders train and val'):
        image_sets.find(f'{classes}/train', validation_labels=LabelFile(str(validation), flag='--validation_labels'))
    with pytest.raises(DataError, match='is not read as folders train and val'):
        image_sets.find(classes, no_splits=True, validation_labels=LabelFile(str(validation)))


def test_labels_that_are_unusual_are_remarked_on(flat: pathlib.Path) -> None:
    def remarks(*labels: str) -> List[str]:
        names = ('a', 'b', 'sub/c', 'image')
        rows = ''.join(f'{name},{label}\n' for name, label in zip(names, labels))
        return [note.partition(': ')[2] for note in in_table(flat, f'image,label\n{rows}').notes[1:]]

    assert remarks('x', 'y', 'x', 'y') == []
    assert remarks('caf\u00e9', 'cafe\u0301', 'tea', 'tea') == [
        'labels in several Unicode forms, read as one class each: caf\u00e9'
    ]
    assert remarks('0', '1', '2.0', '1') == [
        'the classes are numbers, whose meaning is elsewhere; for names, write them into the table'
    ]
    assert remarks('rust', 'scab', 'rust scab', 'rust') == [
        'labels of several classes, each of which is a class of its own: rust scab'
    ]
    assert remarks('golden retriever', 'pug', 'rust scab', 'pug') == []
    assert remarks('golden retriever', 'golden', 'rust scab', 'scab') == []


@pytest.mark.parametrize(
    ('text', 'rows'),
    [
        # Blanks part columns where all rows have as many, and else belong to names.
        ('a  x\n\nb y\n', [(1, ['a', 'x']), (3, ['b', 'y'])]),
        ('my  cat.jpg\nb.jpg\n', [(1, ['my cat.jpg']), (2, ['b.jpg'])]),
        ('a;"x\ny"\nb,c; z\n', [(2, ['a', 'x\ny']), (3, ['b,c', 'z'])]),
    ],
)
def test_rows_in__finds_the_delimiter(text: str, rows: Any) -> None:
    assert tables.rows_in(text) == rows


OTHER_SPLITS = (
    'column subset would be used if it had these values alone: train, with validation, val, valid, dev, eval or test '
    'beside it'
)


@pytest.mark.parametrize(
    ('text', 'columns', 'no_splits', 'notes'),
    [
        (
            'image,x,y\na,1,0\nb,0,1\n',
            *(('', ''), False),
            ['files are named in column image, and classes in x, y (1 of several columns)'],
        ),
        (
            'a.jpg,x,7\nb.jpg,y,7\n',
            *(('1', '2'), False),
            ['files are named in column 1, and classes in 2; its first row is of an image', '1 column not used: 3'],
        ),
        (
            'id,label,,subset\na,x,7,0\nb,y,8,1\n',
            *(('1', '2'), False),
            [
                'files are named in column id, and classes in label; its first row has the names of the columns: id, '
                'label,  and 1 more',
                *('2 columns not used: (no name), subset', OTHER_SPLITS),
            ],
        ),
        (
            'id,label,subset\na,x,0\nb,y,1\n',
            *(('id', 'label'), True),
            ['files are named in column id, and classes in label', '1 column not used: subset'],
        ),
        (
            'id,label,subset\na,x,train\nb,y,val\n',
            *(('id', 'label'), False),
            [
                'files are named in column id, and classes in label',
                'column subset divides the images; --no_splits divides them anew',
            ],
        ),
    ],
)
def test_the_columns_of_a_table_are_said(
    text: str, columns: Any, no_splits: bool, notes: List[str], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / 'labels.csv'
    path.write_text(text)
    labels = tables.read(LabelFile(str(path), *columns), lambda name: name[:1] in ('a', 'b'), no_splits)
    assert labels.notes == [f'{path}: {note}' for note in notes]


def test_a_label_is_not_needed_for_test_images_beside_others(flat: pathlib.Path) -> None:
    rows = 'file,label,split\na,x,train\nb,y,train\nsub/c,x,val\nimage,,test\n'
    # Nor is the image itself.
    result = in_table(flat, f'{rows}gone.jpg,x,test\n')
    assert [len(images) for images in result.splits] == [2, 1] and not result.missing
    result = in_table(flat, f'{rows}gone.jpg,x,val\nlost.jpg,x,train\n', '', '', True)
    assert [each.path for each in result.missing] == [f'{flat}/lost.jpg']
    with pytest.raises(DataError, match=r'1 row of .* without a label: image \(line 5\)'):
        in_table(flat, 'file,label,split\na,x,train\nb,y,train\nsub/c,x,val\nimage,,val\n')


def test_a_table_in_utf_16_and_another_unicode_form_is_read(flat: pathlib.Path) -> None:
    table = flat.parent / 'labels.txt'
    save(flat / 'cre\u0300me.jpg', 'cat', 8)
    for encoding in ('utf-16-le', 'utf-16-be'):
        table.write_bytes('\ufefffile\tlabel\na\tcaf\u00e9\nb\ttea\ncr\u00e8me\ttea\n'.encode(encoding))
        (images,) = image_sets.find(str(flat), labels=LabelFile(str(table))).splits
        assert [image.class_name for image in images] == ['caf\u00e9', 'tea', 'tea']


def test_a_name_of_several_files_is_refused(flat: pathlib.Path) -> None:
    save(flat / 'other' / 'c.jpg', 'cat', 7)
    with pytest.raises(DataError, match=r'c\.jpg is the name of several files: .*/other/c\.jpg, .*/sub/c\.jpg'):
        in_table(flat, 'image,label\na.jpg,x\nc.jpg,y\n')
    # A whole path is not.
    assert classes_in_table(flat, 'image,label\na.jpg,x\nsub/c.jpg,y\n') == {'a.jpg': 'x', 'sub/c.jpg': 'y'}
    save(flat / 'c.jpg', 'cat', 8)
    assert classes_in_table(flat, 'image,label\na.jpg,x\nc.jpg,y\n') == {'a.jpg': 'x', 'c.jpg': 'y'}


def test_missing_and_unnamed_files_are_counted(flat: pathlib.Path) -> None:
    result = in_table(flat, 'image,label\na.jpg,x\nb.png,y\na.jpg,x\nd.jpg,y\n', '', '', True)
    assert [image.path for image in result.splits[0]] == [f'{flat}/a.jpg', f'{flat}/b.png']
    assert [image.path for image in result.missing] == [f'{flat}/d.jpg']
    assert result.notes[1:] == [f'1 row of {flat.parent}/labels.csv whose image is missing: {flat}/d.jpg; left out']
    with pytest.raises(DataError, match=r'2 rows of .* whose image is missing'):
        in_table(flat, 'image,label\nd.jpg,x\ne.jpg,y\n', '', '', True)
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
    (tmp_path / 'labels.csv').write_text('id,breed\n0,x\n1,x\n2,y\n3,y\nz.png,w\n')
    message = refusal(tmp_path / 'flat', labels=str(tmp_path / 'labels.csv'), skip_unreadable=True)
    assert f'cannot be used: w (1 of 1, as {tmp_path}/flat/z.png)' in message
    (tmp_path / 'labels.csv').write_text('id,breed\n0,x\n1,x\n')
    message = refusal(tmp_path / 'flat', labels=str(tmp_path / 'labels.csv'))
    assert 'all training images are of one class, x. There must be two or more.' in message
    nowhere = f'{tmp_path}/nowhere.csv'
    message = refusal(tmp_path / 'flat', labels=str(tmp_path / 'labels.csv'), validation_labels=nowhere)
    assert message == f'--validation_labels={nowhere}: cannot be read: No such file or directory.'
