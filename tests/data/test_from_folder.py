"""Data sets from folders of images, with a folder per class."""

import hashlib
import io
import os
import pathlib
import re
from typing import Any, List

import numpy as np
import PIL.Image
import pytest

from data import dataset_info, records
from data.convert import from_folder
from tests.data.image_folders import PHOTOS, SPLITS, image_files, import_folder, refusal, save, save_class, stored


def test_import__every_image_once_bit_for_bit(folder: pathlib.Path) -> None:
    data_dir, _ = import_folder(folder)
    files = image_files(folder)
    images = [image for split in SPLITS for image in stored(data_dir, split)]
    assert sorted(image.filename for image in images) == sorted(files)
    assert len(images) == 50
    for image in images:
        path = files[image.filename]
        assert image.encoded == path.read_bytes()
        pixels = PIL.Image.open(str(path))
        assert (image.width, image.height) == pixels.size
        assert image.image_format == pixels.format
        assert image.text == image.filename.split()[0]


def fingerprint_of(data_dir: Any) -> str:
    """The fingerprint of the stored images, by the definition in `data.fingerprint`."""
    sums = []
    for split in SPLITS:
        images = [b'%d %s' % (image.label, image.encoded) for image in stored(data_dir, split)]
        total = sum(int(hashlib.sha256(image).hexdigest(), 16) for image in images) % 2**256
        sums.append(f'{len(images)} {total:064x}')
    return hashlib.sha256(' '.join(sums).encode()).hexdigest()


def test_classes_are_numbered_by_name_from_1_on(folder: pathlib.Path) -> None:
    data_dir, _ = import_folder(folder)
    names = ['Rocket', 'astronaut', 'camera', 'cat', 'coffee']
    for split in SPLITS:
        assert {(image.label, image.text) for image in stored(data_dir, split)} == set(enumerate(names, 1))
    assert dataset_info.read(str(data_dir)) == dataset_info.DatasetInfo(
        'images', 'a folder of images', 40, 10, 6, ['background', *names], fingerprint_of(data_dir), [5, 5]
    )


def test_undivided_images_are_divided_class_by_class(folder: pathlib.Path) -> None:
    data_dir, said = import_folder(folder, validation_fraction=0.3)
    assert said == ['35 train images written', '15 validation images written']
    train, validation = (stored(data_dir, split) for split in SPLITS)
    assert np.bincount([image.label for image in train]).tolist() == [0, 7, 7, 7, 7, 7]
    assert np.bincount([image.label for image in validation]).tolist() == [0, 3, 3, 3, 3, 3]
    labels = [image.label for image in train]
    assert labels not in (sorted(labels), sorted(labels, reverse=True))


def test_copies_of_an_image_stay_in_one_split(folder: pathlib.Path) -> None:
    for path in list(image_files(folder).values()):
        path.with_name(f'copy of {path.name}').write_bytes(path.read_bytes())
    data_dir, _ = import_folder(folder, validation_fraction=0.5)
    train, validation = ({image.encoded for image in stored(data_dir, split)} for split in SPLITS)
    assert (len(train), len(validation)) == (25, 25)
    assert not train & validation


def test_import__number_of_files_without_empty_ones(folder: pathlib.Path) -> None:
    data_dir, _ = import_folder(folder, train_shards=16, validation_shards=100)
    assert len(records.find_shards(str(data_dir), records.TRAIN)) == 16
    assert len(records.find_shards(str(data_dir), records.VALIDATION)) == 10


@pytest.mark.parametrize('validation', ['validation', 'val'])
def test_divided_images_stay_divided(tmp_path: pathlib.Path, validation: str) -> None:
    for photo in ('cat', 'coffee', 'camera'):
        save_class(tmp_path / 'images' / 'train', photo, range(6))
    for photo in ('cat', 'coffee'):
        save_class(tmp_path / 'images' / validation, photo, range(6, 10))
    data_dir, said = import_folder(tmp_path / 'images')
    assert said == ['18 train images written', '8 validation images written']
    for split, part in zip(SPLITS, ('train', validation)):
        names = [image.filename for image in stored(data_dir, split)]
        assert sorted(names) == sorted(image_files(tmp_path / 'images' / part))
        # Mixed: a shuffle buffer cannot mix images that are sorted by class.
        assert names != sorted(names)
    assert {(image.label, image.text) for image in stored(data_dir, records.VALIDATION)} == {(2, 'cat'), (3, 'coffee')}
    info = dataset_info.read(str(data_dir))
    assert info == dataset_info.DatasetInfo(
        *('images', 'a folder of images', 18, 8, 4, ['background', 'camera', 'cat', 'coffee']),
        fingerprint_of(data_dir),
        [4, 4],
    )


