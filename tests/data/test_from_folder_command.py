"""The command python -m data.from_folder."""

import pathlib
import shutil
from typing import Any, Dict

import pytest

from data import from_folder, records
from tests.data.image_folders import SPLITS, save_class, stored
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
        ('--validation_fraction=0', 'must be between 0 and 1'),
        ('--validation_fraction=1', 'must be between 0 and 1'),
        ('--validation_fraction=nan', 'must be between 0 and 1'),
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
        **{'validation_shards': 4, 'skip_unreadable': False},
    }


def test_linked_class_folders__are_followed_without_cycles(folder: pathlib.Path) -> None:
    outside = folder.parent / 'outside'
    outside.mkdir()
    shutil.copytree(next(path for path in sorted(folder.iterdir()) if path.is_dir()), outside / 'linked class')
    (folder / 'linked class').symlink_to(outside / 'linked class')
    (folder / 'linked class' / 'circle').symlink_to(folder)
    images, others, _ = from_folder.find_images(str(folder))
    classes = [image.class_name for image in images]
    assert classes.count('linked class') > 0
    assert not [image for image in images if 'circle' in image.path]
    assert str(folder / 'linked class' / 'circle') in others
