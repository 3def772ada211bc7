"""Signs that folders are not classes: each on names that have it, and on names of ordinary classes."""

import pathlib
import subprocess
from typing import Dict, List, Sequence

import pytest

from tools.datasets.from_folder import signs
from tools.datasets.from_folder.signs import ImageTable


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('JPEGImages2', ['jpeg', 'images']),
        ('cars_train', ['cars', 'train']),
        ('ISIC_2019_Training_Input', ['isic', 'training', 'input']),
        ('train2017', ['train']),
        ('trainA', ['train', 'a']),
        ('001', []),
    ],
)
def test_words__are_parted_at_signs_and_capitals(name: str, expected: List[str]) -> None:
    assert signs.words(name) == expected


def test_kind_of__is_that_of_the_only_split() -> None:
    names = ['cars_train', 'Validation2017', 'my test images', 'test_train', 'trainval', 'cars']
    assert [signs.kind_of(name) for name in names] == ['train', 'validation', 'test', '', 'train', '']


@pytest.mark.parametrize(
    ('names', 'expected'),
    [
        (['test1', 'train'], ['test1', 'train']),
        (['cars_train', 'cars_test', 'devkit'], ['cars_test', 'cars_train']),
        (['train2017', 'val2017', 'test2017'], ['test2017', 'train2017', 'val2017']),
        (['ISIC_2019_Training_Input', 'ISIC_2019_Test_Input'], ['ISIC_2019_Test_Input', 'ISIC_2019_Training_Input']),
        (['trainA', 'trainB', 'testA', 'testB'], ['testA', 'testB', 'trainA', 'trainB']),
        (['train_images', 'testset'], ['testset', 'train_images']),
        (['train', 'unlabeled'], ['train', 'unlabeled']),
        (['trainval', 'test'], ['test', 'trainval']),
        # Classes.
        (['train', 'bus', 'car'], []),
        (['train_station', 'test_tube'], []),
        (['valid', 'invalid'], []),
        (['test', 'control'], []),
        (['test_positive', 'test_negative'], []),
        (['trainer', 'protest', 'oval'], []),
    ],
)
def test_splits_among__tells_splits_from_classes(names: Sequence[str], expected: List[str]) -> None:
    assert signs.splits_among(names) == expected


@pytest.mark.parametrize(
    ('names', 'expected'),
    [
        (['images', 'annotations'], ['images']),
        (['JPEGImages', 'SegmentationClass'], ['JPEGImages']),
        (['jpg', 'segmim'], ['jpg']),
        (['photos', 'labels'], ['photos']),
        (['input', 'gt'], ['input']),
        # Classes.
        (['photo', 'sketch', 'cartoon'], []),
        (['photos', 'screenshots'], []),
        (['mask', 'no_mask'], []),
        (['cat_images', 'dog_images'], []),
        (['images'], []),
        (['1', '2'], []),
    ],
)
def test_images_beside_others__are_told_from_classes(names: Sequence[str], expected: List[str]) -> None:
    assert signs.images_beside_others(names) == expected


@pytest.mark.parametrize(
    ('names', 'expected'),
    [
        (['HAM10000_images_part_1', 'HAM10000_images_part_2'], ['HAM10000_images_part_1', 'HAM10000_images_part_2']),
        (['part1', 'part2', 'other'], ['part1', 'part2']),
        (['images_001', 'images_002'], ['images_001', 'images_002']),
        (['batch_a', 'batch_b'], ['batch_a', 'batch_b']),
        # Classes.
        (['s1', 's2'], []),
        (['class1', 'class2'], []),
        (['000', '001'], []),
        (['group a', 'group b'], []),
        (['part', 'whole'], []),
    ],
)
def test_parts_among__tells_parts_from_classes(names: Sequence[str], expected: List[str]) -> None:
    assert signs.parts_among(names) == expected


COUNTED = [f'{number:04d}' for number in range(8)]
NAMED = ['Abyssinian_1', 'Bengal_2', 'pug_3', 'beagle_4']
PAIR = {'one': ('.jpg', NAMED), 'two': ('.png', NAMED)}


