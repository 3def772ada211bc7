"""Tests of the data set of a run: its description, its splits, and the checks of its files."""

import dataclasses
import os
from typing import Any, List

import pytest

from data.dataset_info import DatasetInfo
from data.records import DataError
from data.sources import source_of
from inception_v3 import data_set, flags
from inception_v3.config import Config, ConfigError
from tests.support.records import write_records

MINE = DatasetInfo('mine', 'here', 10, 5, 3, ['background', 'cat', 'dog'])


def command_line(*arguments: str) -> flags.CommandLine:
    return flags.parse(['program', *arguments])


@pytest.fixture
def folder(tmp_path: Any) -> str:
    """A folder with a description, and with files of one training record each."""
    MINE.write(str(tmp_path))
    write_records(tmp_path, 'train', [b'a'])
    os.rename(str(tmp_path / 'train-00000-of-00001'), str(tmp_path / 'train-00001-of-00004'))
    write_records(tmp_path, 'train', [b'a'])
    os.rename(str(tmp_path / 'train-00000-of-00001'), str(tmp_path / 'train-00002-of-00004'))
    write_records(tmp_path, 'validation', [b'a'])
    return str(tmp_path)


@pytest.mark.parametrize(
    ('mode', 'splits'), [('train', ['train']), ('eval', ['validation']), ('train_and_eval', ['train', 'validation'])]
)
def test_splits_of__a_mode(mode: str, splits: List[str]) -> None:
    assert data_set.splits_of(Config(mode=mode)) == splits


def test_fit_to_data_set__takes_the_sizes_of_the_description(folder: str) -> None:
    config = data_set.fit_to_data_set(command_line(f'--data_dir={folder}', f'--num_train_images={MINE.train_images}'))
    assert (config.num_train_images, config.num_eval_images, config.num_classes) == (10, MINE.validation_images, 3)
    for flag, kind in (('num_train_images', 'training'), ('num_eval_images', 'validation')):
        with pytest.raises(ConfigError, match=f'--{flag}=4: the data set in {folder} has [0-9]+ {kind} images, as its'):
            data_set.fit_to_data_set(command_line(f'--data_dir={folder}', f'--{flag}=4'))
    for classes in (3, 4):
        given = data_set.fit_to_data_set(command_line(f'--data_dir={folder}', f'--num_classes={classes}'))
        assert given.num_classes == classes
    with pytest.raises(ConfigError) as error:
        data_set.fit_to_data_set(command_line(f'--data_dir={folder}', '--num_classes=2'))
    assert str(error.value) == (
        f'--num_classes=2: the data set in {folder} has 3 classes, including the background. Give at least that many, '
        'or leave the flag out.'
    )


def test_fit_to_data_set__takes_more_classes_than_the_preset_has(folder: str) -> None:
    dataclasses.replace(MINE, num_classes=12, class_names=[*map(str, range(12))]).write(folder)
    assert data_set.fit_to_data_set(command_line('--preset=digits', f'--data_dir={folder}')).num_classes == 12


def test_fit_to_data_set__needs_a_folder_unless_the_images_are_fake(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match='--data_dir: name the folder of the record files'):
        data_set.fit_to_data_set(command_line())
    fake = command_line('--use_data=fake')
    assert data_set.fit_to_data_set(fake) == fake.config
    undescribed = command_line(f'--data_dir={tmp_path}')
    assert data_set.fit_to_data_set(undescribed) == undescribed.config


def test_fit_to_data_set__fine_tuning_needs_weights(folder: str) -> None:
    preset = ['--preset=finetune', f'--data_dir={folder}']
    with pytest.raises(ConfigError, match='--preset=finetune: needs --init_from'):
        data_set.fit_to_data_set(command_line(*preset))
    assert data_set.fit_to_data_set(command_line(*preset, '--init_from=run')).init_from == 'run'
    # A second command evaluates the checkpoints.
    assert data_set.fit_to_data_set(command_line(*preset, '--mode=eval')).head_learning_rate == 0.4


def test_description_of__is_none_for_fake_images(folder: str) -> None:
    config = Config(data_dir=folder)
    assert data_set.description_of(config) == MINE
    assert data_set.description_of(dataclasses.replace(config, use_data='fake')) is None


