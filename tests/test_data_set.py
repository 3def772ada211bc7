"""Tests of a run's data set: description, patterns, checks of its files, and the settings that follow from it."""

import dataclasses
import os
import pathlib
import shutil
from typing import Any, Dict, List, Tuple

import pytest

from compat.errors import CommandError
from data.dataset_info import DatasetInfo
from data.records import DataError
from inception_v3 import data_set, flags
from inception_v3.config import Config, ConfigError
from inception_v3.fitting import fit_to_data_set, makes_digits
from inception_v3.presets import steps_of
from inception_v3.run.summary import warnings_of
from inception_v3.tpu.slices import images_of_hosts
from tests.data.test_sources import touched
from tests.data.written_records import written
from tests.support.foreign_records import write_foreign
from tests.support.photos import Photo
from tests.support.records import write_records
from tools.datasets import image_example

MINE = DatasetInfo('mine', 'here', 10, 5, 3, ['background', 'cat', 'dog'])


def command_line(*arguments: str) -> flags.CommandLine:
    return flags.parse(['program', *arguments])


def fitted(*arguments: str) -> Config:
    return fit_to_data_set(command_line(*arguments))


@pytest.fixture
def folder(tmp_path: Any) -> str:
    """A folder with a description, and with files of one training record each."""
    MINE.write(str(tmp_path))
    for split in ('train', 'validation'):
        write_records(tmp_path, split, [b'a'])
    (tmp_path / 'train-00000-of-00001').rename(tmp_path / 'train-00001-of-00004')
    shutil.copy(f'{tmp_path}/train-00001-of-00004', f'{tmp_path}/train-00002-of-00004')
    return str(tmp_path)


def test_fit_to_data_set__takes_the_sizes_of_the_description(folder: str) -> None:
    config = fitted(f'--data_dir={folder}', f'--num_train_images={MINE.train_images}')
    assert (config.num_train_images, config.num_eval_images, config.num_classes) == (10, MINE.validation_images, 3)
    for flag, images, instead in (
        ('num_train_images', '10 training', ''),
        ('num_eval_images', '5 validation', '; --eval_total_size evaluates fewer of them'),
    ):
        with pytest.raises(ConfigError) as error:
            fitted(f'--data_dir={folder}', f'--{flag}=4')
        assert str(error.value) == (
            f'--{flag}=4: the data set in {folder} has {images} images, as its dataset.json says. Leave the flag out'
            f'{instead}.'
        )
    for classes in (3, 4):
        given = fitted(f'--data_dir={folder}', f'--num_classes={classes}')
        assert given.num_classes == classes
    with pytest.raises(ConfigError) as error:
        fitted(f'--data_dir={folder}', '--num_classes=2')
    assert str(error.value) == (
        f'--num_classes=2: the data set in {folder} has 3 classes, including the background. Give at least that many, '
        'or leave the flag out.'
    )
    # More classes than the preset has.
    dataclasses.replace(MINE, num_classes=12, class_names=[*map(str, range(12))]).write(folder)
    assert fitted('--preset=digits', f'--data_dir={folder}').num_classes == 12


def test_fit_to_data_set__refuses_evaluation_without_validation_images(folder: str) -> None:
    dataclasses.replace(MINE, validation_images=0).write(folder)
    for mode in ('eval', 'train_and_eval'):
        with pytest.raises(ConfigError) as error:
            fitted(f'--data_dir={folder}', f'--mode={mode}')
        assert str(error.value) == (
            f'--mode={mode}: the data set in {folder} has no validation images, as its dataset.json says. Name others '
            'with --eval_files, or only train, with --mode=train.'
        )
    # A run that reads no validation images keeps their default number.
    config = fitted(f'--data_dir={folder}', '--mode=train')
    assert (config.num_train_images, config.num_eval_images) == (10, 50000)


def test_fit_to_data_set__keeps_the_settings_of_undescribed_images(tmp_path: Any) -> None:
    for flag in ('--use_data=fake', f'--data_dir={tmp_path}'):
        assert fitted(flag) == command_line(flag).config


