"""Trees of folders: splits, classes, single folders in between, names in two Unicode forms, and the refused ones."""

import os
import pathlib
from typing import Any, List, Sequence

import pytest

from data.convert.from_folder import class_folders
from data.records import DataError

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
    splits = class_folders.find_images(folder, **options).splits
    return [[f'{image.class_name}: {os.path.relpath(image.path, folder)}' for image in split] for split in splits]


@pytest.mark.parametrize(
    ('train', 'validation'),
    [
        *(('train', name) for name in ('test', 'valid', 'val', 'validation', 'dev', 'eval')),
        *(('Train', 'Test'), ('TRAINING', 'Validation'), ('seg_train', 'seg_test'), ('training_set', 'test_set')),
        *(('train2017', 'val2017'), ('train/images', 'test/images'), ('x/y/train', 'x/y/test')),
    ],
)
def test_splits_are_known_by_their_names(train: str, validation: str, tmp_path: pathlib.Path) -> None:
    folder = plant(tmp_path, [*in_classes(train, validation), 'notes/about.txt'])
    expected = [
        [f'{name}: {split}/{name}/{split.replace("/", "-")}.jpg' for name in ('cat', 'dog')]
        for split in (train, validation)
    ]
    assert found(folder) == found(f'{folder}//') == expected


def test_a_class_of_one_split_alone_does_not_hide_the_splits(tmp_path: pathlib.Path) -> None:
    many = [f'seg_train/{number}/a.jpg' for number in range(9)]
    folder = plant(tmp_path, [*many, 'seg_test/3/b.jpg', 'seg_test/5/b.jpg'])
    train, test = found(folder)
    assert len(train) == 9 and test == ['3: seg_test/3/b.jpg', '5: seg_test/5/b.jpg']


def test_test_images_beside_validation_images_are_left_out(tmp_path: pathlib.Path) -> None:
    images = class_folders.find_images(plant(tmp_path, in_classes('train', 'test', 'val')))
    assert [len(split) for split in images.splits] == [2, 2]
    assert all('/val/' in image.path for image in images.splits[1])
    reason = 'an image in no folder of the two splits'
    assert images.left_out == [(f'{tmp_path}/test/{name}/test.jpg', reason) for name in ('cat', 'dog')]


def test_splits_of_one_class_are_known_by_a_word_of_their_names(tmp_path: pathlib.Path) -> None:
    paths = ['fruits_training/apple/1.jpg', 'fruits_testing/apple/2.jpg']
    assert found(plant(tmp_path, paths)) == [
        ['apple: fruits_training/apple/1.jpg'],
        ['apple: fruits_testing/apple/2.jpg'],
    ]


def test_splits_inside_of_the_classes(tmp_path: pathlib.Path) -> None:
    paths = ['cat/train/1.jpg', 'cat/test/2.jpg', 'dog/train/3.jpg', 'dog/test/4.jpg', 'dog/deep/train/5.txt']
    assert found(plant(tmp_path, paths)) == [
        ['cat: cat/train/1.jpg', 'dog: dog/train/3.jpg'],
        ['cat: cat/test/2.jpg', 'dog: dog/test/4.jpg'],
    ]
    assert len(found(str(tmp_path), no_splits=True)[0]) == 4


@pytest.mark.parametrize(
    ('paths', 'classes'),
    [
        (['my/cat/1.jpg', 'my/dog/2.jpg'], ['cat', 'dog']),
        (['a/b/c/cat/1.jpg', 'a/b/c/dog/2.jpg', 'sample.jpg'], ['cat', 'dog']),
        (['cat/1.jpg', 'dog/2.jpg', 'cat/kittens/3.jpg', 'dog/puppies/4.jpg'], ['cat', 'cat', 'dog', 'dog']),
        # Classes whose names are those of splits, or have them as a word.
        (['train/1.jpg', 'car/2.jpg', 'bus/3.jpg'], ['bus', 'car', 'train']),
        (['train_station/1.jpg', 'test_tube/2.jpg'], ['test_tube', 'train_station']),
        # A folder of the same name in each class, or in some.
        (['cat/images/1.jpg', 'dog/images/2.jpg'], ['cat', 'dog']),
        (['cat/other/1.jpg', 'cat/persian/2.jpg', 'dog/other/3.jpg', 'dog/beagle/4.jpg'], ['cat', 'cat', 'dog', 'dog']),
        (['train/cat/1.jpg', 'train/dog/2.jpg'], ['cat', 'dog']),
    ],
)
def test_classes(paths: List[str], classes: List[str], tmp_path: pathlib.Path) -> None:
    (split,) = found(plant(tmp_path, paths))
    assert [image.partition(':')[0] for image in split] == classes