def test_other_files__are_named_with_the_reasons(folder: pathlib.Path) -> None:
    (folder / 'README.md').write_text('about')
    (folder / 'cat' / 'labels.csv').write_text('1')
    save(folder / 'in no class.png', 'cat', 11)
    (folder / 'cat' / 'weights').write_bytes(bytes(range(200)))
    for name in ('.DS_Store', 'cat/._cat 0.jpg', 'Thumbs.db'):
        (folder / name).touch()
    for name in ('.thumbnails', '__MACOSX', '@eaDir', '$RECYCLE.BIN', 'lost+found', '.ipynb_checkpoints', 'cat/@eaDir'):
        save(folder / name / 'cat 0.jpg', 'cat', 12)
    data_dir, said = import_folder(folder)
    assert said[:-2] == [
        f'1 file or folder left out (an image in no class folder): {folder}/in no class.png',
        f'10 files or folders left out (hidden, or of the system): {folder}/$RECYCLE.BIN, {folder}/.DS_Store, '
        f'{folder}/.ipynb_checkpoints and 7 more (all in {folder.parent}/records.refused.tsv)',
        f'1 file or folder left out (in no format that is known as one of images): {folder}/cat/weights',
        f'2 files or folders left out (not an image): {folder}/README.md, {folder}/cat/labels.csv',
    ]
    listed = (folder.parent / 'records.refused.tsv').read_text().splitlines()
    assert f'{folder}/cat/@eaDir\thidden, or of the system' in listed and len(listed) == 1 + 14
    assert sum(len(stored(data_dir, split)) for split in SPLITS) == 50


def test_three_files_are_named_on_the_screen_and_all_in_the_list(folder: pathlib.Path) -> None:
    for number in range(23):
        (folder / 'cat' / f'notes {number:02d}.txt').touch()
    _, said = import_folder(folder)
    refused = folder.parent / 'records.refused.tsv'
    assert said[0].startswith('23 files or folders left out (not an image): ')
    assert len(re.findall(r'notes \d\d\.txt', said[0])) == 3
    assert said[0].endswith(f' and 20 more (all in {refused})')
    rows = [line.split('\t') for line in refused.read_text().splitlines()]
    assert rows[0] == ['path', 'reason']
    assert [row[0] for row in rows[1:]] == [str(folder / 'cat' / f'notes {number:02d}.txt') for number in range(23)]


def test_list_of_an_earlier_conversion_is_removed(folder: pathlib.Path) -> None:
    refused = folder.parent / 'records.refused.tsv'
    refused.write_text('path\treason\na.jpg\tis empty\n')
    import_folder(folder)
    assert not refused.exists()


def test_class_folders_without_images_are_named(folder: pathlib.Path) -> None:
    (folder / 'dog').mkdir()
    (folder / 'bird').mkdir()
    (folder / 'bird' / 'notes.txt').touch()
    (folder / 'fish' / 'deeper').mkdir(parents=True)
    (folder / '.hidden').mkdir()
    (folder / 'link to cat').symlink_to(folder / 'cat')
    _, said = import_folder(folder)
    assert said[0] == f'1 file or folder left out (hidden, or of the system): {folder}/.hidden'
    assert said[1] == f'1 file or folder left out (leads to a folder that is read already): {folder}/link to cat'
    assert said[2] == f'1 file or folder left out (not an image): {folder}/bird/notes.txt'
    assert said[3] == f'3 class folders without images: {folder}/bird, {folder}/dog, {folder}/fish'
    assert len(said) == 6


def test_class_folders_without_images__of_both_splits(tmp_path: pathlib.Path) -> None:
    for part in ('train', 'val'):
        for photo in ('cat', 'coffee'):
            save_class(tmp_path / 'images' / part, photo, range(2) if part == 'train' else range(2, 4))
        for number in range(7):
            (tmp_path / 'images' / part / f'empty {number}').mkdir()
    _, said = import_folder(tmp_path / 'images')
    assert said[0].startswith(f'14 class folders without images: {tmp_path}/images/train/empty 0, ')
    assert f'{tmp_path}/images/train/empty 2 and 11 more' in said[0]
    assert f'{tmp_path}/images/val/empty 6\t' in (tmp_path / 'records.refused.tsv').read_text()


def spoil(folder: pathlib.Path) -> List[pathlib.Path]:
    """Makes images unreadable, each in a different way."""
    cut, empty, text, dangling = (
        folder / 'cat' / name for name in ('cat 0.jpg', 'cat 1.png', 'cat 2.jpeg', 'cat 10.png')
    )
    cut.write_bytes(cut.read_bytes()[:500])
    empty.write_bytes(b'')
    text.write_text('<html>404 Not Found</html>')
    dangling.symlink_to(folder / 'nowhere.png')
    return [cut, empty, text, dangling]


