"""Data sets from folders of images: the records, the refused images, and the command."""

import hashlib
import io
import os
import pathlib
import shutil
from typing import Any, List

import numpy as np
import PIL.Image
import pytest

from data import dataset_info, records
from data.sources import Source
from inception_v3 import flags
from inception_v3.config import ConfigError
from inception_v3.fitting import fit_to_data_set
from tests.data.written_records import stored
from tests.support.commands import Done, obeyed_permissions, run
from tests.support.images import saved
from tests.tools.datasets.image_folders import PHOTOS, SPLITS, image_files, import_folder, refusal, save, save_class
from tools.datasets.audit.report import audit
from tools.datasets.from_folder import __main__ as from_folder
from tools.datasets.from_folder import conversion
from tools.datasets.from_folder.image_sets import ImageFile
from tools.image_files import why_undecodable


def run_from_folder(*arguments: Any) -> Done:
    return run(from_folder.main, *arguments)


def test_import__writes_every_image_once_bit_for_bit_with_its_class(folder: pathlib.Path) -> None:
    for path in list(image_files(folder).values()):
        path.with_name(f'{path.stem} copy{path.suffix}').write_bytes(path.read_bytes())
    data_dir, said = import_folder(folder, train_shards=16, validation_shards=100)
    assert said == []
    files = image_files(folder)
    names = ['Rocket', 'astronaut', 'camera', 'cat', 'coffee']
    images = {split: stored(data_dir, split) for split in SPLITS}
    assert sorted(image.filename for split in SPLITS for image in images[split]) == sorted(files)
    sums = []
    for split in SPLITS:
        labels = [image.label for image in images[split]]
        assert np.bincount(labels).tolist() == [0, *[16 if split == records.TRAIN else 4] * 5]
        assert labels not in (sorted(labels), sorted(labels, reverse=True))
        for image in images[split]:
            path = files[image.filename]
            with PIL.Image.open(str(path)) as pixels:
                assert (image.width, image.height, image.image_format) == (*pixels.size, pixels.format)
            assert image.encoded == path.read_bytes()
            assert image.text == names[image.label - 1] == image.filename.split()[0]
        digests = [hashlib.sha256(b'%d %s' % (image.label, image.encoded)).hexdigest() for image in images[split]]
        sums.append(f'{len(digests)} {sum(int(digest, 16) for digest in digests) % 2**256:064x}')
    # Copies are in one split.
    assert not {image.encoded for image in images['train']} & {image.encoded for image in images['validation']}
    # No file is empty.
    assert [len(records.find_shards(str(data_dir), split)) for split in SPLITS] == [16, 20]
    assert dataset_info.read(str(data_dir)) == dataset_info.DatasetInfo(
        *('images', 'a folder of images', 80, 20, 6, ['background', *names]),
        hashlib.sha256(' '.join(sums).encode()).hexdigest(),
        [1] * 20,
        [0, *[16] * 5],
    )


def test_split_images__stay_split_and_are_mixed(tmp_path: pathlib.Path) -> None:
    for photo in ('cat', 'coffee', 'camera'):
        save_class(tmp_path / 'images' / 'train', photo, range(6))
    for photo in ('cat', 'coffee'):
        save_class(tmp_path / 'images' / 'val', photo, range(5, 10))
    lines: List[str] = []
    conversion.import_folder(str(tmp_path / 'images'), f'{tmp_path}/x', 0.0, 1, 1, False, lines.append, dry_run=True)
    assert [line for line in lines[0].splitlines() if line[0] != ' '] == [
        'train: 18 images of 3 classes',
        'validation: 10 images of 2 classes',
    ]
    data_dir, said = import_folder(tmp_path / 'images')
    assert said[0].startswith('2 validation images also for training') and 'val/cat/cat 5.png' in said[0]
    assert said[1:] == ['note: classes without validation images: 1: camera']
    for split, part in zip(SPLITS, ('train', 'val')):
        names = [image.filename for image in stored(data_dir, split)]
        assert sorted(names) == sorted(image_files(tmp_path / 'images' / part))
        # A shuffle buffer cannot mix images that are sorted by class.
        assert names != sorted(names)
    assert {(image.label, image.text) for image in stored(data_dir, records.VALIDATION)} == {(2, 'cat'), (3, 'coffee')}