@pytest.mark.parametrize(
    ('arguments', 'makes'),
    [
        ([], True),
        (['--data_dir=mine'], False),
        # The folder that the preset names.
        (['--data_dir=runs/digits_data'], False),
        (['--use_data=fake'], False),
    ],
)
def test_makes_digits__for_the_folder_of_the_preset_alone(
    arguments: List[str], makes: bool, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert data_set.makes_digits(command_line('--preset=digits', *arguments)) == makes
    assert not data_set.makes_digits(command_line(*arguments))


def test_makes_digits__once(digits_dir: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir('runs')
    os.symlink(digits_dir, 'runs/digits_data')
    assert not data_set.makes_digits(command_line('--preset=digits'))


def test_check_files__more_records_than_may_be_skipped_in_training(folder: str) -> None:
    config = Config(use_tpu=False, data_dir=folder, model_dir='m', max_bad_records=1)
    train, validation = ([f'{folder}/{name}'] for name in ('train-00001-of-00004', 'validation-00000-of-00001'))
    with pytest.raises(DataError, match='1 records, and --max_bad_records=1 allows all of them to be skipped'):
        data_set.check_files(config, 'train', train)
    data_set.check_files(config, 'validation', validation)
    data_set.check_files(dataclasses.replace(config, max_bad_records=0), 'train', train)


def test_check_files__each_host_has_records_of_its_own(folder: str) -> None:
    # The second of two hosts reads every second file.
    write_records(f'{folder}/empty', 'train', [])
    full, empty = f'{folder}/train-00001-of-00004', f'{folder}/empty/train-00000-of-00001'
    config = Config(tpu='emulated:8x2', data_dir=folder)
    data_set.check_files(config, 'train', [full, full, empty, empty])
    with pytest.raises(DataError, match=f'^{empty} and the other files: no records'):
        data_set.check_files(config, 'train', [full, empty, full, empty])
    # In evaluation, a host without images feeds padding.
    data_set.check_files(config, 'validation', [full, empty])


def test_check_data__refuses_files_without_records(folder: str) -> None:
    write_records(folder, 'validation', [])
    with pytest.raises(DataError, match='validation-00000-of-00001: no records'):
        data_set.check_data(Config(use_tpu=False, data_dir=folder))


def test_check_data__logs_missing_and_unused_files(folder: str, caplog: Any) -> None:
    caplog.set_level('INFO')
    for number in range(11):
        open(f'{folder}/train-{number:02d}', 'w').close()
    data_set.check_data(Config(use_tpu=False, data_dir=folder))
    named = ', '.join(f'train-{number:02d}' for number in range(10))
    assert caplog.messages == [
        f'--data_dir={folder}: the data set is incomplete: 2 of 4 train files are missing, the first is '
        'train-00000-of-00004. The others are read.',
        f'--data_dir={folder}: not read, because not named like train-00001-of-00004: {named}, …',
    ]
    # Fake images need no files.
    data_set.check_data(Config(use_data='fake', data_dir='/no/such/folder'))


def test_notes_on_files__ten_unused_files_are_all_named(folder: str) -> None:
    for number in range(10):
        open(f'{folder}/validation-{number:02d}', 'w').close()
    (note,) = data_set.notes_on_files(Config(data_dir=folder), 'validation', [f'{folder}/validation-00000-of-00001'])
    assert note.endswith('validation-08, validation-09')


@pytest.mark.parametrize(('cores', 'hosts', 'notes'), [(8, 4, 0), (6, 3, 1)])
def test_notes_on_files__hosts_with_another_order_for_a_seed(cores: int, hosts: int, notes: int, folder: str) -> None:
    # A batch of 48 has 16 lanes, which 4 hosts can divide, but 3 cannot.
    config = Config(
        data_dir=folder,
        seed=3,
        tpu=f'emulated:{cores}x{hosts}',
        num_shards=cores,
        train_batch_size=48,
        eval_batch_size=cores,
        num_train_images=1000,
    )
    for seed, expected in ((3, notes), (None, 0)):
        seeded = dataclasses.replace(config, seed=seed)
        found = [*data_set.notes_on_files(seeded, 'train', source_of(config).find('train'))]
        message = '--seed=3: with 3 hosts, batches have other images than with any number of hosts that divides 16.'
        assert found.count(message) == expected
