"""Well-known data sets as they lie when they are unpacked: right classes and splits, or refused with the way on."""

import os
import pathlib
from typing import Any, Dict, List, Sequence

import pytest

from data.records import DataError
from tools.datasets.from_folder import conversion, image_sets
from tools.datasets.from_folder.tables import LabelFile

Files = Dict[str, str]


def of(*patterns: str, texts: Sequence[Any] = (), numbers: int = 4) -> Files:
    """The texts of files by path; a pattern stands for images, with {n} for a number and {h} for a name of letters."""
    stems = ['fox', 'eland', 'crane', 'heron', 'otter', 'bison']
    images = [pattern.format(n=f'{n:05d}', h=f'{stems[n]}{n}') for pattern in patterns for n in range(numbers)]
    return {**dict.fromkeys(images, ''), **dict(texts)}


def in_classes(*folders: str) -> List[str]:
    return [f'{folder}/{name}/{name}_{{n}}.jpg' for folder in folders for name in ('cat', 'dog')]


def table(row: str, header: str = '', numbers: int = 4) -> str:
    labels = [('cat', 'dog')[n % 2] for n in range(numbers)]
    return header + ''.join(row.format(n=f'{n:05d}', label=label, is_dog=n % 2) for n, label in enumerate(labels))


def plant(folder: pathlib.Path, files: Files) -> str:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return str(folder)


PETS = of('images/{h}.jpg', 'annotations/trimaps/{h}.png')
TINY = of(
    *('tiny/train/n01/images/n01_{n}.JPEG', 'tiny/train/n02/images/n02_{n}.JPEG'),
    *('tiny/val/images/val_{n}.JPEG', 'tiny/test/images/test_{n}.JPEG'),
    texts=[
        ('tiny/train/n01/n01_boxes.txt', table('n01_{n}.JPEG\t0\t0\t9\t9\n')),
        ('tiny/val/val_annotations.txt', ''.join(f'val_{n:05d}.JPEG\tn0{n % 2 + 1}\t0\t0\t44\t62\n' for n in range(4))),
        ('tiny/wnids.txt', 'n01\nn02\n'),
        ('tiny/words.txt', 'n01\tgoldfish\n'),
    ],
)


