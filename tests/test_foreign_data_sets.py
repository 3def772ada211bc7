"""The sizes and the classes of data sets that patterns or folders name."""

import pathlib
from typing import Any, List

import pytest

from data.braces import PatternError
from data.dataset_info import DatasetInfo
from data.records import DataError
from data.sources import source_of
from inception_v3 import data_set, flags
from inception_v3.config import Config, ConfigError
from inception_v3.input.evaluation_shares import images_of_hosts
from tests.data.test_file_patterns import touched
from tests.data.written_records import written
from tests.support.foreign_records import write_foreign
from tests.support.photos import Photo


def fitted(*arguments: str) -> Config:
    return data_set.fit_to_data_set(flags.parse(['program', *arguments]))


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> str:
    """Folders `train` and `val` with 2 + 3 and 4 records, and other files with 6."""
    for name, counts in (('train', [2, 3]), ('val', [4]), ('other', [6])):
        (tmp_path / name).mkdir()
        for path in written(tmp_path / name, 'train', counts):
            pathlib.Path(path).rename(path.replace('train-0000', 'part'))
    return str(tmp_path)


def sizes(config: Config) -> List[int]:
    return [config.num_train_images, config.num_eval_images, config.num_classes]


def test_sizes__are_counted_in_folders_and_patterns(folder: str, caplog: Any) -> None:
    caplog.set_level('INFO')
    assert sizes(fitted(f'--data_dir={folder}', '--num_classes=4')) == [5, 4, 4]
    assert f'--data_dir={folder}: counting the records of 2 training files, which --num_train_images=N avoids' in (
        caplog.messages
    )
    assert sizes(fitted(f'--train_files={folder}/*/part*,{folder}/other/../val/p*', f'--data_dir={folder}'))[0] == 19
    assert sizes(fitted(f'--data_dir={folder}', '--eval_files=other/p*', '--num_train_images=77'))[:2] == [77, 6]
    # A run that does not evaluate needs no validation files, and the other way round.
    assert sizes(fitted(f'--train_files={folder}/other/*', '--mode=train'))[0] == 6
    assert sizes(fitted(f'--eval_files={folder}/other/*', '--mode=eval'))[1] == 6
    assert fitted(f'--data_dir={folder}', '--train_epochs=20', '--train_batch_size=8').train_steps == 13


def test_sizes__of_other_files_than_dataset_json_describes(folder: str) -> None:
    info = DatasetInfo('mine', 'here', 5, 4, 3, ['background', 'cat', 'dog'], '0' * 64, [4])
    info.write(folder)
    config = fitted(f'--data_dir={folder}')
    assert sizes(config) == [5, 4, 3] and data_set.description_of(config) == info
    same = fitted(f'--data_dir={folder}', '--train_files=train/*')
    assert sizes(same) == [5, 4, 3] and data_set.description_of(same) == info
    other = fitted(f'--data_dir={folder}', '--train_files=other/*')
    described = data_set.description_of(other)
    assert sizes(other) == [6, 4, 3] and described is not None
    # The classes are the same, the images are not.
    assert (described.class_names, described.fingerprint, described.train_images) == (info.class_names, '', 6)
    assert sizes(fitted(f'--data_dir={folder}', '--train_files=other/*', '--num_train_images=7'))[0] == 7
    with pytest.raises(ConfigError, match=r'--num_train_images=7: the data set in .* has 5 training images'):
        fitted(f'--data_dir={folder}', '--num_train_images=7')
    assert images_of_hosts(other, 1) == [4]
    assert images_of_hosts(fitted(f'--data_dir={folder}', '--eval_files=*/part*'), 2) == [6 + 3, 2 + 4]


def test_presets__with_patterns(folder: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(folder)
    patterns = ['--train_files=train/*', '--eval_files=val/*']
    # Not relative to the folder of the digits, which are not made.
    assert not data_set.makes_digits(flags.parse(['program', '--preset=digits', *patterns]))
    assert sizes(fitted('--preset=digits', *patterns)) == [5, 4, 11]
    assert fitted('--preset=own_images', *patterns, '--num_classes=3').train_batch_size == 4
    with pytest.raises(
        ConfigError, match=r'no dataset\.json\. .*or give --train_files, --eval_files and --num_classes'
    ):
        fitted('--preset=own_images', *patterns)


@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        (['--train_files=train/*'], ConfigError, '--data_dir: name the folder .* --train_files and --eval_files'),
        (['--train_files=train/{0..'], ConfigError, '--train_files=train/{0..: an opening brace without a closing'),
        (['--train_files=a', '--train_files=b'], PatternError, '--train_files: given 2 times'),
        (['--image_key='], ConfigError, '--image_key=: must be a key of the records, such as image/encoded'),
        (['--image_key=x', '--label_key=x'], ConfigError, '--label_key=x: must not be --image_key'),
        (['--data_format=tar', '--label_key=a/b'], ConfigError, '--label_key=a/b: is for TFRecord files.*json:NAME'),
        (['--data_format=tar', '--label_key=jpg'], ConfigError, '--label_key=jpg: is for TFRecord files'),
        (['--data_format=tar', '--image_key=txt'], ConfigError, '--image_key=txt: is for TFRecord files'),
        (['--label_offset=0.5'], ConfigError, '--label_offset.*must be a whole number'),
        (['--use_data=fake', '--train_files=x'], ConfigError, '--train_files=x: has no effect with --use_data=fake'),
        (['--data_dir=.', '--train_files=empty/*'], DataError, '--train_files=empty/[*]: no records'),
        (['--data_dir=.', '--train_files=void/*'], DataError, '--train_files=void/[*]: no file matches'),
    ],
)
def test_refused(arguments: List[str], error: Any, message: str, folder: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(folder)
    touched(pathlib.Path(folder), 'empty/part')
    with pytest.raises(error, match=message):
        fitted(*arguments)


def test_notes__on_training_files_that_are_evaluated(folder: str) -> None:
    config = fitted(f'--data_dir={folder}', '--eval_files=train/*')
    notes = [*data_set.notes_on_files(config, 'train', source_of(config).find('train'))]
    assert notes == ['--eval_files=train/*: 2 of these files are also training files']


def test_check_data__of_the_keys(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    path = write_foreign(tmp_path / 'train' / 'some', photos[:2])
    flags_of = [f'--data_dir={tmp_path}', '--mode=train', '--use_tpu=False', '--model_dir=m']
    config = fitted(*flags_of)
    with pytest.raises(DataError, match=f'{path}, record 0: no image: image/encoded must .* --image_key=picture looks'):
        data_set.check_data(config)
    # A run that may skip records may skip this one.
    data_set.check_data(fitted(*flags_of, '--max_bad_records=1'))