@pytest.mark.parametrize(
    ('folders', 'expected'),
    [
        (PAIR, ['one', 'two']),
        ({'one': ('.jpg', NAMED), 'two': ('.jpg', NAMED)}, ['one', 'two']),
        # Masks are fewer than images, or their names have an ending.
        ({'one': ('.jpg', [*NAMED, 'extra_5', 'extra_6']), 'two': ('.png', NAMED)}, ['one', 'two']),
        ({'one': ('.jpg', NAMED), 'two': ('.png', [f'{name}_mask' for name in NAMED])}, ['one', 'two']),
        ({'one': ('.jpg', COUNTED), 'two': ('.png', COUNTED)}, ['one', 'two']),
        # Classes: numbers in each, in two formats, and few equal names.
        ({'cat': ('.jpg', COUNTED), 'dog': ('.jpg', COUNTED)}, []),
        ({'cat': ('.jpg', [f'image_{each}' for each in COUNTED]), 'dog': ('.jpg', ['image_0001', 'image_0002'])}, []),
        ({'cat': ('.jpg', COUNTED), 'dog': ('.png', COUNTED[:6])}, []),
        ({'cat': ('.jpg', NAMED), 'dog': ('.jpg', [*NAMED[:3], 'husky_7', 'pug_9'])}, []),
        ({'cat': ('.jpg', NAMED[:2]), 'dog': ('.jpg', NAMED[:2])}, []),
        ({str(number): ('.png' if number else '.jpg', COUNTED) for number in range(6)}, []),
        # Of several ways to show the same images, as many as may be; among many folders, it is by chance.
        ({str(number): ('.jpg', NAMED) for number in range(5)}, ['0', '1']),
        ({str(number): ('.jpg', NAMED) for number in range(6)}, []),
        ({**{str(number): ('.jpg', [f'own{number}']) for number in range(18)}, **PAIR}, ['one', 'two']),
        ({**{str(number): ('.jpg', [f'own{number}']) for number in range(19)}, **PAIR}, []),
    ],
)
def test_same_images__finds_folders_with_images_of_the_same_names(
    folders: Dict[str, Sequence], expected: List[str]
) -> None:
    paths = {name: [f'{name}/{stem}{ending}' for stem in stems] for name, (ending, stems) in folders.items()}
    assert signs.same_images(paths) == expected


def of_table(rows: Sequence[str], *names: str) -> ImageTable:
    """A table whose rows begin with the paths of their images."""
    cells = [row.split(',') for row in rows]
    return ImageTable('labels.csv', [*names], [({row[0]}, row) for row in cells])


@pytest.mark.parametrize(
    ('rows', 'names', 'is_sign'),
    [
        (['a/1,cat', 'a/2,dog', 'b/3,cat', 'b/4,dog'], [], True),
        (['a/1,cat,9', 'a/2,dog,9', 'b/3,cat,9', 'b/4,dog,9'], ['file', 'breed', 'size'], True),
        (['a/1,cat,9', 'a/2,dog,9', 'b/3,cat,9', 'b/4,dog,9'], [], True),
        # In one of the folders.
        (['a/1,cat', 'a/2,dog', 'a/3,cat', 'a/4,dog'], ['file', 'label'], True),
        (['a/1,x,cat', 'a/2,x,dog', 'a/3,x,cat', 'a/4,x,dog'], ['file', 'source', 'label'], True),
        # The folders' own labels, in a spelling of their own, beside others.
        (['a/1,A,x', 'a/2,A,y', 'b/3,B,x', 'b/4,B,y'], ['file', 'class', 'tags'], False),
        # A column that is not of labels, and one that tells all images apart.
        (['a/1,80,x', 'a/2,90,x', 'b/3,80,x', 'b/4,90,x'], ['file', 'width', 'camera'], False),
        (['a/1,k', 'a/2,l', 'b/3,m', 'b/4,n'], ['file', 'caption'], False),
        (['c/1,cat', 'c/2,dog', 'c/3,cat', 'c/4,dog'], [], False),
        # Splits, by their values or the name of their column.
        (['a/1,train', 'a/2,Val', 'b/3,train', 'b/4,Val'], [], False),
        (['a/1,0', 'a/2,1', 'b/3,0', 'b/4,1'], ['file', 'partition'], False),
    ],
)
def test_other_labels__finds_a_table_with_other_labels(
    rows: Sequence[str], names: Sequence[str], is_sign: bool
) -> None:
    folder_of = {f'{folder}/{number}': folder for folder in 'ab' for number in range(1, 5)}
    sizes = of_table(['a/1,80', 'a/2,90'], 'file', 'width')._replace(path='sizes.csv')
    assert signs.other_labels(folder_of, [sizes, of_table(rows, *names)]) == ('labels.csv' if is_sign else None)