def test_unreadable_images_are_refused_by_name(folder: pathlib.Path) -> None:
    spoilt = spoil(folder)
    message = refusal(folder)
    assert message.startswith('4 images cannot be used: ')
    reasons = [
        'is not a JPEG, PNG, GIF, WebP, BMP or TIFF image, or its beginning is damaged',
        'is empty',
        'is a text, not an image',
    ]
    reasons.append('is a link to a file that does not exist')
    listed = (folder.parent / 'records.refused.tsv').read_text()
    for path, reason in zip(spoilt, reasons):
        assert f'{path}\t{reason}\n' in listed
    assert f'{spoilt[0]} {reasons[0]}' in message and ' and 1 more' in message
    assert '--skip_unreadable' in message
    assert not (folder.parent / 'records').exists()


def test_a_pipe_among_the_images_is_refused_by_name(folder: pathlib.Path) -> None:
    pipe = folder / 'cat' / 'p.jpg'
    os.mkfifo(str(pipe))
    assert refusal(folder).startswith(f'1 image cannot be used: {pipe} is not a regular file. Repair or ')


def test_unreadable_images_are_skipped_if_asked(folder: pathlib.Path) -> None:
    spoilt = spoil(folder)
    data_dir, said = import_folder(folder, skip_unreadable=True)
    assert said[0].startswith('4 images cannot be used: ') and said[0].endswith('; left out')
    images = [image for split in SPLITS for image in stored(data_dir, split)]
    assert len(images) == 47
    assert not {image.filename for image in images} & {path.name for path in spoilt}
    info = dataset_info.read(str(data_dir))
    assert info is not None
    assert info.train_images + info.validation_images == 47


def test_images_in_both_splits_are_reported(tmp_path: pathlib.Path) -> None:
    save_class(tmp_path / 'images' / 'train', 'cat', range(6))
    save_class(tmp_path / 'images' / 'val', 'cat', range(5, 9))
    save_class(tmp_path / 'images' / 'train', 'coffee', range(2))
    data_dir, said = import_folder(tmp_path / 'images')
    assert said[0].startswith('1 validation image also for training')
    assert 'val/cat/cat 5.png' in said[0]
    assert len(stored(data_dir, records.VALIDATION)) == 4


def test_a_validation_class_without_training_images_is_refused(tmp_path: pathlib.Path) -> None:
    save_class(tmp_path / 'images' / 'train', 'cat', range(4))
    for photo in ('cat', 'coffee', 'camera'):
        save_class(tmp_path / 'images' / 'val', photo, range(4, 6))
    assert 'validation images of classes without training images: camera, coffee.' in refusal(tmp_path / 'images')


@pytest.mark.parametrize('skip_unreadable', [False, True])
@pytest.mark.parametrize(('kept', 'lost'), [(0, 1), (2, 3)])
def test_class_that_loses_most_of_its_images__is_refused_by_name(
    kept: int, lost: int, skip_unreadable: bool, folder: pathlib.Path
) -> None:
    (folder / 'broken').mkdir()
    for number in range(kept):
        save(folder / 'broken' / f'{number}.png', 'cat', number)
    for number in range(lost):
        (folder / 'broken' / f'{number}.jpg').touch()
    message = refusal(folder, skip_unreadable=skip_unreadable)
    assert message.startswith(
        f'{folder}: classes of which most images are missing or cannot be used: broken ({lost} of {kept + lost}, as '
        f'{folder}/broken/0.jpg)'
    )


def test_class_of_an_unknown_format__is_refused_before_any_image_is_read(folder: pathlib.Path) -> None:
    save(folder / 'raw' / '0.png', 'cat', 0)
    for number in range(2):
        (folder / 'raw' / f'{number}.sensor').write_bytes(bytes(range(256)))
    assert f'cannot be used: raw (2 of 3, as {folder}/raw/0.sensor). ' in refusal(folder, dry_run=True)
    (folder / 'raw' / '0.sensor').unlink()
    import_folder(folder, dry_run=True)
    # With one that is damaged, most are lost.
    (folder / 'raw' / '2.jpg').touch()
    assert f'cannot be used: raw (2 of 3, as {folder}/raw/2.jpg). ' in refusal(folder, skip_unreadable=True)


@pytest.mark.parametrize(('fraction', 'split'), [(0.01, 'validation'), (0.99, 'train')])
def test_a_split_without_images_is_refused(folder: pathlib.Path, fraction: float, split: str) -> None:
    message = refusal(folder, validation_fraction=fraction)
    assert f'{folder}: no {split} images are left' in message
    assert not (folder.parent / 'records').exists()