@pytest.mark.parametrize(
    ('paths', 'said'),
    [
        (in_classes('one', 'two'), '{}: has folders that look like splits, not like classes: one, two. '),
        (in_classes('holdout', 'train'), 'If holdout, train are the classes, add --no_splits.'),
        (in_classes('train', 'val', 'valid'), 'not like classes: train, val, valid. '),
        (in_classes('val', 'test'), 'not like classes: test, val. '),
        (['cat/1.jpg', 'dog/2.jpg', *in_classes('holdout')], 'not like classes: holdout. '),
        (['cat/1.jpg', 'dog/2.jpg', *in_classes('test')], 'not like classes: test. '),
        ([*in_classes('train'), 'unlabeled/1.jpg'], 'not like classes: train. '),
        (
            [*in_classes('train'), 'test/1.jpg'],
            '{}/test: its images are in no class folders. To convert {}/train alone',
        ),
        (['train/1.jpg', 'test/2.jpg'], '{}/train: its images are in no class folders. '),
        (
            ['images/train/cat/1.jpg', 'images/val/cat/2.jpg', 'images/val/dog/3.jpg', 'preview/4.jpg'],
            '{}/images: has folders that look like splits, train, val, and there are images beside it. ',
        ),
    ],
)
def test_ambiguous_folders_are_refused(paths: List[str], said: str, tmp_path: pathlib.Path) -> None:
    folder = plant(tmp_path, paths)
    with pytest.raises(DataError) as error:
        class_folders.find_images(folder)
    assert said.replace('{}', folder) in str(error.value) and '--no_splits' in str(error.value)
    (all_images,) = found(folder, no_splits=True)
    assert len(all_images) == len(paths)


def test_a_validation_folder_inside_is_not_trained_on(tmp_path: pathlib.Path) -> None:
    folder = plant(tmp_path, ['cat/1.jpg', 'dog/2.jpg', *in_classes('holdout')])
    assert found(folder, validation_folder=f'{folder}/holdout') == [
        ['cat: cat/1.jpg', 'dog: dog/2.jpg'],
        ['cat: holdout/cat/holdout.jpg', 'dog: holdout/dog/holdout.jpg'],
    ]


def test_two_unicode_forms_of_a_name_are_one_class(tmp_path: pathlib.Path) -> None:
    composed, decomposed = 'caf\u00e9', 'cafe\u0301'
    folder = plant(tmp_path / 'in', [f'my/{composed}/1.jpg', f'my/{decomposed}/2.jpg', 'my/tea/3.jpg'])
    images = class_folders.find_images(folder)
    assert sorted(image.class_name for image in images.splits[0]) == [composed, composed, 'tea']
    assert images.notes[0] == f'{folder}: all images are in {folder}/my' and 'are one class: café' in images.notes[1]
    # Of a validation folder, too.
    other = plant(tmp_path / 'other', [f'{decomposed}/4.jpg'])
    assert class_folders.find_images(other).splits[0][0].class_name == composed


@pytest.mark.parametrize('place', ['', 'train/'])
def test_a_class_name_that_is_not_utf_8_is_refused(place: str, tmp_path: pathlib.Path) -> None:
    name = os.fsdecode('caf\u00e9'.encode('latin-1'))
    folder = plant(tmp_path, [f'{place}{name}/1.jpg', f'{place}tea/2.jpg', f'{place.replace("train", "val")}tea/3.jpg'])
    with pytest.raises(DataError, match=r'caf\\udce9: the name of a class must be UTF-8\. Rename the folder, .*convmv'):
        class_folders.find_images(folder)


def test_images_are_known_by_their_content(tmp_path: pathlib.Path) -> None:
    cats = ['cat/a.jfif', 'cat/b.JPE', 'cat/c', 'cat/d.dat']
    dogs = ['dog/e.txt', 'dog/f.heic', 'dog/g.tiff']
    folder = plant(tmp_path, [*cats, *dogs, 'cat/h', 'cat/i.txt'])
    for name, head in (('cat/c', b'\xff\xd8\xff'), ('cat/d.dat', b'\x89PNG\r\n\x1a\n'), ('dog/e.txt', b'MM\0*')):
        (tmp_path / name).write_bytes(head + bytes(200))
    (tmp_path / 'cat/h').write_bytes(b'\x93NUMPY' + bytes(200))
    (tmp_path / 'cat/i.txt').write_text('BM a note')
    images = class_folders.find_images(folder)
    assert [os.path.relpath(image.path, folder) for image in images.splits[0]] == [*cats, *dogs]
    assert images.left_out == [
        (f'{folder}/cat/h', 'in no format that is known as one of images'),
        (f'{folder}/cat/i.txt', 'not an image'),
    ]
    assert [image.path for image in images.lost[0]] == [f'{folder}/cat/h']


def test_linked_class_folders__are_followed_without_cycles(tmp_path: pathlib.Path) -> None:
    folder = plant(tmp_path / 'in', ['cat/1.jpg'])
    plant(tmp_path / 'outside', ['dog/2.jpg'])
    (tmp_path / 'in' / 'dog').symlink_to(tmp_path / 'outside' / 'dog')
    (tmp_path / 'outside' / 'dog' / 'circle').symlink_to(tmp_path / 'in')
    assert found(folder) == [['cat: cat/1.jpg', 'dog: dog/2.jpg']]
    assert class_folders.find_images(folder).left_out == [
        (f'{folder}/dog/circle', 'leads to a folder that is read already')
    ]