@pytest.mark.parametrize(
    ('files', 'signs', 'ways'),
    [
        pytest.param(
            of('train/cat.{n}.jpg', 'train/dog.{n}.jpg', 'test1/{n}.jpg'),
            'test1, train are named like splits',
            ['(cat, dog): (echo file,label; ls {}/train | sed', '{}/train DATA_DIR --labels=labels.csv'],
            id='dogs against cats',
        ),
        pytest.param(
            {
                **PETS,
                'annotations/list.txt': ''.join(f'{os.path.basename(p)[:-4]} {n % 2} 1\n' for n, p in enumerate(PETS)),
            },
            'images is named like the images of all classes; annotations and images have images of the same names',
            ['{}/images DATA_DIR --labels={}/annotations/list.txt --file_column=1 --label_column=NAME'],
            id='Oxford-IIIT Pet',
        ),
        pytest.param(
            of('cars_train/{n}.jpg', 'cars_test/{n}.jpg', texts=[('devkit/cars_meta.mat', '')]),
            'cars_test, cars_train are named like splits',
            ['does not read {}/devkit/cars_meta.mat: inception-v3 from-folder {}/cars_train DATA_DIR --labels='],
            id='Stanford Cars',
        ),
        pytest.param(
            of('jpg/image_{n}.jpg', 'segmim/segmim_{n}.jpg', texts=[('imagelabels.mat', '')]),
            'jpg is named like the images of all classes',
            ['does not read {}/imagelabels.mat: inception-v3 from-folder {}/jpg DATA_DIR --labels='],
            id='Flowers-102 with segmentations',
        ),
        pytest.param(
            of('VOC/JPEGImages/{n}.jpg', 'VOC/SegmentationClass/{n}.png', texts=[('VOC/ImageSets/Main/cat.txt', '')]),
            'JPEGImages is named like the images of all classes; JPEGImages and SegmentationClass have images of',
            ['{}/VOC/JPEGImages DATA_DIR --labels='],
            id='VOC',
        ),
        pytest.param(
            of('train2017/{n}.jpg', 'val2017/{n}.jpg', texts=[('annotations/instances_val2017.json', '')]),
            'train2017, val2017 are named like splits',
            ['does not read {}/annotations/instances_val2017.json'],
            id='COCO',
        ),
        pytest.param(
            of(
                *('HAM_images_part_1/a{n}.jpg', 'HAM_images_part_2/b{n}.jpg'),
                texts=[
                    ('meta.csv', table('H,a{n},{label},{is_dog}0\nH,b{n},{label},8\n', 'lesion_id,image_id,dx,age\n'))
                ],
            ),
            'HAM_images_part_1, HAM_images_part_2 are named like parts of one set; {}/meta.csv has several labels',
            ['inception-v3 from-folder {} DATA_DIR --labels={}/meta.csv --file_column=image_id --label_column=NAME'],
            id='HAM10000',
        ),
        pytest.param(
            of(
                'left/a{n}.jpg',
                'right/b{n}.jpg',
                texts=[('ALL.CSV', table('a{n},{label}\nb{n},{label}\n', 'file,label\n'))],
            ),
            '{}/ALL.CSV has several labels for images of one folder',
            ['inception-v3 from-folder {} DATA_DIR --labels={}/ALL.CSV.'],
            id='a table beside two folders',
        ),
        pytest.param(
            of(
                *('ISIC_Training_Input/I{n}.jpg', 'ISIC_Test_Input/T{n}.jpg'),
                texts=[('truth.csv', 'image,MEL,NV\nI00000,1.0,0.0\nI00001,0.0,1.0\nI00002,1.0,0.0\n')],
            ),
            'ISIC_Test_Input, ISIC_Training_Input are named like splits',
            ['{}/ISIC_Training_Input DATA_DIR --labels={}/truth.csv.'],
            id='ISIC',
        ),
        pytest.param(
            of(
                'train_images/k{n}.jpg',
                'test_images/l{n}.jpg',
                texts=[('train.csv', table('k{n}.jpg,{is_dog}\n', 'image_id,label\n'))],
            ),
            'test_images, train_images are named like splits',
            ['{}/train_images DATA_DIR --labels={}/train.csv.'],
            id='cassava',
        ),
    ],
)
def test_parts_of_data_sets_are_refused(files: Files, signs: str, ways: List[str], tmp_path: pathlib.Path) -> None:
    folder = plant(tmp_path, files)
    with pytest.raises(DataError) as error:
        image_sets.find(folder)
    message = str(error.value).replace(str(tmp_path), '{}')
    assert f'not like classes: {signs}' in message
    assert all(way in message for way in ways), message
    assert 'are the classes, add --no_splits.' in message
    assert len(image_sets.find(folder, no_splits=True).splits) == 1