def test_unequal_and_similar_classes__are_noted(tmp_path: pathlib.Path) -> None:
    for photo, count in (('cat', 11), ('coffee', 1)):
        for number in range(count):
            save(tmp_path / 'images' / photo / f'{number}.png', photo, number)
    save(tmp_path / 'images' / 'Cat ' / '0.png', 'astronaut', 0)
    notes = [
        "note: classes whose names look alike: 'Cat ' and 'cat'. If they are one class, give them one name.",
        'note: classes without validation images: 2: Cat , coffee',
        'note: classes of unequal size: cat has 10 training images, and Cat  1. Top-1 of all images then says little '
        'about rare classes; inception-v3 evaluate reports it for each class, and --class_weights=balanced lets each '
        'count the same in training.',
    ]
    for dry_run in (True, False):
        assert import_folder(tmp_path / 'images', validation_fraction=0.1, dry_run=dry_run)[1] == notes


def test_other_files__are_said_first_and_listed_with_the_reasons(folder: pathlib.Path) -> None:
    (folder / 'README.md').write_text('about')
    save(folder / 'in no class.png', 'cat', 11)
    for name in ('dog', 'fish/deeper', '.thumbnails', '@eaDir', 'cat/@eaDir'):
        (folder / name).mkdir(parents=True)
    for name in ('.DS_Store', 'cat/._cat 0.jpg'):
        (folder / name).touch()
    (folder / 'link to cat').symlink_to(folder / 'cat')
    refused = folder.parent / 'records.refused.tsv'
    refused.write_text('of an earlier conversion')
    said: List[str] = []
    conversion.import_folder(str(folder), str(folder.parent / 'records'), 0.1, 1, 1, False, said.append)
    lines = said[0].splitlines()
    assert lines[:2] == ['not split: 50 images of 5 classes', f'  Rocket: 10 images, as {folder}/Rocket/Rocket 0.jpg']
    assert lines[6:] == [
        f'left out: 2 files or folders (a class folder without images): {folder}/dog, {folder}/fish',
        f'left out: 1 file or folder (an image outside of the class folders): {folder}/in no class.png',
        f'left out: 5 files or folders (hidden, or of the system): {folder}/.DS_Store, {folder}/.thumbnails, '
        f'{folder}/@eaDir and 2 more (all in {refused})',
        f'left out: 1 file or folder (leads to a folder that is read already): {folder}/link to cat',
        f'left out: 1 file or folder (not an image): {folder}/README.md',
    ]
    rows = refused.read_text().splitlines()
    assert (
        rows[0] == 'path\treason' and len(rows) == 1 + 10 and f'{folder}/cat/@eaDir\thidden, or of the system' in rows
    )


def test_dry_run__shows_all_classes_and_writes_nothing(tmp_path: pathlib.Path) -> None:
    for number in range(30):
        (tmp_path / 'images' / f'{number:02d}').mkdir(parents=True)
        (tmp_path / 'images' / f'{number:02d}' / 'a.jpg').touch()
    for number in range(5):
        (tmp_path / 'images' / f'{number}.txt').touch()
    (tmp_path / 'records.refused.tsv').write_text('of an earlier conversion')
    done = run_from_folder(tmp_path / 'images', tmp_path / 'records', '--dry_run')
    assert (done.returncode, done.stderr) == (0, '')
    lines = done.stdout.splitlines()
    assert lines[1:31] == [f'  {number:02d}: 1 image, as {tmp_path}/images/{number:02d}/a.jpg' for number in range(30)]
    assert lines[31].endswith('2.txt and 2 more')
    assert sorted(path.name for path in tmp_path.iterdir()) == ['images', 'records.refused.tsv']
    assert (tmp_path / 'records.refused.tsv').read_text() == 'of an earlier conversion'
    # A conversion lists the first 20 classes.
    done = run_from_folder(tmp_path / 'images', tmp_path / 'records')
    assert '  19: 1 image' in done.stderr and '  20: 1 image' not in done.stderr
    assert '  and 10 more, which --dry_run lists\n' in done.stderr