def test_folder_with_content__is_refused(folder: pathlib.Path) -> None:
    (folder.parent / 'records').mkdir()
    (folder.parent / 'records' / 'thesis.txt').touch()
    assert refusal(folder) == f'{folder.parent / "records"}: exists already. Name a new folder.'
    assert os.listdir(folder.parent / 'records') == ['thesis.txt']


def test_an_empty_folder_is_filled(folder: pathlib.Path) -> None:
    (folder.parent / 'records').mkdir()
    data_dir, _ = import_folder(folder)
    assert len(stored(data_dir, records.VALIDATION)) == 10


def test_file_with_the_name_of_the_folder__is_refused(folder: pathlib.Path) -> None:
    (folder.parent / 'records').touch()
    assert 'records: exists already. Name a new folder.' in refusal(folder)


def test_missing_images__are_refused(tmp_path: pathlib.Path) -> None:
    assert refusal(tmp_path / 'nowhere') == f'{tmp_path / "nowhere"}: no such folder.'
    save(tmp_path / 'flat' / 'in no class.jpg', 'cat', 0)
    message = refusal(tmp_path / 'flat')
    assert f'{tmp_path / "flat"}: no images in class folders. It must hold a folder per class' in message


def test_turned_images_are_stored_upright_with_their_new_size(folder: pathlib.Path) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    image = PIL.Image.fromarray(np.ascontiguousarray(PHOTOS['cat'][:40, :90]))
    image.save(folder / 'cat' / 'turned.jpg', quality=95, exif=exif.tobytes())
    data_dir, said = import_folder(folder)
    assert f'1 image turned upright, as the EXIF orientation says: {folder}/cat/turned.jpg' in said
    (found,) = [each for split in SPLITS for each in stored(data_dir, split) if each.filename == 'turned.jpg']
    assert (found.height, found.width, found.image_format) == (90, 40, 'JPEG')
    with PIL.Image.open(io.BytesIO(found.encoded)) as turned:
        assert not turned.getexif()
        assert np.abs(np.asarray(turned).astype(int) - np.asarray(image.rotate(-90, expand=True))).mean() < 4


def test_files_that_change_during_the_conversion_are_refused(folder: pathlib.Path, monkeypatch: Any) -> None:
    path = str(folder / 'cat' / 'cat 0.jpg')
    split = from_folder._split

    def change(*arguments: Any) -> Any:
        with open(path, 'ab') as file:
            file.write(b'more')
        return split(*arguments)

    monkeypatch.setattr(from_folder, '_split', change)
    assert refusal(folder) == f'{path} was changed during the conversion. Run the same command again.'


def test_classes_and_images_of_one_are_counted_in_the_singular(folder: pathlib.Path) -> None:
    (folder / 'dog').mkdir()
    (folder / 'notes.txt').touch()
    _, said = import_folder(folder)
    assert said[0] == f'1 file or folder left out (not an image): {folder}/notes.txt'
    assert said[1] == f'1 class folder without images: {folder}/dog'


def test_one_class_alone_is_refused(tmp_path: pathlib.Path) -> None:
    for number in range(4):
        save(tmp_path / 'images' / 'train' / f'{number}.png', 'cat', number)
    assert 'all training images are of one class, train. ' in refusal(tmp_path / 'images', dry_run=True)


def test_the_understanding_is_said_first(tmp_path: pathlib.Path) -> None:
    for part, numbers in (('Train', range(3)), ('Test', range(3, 4))):
        for photo in ('cat', 'coffee'):
            save_class(tmp_path / 'images' / 'my' / part, photo, numbers)
    (tmp_path / 'images' / '__MACOSX').mkdir()
    said: List[str] = []
    from_folder.import_folder(str(tmp_path / 'images'), str(tmp_path / 'out'), 0.1, 1, 1, False, said.append)
    inner = f'{tmp_path}/images/my'
    assert said[0].splitlines() == [
        f'{tmp_path}/images: all images are in {inner}',
        'train: 6 images of 2 classes',
        f'  cat: 3 images, as {inner}/Train/cat/cat 0.jpg',
        f'  coffee: 3 images, as {inner}/Train/coffee/coffee 0.jpg',
        'validation: 2 images of 2 classes',
        f'  cat: 1 image, as {inner}/Test/cat/cat 3.JPG',
        f'  coffee: 1 image, as {inner}/Test/coffee/coffee 3.JPG',
        'left out: 1 file or folder (hidden, or of the system)',
    ]
    assert said[-2:] == ['6 train images written', '2 validation images written']