@pytest.mark.parametrize(
    ('files', 'said'),
    [
        pytest.param(
            of(
                *('train/{n}.png', 'test/{n}.png'),
                texts=[
                    ('sampleSubmission.csv', table('{n},cat\n', 'id,label\n')),
                    ('testLabels.csv', table('{n},{label}\n', 'id,label\n')),
                    ('trainLabels.csv', table('{n},{label}\n', 'id,label\n')),
                ],
            ),
            [
                '{}/train, {}/test: look like splits',
                'from-folder {}/train DATA_DIR --labels={}/trainLabels.csv. ',
                # The numbers of the training images are not those of the test images.
                '--validation_folder={}/test --validation_labels=FILE, a table of its own labels. ',
                '--no_splits',
            ],
            id='CIFAR-10 of Kaggle',
        ),
        pytest.param(
            of(*in_classes('seg_train/seg_train', 'seg_test/seg_test'), 'seg_pred/seg_pred/{n}.jpg'),
            ['from-folder {}/seg_train/seg_train DATA_DIR --validation_folder={}/seg_test/seg_test', '--no_splits'],
            id='Intel',
        ),
        pytest.param(
            of(*in_classes('set/color', 'set/grayscale', 'set/segmented')),
            ['If they show the same images in several ways, name one of them: {}/set/color', '--no_splits'],
            id='PlantVillage',
        ),
        pytest.param(
            of('SUN/a/abbey/{n}.jpg', 'SUN/a/alley/{n}.jpg', 'SUN/b/bar/{n}.jpg', 'SUN/b/bus/{n}.jpg'),
            ['If the folders in a, b are the classes, name a folder of links to them: mkdir links && ln -s {}/SUN/*'],
            id='SUN397',
        ),
        pytest.param(
            of(*in_classes('.', 'brain')), ['If brain has a copy of the others, name it: {}/brain.'], id='a copy below'
        ),
        pytest.param(
            of(*in_classes('Final_Training/Images'), 'Final_Test/Images/{n}.ppm'),
            ['{}/Final_Training/Images DATA_DIR; with a table of the labels of {}/Final_Test, also --validation_f'],
            id='GTSRB',
        ),
        pytest.param(
            of('train/images/{n}.png', 'train/masks/{n}.png', 'val/images/{n}.png', 'val/masks/{n}.png'),
            ['{}/train: its folders look like parts', '--validation_folder={}/val --no_splits.'],
            id='masks in splits',
        ),
        pytest.param(
            of('train/images/{n}.jpg', 'valid/images/{n}.jpg', texts=[('train/labels/00000.txt', '0 1 1 1 1\n')]),
            ['{}/train, {}/valid: look like splits', 'from-folder {}/train/images DATA_DIR --labels=', '--no_splits'],
            id='Roboflow',
        ),
        pytest.param(
            of('jpg/image_{n}.jpg', texts=[('imagelabels.mat', '')]),
            [
                'of one class, jpg. There must be two or more. ',
                'does not read {}/imagelabels.mat',
                '{}/jpg DATA_DIR --lab',
            ],
            id='Flowers-102',
        ),
        pytest.param(
            of('img/{n}.jpg', texts=[('all.csv', table('{n},{label}\n', 'file,label\n'))]),
            ['all training images are of one class, img. ', 'inception-v3 from-folder {}/img DATA_DIR --labels={}/all'],
            id='one folder beside its table',
        ),
        pytest.param(
            of('train/{n}.jpg', *in_classes('val')),
            ['{}/train: look like splits', 'For validation, add --validation_folder={}/val. If '],
            id='training images without classes',
        ),
        pytest.param(
            of('a/img/{n}.jpg', texts=[('a/attr.csv', table('{n}.jpg,{is_dog},1\n', 'image_id,Male,Young\n'))]),
            ['{}/a/img DATA_DIR --labels={}/a/attr.csv --file_column=image_id --label_column=NAME'],
            id='CelebA',
        ),
        pytest.param(
            {'fashion-mnist_train.csv': 'label,pixel1\n0,1\n'},
            ['It has other files, such as {}/fashion-mnist_train.csv. Write the images to files'],
            id='pixels in a table',
        ),
        pytest.param(
            of('img/{n}.jpg', texts=[('title.csv', table('1,{n}.jpg,{label},7\n', 'my,title\n'))]),
            ['--labels={}/title.csv --file_column=title --label_column=NAME, where NAME is my or 3 or 4'],
            id='a short first row',
        ),
        pytest.param({'train.ZIP': ''}, ['Unpack {}/train.ZIP first'], id='archives'),
        pytest.param(
            {path: text for path, text in TINY.items() if 'annotations' not in path},
            [
                '{}/tiny/val: look like splits',
                'add --validation_labels=FILE. Without these images: inception-v3 from-folder',
            ],
            id='Tiny ImageNet without its table',
        ),
    ],
)
def test_other_layouts_are_refused_with_what_to_do(files: Files, said: List[str], tmp_path: pathlib.Path) -> None:
    folder = plant(tmp_path, files)
    with pytest.raises(DataError) as error:
        image_sets.find(folder)
    message = str(error.value).replace(str(tmp_path), '{}')
    assert all(text in message for text in said), message


def classes_of(found: image_sets.ImageSet) -> List[Dict[str, int]]:
    """The number of images of each class, by split."""
    return [
        {name: [image.class_name for image in images].count(name) for name in sorted({i.class_name for i in images})}
        for images in found.splits
    ]