def test_unreadable_images__are_refused_by_name_or_skipped(folder: pathlib.Path) -> None:
    # A list that a conversion without refused images removes.
    refused = folder.parent / 'records.refused.tsv'
    refused.touch()
    data_dir, _ = import_folder(folder)
    assert not refused.exists()
    shutil.rmtree(str(data_dir))
    cut, empty, text, dangling, pipe = (
        folder / 'cat' / name for name in ('cat 0.jpg', 'cat 1.png', 'cat 2.jpeg', 'dangling.png', 'pipe.jpg')
    )
    cut.write_bytes(cut.read_bytes()[:50])
    empty.write_bytes(b'')
    text.write_text('<html>404 Not Found</html>')
    dangling.symlink_to(folder / 'nowhere.png')
    os.mkfifo(str(pipe))
    reasons = {
        cut: why_undecodable(b'x', ''),
        empty: 'is empty',
        text: why_undecodable(b'x', ''),
        dangling: 'cannot be read: No such file or directory',
        pipe: 'is a named pipe; only regular files are read',
    }
    # Files that are left out are in the list, too.
    (folder / 'README.md').touch()
    message = refusal(folder)
    assert message.startswith(f'5 images cannot be used: {cut} {reasons[cut]}, ')
    assert f' and 2 more (all in {refused}). Repair or remove them, or leave them out with --skip_unr' in message
    rows = [(folder / 'README.md', 'not an image'), *sorted(reasons.items())]
    assert refused.read_text() == 'path\treason\n' + ''.join(f'{path}\t{reason}\n' for path, reason in rows)
    assert not data_dir.exists()
    (folder / 'cat' / 'x.jpg').write_bytes(saved(np.ascontiguousarray(PHOTOS['cat'][:40, :90]), 'JPEG', 6))
    data_dir, said = import_folder(folder, skip_unreadable=True)
    assert said.pop(0) == f'1 image turned upright, as the EXIF orientation says: {folder}/cat/x.jpg'
    (found,) = [each for split in SPLITS for each in stored(data_dir, split) if each.filename == 'x.jpg']
    with PIL.Image.open(io.BytesIO(found.encoded)) as upright:
        assert (found.width, found.height) == upright.size == (40, 90)
    assert said[0].startswith('5 images cannot be used: ') and said[0].endswith('; left out')
    assert sum(len(stored(data_dir, split)) for split in SPLITS) == 48


def test_list_of_refused_files__is_beside_a_folder_that_is_not_made_yet(tmp_path: pathlib.Path) -> None:
    conversion._write_refused(f'{tmp_path}/new/records.refused.tsv', [('a\n.jpg', 'is empty')])
    assert (tmp_path / 'new' / 'records.refused.tsv').read_text() == 'path\treason\na\\n.jpg\tis empty\n'
    (tmp_path / 'file').touch()
    with pytest.raises(records.DataError, match=r'file/records\.refused\.tsv: cannot be written: '):
        conversion._write_refused(f'{tmp_path}/file/records.refused.tsv', [('a.jpg', 'is empty')])


def test_class_of_which_most_images_are_unreadable__is_refused(folder: pathlib.Path) -> None:
    save(folder / 'raw' / '0.png', 'cat', 0)
    (folder / 'raw' / '1.jpg').touch()
    # Half of the images may be.
    for number in range(5):
        save(folder / 'dark' / f'{number}.png', 'coffee', 0)
    data_dir, said = import_folder(folder, skip_unreadable=True)
    # Copies stay together.
    assert 'note: classes without validation images: 2: dark, raw' in said
    shutil.rmtree(data_dir)
    (folder / 'raw' / '2.jpg').touch()
    assert f'cannot be used: raw (2 of 3, as {folder}/raw/1.jpg). ' in refusal(folder, skip_unreadable=True)


