"""The command inception-v3 from-folder."""

import pathlib
import shutil
from typing import Any, Dict

import pytest

from data import dataset_info, records
from data.audit.report import audit
from data.convert import class_folders, from_folder
from data.sources import Source
from inception_v3 import data_set, flags
from inception_v3.config import ConfigError
from tests.data.image_folders import SPLITS, image_files, save_class, stored
from tests.support.commands import Done, obeyed_permissions, run


def run_from_folder(*arguments: Any) -> Done:
    return run(from_folder.main, *arguments)


def test_the_command_imports_a_folder(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (folder / 'cat' / 'broken.jpg').write_bytes(b'')
    data_dir = tmp_path / 'out' / 'records'
    done = run_from_folder(folder, data_dir, '--validation_fraction=0.4', '--train_shards=3', '--skip_unreadable')
    summary = f'30 training and 20 validation images of 5 classes in {data_dir}\n'
    assert (done.returncode, done.stdout) == (0, summary)
    assert 'broken.jpg' in done.stderr
    assert [len(stored(data_dir, split)) for split in SPLITS] == [30, 20]
    assert len(records.find_shards(str(data_dir), records.TRAIN)) == 3
    assert len(records.find_shards(str(data_dir), records.VALIDATION)) == 4


def test_the_command_refuses_broken_images_without_a_traceback(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (folder / 'cat' / 'broken.jpg').write_bytes(b'')
    done = run_from_folder(folder, tmp_path / 'records')
    assert (done.returncode, done.stdout) == (2, '')
    assert f'{folder / "cat" / "broken.jpg"} is empty' in done.stderr
    assert 'Traceback' not in done.stderr
    assert not (tmp_path / 'records').exists()


@pytest.mark.parametrize('refused', ['images/train/coffee', 'images/train/cat/deeper', 'images/val/coffee', 'images'])
def test_a_folder_that_may_not_be_listed_is_refused(tmp_path: pathlib.Path, refused: str) -> None:
    for part in ('train', 'val'):
        for photo in ('cat', 'coffee'):
            save_class(tmp_path / 'images' / part, photo, range(5) if part == 'train' else range(5, 10))
    # A folder that may be entered but not listed.
    (tmp_path / refused).chmod(0o311)
    with obeyed_permissions():
        done = run_from_folder(tmp_path / 'images', tmp_path / 'records')
    assert (done.returncode, done.stdout) == (2, '')
    assert f'error: {tmp_path / refused}: cannot be listed: Permission denied. ' in done.stderr
    assert 'Traceback' not in done.stderr
    assert not (tmp_path / 'records').exists()


@pytest.mark.parametrize(
    ('option', 'expected'),
    [
        ('--validation_fraction=-0.1', 'must be 0 or between 0 and 1'),
        ('--validation_fraction=1', 'must be 0 or between 0 and 1'),
        ('--validation_fraction=nan', 'must be 0 or between 0 and 1'),
        ('--train_shards=0', 'must be at least 1'),
        ('--validation_shards=-1', 'must be at least 1'),
    ],
)
def test_the_command_refuses_values_out_of_range(option: str, expected: str, folder: pathlib.Path) -> None:
    done = run_from_folder(folder, folder.parent / 'records', option)
    assert (done.returncode, done.stdout) == (2, '')
    assert expected in done.stderr
    assert option.split('=')[0] in done.stderr
    assert not (folder.parent / 'records').exists()


def test_the_documented_numbers_are_the_defaults(monkeypatch: Any) -> None:
    given: Dict[str, Any] = {}

    def import_folder(say: Any, **settings: Any) -> Any:
        given.update(settings)
        raise records.DataError('enough')

    monkeypatch.setattr(from_folder, 'import_folder', import_folder)
    assert run_from_folder('in', 'out').returncode == 2
    assert given == {
        **{'folder': 'in', 'data_dir': 'out', 'validation_fraction': 0.1, 'train_shards': 16},
        **{'validation_shards': 4, 'skip_unreadable': False, 'validation_folder': None, 'no_splits': False},
        **{'labels': None, 'file_column': '', 'label_column': '', 'dry_run': False},
    }


def test_linked_class_folders__are_followed_without_cycles(folder: pathlib.Path) -> None:
    outside = folder.parent / 'outside'
    outside.mkdir()
    shutil.copytree(next(path for path in sorted(folder.iterdir()) if path.is_dir()), outside / 'linked class')
    (folder / 'linked class').symlink_to(outside / 'linked class')
    (folder / 'linked class' / 'circle').symlink_to(folder)
    found = class_folders.find_images(str(folder))
    (images,) = found.splits
    classes = [image.class_name for image in images]
    assert classes.count('linked class') > 0
    assert not [image for image in images if 'circle' in image.path]
    assert (str(folder / 'linked class' / 'circle'), 'leads to a folder that is read already') in found.left_out


def test_training_images_alone(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    data_dir = tmp_path / 'records'
    done = run_from_folder(folder, data_dir, '--validation_fraction=0')
    assert (done.returncode, done.stdout) == (
        0,
        f'50 training and 0 validation images of 5 classes in {data_dir}\n',
    )
    assert not [*data_dir.glob('validation-*')]
    info = dataset_info.read(str(data_dir))
    assert info is not None and (info.train_images, info.validation_images) == (50, 0)
    # The audit expects no validation files, and takes the same fingerprint.
    report = audit(Source(str(data_dir)), None, True, 1, lambda count: None)
    assert report['can_be_trained_on'], report['errors']
    assert report['fingerprint']['agree']
    # A run may train on it, but not evaluate.
    arguments = ['program', f'--data_dir={data_dir}', '--train_batch_size=8', '--use_tpu=False']
    assert data_set.fit_to_data_set(flags.parse([*arguments, '--mode=train'])).num_train_images == 50
    for mode in ('eval', 'train_and_eval'):
        with pytest.raises(ConfigError) as error:
            data_set.fit_to_data_set(flags.parse([*arguments, f'--mode={mode}']))
        assert str(error.value) == (
            f'--mode={mode}: the data set in {data_dir} has no validation images, as its dataset.json says. Name '
            'others with --eval_files, or only train, with --mode=train.'
        )


def test_validation_images_of_another_folder(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    save_class(tmp_path / 'other', 'cat', range(11, 14))
    save_class(tmp_path / 'other', 'coffee', range(12, 14))
    data_dir = tmp_path / 'records'
    done = run_from_folder(folder, data_dir, f'--validation_folder={tmp_path / "other"}')
    assert done.returncode == 0, done.stderr
    assert done.stdout == f'50 training and 5 validation images of 5 classes in {data_dir}\n'
    labels = {image.text: image.label for image in stored(data_dir, records.TRAIN)}
    validation = stored(data_dir, records.VALIDATION)
    assert sorted(image.filename for image in validation) == sorted(image_files(tmp_path / 'other'))
    for image in validation:
        assert image.encoded == image_files(tmp_path / 'other')[image.filename].read_bytes()
        assert image.label == labels[image.text] and image.filename.startswith(image.text)


def test_validation_folder__with_classes_that_are_not_trained_on(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    save_class(tmp_path / 'other', 'cat', range(3))
    (tmp_path / 'other' / 'cat').rename(tmp_path / 'other' / 'cats')
    done = run_from_folder(folder, tmp_path / 'records', f'--validation_folder={tmp_path / "other"}')
    assert (done.returncode, done.stdout) == (2, '')
    assert f'{tmp_path / "other"}: validation images of classes without training images: cats. The classes with ' in (
        done.stderr
    )


def test_validation_folder__beside_other_validation_images(tmp_path: pathlib.Path, folder: pathlib.Path) -> None:
    for part in ('train', 'val'):
        save_class(tmp_path / 'split' / part, 'cat', range(3))
    done = run_from_folder(tmp_path / 'split', tmp_path / 'records', f'--validation_folder={folder}')
    assert done.returncode == 2
    assert f'has validation images of its own, in {tmp_path / "split" / "val"}. To leave them out, name ' in done.stderr
    done = run_from_folder(folder, tmp_path / 'records', f'--validation_folder={folder}', '--validation_fraction=0.2')
    assert done.returncode == 2
    assert '--validation_fraction, --validation_folder: give one of the two.' in done.stderr


def test_dry_run__shows_all_classes_and_writes_nothing(tmp_path: pathlib.Path) -> None:
    for number in range(30):
        (tmp_path / 'images' / f'{number:02d}').mkdir(parents=True)
        (tmp_path / 'images' / f'{number:02d}' / 'a.jpg').touch()
    (tmp_path / 'images' / 'notes.txt').touch()
    (tmp_path / 'records.refused.tsv').write_text('of an earlier conversion')
    done = run_from_folder(tmp_path / 'images', tmp_path / 'records', '--dry_run')
    assert (done.returncode, done.stderr) == (0, '')
    lines = done.stdout.splitlines()
    assert lines[0] == 'not split: 30 images of 30 classes'
    assert lines[1:31] == [f'  {number:02d}: 1 image, as {tmp_path}/images/{number:02d}/a.jpg' for number in range(30)]
    assert lines[31:] == ['left out: 1 file or folder (not an image)']
    assert sorted(path.name for path in tmp_path.iterdir()) == ['images', 'records.refused.tsv']
    assert (tmp_path / 'records.refused.tsv').read_text() == 'of an earlier conversion'
    # A conversion lists the first 20 classes.
    done = run_from_folder(tmp_path / 'images', tmp_path / 'records')
    assert '  19: 1 image' in done.stderr and '  20: 1 image' not in done.stderr
    assert '  and 10 more, which --dry_run lists\n' in done.stderr


@pytest.mark.parametrize('options', [['--labels=x', '--no_splits'], ['--labels=x', '--validation_folder=y']])
def test_labels_with_options_of_folders_are_refused(options: Any, folder: pathlib.Path) -> None:
    done = run_from_folder(folder, folder.parent / 'records', *options)
    assert done.returncode == 2 and '--labels: a table has no splits' in done.stderr
    done = run_from_folder(folder, folder.parent / 'records', '--label_column=2')
    assert done.returncode == 2 and 'are columns of --labels, which is missing' in done.stderr