def test_an_image_with_the_name_of_others_is_no_sign() -> None:
    rows = [({f'a/{number}', f'b/{number}'}, [f'{number}', 'xy'[number % 2]]) for number in range(4)]
    folder_of = {f'{folder}/{number}': folder for folder in 'ab' for number in range(4)}
    assert signs.other_labels(folder_of, [ImageTable('labels.csv', [], rows)]) is None


def test_of_folders__gives_all_signs() -> None:
    folders = {'test': ['1.jpg'], 'train': ['2.jpg']}
    assert [*signs.of_folders(folders, [], [])] == ['test, train are named like splits']
    # Within a split, these are names of classes.
    assert [*signs.of_folders(folders, [], [], is_split=True)] == []
    names = ['train_images_1', 'train_images_2', 'test_images']
    of_names = {name: [f'{name}/{stem}.jpg' for stem in NAMED] for name in names}
    rows = [f'train_images_1/{stem}.jpg,{number % 2}' for number, stem in enumerate(NAMED)]
    assert [*signs.of_folders({**of_names, 'images': []}, [of_table(rows)], ['x/labels.mat'])] == [
        'test_images, train_images_1, train_images_2 are named like splits',
        'images is named like the images of all classes',
        'train_images_1, train_images_2 are named like parts of one set',
        'test_images and train_images_1 have images of the same names, as images and masks have',
        'labels.csv has several labels for images of one folder',
        'x/labels.mat is named like labels of images',
    ]


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        *((name, True) for name in ('test.txt', 'train_list01.txt', 'my_splits.json', 'partition.csv', 'a_split.mat')),
        *((name, False) for name in ('classes.txt', 'trainer.csv', 'labels.train', 'README')),
    ],
)
def test_is_of_splits__goes_by_the_words_of_the_name(name: str, expected: bool) -> None:
    assert signs.is_of_splits(name) == expected


def test_files_of_labels__finds_those_of_matlab_beside_a_few_folders() -> None:
    files = ['x/imagelabels.mat', 'x/readme.mat', 'x/labels.json', 'x/cars_annos.mat', 'x/annotation_0001.mat']
    expected = ['x/imagelabels.mat', 'x/cars_annos.mat']
    assert [signs.files_of_labels(files, folders) for folders in (1, 2, 5, 6)] == [[], expected, expected, []]


@pytest.mark.parametrize(
    ('names', 'expected'),
    [
        (['cat.0.jpg', 'cat.1.jpg', 'dog.2.jpg', 'dog.13.jpg'], ['cat', 'dog']),
        (['a_b_1.jpg', 'a_b_2.jpg', 'X 3.jpg', 'X-4.jpg'], ['X', 'a_b']),
        (['image_1.jpg', 'image_2.jpg'], []),
        (['k1.jpg', 'l2.jpg'], []),
        (['1_0_3.jpg', '2_0_3.jpg', '2_0_4.jpg', '1_0_5.jpg'], []),
        (['cat.0.jpg', 'cat.1.jpg', 'dog.2.jpg', 'dog.jpg'], []),
    ],
)
def test_classes_in_names__finds_classes_at_the_beginning_of_names(names: Sequence[str], expected: List[str]) -> None:
    assert signs.classes_in_names(names) == expected


def test_the_command_writes_a_table_of_names(tmp_path: pathlib.Path) -> None:
    names = ['cat.0.jpg', 'my dog_11.png', 'my dog 2.jpg']
    (tmp_path / 'in').mkdir()
    for name in [*names, 'cat_100.mat', 'README.jpg']:
        (tmp_path / 'in' / name).touch()
    subprocess.run(signs.table_of_names('in', names), shell=True, check=True, cwd=str(tmp_path))
    rows = (tmp_path / 'labels.csv').read_text().splitlines()
    assert rows[0] == 'file,label'
    assert sorted(rows[1:]) == ['cat.0.jpg,cat', 'my dog 2.jpg,my dog', 'my dog_11.png,my dog']