def test_class_of_which_most_images_of_a_split_are_unreadable__is_refused(tmp_path: pathlib.Path) -> None:
    for photo in ('cat', 'coffee'):
        save_class(tmp_path / 'photos' / 'train', photo, range(4))
        save_class(tmp_path / 'photos' / 'val', photo, range(4, 5))
    for number in range(2):
        (tmp_path / 'photos' / 'val' / 'cat' / f'{number}.jpg').touch()
    assert 'cannot be used: cat (2 of 3, as ' in refusal(tmp_path / 'photos', skip_unreadable=True)


def test_missing_images__are_refused(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for fraction, split in ((0.01, 'validation'), (0.99, 'train')):
        message = refusal(folder, validation_fraction=fraction)
        # round(0.01 * 51) is the first that is not 0.
        assert f'{folder}: no {split} images are left' in message and 'a class needs 51 of them' in message
    assert refusal(tmp_path / 'nowhere') == f'{tmp_path / "nowhere"}: no such folder.'
    save(tmp_path / 'flat' / 'in no class.jpg', 'cat', 0)
    is_class = f'It has 1 image of its own: if they are of one class, name the folder above it, {tmp_path}.'
    assert f'{tmp_path / "flat"}: no images in class folders. {is_class}' in refusal(tmp_path / 'flat')
    assert f'no such folder. Did you mean {tmp_path / "flat"}?' in refusal(tmp_path / 'falt')
    save_class(tmp_path / 'one' / 'train', 'cat', range(4))
    assert 'all training images are of one class, cat. ' in refusal(tmp_path / 'one', dry_run=True)
    save_class(tmp_path / 'one' / 'val', 'coffee', range(2))
    assert 'validation images of classes without training images: coffee.' in refusal(tmp_path / 'one')
    (folder.parent / 'records').touch()
    assert 'records: exists already. Name a new folder.' in refusal(folder)


@pytest.mark.parametrize(
    ('is_removed', 'said'),
    [
        (False, 'was changed during the conversion. Run the same command again.'),
        (True, 'cannot be read: No such file or directory; it was changed during the conversion.'),
    ],
)
def test_files_that_change_during_the_conversion_are_refused(
    is_removed: bool, said: str, folder: pathlib.Path, monkeypatch: Any
) -> None:
    path = folder / 'cat' / 'cat 0.jpg'
    accepted = conversion._accepted

    def change(*arguments: Any) -> Any:
        found = accepted(*arguments)
        if is_removed:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes() + b'more')
        return found

    monkeypatch.setattr(conversion, '_accepted', change)
    assert refusal(folder) == f'{path} {said}'


@pytest.mark.parametrize(
    ('classes', 'validation', 'is_of_kit'),
    [(['cat', 'dog'], '1', True), (['1', '2'], '3', False), (['1', '2'], 'x', False)],
)
def test_labels__of_numbers_need_the_kit_where_classes_have_names(
    classes: List[str], validation: str, is_of_kit: bool
) -> None:
    splits = [[ImageFile('a.jpg', name) for name in names] for names in (classes, [validation])]
    with pytest.raises(records.DataError, match=f'without training images: {validation}') as error:
        conversion._labels('folder', splits)
    assert ('whose meaning a development kit has' in str(error.value)) == is_of_kit


@pytest.mark.parametrize('refused', ['cat/deeper', ''])
def test_a_folder_that_may_not_be_listed_is_refused(folder: pathlib.Path, refused: str) -> None:
    # A folder that may be entered but not listed.
    (folder / refused).chmod(0o311)
    with obeyed_permissions():
        message = refusal(folder)
    assert message.startswith(f'{folder / refused}: cannot be listed: Permission denied. ')