@pytest.mark.parametrize(
    ('files', 'splits'),
    [
        (of(*in_classes('PetImages')), 1),
        (of(*in_classes('.'), texts=[('sizes.csv', table('cat_{n},{is_dog}0,1\n', 'file,width,height\n'))]), 1),
        (of(*in_classes('.'), texts=[('labels.csv', table('cat_{n}.jpg,CAT\ndog_{n}.jpg,DOG\n', 'file,label\n'))]), 1),
        (of('101/cat/image_{n}.jpg', '101/dog/image_{n}.jpg', texts=[('Annotations/cat/annotation_0001.mat', '')]), 1),
        (of('cat/{n}.jpg', 'dog/{n}.jpg', texts=[('classes.txt', 'cat\ndog\n'), ('README.txt', 'hello\n')]), 1),
        # Too deep for a table of the folder.
        (of(*in_classes('.'), texts=[('cat/notes/mine/labels.csv', table('cat_{n},{label}\n', 'file,label\n'))]), 1),
        (
            of(
                *in_classes('set/images'),
                texts=[('set/labels/joint.txt', table('{label}/{label}_{n}.jpg {label} x\n'))],
            ),
            1,
        ),
        (of(*in_classes('x/train', 'x/val', 'x/test', 'x/x/train', 'x/x/val')), 2),
        (of(*in_classes('mnist/training', 'mnist/testing')), 2),
        (
            of(
                *in_classes('net/train', 'net/val'),
                texts=[('net/noisy.csv', table('train/{label}/{label}_{n}.jpg,dog\n'))],
            ),
            2,
        ),
    ],
)
def test_each_known_layout_gives_its_classes(files: Files, splits: int, tmp_path: pathlib.Path) -> None:
    found = image_sets.find(plant(tmp_path, files))
    assert classes_of(found) == [{'cat': 4, 'dog': 4}] * splits


def test_a_pipe_among_the_images_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    folder = plant(tmp_path, of(*in_classes('.')))
    os.mkfifo(f'{folder}/labels.csv')
    assert classes_of(image_sets.find(folder)) == [{'cat': 4, 'dog': 4}]


def test_classes_named_like_splits_are_read_within_splits(tmp_path: pathlib.Path) -> None:
    files = of(*(f'{split}/{name}/{split}{{n}}.jpg' for split in ('train', 'val') for name in ('test', 'train')))
    assert classes_of(image_sets.find(plant(tmp_path, files))) == [{'test': 4, 'train': 4}] * 2


def test_tiny_imagenet_is_read(tmp_path: pathlib.Path) -> None:
    # With one row that is longer than the others, by a cell that is a class.
    path = 'tiny/val/val_annotations.txt'
    # The folder and the table have the name of a class in two forms of Unicode.
    composed, decomposed = 'caf\u00e9', 'cafe\u0301'
    files = {name.replace('n02', composed): text.replace('n02', decomposed) for name, text in TINY.items()}
    found = image_sets.find(plant(tmp_path, {**files, path: files[path].replace('\n', '\tn01\n', 1)}))
    assert classes_of(found) == [{'n01': 4, composed: 4}, {'n01': 2, composed: 2}]
    assert {os.path.basename(image.path): image.class_name for image in found.splits[1]} == {
        f'val_{n:05d}.JPEG': ('n01', composed)[n % 2] for n in range(4)
    }
    reasons = {os.path.relpath(path, str(tmp_path)): reason for path, reason in found.left_out}
    assert reasons['tiny/test/images/test_00000.JPEG'] == 'a test image beside validation images'
    assert f'{tmp_path}/tiny/val/val_annotations.txt: 5 columns not used: 3, 4, 5 and 2 more' in found.notes


@pytest.mark.parametrize(('change', 'place'), [('n03', 'tiny/val'), ('', 'tiny/val'), ('n01', 'tiny')])
def test_a_table_that_lacks_an_image_or_a_class_or_is_elsewhere_is_not_taken(
    change: str, place: str, tmp_path: pathlib.Path
) -> None:
    files = dict(TINY)
    lines = files.pop('tiny/val/val_annotations.txt').splitlines()
    lines[0] = lines[0].replace('n01', change) if change else ''
    with pytest.raises(DataError, match='add --validation_labels='):
        image_sets.find(plant(tmp_path, {**files, f'{place}/val_annotations.txt': '\n'.join(lines)}))