def test_fit_to_data_set__fine_tuning_needs_weights(folder: str) -> None:
    preset = ['--preset=finetune', f'--data_dir={folder}']
    with pytest.raises(ConfigError, match='--preset=finetune: needs --init_from'):
        fitted(*preset)
    assert fitted(*preset, '--init_from=run').init_from == 'run'
    # A separate command evaluates the checkpoints.
    assert fitted(*preset, '--mode=eval').head_learning_rate == 0.4


def test_description_of__is_none_for_fake_images(folder: str) -> None:
    config = Config(data_dir=folder)
    assert data_set.description_of(config) == MINE
    assert data_set.description_of(dataclasses.replace(config, use_data='fake')) is None


def test_makes_digits__only_in_the_folder_of_the_preset_and_once(
    digits_dir: str, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert makes_digits(command_line('--preset=digits')) and not makes_digits(command_line())
    # The last folder is the one that the preset names.
    for others in ('--data_dir=mine', '--use_data=fake', '--train_files=train/*', '--data_dir=runs/digits_data'):
        assert not makes_digits(command_line('--preset=digits', others))
    os.mkdir('runs')
    os.symlink(digits_dir, 'runs/digits_data')
    assert not makes_digits(command_line('--preset=digits'))


def test_check_files__training_needs_more_records_than_may_be_skipped(folder: str) -> None:
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
    # In evaluation, a host without images feeds padding, but some host must have images.
    data_set.check_files(config, 'validation', [full, empty])
    write_records(folder, 'validation', [])
    with pytest.raises(DataError, match='validation-00000-of-00001: no records'):
        data_set.check_data(Config(use_tpu=False, data_dir=folder))


def test_check_data__logs_missing_and_unused_files(folder: str, caplog: Any) -> None:
    for number in range(11):
        open(f'{folder}/train-{number:02d}', 'w').close()
    data_set.check_data(Config(use_tpu=False, data_dir=folder))
    named = ', '.join(f'train-{number:02d}' for number in range(10))
    assert caplog.messages == [
        f'warning: --data_dir={folder}: train records: 2; dataset.json says 10.',
        f'warning: --data_dir={folder}: the data set is incomplete: 2 of 4 train files are missing, the first is '
        'train-00000-of-00004. The others are read.',
        f'warning: --data_dir={folder}: not read, because not named like train-00001-of-00004: {named}, and 1 more',
        f'warning: --data_dir={folder}: validation records: 1; dataset.json says 5.',
        f'warning: --data_dir={folder}: 1 of these 1 files are also training files, which overstates the accuracy: '
        'validation-00000-of-00001',
    ]
    # Fake images need no files.
    data_set.check_data(Config(use_data='fake', data_dir='/no/such/folder'))


def test_check_data__names_validation_files_that_are_training_files(tmp_path: pathlib.Path) -> None:
    write_records(tmp_path / 'a', 'train', [b'a' * 100_000, b'b'])
    write_records(tmp_path / 'a', 'validation', [b'a' * 100_000, b'c'])
    config = Config(use_tpu=False, data_dir=str(tmp_path / 'a'), mode='eval')
    assert data_set.check_data(config) == []
    shutil.copy(f'{tmp_path}/a/train-00000-of-00001', f'{tmp_path}/copy')
    for patterns in ('train-*', f'{tmp_path}/copy'):
        (note,) = data_set.check_data(dataclasses.replace(config, eval_files=patterns))
        assert '1 of these 1 files are also training files, which overstates the accuracy: ' in note
    # Without a description, only the other split shows where labels begin.
    for split, first in (('train', 1), ('validation', 0)):
        examples = [image_example.make_example(b'a', 'JPEG', first + n, '', 1, 1, '') for n in range(3)]
        write_records(tmp_path / 'b', split, [example.SerializeToString() for example in examples])
    (note,) = data_set.check_data(dataclasses.replace(config, data_dir=str(tmp_path / 'b')))
    assert 'the labels of the splits seem to be shifted' in note


def test_check_data__compares_numbered_files_with_the_description(foreign: str) -> None:
    info = DatasetInfo('mine', 'here', 5, 4, 3, ['background', 'cat', 'dog'], '0' * 64, [2, 2])
    info.write(foreign)
    config = Config(use_tpu=False, data_dir=foreign, mode='eval')
    (note,) = data_set.check_data(config)
    assert note.endswith('incomplete: 1 validation files, and dataset.json describes 2. The others are read.')


# A batch of 48 has 16 lanes, which 4 hosts can divide, but 3 cannot: they have 12. A batch of 40 has 8, but 10 for 5.
@pytest.mark.parametrize(
    ('cores', 'hosts', 'batch', 'lanes', 'notes'),
    [(8, 4, 48, 16, 0), (6, 3, 48, 16, 1), (10, 5, 40, 8, 1), (3, 3, 45, 15, 0)],
)
def test_notes_on_files__name_hosts_that_change_the_order_of_a_seed(
    cores: int, hosts: int, batch: int, lanes: int, notes: int, folder: str
) -> None:
    tpu: Dict[str, Any] = {'tpu': f'emulated:{cores}x{hosts}', 'num_shards': cores}
    config = Config(data_dir=folder, train_batch_size=batch, num_train_images=1000, **tpu)
    for seed, expected in ((0, notes), (None, 0)):
        seeded = dataclasses.replace(config, seed=seed)
        found = [*data_set.notes_on_files(seeded, 'train', config.source.find('train'))]
        message = (
            f'--seed=0: with {hosts} hosts, batches have other images than with any number of hosts that divides '
            f'{lanes}.'
        )
        assert [note for note in found if note.startswith('--seed')] == [message] * expected
        # Only training has an order.
        assert not any(note.startswith('--seed') for note in data_set.notes_on_files(seeded, 'validation', [folder]))


# Sizes and classes of data sets that patterns or folders name.
@pytest.fixture
def foreign(tmp_path: pathlib.Path) -> str:
    """Folders `train` and `val` with 2 + 3 and 4 records, and other files with 6."""
    for name, counts in (('train', [2, 3]), ('val', [4]), ('other', [6])):
        (tmp_path / name).mkdir()
        for path in written(tmp_path / name, 'train', counts):
            pathlib.Path(path).rename(path.replace('train-0000', 'part'))
    return str(tmp_path)


def sizes(config: Config) -> List[int]:
    return [config.num_train_images, config.num_eval_images, config.num_classes]


def test_sizes__are_counted_in_folders_and_patterns(foreign: str, caplog: Any) -> None:
    assert sizes(fitted(f'--data_dir={foreign}', '--num_classes=4')) == [5, 4, 4]
    assert f'--data_dir={foreign}: counting the records of 2 training files, which --num_train_images=N avoids' in (
        caplog.messages
    )
    assert sizes(fitted(f'--train_files={foreign}/*/part*,{foreign}/other/../val/p*', f'--data_dir={foreign}'))[0] == 19
    assert sizes(fitted(f'--data_dir={foreign}', '--eval_files=other/p*', '--num_train_images=77'))[:2] == [77, 6]
    # A run that does not evaluate needs no validation files, and the other way round.
    assert sizes(fitted(f'--train_files={foreign}/other/*', '--mode=train'))[0] == 6
    assert sizes(fitted(f'--eval_files={foreign}/other/*', '--mode=eval'))[1] == 6
    assert fitted(f'--data_dir={foreign}', '--train_epochs=20', '--train_batch_size=8').train_steps == 13


def test_sizes__of_files_that_dataset_json_does_not_describe_are_counted(foreign: str) -> None:
    info = DatasetInfo('mine', 'here', 5, 4, 3, ['background', 'cat', 'dog'], '0' * 64, [4])
    info.write(foreign)
    config = fitted(f'--data_dir={foreign}')
    assert sizes(config) == [5, 4, 3] and data_set.description_of(config) == info
    same = fitted(f'--data_dir={foreign}', '--train_files=train/*')
    assert sizes(same) == [5, 4, 3] and data_set.description_of(same) == info
    other = fitted(f'--data_dir={foreign}', '--train_files=other/*')
    described = data_set.description_of(other)
    assert sizes(other) == [6, 4, 3] and described is not None
    # The classes are the same, the images are not.
    assert (described.class_names, described.fingerprint) == (info.class_names, '')
    assert (described.train_images, described.validation_images) == (6, 4)
    assert sizes(fitted(f'--data_dir={foreign}', '--train_files=other/*', '--num_train_images=7'))[0] == 7
    with pytest.raises(ConfigError, match=r'--num_train_images=7: the data set in .* has 5 training images'):
        fitted(f'--data_dir={foreign}', '--num_train_images=7')
    assert images_of_hosts(other, 1) == [4]
    assert images_of_hosts(fitted(f'--data_dir={foreign}', '--eval_files=*/part*'), 2) == [6 + 3, 2 + 4]


def test_presets__take_patterns_relative_to_the_working_folder(foreign: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(foreign)
    patterns = ['--train_files=train/*', '--eval_files=val/*']
    # The patterns are not relative to the folder of the digits, which are not made.
    assert sizes(fitted('--preset=digits', *patterns)) == [5, 4, 11]
    own = ['--preset=own_images', *patterns]
    assert fitted(*own, '--num_classes=3').train_batch_size == 4
    given = fitted(*own, '--num_classes=3', '--num_train_images=9', '--num_eval_images=2')
    assert (sizes(given), given.train_batch_size, given.eval_batch_size) == ([9, 2, 3], 8, 2)
    with pytest.raises(
        ConfigError,
        match=r': the data set has no dataset\.json\. .*or give --train_files, --eval_files and --num_classes',
    ):
        fitted('--preset=own_images', *patterns)


@pytest.mark.parametrize(
    ('arguments', 'error', 'message'),
    [
        ([], ConfigError, '--data_dir: name the folder of the record files'),
        (['--train_files=train/*'], ConfigError, '--data_dir: name the folder .* --train_files and --eval_files'),
        (['--train_files=train/{0..'], ConfigError, '--train_files=train/{0..: an opening brace without a closing'),
        (['--train_files=a', '--train_files=b'], CommandError, '--train_files: given 2 times'),
        (['--image_key='], ConfigError, '--image_key=: must be a key of the records, such as image/encoded'),
        (['--image_key=x', '--label_key=x'], ConfigError, '--label_key=x: must not be --image_key'),
        (['--data_format=tar', '--label_key=a/b'], ConfigError, '--label_key=a/b: is for TFRecord files.*json:NAME'),
        (['--data_format=tar', '--label_key=jpg'], ConfigError, '--label_key=jpg: is for TFRecord files'),
        (['--data_format=tar', '--image_key=txt'], ConfigError, '--image_key=txt: is for TFRecord files'),
        (['--label_offset=0.5'], ConfigError, '--label_offset.*must be a whole number'),
        (['--use_data=fake', '--train_files=x'], ConfigError, '--train_files=x: has no effect with --use_data=fake'),
        (
            ['--data_dir=train', '--preset=own_images'],
            ConfigError,
            r'--preset=own_images: train has no dataset\.json\. Make the data set with inc',
        ),
        (['--data_dir=empty', '--preset=own_images', '--num_classes=3'], ConfigError, r'has no dataset\.json'),
        (['--use_tpu=False', '--train_epochs=inf'], ConfigError, '--train_epochs'),
        (['--use_tpu=False', '--epochs_per_eval=-1'], ConfigError, '--epochs_per_eval'),
        (
            ['--train_steps=9', '--train_epochs=2'],
            ConfigError,
            '--train_epochs=2.0: replaces --train_steps.* here --train_steps=9',
        ),
        (['--data_dir=.', '--train_files=empty/*'], DataError, '--train_files=empty/[*]: no records'),
        (['--data_dir=.', '--train_files=void/*'], DataError, '--train_files=void/[*]: no file matches'),
    ],
)
def test_fit_to_data_set__refuses_wrong_files_and_patterns(
    arguments: List[str], error: Any, message: str, foreign: str, monkeypatch: Any
) -> None:
    monkeypatch.chdir(foreign)
    touched(pathlib.Path(foreign), 'empty/part')
    with pytest.raises(error, match=message):
        fitted(*arguments)


def test_notes__name_training_files_that_are_evaluated(foreign: str) -> None:
    config = fitted(f'--data_dir={foreign}', '--eval_files=train/*')
    (note,) = data_set.notes_on_files(config, 'validation', config.source.find('validation'))
    assert note.startswith('--eval_files=train/*: 2 of these 2 files are also training files')


def test_check_data__names_a_key_that_the_first_record_lacks(photos: List[Photo], tmp_path: pathlib.Path) -> None:
    path = write_foreign(tmp_path / 'train' / 'some', photos[:2])
    flags_of = [f'--data_dir={tmp_path}', '--mode=train', '--use_tpu=False', '--model_dir=m']
    config = fitted(*flags_of)
    with pytest.raises(DataError, match=f'{path}, record 0: no image: image/encoded must .* has the keys fine_'):
        data_set.check_data(config)
    # A run that may skip records may skip this one.
    data_set.check_data(fitted(*flags_of, '--max_bad_records=1'))


def fitted_steps(*arguments: str) -> Tuple[int, int]:
    # 1,000 fake images.
    always = ('--use_tpu=False', '--use_data=fake', '--num_train_images=1000', '--train_batch_size=30')
    config = fitted(*always, *arguments)
    return config.train_steps, config.train_steps_per_eval


def test_fit_to_data_set__computes_the_steps(digits_dir: str) -> None:
    assert [steps_of(*each) for each in ((0.1, 1000, 10), (0.5, 3, 8), (3, 7, 7))] == [10, 1, 3]
    # A part of a step counts, unless floats round to it.
    assert [steps_of(*each) for each in ((1.0000004, 10**7, 10**6), (1.00000004, 10**7, 10**6))] == [11, 10]
    # 33.3 steps per epoch.
    assert fitted_steps('--train_epochs=2', '--epochs_per_eval=0.5') == (67, 17)
    assert fitted_steps('--train_epochs=2', '--train_steps_per_eval=5') == (67, 5)
    # The steps of the preset, unless steps are given.
    assert fitted_steps('--preset=cifar10_stream') == (334, 34)
    assert fitted_steps('--preset=cifar10_stream', '--train_steps=7') == (7, 34)
    assert fitted_steps('--preset=cifar10_stream', '--train_steps_per_eval=5') == (334, 5)
    # 1,438 digits in batches of 32: 89.9 steps; four evaluations.
    config = fitted('--preset=own_images', f'--data_dir={digits_dir}', '--train_epochs=2')
    assert (config.train_steps, config.train_steps_per_eval) == (90, 23)


def test_parse__counts_the_steps_of_the_images_that_are_known() -> None:
    # Steps for ImageNet, in batches of the preset, before a data set is named: plan and preflight begin with these.
    config = command_line('--preset=imagenet_large_batch', '--train_epochs=10').config
    assert (config.train_steps, config.train_steps_per_eval) == (-(-10 * 1281167 // 4096), 2000)
    # A profile after the preset's 750 steps, within the 2,247 of 50 epochs.
    config = command_line('--preset=digits', '--train_epochs=50', '--profile_steps=2001,2010').config
    assert config.train_steps == 2247
    # The preset's 1,000 steps are for another number of images.
    assert command_line('--preset=own_images', '--profile_steps=1101,1110').config.profiled_steps == (1101, 1110)
    with pytest.raises(ConfigError, match=r'--train_epochs=1e\+305: must be .*at most 1000000'):
        command_line('--train_epochs=1e305')


# The settings that --preset=own_images derives from the size of a data set.
def of_images(folder: pathlib.Path, train: int, validation: int, *arguments: str) -> Config:
    """The configuration of a run on a data set of 3 classes."""
    info = DatasetInfo('flowers', 'a test', train, validation, 4, ['background', 'a', 'b', 'c'], 'f' * 64)
    info.write(str(folder))
    return fitted('--preset=own_images', f'--data_dir={folder}', '--model_dir=unused', *arguments)


@pytest.mark.parametrize(
    ('train', 'expected'),
    [
        # 32,000 images, or 20 epochs of more than 1,600 images. Moving statistics average over 1,280 images.
        (1, {'train_batch_size': 2, 'batch_norm_decay': 0.9984}),
        (81, {'train_batch_size': 32, 'batch_norm_decay': 0.975, 'train_steps': 1000, 'height': 96}),
        (20, {'train_batch_size': 16, 'train_steps': 2000, 'depth_multiplier': 0.25, 'width': 96}),
        (4999, {'train_batch_size': 32, 'train_steps': 3125, 'depth_multiplier': 0.25, 'width': 96}),
        (5000, {'train_steps': 3125, 'depth_multiplier': 0.5, 'height': 160, 'width': 160}),
        (100_000, {'train_steps': 62_500, 'depth_multiplier': 1.0, 'height': 224, 'width': 224}),
    ],
)
def test_own_images__follow_from_the_number_of_images(train: int, expected: Dict[str, Any], tmp_path: Any) -> None:
    config = of_images(tmp_path, train, 9)
    assert {name: getattr(config, name) for name in expected} == expected
    assert (config.num_train_images, config.num_classes, config.eval_batch_size, config.use_tpu) == (train, 4, 9, False)
    assert config.train_steps_per_eval * 4 - config.train_steps in range(4)
    # A batch has at least two images.
    assert len([*warnings_of(config)]) == (train == 1)


def test_evaluation__has_the_training_images_of_its_run(foreign: str, tmp_path: pathlib.Path) -> None:
    run = tmp_path / 'run'
    run.mkdir()
    files = [f'--eval_files={foreign}/val/*', f'--model_dir={run}', '--num_classes=3', '--use_tpu=False']
    flags = [*files, f'--train_files={foreign}/train/*', '--train_epochs=8', '--train_batch_size=2']
    trained = fitted(*flags)
    # The run has not recorded its configuration yet.
    assert fitted(*flags, '--mode=eval').train_steps == trained.train_steps == 20
    for needs in ('--train_epochs=8', '--preset=own_images'):
        with pytest.raises(ConfigError, match=rf'^--mode=eval: {needs} needs the number .* Give --num_train_images'):
            fitted(*files, needs, '--mode=eval')
    # A preset may have the number of training images.
    digits = fitted(*files, '--preset=digits', '--data_dir=', '--train_epochs=2', '--mode=eval')
    assert digits.train_steps == -(-2 * 1438 // 32)
    # An evaluation needs no training files if the run has recorded their number.
    (run / 'config.json').write_text(trained.to_json())
    evaluating = [*files, '--train_epochs=8', '--train_batch_size=2', '--mode=eval']
    assert fitted(*evaluating).train_steps == 20
    assert fitted(*evaluating, '--num_train_images=50').train_steps == 200


def test_own_images__of_an_evaluation_are_the_network_and_steps_of_its_run(tmp_path: pathlib.Path) -> None:
    own = of_images(tmp_path, 81, 9)
    run = tmp_path / 'run'
    run.mkdir()
    (run / 'config.json').write_text(own.to_json())
    evaluating = ['--mode=eval', f'--model_dir={run}']
    # The training images of the evaluated set would give another network.
    evaluated = of_images(tmp_path, 6000, 5, *evaluating)
    for name in ('train_steps', 'depth_multiplier', 'height', 'train_batch_size', 'num_train_images'):
        assert getattr(evaluated, name) == getattr(own, name), name
    assert (evaluated.num_eval_images, evaluated.eval_batch_size) == (5, 5)
    (run / 'config.json').unlink()
    assert of_images(tmp_path, 6000, 5, *evaluating).depth_multiplier == 0.5


def test_own_images__given_flags_stay_and_others_follow_from_them(tmp_path: pathlib.Path) -> None:
    config = of_images(tmp_path, 81, 1000, '--train_steps=100', '--height=200', '--train_batch_size=8')
    assert (config.train_steps, config.height, config.width, config.train_batch_size) == (100, 200, 96, 8)
    # Averages over the last tenth of the steps, and so do moving statistics: 1,280 images would be more than that.
    assert (config.train_steps_per_eval, config.moving_average_decay, config.batch_norm_decay) == (25, 0.9, 0.9)
    assert config.eval_batch_size == 64
    # All replicas have the same number of images.
    config = of_images(tmp_path, 81, 41, '--num_gpus=3')
    assert (config.train_batch_size, config.eval_batch_size) == (33, 42)
    with pytest.raises(ConfigError, match=r'--profile_steps=981,982: .*up to --train_steps=970'):
        of_images(tmp_path, 81, 41, '--num_gpus=3', '--profile_steps=981,982')


def test_check_files__compares_records_and_files_with_a_description(folder: str) -> None:
    config, path = Config(use_tpu=False, data_dir=folder), f'{folder}/train-00001-of-00004'
    cases: List[Tuple[int, List[str]]] = [(1, ['train records: 2; dataset.json says 1.']), (2, []), (3, ['says 3.'])]
    for described, words in cases:
        dataclasses.replace(MINE, train_images=described).write(folder)
        notes = data_set.check_files(config, 'train', [path, path])
        assert len(notes) == len(words) and all(note.endswith(end) for note, end in zip(notes, words))
    validation = [f'{folder}/validation-00000-of-00001']
    for files in ([1], [0, 1]):
        info = dataclasses.replace(MINE, validation_images=1, validation_records_per_file=files)
        info.write(folder)
        # Missing files, which the names reveal, get another note.
        assert len(data_set.check_files(config, 'validation', validation)) == len(files) - 1


def test_overlap__names_three_files_at_most() -> None:
    paths = [f'/data/validation-{number}' for number in range(5)]
    assert data_set.overlap(paths[:4], paths) == (
        '4 of these 5 files are also training files, which overstates the accuracy: validation-0, validation-1, '
        'validation-2, and 1 more'
    )


def test_samples__are_of_eight_files_at_most_and_64_kib_of_both_ends(tmp_path: pathlib.Path) -> None:
    config = Config(use_tpu=False, data_dir=str(tmp_path), mode='train')

    def after(number: int, place: int) -> List[Any]:
        """The sample after a change of one byte of a file, which is then undone."""
        path = tmp_path / f'train-{number:05d}-of-00009'
        whole = path.read_bytes()
        path.write_bytes(whole[:place] + b'b' + whole[place + 1 :])
        sample = data_set.samples_of(config)['train']
        path.write_bytes(whole)
        return sample

    for number in range(9):
        (tmp_path / f'train-{number:05d}-of-00009').write_bytes(b'a' * 200_000)
    of_nine = data_set.samples_of(config)['train']
    # Every second file of nine, and all of eight.
    assert [after(number, 0) != of_nine for number in range(9)] == [True, False] * 4 + [True]
    os.remove(tmp_path / 'train-00008-of-00009')
    of_eight = data_set.samples_of(config)['train']
    assert all(after(number, 0) != of_eight for number in range(8))
    edge = 1 << 16
    for place, value in ((edge - 1, 1), (edge, 0), (200_000 - edge - 1, 0), (200_000 - edge, 2), (199_999, 2)):
        changed = [index for index, pair in enumerate(zip(after(0, place), of_eight)) if pair[0] != pair[1]]
        assert changed == [value] * (value > 0), place