@pytest.mark.parametrize(
    ('options', 'expected'),
    [
        (['--validation_fraction=-0.1'], '--validation_fraction: -0.1: must be '),
        (['--validation_fraction=1.5'], '--validation_fraction: 1.5: must be '),
        (['--validation_fraction=1'], '--validation_fraction=1: must be below 1'),
        (['--validation_folder=x', '--validation_fraction=0.2'], '--validation_folder: give one of the two.'),
        (['--validation_labels=x', '--validation_fraction=0.2'], '--validation_labels: give one of the two.'),
        (['--label_column=2'], 'are columns of --labels, which is missing'),
    ],
)
def test_command__refuses_values_out_of_range(options: List[str], expected: str, folder: pathlib.Path) -> None:
    done = run_from_folder(folder, folder.parent / 'records', *options)
    assert (done.returncode, done.stdout) == (2, '') and expected in done.stderr
    assert not (folder.parent / 'records').exists()


def test_command__has_the_documented_defaults(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'in').mkdir()
    monkeypatch.setattr(conversion, 'import_folder', lambda say, **settings: seen.append(settings))
    seen: List[Any] = []
    assert run_from_folder('in', 'out').returncode == 0
    defaults = {
        **{'folder': 'in', 'data_dir': 'out', 'validation_fraction': 0.1, 'train_shards': 16},
        **{'validation_shards': 4, 'skip_unreadable': False, 'validation_folder': None, 'no_splits': False},
        **{'labels': None, 'file_column': '', 'label_column': '', 'dry_run': False, 'validation_labels': None},
    }
    assert run_from_folder('in', 'out', '--validation_labels=x', '--file_column=f', '--label_column=l').returncode == 0
    columns = {'validation_labels': 'x', 'file_column': 'f', 'label_column': 'l'}
    assert seen == [defaults, {**defaults, **columns, 'validation_fraction': 0.0}]


def test_from_folder__writes_training_images_alone(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    data_dir = tmp_path / 'records'
    done = run_from_folder(f'{folder}/', data_dir, '--validation_fraction=0')
    assert done.stdout == f'50 training and 0 validation images of 5 classes in {data_dir}\n'
    info = dataset_info.read(str(data_dir))
    assert info and info.name == 'images' and not [*data_dir.glob('validation-*')]
    # The audit expects no validation files, and takes the same fingerprint.
    report = audit(Source(str(data_dir)), None, 1, lambda what, total: lambda done: None)
    assert report['can_be_trained_on'] and report['fingerprint']['agree']
    # A run may train on it, but not evaluate.
    arguments = ['program', f'--data_dir={data_dir}', '--train_batch_size=8', '--use_tpu=False']
    assert fit_to_data_set(flags.parse([*arguments, '--mode=train'])).num_train_images == 50
    with pytest.raises(ConfigError, match=r'--mode=eval: the data set in .* has no validation images, as its dataset'):
        fit_to_data_set(flags.parse([*arguments, '--mode=eval']))


def test_from_folder__takes_validation_images_of_another_folder(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    other, data_dir = tmp_path / 'other', tmp_path / 'records'
    save_class(other, 'cat', range(11, 14))
    save_class(other, 'coffee', range(12, 14))
    done = run_from_folder(folder, data_dir, f'--validation_folder={other}')
    assert done.stdout == f'50 training and 5 validation images of 5 classes in {data_dir}\n'
    assert [len(records.find_shards(str(data_dir), split)) for split in SPLITS] == [16, 4]
    labels = {image.text: image.label for image in stored(data_dir, records.TRAIN)}
    validation = stored(data_dir, records.VALIDATION)
    assert sorted(image.filename for image in validation) == sorted(image_files(other))
    for image in validation:
        assert image.encoded == image_files(other)[image.filename].read_bytes()
        assert image.label == labels[image.text] and image.filename.startswith(image.text)
    (other / 'cat').rename(other / 'cats')
    done = run_from_folder(folder, tmp_path / 'more', f'--validation_folder={other}')
    assert f'{other}: validation images of classes without training images: cats. The classes with ' in done.stderr
    for part in ('train', 'val'):
        save_class(tmp_path / 'split' / part, 'cat', range(3))
    done = run_from_folder(tmp_path / 'split', tmp_path / 'more', f'--validation_folder={folder}')
    assert done.returncode == 2
    assert f'has validation images of its own, in {tmp_path / "split" / "val"}. To leave them out, name ' in done.stderr