def test_a_large_table_is_read_up_to_its_last_whole_row(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(image_sets, '_TABLE_BYTES', 21)
    (tmp_path / 'labels.csv').write_text('a,"x"\nb,"y"\nc,"z"\nd,"w"\n')
    assert image_sets._rows_at_beginning(str(tmp_path / 'labels.csv')) == [['a', 'x'], ['b', 'y'], ['c', 'z']]


def test_lists_of_splits_are_said_to_be_unread(tmp_path: pathlib.Path) -> None:
    texts = {'test.txt': 'cat/1\n', 'classes.txt': 'cat\n', 'split.json': '{}', 'classes.json': '{}'}
    files = of(*in_classes('food/images'), texts=[(f'food/meta/{name}', text) for name, text in texts.items()])
    (_, note) = image_sets.find(plant(tmp_path, files)).notes
    lists = f'{tmp_path}/food/meta/test.txt, {tmp_path}/food/meta/split.json'
    assert note.startswith(f'not read: {lists}, which may say how the images are divided. ')
    # Validation images that are named make it needless.
    other = plant(tmp_path / 'other', of(*in_classes('.')))
    assert not any('not read' in each for each in image_sets.find(f'{tmp_path}/food', other).notes)


def test_a_table_of_splits_beside_classes_is_said_to_be_unread(tmp_path: pathlib.Path) -> None:
    files = of(*in_classes('pets'))
    rows = [f'{path[len("pets/") :]},{("train", "val")[number % 2]}' for number, path in enumerate(files)]
    found = image_sets.find(plant(tmp_path, {**files, 'pets/info.csv': '\n'.join(['file,use', *rows])}))
    assert any(note.startswith(f'not read: {tmp_path}/pets/info.csv, which may say how') for note in found.notes)


def test_subfolders_of_classes_of_a_split_are_said_not_to_be_classes(tmp_path: pathlib.Path) -> None:
    files = of(
        *(f'{split}/{name}/{{n}}.png' for split in ('train', 'test') for name in ('cat/lion', 'cat/tiger', 'fish/ray'))
    )
    found = image_sets.find(plant(tmp_path, files))
    assert classes_of(found) == [{'cat': 8, 'fish': 4}] * 2
    what = '1 class whose images are all in several subfolders, which are not classes'
    assert found.notes == [f'{what}: {tmp_path}/train/cat', f'{what}: {tmp_path}/test/cat']


def test_imagenet_of_kaggle_is_read_with_its_table(tmp_path: pathlib.Path) -> None:
    root = 'ILSVRC/Data/CLS-LOC'
    files = of(
        *in_classes(f'{root}/train'),
        *(f'{root}/val/val_{{n}}.JPEG', f'{root}/test/test_{{n}}.JPEG'),
        texts=[
            ('LOC_val_solution.csv', table('val_{n},{label} 85 1 499 272 \n', 'ImageId,PredictionString\n')),
            # It comes first.
            ('0numbers.csv', table('val_{n},{is_dog}\n', 'file,label\n')),
        ],
    )
    folder = plant(tmp_path, files)
    with pytest.raises(DataError) as error:
        image_sets.find(folder)
    assert f'add --validation_labels={folder}/LOC_val_solution.csv. ' in str(error.value)
    found = image_sets.find(folder, validation_labels=LabelFile(f'{folder}/LOC_val_solution.csv'))
    assert classes_of(found) == [{'cat': 4, 'dog': 4}, {'cat': 2, 'dog': 2}]
    assert any('has a class and boxes, of which the class is read' in note for note in found.notes)
    # Numbers need the development kit; names that are wrong do not.
    for text, is_of_kit in ((None, True), (table('val_{n},cats\n', 'file,label\n'), False)):
        path = tmp_path / '0numbers.csv'
        path.write_text(text or path.read_text())
        with pytest.raises(DataError, match='of classes without training images: ') as error:
            settings = (folder, str(tmp_path / 'records'), 0.0, 1, 1, False, lambda line: None)
            conversion.import_folder(*settings, validation_labels=str(path), dry_run=True)
        assert ('whose meaning a development kit has' in str(error.value)) == is_of_kit
